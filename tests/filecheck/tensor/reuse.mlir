// The tensor level is builtin tensor types and xDSL's own `tensor` dialect beside `nn`:
// nothing here is defined by starc, and the round trip is exact.
// RUN: starc-opt %s | starc-opt | filecheck %s

// CHECK:      func.func @last_token(%x: tensor<2x5x64xbf16>) -> tensor<2x64xbf16> {
// CHECK-NEXT:   %last = tensor.extract_slice %x[0, 4, 0] [2, 1, 64] [1, 1, 1] : tensor<2x5x64xbf16> to tensor<2x1x64xbf16>
// CHECK-NEXT:   %flat = tensor.collapse_shape %last {{\[\[}}0 : i64, 1 : i64], [2 : i64]] : tensor<2x1x64xbf16> into tensor<2x64xbf16>
// CHECK-NEXT:   func.return %flat : tensor<2x64xbf16>
// CHECK-NEXT: }
func.func @last_token(%x: tensor<2x5x64xbf16>) -> tensor<2x64xbf16> {
  %last = tensor.extract_slice %x[0, 4, 0] [2, 1, 64] [1, 1, 1] : tensor<2x5x64xbf16> to tensor<2x1x64xbf16>
  %flat = tensor.collapse_shape %last [[0, 1], [2]] : tensor<2x1x64xbf16> into tensor<2x64xbf16>
  func.return %flat : tensor<2x64xbf16>
}
