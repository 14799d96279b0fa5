// RUN: starc-opt %s --machine ahbm -p assign-engines | filecheck %s
// RUN: starc-opt %s --machine ahbm -p assign-engines | starc-opt | filecheck %s

kernel.buffer @x : tensor<512x64xbf16> {address = 0 : i64, bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @y : tensor<512x64xbf16> {address = 65536 : i64, bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @inbox : tensor<2x64x64xbf16> {address = 131072 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication"}
isa.counter @arrived count 2
isa.counter @credit count 2

// A command: the CPU issues it once, the scheduler its instructions. A tile with two slots starts
// with two credits, which the matrix engine gives back.
// CHECK-LABEL: isa.kernel @command
// CHECK-NEXT: %acc = isa.alloc scratch offset 16384
// CHECK-NEXT: %b = isa.alloc scratch slots 2 turns 1 offset 0
// CHECK: %scheduler_queue = isa.semaphore initial 0
// CHECK: [[FREE:%gemm_to_dma]] = isa.semaphore initial 2
// CHECK: isa.stream "cpu" {
// CHECK-NEXT: isa.delay 10000
// CHECK-NEXT: isa.release %scheduler_queue
// CHECK-NEXT: }
// CHECK-NEXT: isa.stream "scheduler" {
// CHECK-NEXT: isa.acquire %scheduler_queue
// CHECK-NEXT: isa.delay 1000
// CHECK-NEXT: isa.release %math_queue_of_scheduler
// CHECK-NEXT: isa.loop
// CHECK-NEXT: isa.delay 1000
// CHECK-NEXT: isa.release %dma_queue_of_scheduler
// CHECK-NEXT: isa.delay 1000
// CHECK-NEXT: isa.release %gemm_queue_of_scheduler
// CHECK: isa.stream "dma" {
// CHECK-NEXT: isa.loop %[[I:.*]] = [0] to [8] {
// CHECK-NEXT: isa.acquire %dma_queue_of_scheduler
// CHECK-NEXT: isa.acquire [[FREE]]
// CHECK-NEXT: isa.load %b, @x[%[[I]] * 64, 0]
// CHECK-NEXT: isa.release %dma_to_gemm after %b : !isa.tile<64x64xbf16>
// CHECK: isa.stream "gemm" {
// CHECK-NEXT: isa.acquire %math_to_gemm
// CHECK-NEXT: isa.loop
// CHECK-NEXT: isa.acquire %gemm_queue_of_scheduler
// CHECK-NEXT: isa.acquire %dma_to_gemm
// CHECK-NEXT: isa.matrix
// CHECK-NEXT: isa.release [[FREE]]
// CHECK: isa.stream "math" {
// CHECK-NEXT: isa.acquire %math_queue_of_scheduler
// CHECK-NEXT: isa.vector "zero"(%acc)
// CHECK-NEXT: isa.release %math_to_gemm
isa.kernel @command coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc scratch offset 16384 : !isa.tile<64x64xf32>
  isa.composite {
    isa.vector "zero"(%acc) : !isa.tile<64x64xf32>
    isa.loop %i = [0] to [8] {
      %b = isa.alloc scratch slots 2 offset 0 : !isa.tile<64x64xbf16>
      isa.load %b, @x[%i * 64, 0] : !isa.tile<64x64xbf16>
      isa.matrix %acc, %b, %b : !isa.tile<64x64xf32>, !isa.tile<64x64xbf16>, !isa.tile<64x64xbf16>
    }
  }
}

// Stages: the load of iteration i + 1 is issued before the function of iteration i, of which the CPU
// waits for the tile. Index values are named in every stream.
// CHECK-LABEL: isa.kernel @ahead
// CHECK: isa.stream "cpu" {
// CHECK: isa.release %dma_queue
// CHECK-NEXT: isa.acquire %dma_to_cpu {stage = 1 : i64}
// CHECK-NEXT: isa.delay 10000 {stage = 1 : i64}
// CHECK-NEXT: isa.release %math_queue {stage = 1 : i64}
// CHECK: isa.stream "dma" {
// CHECK: %row = isa.index
// CHECK-NEXT: isa.load %t, @x[%row, 0]
// CHECK-NEXT: isa.release %dma_to_cpu after %t
// CHECK: isa.store %u, @y[%row, 0] {stage = 1 : i64}
// CHECK: isa.stream "math" {
// CHECK: isa.acquire %math_queue {stage = 1 : i64}
isa.kernel @ahead coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  isa.loop %i = [0] to [8] {
    %row = isa.index [%i * 64]
    %t = isa.alloc scratch slots 2 offset 0 : !isa.tile<64x64xbf16>
    %u = isa.alloc scratch offset 16384 : !isa.tile<64x64xbf16>
    isa.load %t, @x[%row, 0] : !isa.tile<64x64xbf16>
    isa.vector "silu"(%u, %t) {stage = 1 : i64} : !isa.tile<64x64xbf16>, !isa.tile<64x64xbf16>
    isa.store %u, @y[%row, 0] {stage = 1 : i64} : !isa.tile<64x64xbf16>
  }
}

// A message: the CPU waits for it, a credit goes back when the slot has been read, although nobody
// has used the tile yet. Branches stand in every stream that works in them.
// CHECK-LABEL: isa.kernel @message
// CHECK: isa.stream "cpu" {
// CHECK-NEXT: isa.if [%device - 1] {
// CHECK-NEXT: isa.delay 10000
// CHECK-NEXT: isa.wait @arrived[0] until [1]
// CHECK: isa.stream "dma" {
// CHECK-NEXT: isa.if [%device - 1] {
// CHECK: isa.load %t, @inbox
// CHECK-NEXT: isa.release %dma_to_dma after %t
// CHECK: isa.acquire %dma_to_dma
// CHECK-NEXT: isa.signal @credit[0] add [1] to [%device - 1]
// CHECK: isa.store %t, @y[0, 0]
// CHECK-NEXT: }
// CHECK-NEXT: isa.acquire %dma_queue
// CHECK-NEXT: isa.wait @credit[1] until [1] deferred
isa.kernel @message coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "collective", waves = 4 : i64, waits} {
  isa.if [%device - 1] {
    %t = isa.alloc scratch offset 0 : !isa.tile<64x64xbf16>
    isa.wait @arrived[0] until [1]
    isa.load %t, @inbox[0, 0, 0] : !isa.tile<64x64xbf16>
    isa.signal @credit[0] add [1] to [%device - 1]
    isa.store %t, @y[0, 0] : !isa.tile<64x64xbf16>
  }
  isa.wait @credit[1] until [1] deferred
}
