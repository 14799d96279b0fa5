// RUN: not starc-opt %s -p localize 2>&1 | filecheck %s

// CHECK: the module has no sharding.mesh
func.func @f(%x : tensor<2x8xf32>) {
  func.return
}
