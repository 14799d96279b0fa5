// Commands, scopes and streams, as they print and as they are read back.
// RUN: starc-opt %s | starc-opt | filecheck %s
// RUN: starc-opt %s --print-op-generic | starc-opt | filecheck %s

kernel.buffer @x : tensor<256x128xbf16> {address = 4096 : i64, bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "input"}
// CHECK: kernel.buffer @queue : tensor<64x64xbf16> {address = 1032192 : i64, bytes = 8192 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}
kernel.buffer @queue : tensor<64x64xbf16> {address = 1032192 : i64, bytes = 8192 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}
isa.counter @arrived count 4

// One stream: commands and scopes mean their bodies, in line.
isa.kernel @commands coords(%device, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %q = isa.alloc scratch : !isa.tile<32x128xbf16>
  %m = isa.alloc scratch : !isa.tile<32x1xf32>
  %l = isa.alloc scratch : !isa.tile<32x1xf32>
  %c = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.loop %t = [0] to [8] {
    // A tile of several slots turns with the loop around a scope.
    // CHECK: %s = isa.alloc scratch slots 2 : !isa.tile<32x128xf32>
    %s = isa.alloc scratch slots 2 : !isa.tile<32x128xf32>
    // CHECK: isa.composite {
    isa.composite {
      isa.vector "zero"(%s) : !isa.tile<32x128xf32>
      isa.loop %i = [0] to [2] {
        %k = isa.alloc scratch slots 2 : !isa.tile<64x64xbf16>
        isa.load %k, @x[%t * 32, %i * 64] : !isa.tile<64x64xbf16>
        // CHECK: isa.matrix %s, %q, %k columns [%i * 64] inner [64] {transpose_b} : !isa.tile<32x128xf32>, !isa.tile<32x128xbf16>, !isa.tile<64x64xbf16>
        isa.matrix %s, %q, %k columns [%i * 64] inner [64] {transpose_b} : !isa.tile<32x128xf32>, !isa.tile<32x128xbf16>, !isa.tile<64x64xbf16>
      }
    }
    // CHECK: isa.composite stateful attributes {stage = 1 : i64} {
    isa.composite stateful attributes {stage = 1 : i64} {
      isa.vector "softmax_step"(%s, %s, %m, %l, %c) params [0, 0, 1, 0, 64] : !isa.tile<32x128xf32>, !isa.tile<32x128xf32>, !isa.tile<32x1xf32>, !isa.tile<32x1xf32>, !isa.tile<32x1xf32>
    }
    // CHECK: isa.scope {
    isa.scope {
      // CHECK: isa.wait @arrived[%pe] until [%t + 1] deferred {stage = 1 : i64}
      isa.wait @arrived[%pe] until [%t + 1] deferred {stage = 1 : i64}
    }
    // CHECK: isa.if [%t - 1] attributes {stage = 1 : i64} {
    isa.if [%t - 1] attributes {stage = 1 : i64} {
      isa.delay 40
    }
  }
}

// A stream for each engine.
isa.kernel @streams coords(%device, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  // CHECK: %t = isa.alloc scratch slots 2 turns 1 offset 256 : !isa.tile<32x64xbf16>
  %t = isa.alloc scratch slots 2 turns 1 offset 256 : !isa.tile<32x64xbf16>
  %y = isa.alloc scratch turns 1 : !isa.tile<32x64xf32>
  // CHECK: %full = isa.semaphore initial 0 : !isa.semaphore
  %full = isa.semaphore initial 0 : !isa.semaphore
  // CHECK: %free = isa.semaphore initial 2 : !isa.semaphore
  %free = isa.semaphore initial 2 : !isa.semaphore
  // CHECK: isa.stream "dma" {
  isa.stream "dma" {
    isa.loop %i = [0] to [8] {
      // CHECK: isa.acquire %free {stage = 1 : i64}
      isa.acquire %free {stage = 1 : i64}
      isa.load %t, @x[%i * 32, 0] {stage = 1 : i64} : !isa.tile<32x64xbf16>
      // CHECK: isa.release %full after %t {stage = 1 : i64} : !isa.tile<32x64xbf16>
      isa.release %full after %t {stage = 1 : i64} : !isa.tile<32x64xbf16>
    }
  }
  // CHECK: isa.stream "math" {
  isa.stream "math" {
    isa.loop %j = [0] to [8] {
      // CHECK: isa.acquire %full
      isa.acquire %full
      isa.vector "copy"(%y, %t) : !isa.tile<32x64xf32>, !isa.tile<32x64xbf16>
      // CHECK: isa.release %free
      isa.release %free
    }
  }
}
