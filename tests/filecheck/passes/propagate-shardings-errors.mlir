// RUN: not starc-opt %s -p propagate-shardings 2>&1 | filecheck %s

// CHECK: 'math.exp' has no sharding rule
sharding.mesh @node = ["x"=2 : outer link]
func.func @f(%x : tensor<2x8xf32>) {
  %0 = math.exp %x : tensor<2x8xf32>
  func.return
}
