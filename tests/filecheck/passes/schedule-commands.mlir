// RUN: starc-opt %s --machine ahbm -p schedule-commands | filecheck %s
// RUN: starc-opt %s --machine ahbm -p schedule-commands | starc-opt | filecheck %s
// RUN: starc-opt %s --machine ahbm -p 'schedule-commands{composites=none}' | filecheck %s --check-prefix=NONE
// RUN: not starc-opt %s --machine ahbm -p 'schedule-commands{attention-schedule=stateful}' 2>&1 | filecheck %s --check-prefix=STATE
// RUN: not starc-opt %s --machine ahbm -p 'schedule-commands{composites=all attention-schedule=eager}' 2>&1 | filecheck %s --check-prefix=ERROR

// STATE: error: schedule-commands: option 'attention-schedule' has no value 'stateful' on ahbm{{.*}}, one of blocking, pipelined
// STATE: hint: its composites carry no state
// ERROR: error: schedule-commands: option 'composites' has no value 'all', one of auto, none
// ERROR: error: schedule-commands: option 'attention-schedule' has no value 'eager', one of blocking, pipelined, stateful

kernel.buffer @x : tensor<32x512xbf16> {address = 0 : i64, bytes = 32768 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @w : tensor<512x64xbf16> {address = 32768 : i64, bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "weight"}
kernel.buffer @y : tensor<32x512xbf16> {address = 98304 : i64, bytes = 32768 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
isa.counter @done count 1

// What sets the accumulator, the loop, and what follows from it up to the store; a load that the
// epilogue needs too, and nothing behind.
// CHECK-LABEL: isa.kernel @epilogue
// CHECK-NEXT: %acc = isa.alloc
// CHECK-NEXT: %f = isa.alloc
// CHECK-NEXT: isa.composite {
// CHECK-NEXT: isa.vector "zero"(%acc)
// CHECK-NEXT: isa.loop
// CHECK-NEXT: %a = isa.alloc scratch slots 2
// CHECK: isa.matrix %acc
// CHECK-NEXT: }
// CHECK-NEXT: isa.load %f
// CHECK-NEXT: isa.vector "rescale"(%acc, %f)
// CHECK-NEXT: isa.store %acc
// CHECK-NEXT: }
// CHECK-NEXT: isa.signal
// NONE-LABEL: isa.kernel @epilogue
// NONE-NOT: isa.composite
// NONE: isa.matrix
isa.kernel @epilogue coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<32x64xf32>
  isa.vector "zero"(%acc) : !isa.tile<32x64xf32>
  isa.loop %k = [0] to [4] {
    %a = isa.alloc scratch : !isa.tile<32x128xbf16>
    %b = isa.alloc scratch : !isa.tile<128x64xbf16>
    isa.load %a, @x[0, %k * 128] : !isa.tile<32x128xbf16>
    isa.load %b, @w[%k * 128, 0] : !isa.tile<128x64xbf16>
    isa.matrix %acc, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>, !isa.tile<128x64xbf16>
  }
  %f = isa.alloc scratch : !isa.tile<32x1xbf16>
  isa.load %f, @x[0, 0] : !isa.tile<32x1xbf16>
  isa.vector "rescale"(%acc, %f) : !isa.tile<32x64xf32>, !isa.tile<32x1xbf16>
  isa.store %acc, @y[0, 0] : !isa.tile<32x64xf32>
  isa.signal @done[0] add [1]
}

// A loop that adds to what is there: its product is added behind.
// CHECK-LABEL: isa.kernel @adds
// CHECK: %product = isa.alloc register : !isa.tile<32x64xf32>
// CHECK-NEXT: isa.composite {
// CHECK-NEXT: isa.vector "zero"(%product)
// CHECK: isa.matrix %product, %a, %b
// CHECK: isa.vector "add"(%acc, %acc, %product)
// CHECK-NEXT: isa.store %acc
isa.kernel @adds coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<32x64xf32>
  isa.load %acc, @x[0, 0] : !isa.tile<32x64xf32>
  isa.loop %k = [0] to [4] {
    %a = isa.alloc scratch : !isa.tile<32x128xbf16>
    %b = isa.alloc scratch : !isa.tile<128x64xbf16>
    isa.load %a, @x[0, %k * 128] : !isa.tile<32x128xbf16>
    isa.load %b, @w[%k * 128, 0] : !isa.tile<128x64xbf16>
    isa.matrix %acc, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>, !isa.tile<128x64xbf16>
  }
  isa.store %acc, @y[0, 0] : !isa.tile<32x64xf32>
}

// Two products in a loop are no command; nor is a loop that waits.
// CHECK-LABEL: isa.kernel @two
// CHECK-NOT: isa.composite
isa.kernel @two coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<32x64xf32>
  %other = isa.alloc register : !isa.tile<32x64xf32>
  isa.vector "zero"(%acc) : !isa.tile<32x64xf32>
  isa.vector "zero"(%other) : !isa.tile<32x64xf32>
  isa.loop %k = [0] to [4] {
    %a = isa.alloc scratch : !isa.tile<32x128xbf16>
    %b = isa.alloc scratch : !isa.tile<128x64xbf16>
    isa.load %a, @x[0, %k * 128] : !isa.tile<32x128xbf16>
    isa.load %b, @w[%k * 128, 0] : !isa.tile<128x64xbf16>
    isa.matrix %acc, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>, !isa.tile<128x64xbf16>
    isa.matrix %other, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x128xbf16>, !isa.tile<128x64xbf16>
  }
  isa.loop %k = [0] to [4] {
    %a = isa.alloc scratch : !isa.tile<32x128xbf16>
    isa.wait @done[0] until [%k + 1]
    isa.load %a, @x[0, %k * 128] : !isa.tile<32x128xbf16>
    isa.vector "copy"(%a, %a) : !isa.tile<32x128xbf16>, !isa.tile<32x128xbf16>
  }
}

