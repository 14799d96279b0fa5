// Plain xdsl-opt finds the dialects and passes as a plugin.
// RUN: xdsl-opt %s -p form-kernels | filecheck %s
// RUN: starc-opt %s -p form-kernels | filecheck %s

// CHECK: kernel.launch @layer.w gemm
nn.parameter @layer.w : tensor<64x64xbf16>
func.func @layer(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  %w = nn.read @layer.w : tensor<64x64xbf16>
  %y = nn.linear %x, %w : tensor<2x1x64xbf16>, tensor<64x64xbf16> -> tensor<2x1x64xbf16>
  func.return %y : tensor<2x1x64xbf16>
}
