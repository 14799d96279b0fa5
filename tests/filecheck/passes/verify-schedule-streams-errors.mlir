// RUN: not starc-opt %s --machine ahbm --gpus 1 -p verify-schedule 2>&1 | filecheck %s

sharding.mesh @node = ["sip"=1 : outer ucie, "group"=1 : outer noc, "cube"=2 : inner noc, "pe"=2 : inner pe_mesh]
kernel.buffer @x : tensor<4096x64xbf16> {address = 0 : i64, bytes = 524288 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @queue : tensor<4x64xbf16> {address = 786432 : i64, bytes = 512 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}
isa.counter @arrived count 1
isa.counter @credit count 1

// Nothing says that a load has arrived.
// CHECK-DAG: error: @arrival: math's isa.vector "add" of iteration [0] ({{.*}}) reads %t before dma's isa.load @x of iteration [0] ({{.*}}.mlir:{{.*}}) has written it
isa.kernel @arrival coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %t = isa.alloc scratch slots 64 turns 1 offset 0 : !isa.tile<16x64xbf16>
  %y = isa.alloc scratch offset 262144 : !isa.tile<16x64xbf16>
  %full = isa.semaphore initial 0 : !isa.semaphore
  %free = isa.semaphore initial 64 : !isa.semaphore
  isa.stream "dma" {
    isa.loop %i = [0] to [64] {
      isa.acquire %free
      isa.load %t, @x[%i * 16, 0] : !isa.tile<16x64xbf16>
    }
  }
  isa.stream "math" {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
    isa.loop %i = [0] to [64] {
      isa.vector "add"(%y, %y, %t) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
      isa.release %free
    }
  }
}

// Three credits for two slots.
// CHECK-DAG: error: @credits: dma's isa.load @x of iteration [2] ({{.*}}) overwrites %t before math's isa.vector "add" of iteration [0] ({{.*}}.mlir:{{.*}}) has read it
isa.kernel @credits coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %t = isa.alloc scratch slots 2 turns 1 offset 0 : !isa.tile<16x64xbf16>
  %y = isa.alloc scratch offset 262144 : !isa.tile<16x64xbf16>
  %full = isa.semaphore initial 0 : !isa.semaphore
  %free = isa.semaphore initial 3 : !isa.semaphore
  isa.stream "dma" {
    isa.loop %i = [0] to [64] {
      isa.acquire %free
      isa.load %t, @x[%i * 16, 0] : !isa.tile<16x64xbf16>
      isa.release %full after %t : !isa.tile<16x64xbf16>
    }
  }
  isa.stream "math" {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
    isa.loop %i = [0] to [64] {
      isa.acquire %full
      isa.vector "add"(%y, %y, %t) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
      isa.release %free
    }
  }
}

// No credit: both streams wait for each other.
// CHECK-DAG: error: @hang hangs: dma's acquire of %free of iteration [0] ({{.*}}) waits; math's acquire of %full of iteration [0] ({{.*}}) waits; which closes the cycle
isa.kernel @hang coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %t = isa.alloc scratch slots 2 turns 1 offset 0 : !isa.tile<16x64xbf16>
  %y = isa.alloc scratch offset 262144 : !isa.tile<16x64xbf16>
  %full = isa.semaphore initial 0 : !isa.semaphore
  %free = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "dma" {
    isa.loop %i = [0] to [64] {
      isa.acquire %free
      isa.load %t, @x[%i * 16, 0] : !isa.tile<16x64xbf16>
      isa.release %full after %t : !isa.tile<16x64xbf16>
    }
  }
  isa.stream "math" {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
    isa.loop %i = [0] to [64] {
      isa.acquire %full
      isa.vector "add"(%y, %y, %t) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
      isa.release %free
    }
  }
}

