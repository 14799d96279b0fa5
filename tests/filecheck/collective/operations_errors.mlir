// A collective changes encodings by exactly its effect.
// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK: a collective is between local types, whose encoding has a global shape
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}>>) {
  %a = collective.all_reduce %x on @node axes = ["x"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}>> -> tensor<64xbf16, #sharding.of<@node, [{}]>>
  func.return
}

// -----
// CHECK: unknown mesh: @nope
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x on @nope axes = ["x"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: unknown axis name: "z"
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["z"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: operand is not partial, cannot reduce it over {"x"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["x"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: reduction axes {"y"} are not among those of partial sum{"x"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["y"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: operand is partial sum{"x"}, reduction is max
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["x"] reduction = max : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: result is not partial, expected partial sum{"y"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x", "y"}, global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["x"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x", "y"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: dim 0 changes from {"y"} to {}, which collective.all_reduce does not do
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<32xbf16, #sharding.of<@node, [{"y"}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["x"] reduction = sum : tensor<32xbf16, #sharding.of<@node, [{"y"}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// The minor axis is gathered first.
// CHECK: dim 0 is split over {"x", "y"}, expected {"y", "x"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<8xbf16, #sharding.of<@node, [{"x", "y"}], global = [64]>>) {
  %a = collective.all_gather %x on @node axes = ["x"] dim = 0 : tensor<8xbf16, #sharding.of<@node, [{"x", "y"}], global = [64]>> -> tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>
  func.return
}

// -----
// Ten positions over 4 x 2 devices are not parts of ten over 4.
// CHECK: dim 0 of size 10: shards of {"x", "y"} are not parts of those of {"x"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<2xbf16, #sharding.of<@node, [{"x", "y"}], global = [10]>>) {
  %a = collective.all_gather %x on @node axes = ["y"] dim = 0 : tensor<2xbf16, #sharding.of<@node, [{"x", "y"}], global = [10]>> -> tensor<3xbf16, #sharding.of<@node, [{"x"}], global = [10]>>
  func.return
}

// -----
// CHECK: result 0 is local [32], its encoding gives [64]
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>) {
  %a = collective.all_gather %x on @node axes = ["y"] dim = 0 : tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>> -> tensor<32xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: dim 3 is out of range, rank is 1
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>) {
  %a = collective.all_gather %x on @node axes = ["y"] dim = 3 : tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: result element type f32 differs from operand element type bf16
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>) {
  %a = collective.all_gather %x on @node axes = ["y"] dim = 0 : tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>> -> tensor<64xf32, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: reduction lse combines m, l, o together, got 1 operands
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xf32, #sharding.of<@node, [{}], partial = lse{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x on @node axes = ["x"] reduction = lse : tensor<64xf32, #sharding.of<@node, [{}], partial = lse{"x"}, global = [64]>> -> tensor<64xf32, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// The head size is not shared by m and l: scattering over it needs them combined first.
// CHECK: m, l, o do not share dim 2, it cannot be scattered
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%m: tensor<2x8x1xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"y"}, global = [2, 8, 1]>>, %o: tensor<2x8x64xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"y"}, global = [2, 8, 64]>>) {
  %a, %b, %c = collective.reduce_scatter %m, %m, %o on @node axes = ["y"] reduction = lse dim = 2 : tensor<2x8x1xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"y"}, global = [2, 8, 1]>>, tensor<2x8x1xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"y"}, global = [2, 8, 1]>>, tensor<2x8x64xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"y"}, global = [2, 8, 64]>> -> tensor<2x8x1xf32, #sharding.of<@node, [{}, {}, {"y"}], global = [2, 8, 1]>>, tensor<2x8x1xf32, #sharding.of<@node, [{}, {}, {"y"}], global = [2, 8, 1]>>, tensor<2x8x32xf32, #sharding.of<@node, [{}, {}, {"y"}], global = [2, 8, 64]>>
  func.return
}

// -----
// CHECK: split_dim and concat_dim are the same dimension
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>) {
  %a = collective.all_to_all %x on @node axes = ["y"] split_dim = 0 concat_dim = 0 : tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>> -> tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>
  func.return
}

