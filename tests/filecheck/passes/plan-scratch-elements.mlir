// RUN: starc-opt %s --machine ahbm -p plan-scratch | filecheck %s
// RUN: starc-opt %s --machine ahbm -p plan-scratch | starc-opt | filecheck %s

kernel.buffer @x : tensor<65536x512xbf16> {address = 0 : i64, bytes = 67108864 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// There is room: no two tiles share, and what would be in registers lies in scratch memory.
// CHECK-LABEL: isa.kernel @room
// CHECK-SAME: scratch_bytes = 49152 : i64, register_bytes = 0 : i64
// CHECK: %acc = isa.alloc scratch offset 32768 : !isa.tile<32x64xf32>
// CHECK: %a = isa.alloc scratch slots 2 offset 0 : !isa.tile<64x128xbf16>
// CHECK: %t = isa.alloc scratch offset 40960 : !isa.tile<32x64xf32>
isa.kernel @room coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<32x64xf32>
  isa.vector "zero"(%acc) : !isa.tile<32x64xf32>
  isa.loop %k = [0] to [1000] {
    %a = isa.alloc scratch slots 2 : !isa.tile<64x128xbf16>
    isa.load %a, @x[%k * 64, 0] : !isa.tile<64x128xbf16>
    isa.scope {
      %t = isa.alloc register : !isa.tile<32x64xf32>
      isa.vector "copy"(%t, %acc) : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>
      isa.vector "copy"(%acc, %t) : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>
    }
  }
}

// Four tiles of 256 KiB in two scopes of one iteration: the second scope takes the bytes of the
// first. What both use keeps its own.
// CHECK-LABEL: isa.kernel @scopes
// CHECK-SAME: scratch_bytes = 786432 : i64
// CHECK: %kept = isa.alloc scratch offset 0
// CHECK: %a = isa.alloc scratch offset 262144
// CHECK: %b = isa.alloc scratch offset 524288
// CHECK: %c = isa.alloc scratch offset 262144
// CHECK: %d = isa.alloc scratch offset 524288
isa.kernel @scopes coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %kept = isa.alloc register : !isa.tile<128x512xf32>
  isa.vector "zero"(%kept) : !isa.tile<128x512xf32>
  isa.loop %k = [0] to [1000] {
    isa.scope {
      %a = isa.alloc scratch : !isa.tile<128x512xf32>
      %b = isa.alloc scratch : !isa.tile<128x512xf32>
      isa.vector "copy"(%a, %kept) : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
      isa.vector "copy"(%b, %a) : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
      isa.vector "copy"(%kept, %b) : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
    }
    isa.scope {
      %c = isa.alloc scratch : !isa.tile<128x512xf32>
      %d = isa.alloc scratch : !isa.tile<128x512xf32>
      isa.vector "copy"(%c, %kept) : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
      isa.vector "copy"(%d, %c) : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
      isa.vector "copy"(%kept, %d) : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
    }
  }
}

// The double buffer outlives the scope that its iterations use it in: nothing of the scope takes
// its place, though its last access of an iteration comes before.
// CHECK-LABEL: isa.kernel @double_buffer
// CHECK-SAME: scratch_bytes = 786432 : i64
// CHECK: %s = isa.alloc scratch slots 2 offset 0
// CHECK: %p = isa.alloc scratch offset 524288
isa.kernel @double_buffer coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "attention", waves = 4 : i64} {
  isa.loop %k = [0] to [1000] {
    %s = isa.alloc register slots 2 : !isa.tile<128x512xf32>
    isa.vector "zero"(%s) : !isa.tile<128x512xf32>
    isa.scope {
      %p = isa.alloc register : !isa.tile<128x512xf32>
      isa.vector "copy"(%p, %s) {stage = 1 : i64} : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
      isa.vector "copy"(%p, %p) {stage = 1 : i64} : !isa.tile<128x512xf32>, !isa.tile<128x512xf32>
    }
  }
}
