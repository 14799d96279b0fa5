kernel.buffer @x : tensor<64x64xf32> {address = 0 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
isa.kernel @load coords(%device, %wg) attributes {kernel_class = "gemm"} {
  %t = isa.alloc scratch : !isa.tile<32x64xf32>
  isa.stream "math" {
    isa.load %t, @x[0, 0] : !isa.tile<32x64xf32>
  }
}