// -----
// CHECK: groups along {"y"} do not hold the shards of the result
sharding.mesh @node = ["x"=2 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<32xbf16, #sharding.of<@node, [{"x"}], global = [64]>>) {
  %a = collective.permute %x on @node axes = ["y"] : tensor<32xbf16, #sharding.of<@node, [{"x"}], global = [64]>> -> tensor<32xbf16, #sharding.of<@node, [{"y"}], global = [64]>>
  func.return
}

// -----
// CHECK: operand is partial sum{"x"}, expected partial root{"x"}
sharding.mesh @node = ["x"=2 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.broadcast %x on @node axes = ["x"] : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// CHECK: 2 operands and 1 results, expected as many
sharding.mesh @node = ["x"=2 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>) {
  %a = collective.all_reduce %x, %x on @node axes = ["x"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>>, tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"x"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// -----
// A gather over an axis that does not split the dimension.
// CHECK: dim 2 is split over {"x"}, expected {"x":(1)2, "y"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<2x8x64xf32, #sharding.of<@node, [{}, {}, {"x"}], global = [2, 8, 256]>>) {
  %a = collective.all_gather %x on @node axes = ["y"] dim = 2 : tensor<2x8x64xf32, #sharding.of<@node, [{}, {}, {"x"}], global = [2, 8, 256]>> -> tensor<2x8x128xf32, #sharding.of<@node, [{}, {}, {"x":(1)2}], global = [2, 8, 256]>>
  func.return
}

// -----
// Pairs of ranks turn by two, ranks by one.
// CHECK: dim 1 of size 64: shards of {"x", "y"} cyclic(1, by = 0) are not parts of those of {"x"} cyclic(2, by = 0)
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<2x8x8xf32, #sharding.of<@node, [{}, {"x", "y"} cyclic(1, by = 0), {}], global = [2, 64, 8]>>) {
  %a = collective.all_gather %x on @node axes = ["y"] dim = 1 : tensor<2x8x8xf32, #sharding.of<@node, [{}, {"x", "y"} cyclic(1, by = 0), {}], global = [2, 64, 8]>> -> tensor<2x16x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(2, by = 0), {}], global = [2, 64, 8]>>
  func.return
}

// -----
// Rows that turn are no permutation of rows that do not.
// CHECK: groups along {"x"} do not hold the shards of the result
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%x: tensor<2x16x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(1, by = 0), {}], global = [2, 64, 8]>>) {
  %a = collective.permute %x on @node axes = ["x"] : tensor<2x16x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(1, by = 0), {}], global = [2, 64, 8]>> -> tensor<2x16x8xf32, #sharding.of<@node, [{}, {"x"} cyclic(1), {}], global = [2, 64, 8]>>
  func.return
}

// -----
// Heads dealt out in blocks for m and l, in turn for o.
// CHECK: dim 2 of results m and o is split over {"x"} and {"x"} cyclic(16): these are not the same shards
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%m: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, %l: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, %o: tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 128]>>) {
  %a, %b, %c = collective.reduce_scatter %m, %l, %o on @node axes = ["x"] reduction = lse dim = 2 : tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 128]>> -> tensor<2x1x2xf32, #sharding.of<@node, [{}, {}, {"x"}], global = [2, 1, 8]>>, tensor<2x1x2xf32, #sharding.of<@node, [{}, {}, {"x"}], global = [2, 1, 8]>>, tensor<2x1x32xf32, #sharding.of<@node, [{}, {}, {"x"} cyclic(16)], global = [2, 1, 128]>>
  func.return
}

// -----
// A scatter that cuts a head.
// CHECK: dim 2 of results m and o is split over {"x"} and {"x"} offsets [0, 40, 64, 96, 128]: these are not the same shards
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%m: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, %l: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, %o: tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 128]>>) {
  %a, %b, %c = collective.reduce_scatter %m, %l, %o on @node axes = ["x"] reduction = lse dim = 2 : tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 8]>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}, global = [2, 1, 128]>> -> tensor<2x1x2xf32, #sharding.of<@node, [{}, {}, {"x"}], global = [2, 1, 8]>>, tensor<2x1x2xf32, #sharding.of<@node, [{}, {}, {"x"}], global = [2, 1, 8]>>, tensor<2x1x40xf32, #sharding.of<@node, [{}, {}, {"x"} offsets [0, 40, 64, 96, 128]], global = [2, 1, 128]>>
  func.return
}
