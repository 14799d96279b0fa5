// Encodings that do not fit their tensor or the mesh.
// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK: unknown mesh: @node
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x"}]>>) -> tensor<8x8xf32, #sharding.of<@node, [{}, {"x"}]>> {
  func.return %x : tensor<8x8xf32, #sharding.of<@node, [{}, {"x"}]>>
}

// -----
// CHECK: unknown axis name: "z"
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"z"}]>>) {
  func.return
}

// -----
// CHECK: sharding doesn't match tensor rank: 2 != 3
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8x8xf32, #sharding.of<@node, [{}, {"x"}]>>) {
  func.return
}

// -----
// CHECK: sub-axis "x":(1)3 does not divide axis "x" of size 4
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x":(1)3}]>>) {
  func.return
}

// -----
// CHECK: overlapping axis refs: "x":(1)2, "x"
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"x":(1)2}, {"x"}]>>) {
  func.return
}

// -----
// CHECK: sub-axis "x":(1)4 is the whole axis "x"
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x":(1)4}]>>) {
  func.return
}

// -----
// CHECK: partial axes must be in the order of the mesh: {"x", "y"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"y", "x"}>>) {
  func.return
}

// -----
// CHECK: dim 1: 4 shards need 5 offsets, got 3
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x"} offsets [0, 4, 8]]>>) {
  func.return
}

// -----
// CHECK: argument 0 is local [8, 4], its encoding gives [8, 2]
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x4xf32, #sharding.of<@node, [{}, {"x"}], global = [8, 8]>>) {
  func.return
}

// -----
// CHECK: dim 1: offset 4 of a cyclic map must be less than a round of 4
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(1, offset = 4)]>>) {
  func.return
}

// -----
// CHECK: dim 1: turned by dim 2, which a tensor of rank 2 does not have
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(1, by = 2)]>>) {
  func.return
}

// -----
// CHECK: dim 1: turned by its own index
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(1, by = 1)]>>) {
  func.return
}

// -----
// CHECK: dim 0: turned by dim 1, which is itself turned
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"y"} cyclic(1, by = 1), {"x"} cyclic(1, by = 0)]>>) {
  func.return
}

// -----
// CHECK: dim 1: a map needs axes: {} cyclic(1)
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"y"}, {} cyclic(1)]>>) {
  func.return
}

// -----
// Every row of a rotated map fills as many slots.
// CHECK: argument 0 is local [8, 3], its encoding gives [8, 2]
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8x3xf32, #sharding.of<@node, [{}, {"x"} cyclic(1, by = 0)], global = [8, 8]>>) {
  func.return
}
