// Every collective, on local types; the global shape stays in the encoding.
// RUN: starc-opt %s | starc-opt | filecheck %s
// RUN: starc-opt %s --print-op-generic | starc-opt | filecheck %s

sharding.mesh @node = ["gpu"=4 : outer xgmi, "xcd"=8 : inner usr]

// CHECK-LABEL: func.func @all_reduce
func.func @all_reduce(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [2, 1, 64]>>) {
  // CHECK-NEXT: collective.all_reduce %x on @node axes = ["gpu"] reduction = sum {algorithm = "ring", transport = "bulk", rings = array<i64: 1, 3>} : tensor<2x1x64xbf16, {{.*}}partial = sum{"gpu", "xcd"}{{.*}} -> tensor<2x1x64xbf16, {{.*}}partial = sum{"xcd"}{{.*}}
  %a = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum {algorithm = "ring", transport = "bulk", rings = array<i64: 1, 3>} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [2, 1, 64]>>
  // Part of an axis: the groups are the 4 devices of each half of the dies.
  // CHECK-NEXT: collective.all_reduce %{{.*}} on @node axes = ["xcd":(2)4] reduction = sum :
  %b = collective.all_reduce %a on @node axes = ["xcd":(2)4] reduction = sum : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd":(1)2}, global = [2, 1, 64]>>
  func.return
}

// CHECK-LABEL: func.func @all_gather
func.func @all_gather(%x: tensor<2x1x2xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}], global = [2, 1, 64]>>) {
  // CHECK-NEXT: collective.all_gather %x on @node axes = ["xcd"] dim = 2 : tensor<2x1x2xbf16, {{.*}} -> tensor<2x1x16xbf16,
  %a = collective.all_gather %x on @node axes = ["xcd"] dim = 2 : tensor<2x1x2xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}], global = [2, 1, 64]>> -> tensor<2x1x16xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [2, 1, 64]>>
  func.return
}

// Gathered over the minor of two axes, a cyclic map has coarser blocks.
// CHECK-LABEL: func.func @cyclic
func.func @cyclic(%x: tensor<2xbf16, #sharding.of<@node, [{"gpu", "xcd"} cyclic(1)], global = [64]>>) {
  // CHECK-NEXT: collective.all_gather
  %a = collective.all_gather %x on @node axes = ["xcd"] dim = 0 : tensor<2xbf16, #sharding.of<@node, [{"gpu", "xcd"} cyclic(1)], global = [64]>> -> tensor<16xbf16, #sharding.of<@node, [{"gpu"} cyclic(8)], global = [64]>>
  func.return
}

// CHECK-LABEL: func.func @reduce_scatter
func.func @reduce_scatter(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [2, 1, 64]>>) {
  // CHECK-NEXT: collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2 :
  %a = collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}, global = [2, 1, 64]>> -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}, global = [2, 1, 64]>>
  func.return
}

// A partial softmax: maximum, sum and output together, scattered by heads.
// CHECK-LABEL: func.func @lse
func.func @lse(%m: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 8]>>, %o: tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 128]>>) {
  // CHECK-NEXT: %a, %b, %c = collective.reduce_scatter %m, %m, %o on @node axes = ["xcd"] reduction = lse dim = 2 :
  %a, %b, %c = collective.reduce_scatter %m, %m, %o on @node axes = ["xcd"] reduction = lse dim = 2 : tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 8]>>, tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 8]>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 128]>> -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 8]>>, tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 8]>>, tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 128]>>
  func.return
}

// CHECK-LABEL: func.func @all_to_all
func.func @all_to_all(%x: tensor<8x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [8, 64]>>) {
  // CHECK-NEXT: collective.all_to_all %x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 :
  %a = collective.all_to_all %x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 : tensor<8x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [8, 64]>> -> tensor<1x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [8, 64]>>
  func.return
}

// CHECK-LABEL: func.func @permute
func.func @permute(%x: tensor<2xbf16, #sharding.of<@node, [{"gpu", "xcd"}], global = [64]>>) {
  // CHECK-NEXT: collective.permute %x on @node axes = ["gpu", "xcd"] :
  %a = collective.permute %x on @node axes = ["gpu", "xcd"] : tensor<2xbf16, #sharding.of<@node, [{"gpu", "xcd"}], global = [64]>> -> tensor<2xbf16, #sharding.of<@node, [{"xcd", "gpu"}], global = [64]>>
  func.return
}

// CHECK-LABEL: func.func @root
func.func @root(%x: tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>) {
  // CHECK-NEXT: collective.reduce_to_root %x on @node axes = ["gpu"] reduction = sum : {{.*}} -> {{.*}}partial = root{"gpu"}
  %a = collective.reduce_to_root %x on @node axes = ["gpu"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], partial = root{"gpu"}, global = [64]>>
  // CHECK-NEXT: collective.broadcast %{{.*}} on @node axes = ["gpu"] :
  %b = collective.broadcast %a on @node axes = ["gpu"] : tensor<64xbf16, #sharding.of<@node, [{}], partial = root{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// Nothing moves in a slice. Shards may be uneven: 5 rows on 4 devices are 2, 2, 1 and none.
// CHECK-LABEL: func.func @all_slice
func.func @all_slice(%x: tensor<5x8xbf16, #sharding.of<@node, [{}, {}], global = [5, 8]>>) {
  // CHECK-NEXT: collective.all_slice %x on @node axes = ["gpu"] dim = 0 : tensor<5x8xbf16, {{.*}} -> tensor<2x8xbf16,
  %a = collective.all_slice %x on @node axes = ["gpu"] dim = 0 : tensor<5x8xbf16, #sharding.of<@node, [{}, {}], global = [5, 8]>> -> tensor<2x8xbf16, #sharding.of<@node, [{"gpu"}, {}], global = [5, 8]>>
  func.return
}
