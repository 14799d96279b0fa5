// RUN: starc-opt %s --machine ahbm --gpus 1 -p verify-schedule | filecheck %s

sharding.mesh @node = ["sip"=1 : outer ucie, "group"=1 : outer noc, "cube"=2 : inner noc, "pe"=2 : inner pe_mesh]
kernel.buffer @x : tensor<4096x64xbf16> {address = 0 : i64, bytes = 524288 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @queue : tensor<4x64xbf16> {address = 786432 : i64, bytes = 512 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}
isa.counter @arrived count 1
isa.counter @credit count 1

// Loads run two slots ahead of what adds them; devices have loops of different lengths.
// CHECK: isa.kernel @pipeline
isa.kernel @pipeline coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %t = isa.alloc scratch slots 2 turns 1 offset 0 : !isa.tile<16x64xbf16>
  %y = isa.alloc scratch offset 262144 : !isa.tile<16x64xbf16>
  %full = isa.semaphore initial 0 : !isa.semaphore
  %free = isa.semaphore initial 2 : !isa.semaphore
  isa.stream "dma" {
    isa.loop %i = [0] to [64 + %pe * 1000] {
      isa.acquire %free
      isa.load %t, @x[%i * 16, 0] : !isa.tile<16x64xbf16>
      isa.release %full after %t : !isa.tile<16x64xbf16>
    }
  }
  isa.stream "math" {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
    isa.loop %i = [0] to [64 + %pe * 1000] {
      isa.acquire %full
      isa.vector "add"(%y, %y, %t) : !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>, !isa.tile<16x64xbf16>
      isa.release %free
    }
  }
}

// A ring with as many slots as blocks that are sent before one is received.
isa.kernel @ring coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %mine = isa.alloc scratch offset 0 : !isa.tile<1x64xbf16>
  %got = isa.alloc scratch offset 128 : !isa.tile<1x64xbf16>
  %send = isa.semaphore initial 0 : !isa.semaphore
  %receive = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {
    isa.loop %i = [0] to [3] {
      isa.if [%i - 3] {
        isa.wait @credit[0] until [%i - 2]
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
      isa.put %mine, @queue[%i mod 3, 0] to [(%device + 1) mod 4] : !isa.tile<1x64xbf16>
      isa.signal @arrived[0] add [1] to [(%device + 1) mod 4] attached
    }
    isa.loop %i = [0] to [3] {
      isa.acquire %receive
      isa.load %got, @queue[%i mod 3, 0] : !isa.tile<1x64xbf16>
      isa.store %got, @x[1, 0] : !isa.tile<1x64xbf16>
      isa.signal @credit[0] add [1] to [(%device + 3) mod 4]
    }
  }
}
func.func @layer() {
  isa.launch @pipeline [@pipeline grid 1] queue "compute"
  isa.launch @ring [@ring grid 1] queue "compute"
  func.return
}
