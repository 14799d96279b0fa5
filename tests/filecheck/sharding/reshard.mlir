// RUN: starc-opt %s | starc-opt | filecheck %s

sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]

// CHECK-LABEL: func.func @one
func.func @one(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>) -> tensor<8x8xf32, #sharding.of<@node, [{"x"}, {}]>> {
  // CHECK-NEXT: %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>> -> tensor<8x8xf32, #sharding.of<@node, [{"x"}, {}]>>
  %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>> -> tensor<8x8xf32, #sharding.of<@node, [{"x"}, {}]>>
  func.return %y : tensor<8x8xf32, #sharding.of<@node, [{"x"}, {}]>>
}

// The components of a partial softmax are resharded together.
// CHECK-LABEL: func.func @together
func.func @together(%m: tensor<8x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"x"}>>, %l: tensor<8x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"x"}>>, %o: tensor<8x64xf32, #sharding.of<@node, [{}, {}], partial = lse{"x"}>>) {
  // CHECK-NEXT: %a, %b, %c = sharding.reshard %m, %l, %o :
  %a, %b, %c = sharding.reshard %m, %l, %o : tensor<8x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"x"}>>, tensor<8x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"x"}>>, tensor<8x64xf32, #sharding.of<@node, [{}, {}], partial = lse{"x"}>> -> tensor<8x4xf32, #sharding.of<@node, [{}, {"x"}]>>, tensor<8x4xf32, #sharding.of<@node, [{}, {"x"}]>>, tensor<8x64xf32, #sharding.of<@node, [{}, {"x"}]>>
  func.return
}