// %b lies on half of %a, and its load does not wait for the reader of %a.
// CHECK-DAG: error: @recycled: dma's isa.load @x ({{.*}}) writes %b, while dma's isa.load @x ({{.*}}) is still to write %a, which lies on the same bytes
// CHECK-DAG: error: @recycled: math's isa.vector "copy" ({{.*}}) reads %a, while dma's isa.load @x ({{.*}}) is still to write %b, which lies on the same bytes
isa.kernel @recycled coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %a = isa.alloc scratch offset 0 : !isa.tile<16x64xbf16>
  %b = isa.alloc scratch offset 1024 : !isa.tile<16x64xbf16>
  %y = isa.alloc scratch offset 8192 : !isa.tile<16x64xbf16>
  %full = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "dma" {
    isa.load %a, @x[0, 0] : !isa.tile<16x64xbf16>
    isa.release %full after %a : !isa.tile<16x64xbf16>
    isa.load %b, @x[16, 0] : !isa.tile<16x64xbf16>
    isa.release %full after %b : !isa.tile<16x64xbf16>
  }
  isa.stream "math" {
    isa.acquire %full
    isa.vector "copy"(%y, %a) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
    isa.acquire %full
    isa.vector "add"(%y, %y, %b) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
  }
}

// One release too many.
// CHECK-DAG: error: @unbalanced: %done is released 1 time more often than it is acquired
// CHECK-DAG: hint: it starts at 0 and must end there
isa.kernel @unbalanced coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %done = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {
    isa.release %done
    isa.release %done
  }
  isa.stream "math" {
    isa.acquire %done
  }
}

// Only the last device has the branch in which nothing is ordered.
// CHECK-DAG: error: @branch: math's isa.vector "copy" ({{.*}}) reads %a before dma's isa.load @x ({{.*}}) has written it
isa.kernel @branch coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %a = isa.alloc scratch offset 0 : !isa.tile<16x64xbf16>
  %y = isa.alloc scratch offset 8192 : !isa.tile<16x64xbf16>
  isa.stream "dma" {
    isa.load %a, @x[0, 0] : !isa.tile<16x64xbf16>
  }
  isa.stream "math" {
    isa.if [%device - 3] {
      isa.vector "copy"(%y, %a) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
    }
  }
}

// Two engines write the same tile.
// CHECK-DAG: error: @writes: math's isa.vector "zero" ({{.*}}) and dma's isa.load @x ({{.*}}) write %a in any order
isa.kernel @writes coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %a = isa.alloc scratch offset 0 : !isa.tile<16x64xbf16>
  isa.stream "dma" {
    isa.load %a, @x[0, 0] : !isa.tile<16x64xbf16>
  }
  isa.stream "math" {
    isa.vector "zero"(%a) : !isa.tile<16x64xbf16>
  }
}

// Three blocks are sent before one is received, and a queue has two slots.
// CHECK-DAG: error: deadlock: ring (device 0, workgroup 0, cpu) waits for @credit[0] to reach 1 (it is at 0); ring (device 1, workgroup 0, dma) waits for %send, released 2 times; ring (device 1, workgroup 0, cpu) waits for @credit[0]
isa.kernel @ring coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %mine = isa.alloc scratch offset 0 : !isa.tile<1x64xbf16>
  %got = isa.alloc scratch offset 128 : !isa.tile<1x64xbf16>
  %send = isa.semaphore initial 0 : !isa.semaphore
  %receive = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {
    isa.loop %i = [0] to [3] {
      isa.if [%i - 2] {
        isa.wait @credit[0] until [%i - 1]
      }
      isa.delay 1000
      isa.release %send
    }
    isa.loop %i = [0] to [3] {
      isa.wait @arrived[0] until [%i + 1]
      isa.release %receive
    }
  }
  isa.stream "dma" {
    isa.load %mine, @x[0, 0] : !isa.tile<1x64xbf16>
    isa.loop %i = [0] to [3] {
      isa.acquire %send
      isa.put %mine, @queue[%i mod 2, 0] to [(%device + 1) mod 4] : !isa.tile<1x64xbf16>
      isa.signal @arrived[0] add [1] to [(%device + 1) mod 4] attached
    }
    isa.loop %i = [0] to [3] {
      isa.acquire %receive
      isa.load %got, @queue[%i mod 2, 0] : !isa.tile<1x64xbf16>
      isa.store %got, @x[1, 0] : !isa.tile<1x64xbf16>
      isa.signal @credit[0] add [1] to [(%device + 3) mod 4]
    }
  }
}
func.func @layer() {
  isa.launch @ring [@ring grid 1] queue "compute"
  func.return
}
