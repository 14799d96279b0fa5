// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK: a reshard keeps the global shape: (8, 8) != (8, 4)
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>) {
  %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}]>> -> tensor<8x4xf32, #sharding.of<@node, [{}, {}]>>
  func.return
}

// -----
// CHECK: a reshard keeps the element type: f32 != bf16
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>) {
  %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}]>> -> tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>>
  func.return
}

// -----
// CHECK: a reshard cannot introduce partial sum{"x"}
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>) {
  %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}]>> -> tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>
  func.return
}

// -----
// CHECK: a reshard cannot introduce partial max{"x"}
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>) {
  %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>> -> tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = max{"x"}>>
  func.return
}

// -----
// CHECK: result mesh does not match operand mesh: @node, @other
sharding.mesh @node = ["x"=4 : outer link]
sharding.mesh @other = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>) {
  %y = sharding.reshard %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}]>> -> tensor<8x8xf32, #sharding.of<@other, [{}, {}]>>
  func.return
}

// -----
// CHECK: a reshard needs an encoding on both sides
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32>) {
  %y = sharding.reshard %x : tensor<8x8xf32> -> tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>
  func.return
}

// -----
// CHECK: partial lse{"x"} is m, l, o together, got 1 value
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%o: tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>) {
  %y = sharding.reshard %o : tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>> -> tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}