// Loads run ahead of stores, as far as the window allows; not where they may read what is stored.
// CHECK-LABEL: isa.kernel @copy
// CHECK: %t = isa.alloc scratch slots 5
// CHECK-NEXT: isa.load %t, @x[%i, 0]
// CHECK-NEXT: isa.store %t, @y[%i, 0] {stage = 4 : i64}
// CHECK: isa.loop
// CHECK: isa.load %u, @x[%{{.*}}, 0] :
// CHECK-NEXT: isa.store %u, @x[%{{.*}} + 1, 0] :
isa.kernel @copy coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  isa.loop %i = [0] to [32] {
    %t = isa.alloc scratch : !isa.tile<1x512xbf16>
    isa.load %t, @x[%i, 0] : !isa.tile<1x512xbf16>
    isa.store %t, @y[%i, 0] : !isa.tile<1x512xbf16>
  }
  isa.loop %i = [0] to [31] {
    %u = isa.alloc scratch : !isa.tile<1x512xbf16>
    isa.load %u, @x[%i, 0] : !isa.tile<1x512xbf16>
    isa.store %u, @x[%i + 1, 0] : !isa.tile<1x512xbf16>
  }
}

// What goes to other devices is not what is loaded here, and what they hold is fetched ahead, too;
// what a device may put to itself is not.
// CHECK-LABEL: isa.kernel @around
// CHECK: isa.load %t, @x[%i, 0]
// CHECK-NEXT: isa.put %t, @x[%i, 0] to [%next] {stage = 4 : i64}
// CHECK: isa.loop
// CHECK: isa.get %u, @x[%{{.*}}, 0] from [%next]
// CHECK-NEXT: isa.store %u, @y[%{{.*}}, 0] {stage = 4 : i64}
// CHECK: isa.loop
// CHECK: isa.load %v, @x[%{{.*}}, 0] :
// CHECK-NEXT: isa.put %v, @x[%{{.*}}, 0] to [%{{.*}} mod 4] :
isa.kernel @around coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  %next = isa.index [(%device + 1) mod 4]
  isa.loop %i = [0] to [32] {
    %t = isa.alloc scratch : !isa.tile<1x512xbf16>
    isa.load %t, @x[%i, 0] : !isa.tile<1x512xbf16>
    isa.put %t, @x[%i, 0] to [%next] : !isa.tile<1x512xbf16>
  }
  isa.loop %i = [0] to [32] {
    %u = isa.alloc scratch : !isa.tile<1x512xbf16>
    isa.get %u, @x[%i, 0] from [%next] : !isa.tile<1x512xbf16>
    isa.store %u, @y[%i, 0] : !isa.tile<1x512xbf16>
  }
  isa.loop %i = [0] to [32] {
    %v = isa.alloc scratch : !isa.tile<1x512xbf16>
    isa.load %v, @x[%i, 0] : !isa.tile<1x512xbf16>
    isa.put %v, @x[%i + 1, 0] to [%i mod 4] : !isa.tile<1x512xbf16>
  }
}

// Slots divide the trips of a loop that is repeated: 4 for 8, where 3 were asked for. A loop of one
// trip is no loop.
// CHECK-LABEL: isa.kernel @rounds
// CHECK: isa.loop %t
// CHECK: isa.composite {
// CHECK: isa.loop %k = [0] to [8] {
// CHECK-NEXT: %a = isa.alloc scratch slots 4
// CHECK: isa.composite {
// CHECK-NEXT: isa.vector "zero"
// CHECK-NEXT: %once = isa.index [5]
// CHECK-NEXT: %c = isa.alloc scratch slots 3
// CHECK-NEXT: isa.load %c, @x[0, %once * 64]
// CHECK-NEXT: isa.matrix
// CHECK-NEXT: }
isa.kernel @rounds coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc scratch : !isa.tile<32x32xf32>
  isa.loop %t = [0] to [%device] {
    isa.composite {
      isa.vector "zero"(%acc) : !isa.tile<32x32xf32>
      isa.loop %k = [0] to [8] {
        %a = isa.alloc scratch slots 3 : !isa.tile<32x32xbf16>
        isa.load %a, @x[0, %k * 64] : !isa.tile<32x32xbf16>
        isa.matrix %acc, %a, %a : !isa.tile<32x32xf32>, !isa.tile<32x32xbf16>, !isa.tile<32x32xbf16>
      }
    }
    isa.composite {
      isa.vector "zero"(%acc) : !isa.tile<32x32xf32>
      isa.loop %once = [5] to [6] {
        %c = isa.alloc scratch slots 3 : !isa.tile<32x32xbf16>
        isa.load %c, @x[0, %once * 64] : !isa.tile<32x32xbf16>
        isa.matrix %acc, %c, %c : !isa.tile<32x32xf32>, !isa.tile<32x32xbf16>, !isa.tile<32x32xbf16>
      }
    }
  }
}
