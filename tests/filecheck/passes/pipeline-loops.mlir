// RUN: starc-opt %s -p pipeline-loops | filecheck %s
// RUN: starc-opt %s -p pipeline-loops | starc-opt | filecheck %s

kernel.buffer @x : tensor<16x512xbf16> {address = 0 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @w : tensor<512x128xbf16> {address = 16384 : i64, bytes = 131072 : i64, layout = #kernel.layout<row_major>, space = "private", role = "weight"}
kernel.buffer @k : tensor<1x4096x128xbf16> {address = 147456 : i64, bytes = 1048576 : i64, layout = #kernel.layout<row_major>, space = "private", role = "state"}
isa.counter @ready count 1

// Loads have three slots, and each starts as soon as the product that used its slot is done.
// CHECK-LABEL: isa.kernel @gemm
// CHECK: isa.loop %k = [0] to [8] attributes {stages = 3 : i64, ii = {{[0-9]+}} : i64, res_mii = {{[0-9]+}} : i64, rec_mii = {{[0-9]+}} : i64} {
// CHECK-NEXT: %a = isa.alloc scratch slots 3
// CHECK-NEXT: %b = isa.alloc scratch slots 3
// CHECK-NEXT: isa.matrix %acc, %a, %b {stage = 3 : i64}
// CHECK-NEXT: isa.load %a, @x[0, %k * 64] {stage = 1 : i64}
// CHECK-NEXT: isa.load %b, @w[%k * 64, 0] :
isa.kernel @gemm coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<16x128xf32>
  isa.loop %k = [0] to [8] attributes {stages = 3 : i64} {
    %a = isa.alloc scratch : !isa.tile<16x64xbf16>
    %b = isa.alloc scratch : !isa.tile<64x128xbf16>
    isa.load %a, @x[0, %k * 64] : !isa.tile<16x64xbf16>
    isa.load %b, @w[%k * 64, 0] : !isa.tile<64x128xbf16>
    isa.matrix %acc, %a, %b : !isa.tile<16x128xf32>, !isa.tile<16x64xbf16>, !isa.tile<64x128xbf16>
  }
}

// Three slots of these would not fit the scratch memory.
// CHECK-LABEL: isa.kernel @large
// CHECK: %b = isa.alloc scratch slots 2 : !isa.tile<64x128xbf16>
// CHECK-NEXT: %c = isa.alloc scratch slots 2 : !isa.tile<64x128xbf16>
isa.kernel @large coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<64x64xf32>
  isa.loop %k = [0] to [8] attributes {stages = 3 : i64} {
    %b = isa.alloc scratch : !isa.tile<64x128xbf16>
    %c = isa.alloc scratch : !isa.tile<64x128xbf16>
    isa.load %b, @w[%k * 64, 0] : !isa.tile<64x128xbf16>
    isa.load %c, @k[0, %k * 64, 0] : !isa.tile<64x128xbf16>
    isa.matrix %acc, %b, %c {transpose_b} : !isa.tile<64x64xf32>, !isa.tile<64x128xbf16>, !isa.tile<64x128xbf16>
  }
}

// Where vector work decides, the scores of a step are taken before the softmax of the one before.
// CHECK-LABEL: isa.kernel @attention
// CHECK: isa.loop %j
// CHECK-DAG: isa.matrix %s, %q, %k {transpose_b, stage = 2 : i64}
// CHECK-DAG: isa.vector "softmax_step"{{.*}} {stage = 3 : i64}
isa.kernel @attention coords(%device, %wg) attributes {kernel_class = "attention", waves = 4 : i64} {
  %q = isa.alloc register : !isa.tile<128x128xbf16>
  %m = isa.alloc register : !isa.tile<128x1xf32>
  %l = isa.alloc register : !isa.tile<128x1xf32>
  %o = isa.alloc register : !isa.tile<128x128xf32>
  isa.loop %j = [0] to [64] attributes {stages = 2 : i64} {
    %k = isa.alloc scratch : !isa.tile<64x128xbf16>
    %v = isa.alloc scratch : !isa.tile<64x128xbf16>
    %s = isa.alloc register : !isa.tile<128x64xf32>
    %p = isa.alloc register : !isa.tile<128x64xbf16>
    %correction = isa.alloc register : !isa.tile<128x1xf32>
    isa.load %k, @k[0, %j * 64, 0] : !isa.tile<64x128xbf16>
    isa.vector "zero"(%s) : !isa.tile<128x64xf32>
    isa.matrix %s, %q, %k {transpose_b} : !isa.tile<128x64xf32>, !isa.tile<128x128xbf16>, !isa.tile<64x128xbf16>
    isa.vector "softmax_step"(%p, %s, %m, %l, %correction) params [0, 4096, 1, %j * 64, 4096] : !isa.tile<128x64xbf16>, !isa.tile<128x64xf32>, !isa.tile<128x1xf32>, !isa.tile<128x1xf32>, !isa.tile<128x1xf32>
    isa.vector "rescale"(%o, %correction) : !isa.tile<128x128xf32>, !isa.tile<128x1xf32>
    isa.load %v, @k[0, %j * 64, 0] : !isa.tile<64x128xbf16>
    isa.matrix %o, %p, %v : !isa.tile<128x128xf32>, !isa.tile<128x64xbf16>, !isa.tile<64x128xbf16>
  }
}

// A loop that waits keeps its order.
// CHECK-LABEL: isa.kernel @step
// CHECK: isa.loop %t = [0] to [4] {
// CHECK-NOT: stage
isa.kernel @step coords(%device, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  isa.loop %t = [0] to [4] {
    %a = isa.alloc scratch : !isa.tile<1x64xbf16>
    isa.wait @ready[0] until [%t]
    isa.load %a, @x[0, %t * 64] : !isa.tile<1x64xbf16>
    isa.store %a, @x[1, %t * 64] : !isa.tile<1x64xbf16>
  }
}
