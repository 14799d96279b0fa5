// RUN: not starc-opt %s -p plan-scratch 2>&1 | filecheck %s

kernel.buffer @x : tensor<512x512xbf16> {address = 0 : i64, bytes = 524288 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// CHECK: error: template @big needs 81920 bytes of scratch memory, a compute unit has 65536: %b 256x128xbf16 65536 B, %a 64x128xbf16 16384 B
isa.kernel @big coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  %a = isa.alloc scratch : !isa.tile<64x128xbf16>
  %b = isa.alloc scratch : !isa.tile<256x128xbf16>
  isa.load %a, @x[0, 0] : !isa.tile<64x128xbf16>
  isa.load %b, @x[0, 0] : !isa.tile<256x128xbf16>
}
