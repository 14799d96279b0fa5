// The sharding of a value is the encoding of its type; everything it may hold prints and parses
// back, on types, in generic form and on operations of other dialects.
// RUN: starc-opt %s | starc-opt | filecheck %s
// RUN: starc-opt %s --print-op-generic | starc-opt | filecheck %s

// CHECK:      sharding.mesh @node = ["gpu"=4 : outer xgmi, "xcd"=8 : inner (iod=4 : usr, slot=2 : die)]
sharding.mesh @node = ["gpu"=4 : outer xgmi, "xcd"=8 : inner (iod=4 : usr, slot=2 : die)]

// Axes of a dimension are major to minor; sub-axes take a factor of an axis.
// CHECK: @sub_axes(tensor<16x8x128xbf16, #sharding.of<@node, [{}, {"gpu", "xcd":(1)2}, {}]>>) -> ()
func.func private @sub_axes(%x: tensor<16x8x128xbf16, #sharding.of<@node, [{}, {"gpu", "xcd":(1)2}, {}]>>)

// CHECK: @maps(tensor<5x64x64xbf16, #sharding.of<@node, [{"gpu"} offsets [0, 2, 2, 4, 5], {"xcd":(1)2} cyclic(4), {"xcd":(2)4} zigzag]>>) -> ()
func.func private @maps(%x: tensor<5x64x64xbf16, #sharding.of<@node, [{"gpu"} offsets [0, 2, 2, 4, 5], {"xcd":(1)2} cyclic(4), {"xcd":(2)4} zigzag]>>)

// Rotated maps: the rank of a position depends on the row, its index along another dimension.
// CHECK: @rotated(tensor<5x64x64xbf16, #sharding.of<@node, [{}, {"xcd"} cyclic(1, by = 0), {}]>>, tensor<5x64x64xbf16, #sharding.of<@node, [{}, {"xcd"} cyclic(2, offset = 3, by = 2), {"gpu"} cyclic(1, offset = 1)]>>) -> ()
func.func private @rotated(%x: tensor<5x64x64xbf16, #sharding.of<@node, [{}, {"xcd"} cyclic(1, by = 0), {}]>>, %y: tensor<5x64x64xbf16, #sharding.of<@node, [{}, {"xcd"} cyclic(2, by = 2, offset = 3), {"gpu"} cyclic(1, offset = 1)]>>)

// CHECK: @partial(tensor<8x8xf32, #sharding.of<@node, [{}, {"xcd"}], partial = sum{"gpu"}>>) -> ()
func.func private @partial(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {"xcd"}], partial = sum{"gpu"}>>)

// CHECK: @lse(tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = lse{"gpu", "xcd":(2)4}>>) -> ()
func.func private @lse(%m: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = lse{"gpu", "xcd":(2)4}>>)

// A local type has the physical shape of a shard and keeps the whole.
// CHECK: @local(tensor<64x1x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [64, 1, 8192]>>) -> ()
func.func private @local(%x: tensor<64x1x1024xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [64, 1, 8192]>>)
