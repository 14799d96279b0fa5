// RUN: not starc-opt %s -p localize 2>&1 | filecheck %s

// CHECK: pass 'localize' needs the sharding level: run propagate-shardings first
func.func @f(%x : tensor<2x8xf32>) {
  func.return
}
