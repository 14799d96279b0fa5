// The devices that do not share a layer share the batch.
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{tensor-parallel-size=1}' 2>&1 | filecheck %s
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{tensor-parallel-size=4}' | filecheck %s --check-prefix=LEGAL

// CHECK: batch 6 cannot be divided over 8 data-parallel replicas (8 devices / tensor-parallel size 1)
// CHECK-NEXT: hint: batch 6 allows --tensor-parallel-size 4, 8
// LEGAL: func.func @norm
nn.parameter @norm.weight : tensor<48xbf16>
func.func @norm(%x : tensor<6x1x48xbf16>) -> tensor<6x1x48xbf16> {
  %w = nn.read @norm.weight : tensor<48xbf16>
  %y = nn.rms_norm %x, %w {eps = 1.0e-05 : f64} : tensor<6x1x48xbf16>, tensor<48xbf16> -> tensor<6x1x48xbf16>
  func.return %y : tensor<6x1x48xbf16>
}
