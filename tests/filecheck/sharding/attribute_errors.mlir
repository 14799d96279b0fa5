// Mistakes in the text of an encoding have a place in the source.
// RUN: starc-opt --split-input-file --parsing-diagnostics %s | filecheck %s

// CHECK: unknown reduction "avg", expected one of: sum, max, lse, root
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = avg{"gpu"}>>)

// -----
// CHECK: duplicate axis ref: "gpu"
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"gpu"}, {"gpu"}]>>)

// -----
// CHECK: duplicate axis ref: "gpu"
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"gpu"}, {}], partial = sum{"gpu"}>>)

// -----
// CHECK: two consecutive sub-axes can be merged: "x":(1)2, "x":(2)2
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"x":(1)2, "x":(2)2}, {}]>>)

// -----
// CHECK: sub-axis sizes must be at least 1
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"x":(0)2}, {}]>>)

// -----
// CHECK: a partial needs at least one axis
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{}>>)

// -----
// CHECK: block of a cyclic map must be at least 1
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"x"} cyclic(0), {}]>>)

// -----
// CHECK: offsets must not decrease
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"x"} offsets [0, 5, 4, 8], {}]>>)

// -----
// CHECK: global shape doesn't match sharding rank: 3 != 2
func.func private @f(%x: tensor<8x8xf32, #sharding.of<@node, [{"x"}, {}], global = [8, 8, 8]>>)

// -----
// CHECK: duplicate axis name: "x"
sharding.mesh @node = ["x"=2 : outer link, "x"=2 : inner link]

// -----
// CHECK: size of axis "x" must be at least 1, got 0
sharding.mesh @node = ["x"=0 : outer link]

// -----
// CHECK: parts of axis "x" do not multiply to its size 8
sharding.mesh @node = ["x"=8 : outer (a=2 : usr, b=2 : die)]
