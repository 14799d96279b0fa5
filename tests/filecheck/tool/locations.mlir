// Every error says where, in files and in their parts, and says "error" once.
// RUN: not starc-opt %s 2>&1 | filecheck %s
// RUN: not starc-opt --split-input-file %s 2>&1 | filecheck %s
// RUN: not starc-opt --split-input-file %s -p 'localize{x=1}' 2>&1 | filecheck %s --check-prefix=OPTION

// CHECK-NOT: error: error:
// CHECK: locations.mlir:14:3: error: the input has 32 features
// CHECK-NEXT: %y = nn.linear
// CHECK-NEXT: ^
// OPTION: starc-opt: error: pass 'localize' has no option 'x'; it has none
nn.parameter @layer.w : tensor<64x64xbf16>
func.func @layer(%x : tensor<2x1x32xbf16>) -> tensor<2x1x64xbf16> {
  %w = nn.read @layer.w : tensor<64x64xbf16>
  %y = nn.linear %x, %w : tensor<2x1x32xbf16>, tensor<64x64xbf16> -> tensor<2x1x64xbf16>
  func.return %y : tensor<2x1x64xbf16>
}
