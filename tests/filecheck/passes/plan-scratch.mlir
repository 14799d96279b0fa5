// RUN: starc-opt %s -p plan-scratch | filecheck %s
// RUN: starc-opt %s -p plan-scratch | starc-opt | filecheck %s

kernel.buffer @x : tensor<64x512xbf16> {address = 0 : i64, bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// Larger tiles come first, slots lie one after another.
// CHECK-LABEL: isa.kernel @slots
// CHECK-SAME: scratch_bytes = 20480 : i64, register_bytes = 2048 : i64
// CHECK: %r = isa.alloc register : !isa.tile<8x64xf32>
// CHECK: %a = isa.alloc scratch slots 2 offset 16384 : !isa.tile<16x64xbf16>
// CHECK: %b = isa.alloc scratch slots 2 offset 0 : !isa.tile<64x64xbf16>
isa.kernel @slots coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %r = isa.alloc register : !isa.tile<8x64xf32>
  isa.loop %k = [0] to [8] {
    %a = isa.alloc scratch slots 2 : !isa.tile<16x64xbf16>
    %b = isa.alloc scratch slots 2 : !isa.tile<64x64xbf16>
    isa.load %a, @x[0, %k * 64] : !isa.tile<16x64xbf16>
    isa.load %b, @x[0, %k * 64] : !isa.tile<64x64xbf16>
  }
}

// The second tile takes the place of the first: what computes between them needs the product, so
// that nothing reads the first any more.
// CHECK-LABEL: isa.kernel @reuse
// CHECK-SAME: scratch_bytes = 8192 : i64
// CHECK: %a = isa.alloc scratch offset 0
// CHECK: %b = isa.alloc scratch offset 0
isa.kernel @reuse coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<64x64xf32>
  isa.loop %k = [0] to [8] {
    %a = isa.alloc scratch : !isa.tile<64x64xbf16>
    isa.load %a, @x[0, %k * 64] : !isa.tile<64x64xbf16>
    isa.matrix %acc, %a, %a : !isa.tile<64x64xf32>, !isa.tile<64x64xbf16>, !isa.tile<64x64xbf16>
  }
  isa.vector "copy"(%acc, %acc) : !isa.tile<64x64xf32>, !isa.tile<64x64xf32>
  %b = isa.alloc scratch : !isa.tile<64x64xbf16>
  isa.load %b, @x[0, 0] : !isa.tile<64x64xbf16>
  isa.vector "add"(%acc, %acc, %b) : !isa.tile<64x64xf32>, !isa.tile<64x64xf32>, !isa.tile<64x64xbf16>
}

// Without it the load could overtake the last product.
// CHECK-LABEL: isa.kernel @no_reuse
// CHECK-SAME: scratch_bytes = 16384 : i64
// CHECK: %a = isa.alloc scratch offset 0
// CHECK: %b = isa.alloc scratch offset 8192
isa.kernel @no_reuse coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %acc = isa.alloc register : !isa.tile<64x64xf32>
  isa.loop %k = [0] to [8] {
    %a = isa.alloc scratch : !isa.tile<64x64xbf16>
    isa.load %a, @x[0, %k * 64] : !isa.tile<64x64xbf16>
    isa.matrix %acc, %a, %a : !isa.tile<64x64xf32>, !isa.tile<64x64xbf16>, !isa.tile<64x64xbf16>
  }
  %b = isa.alloc scratch : !isa.tile<64x64xbf16>
  isa.load %b, @x[0, 0] : !isa.tile<64x64xbf16>
  isa.vector "add"(%acc, %acc, %b) : !isa.tile<64x64xf32>, !isa.tile<64x64xf32>, !isa.tile<64x64xbf16>
}
