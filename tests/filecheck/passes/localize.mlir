// RUN: starc-opt %s -p localize | filecheck %s

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=4 : inner usr]

// Parameters, states, arguments and values get the shape of a shard and keep the whole.
// CHECK: nn.parameter @f.w : tensor<64x8xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}], global = [64, 64]>>
nn.parameter @f.w : tensor<64x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
// CHECK: nn.state @f.cache : tensor<2x1x8x4xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}], global = [2, 2, 8, 4]>>
nn.state @f.cache : tensor<2x2x8x4xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>

// CHECK-LABEL: func.func @all_reduce(%x: tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [2, 8]>>)
// CHECK-NEXT:    collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = sum :
func.func @all_reduce(%x : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}>>) {
  %0 = sharding.reshard %x : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}>> -> tensor<2x8xbf16, #sharding.of<@node, [{}, {}]>>
  func.return
}

// CHECK-LABEL: func.func @reduce_scatter
// CHECK-NEXT:    collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 1 :
// CHECK-NEXT:    collective.all_reduce %{{.*}} on @node axes = ["gpu"] reduction = sum :
func.func @reduce_scatter(%x : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}>>) {
  %0 = sharding.reshard %x : tensor<2x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}>> -> tensor<2x8xbf16, #sharding.of<@node, [{}, {"xcd"}]>>
  func.return
}

// CHECK-LABEL: func.func @all_gather
// CHECK-NEXT:    collective.all_gather %x on @node axes = ["xcd":(2)2] dim = 1 : tensor<2x1xbf16, {{.*}} -> tensor<2x2xbf16,
func.func @all_gather(%x : tensor<2x8xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>) {
  %0 = sharding.reshard %x : tensor<2x8xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>> -> tensor<2x8xbf16, #sharding.of<@node, [{}, {"gpu", "xcd":(1)2}]>>
  func.return
}

// CHECK-LABEL: func.func @all_to_all
// CHECK-NEXT:    collective.all_to_all %x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 : tensor<4x2xbf16, {{.*}} -> tensor<1x8xbf16,
func.func @all_to_all(%x : tensor<4x8xbf16, #sharding.of<@node, [{}, {"xcd"}]>>) {
  %0 = sharding.reshard %x : tensor<4x8xbf16, #sharding.of<@node, [{}, {"xcd"}]>> -> tensor<4x8xbf16, #sharding.of<@node, [{"xcd"}, {}]>>
  func.return
}

// The three components of a partial softmax go together.
// CHECK-LABEL: func.func @lse
// CHECK-NEXT:    %{{.*}}, %{{.*}}, %{{.*}} = collective.reduce_scatter %m, %m, %o on @node axes = ["xcd"] reduction = lse dim = 1 :
func.func @lse(%m : tensor<2x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"xcd"}>>, %o : tensor<2x64xf32, #sharding.of<@node, [{}, {}], partial = lse{"xcd"}>>) {
  %0, %1, %2 = sharding.reshard %m, %m, %o : tensor<2x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"xcd"}>>, tensor<2x4xf32, #sharding.of<@node, [{}, {}], partial = lse{"xcd"}>>, tensor<2x64xf32, #sharding.of<@node, [{}, {}], partial = lse{"xcd"}>> -> tensor<2x4xf32, #sharding.of<@node, [{}, {"xcd"}]>>, tensor<2x4xf32, #sharding.of<@node, [{}, {"xcd"}]>>, tensor<2x64xf32, #sharding.of<@node, [{}, {"xcd"}]>>
  func.return
}

// Uneven shards: the local type is the largest of any device.
// CHECK-LABEL: func.func @uneven(%x: tensor<3x8xbf16, #sharding.of<@node, [{"gpu"}, {}], global = [5, 8]>>)
func.func @uneven(%x : tensor<5x8xbf16, #sharding.of<@node, [{"gpu"}, {}]>>) {
  func.return
}
