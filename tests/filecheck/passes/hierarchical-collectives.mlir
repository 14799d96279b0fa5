// RUN: starc-opt %s -p hierarchical-collectives | filecheck %s
// RUN: starc-opt %s -p 'hierarchical-collectives{uneven=true}' | filecheck %s --check-prefix=UNEVEN

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]

// Pieces go outside in the order of the inner devices, so that the second gather interleaves them.
// CHECK-LABEL: func.func @gather
// CHECK-NEXT:    collective.all_gather %x on @node axes = ["gpu"] dim = 0 : {{.*}} -> tensor<8x3xbf16, #sharding.of<@node, [{"xcd"} cyclic(1), {}],
// CHECK-NEXT:    collective.all_gather %0 on @node axes = ["xcd"] dim = 0 :
func.func @gather(%x : tensor<1x3xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [64, 3]>>) {
  %0 = collective.all_gather %x on @node axes = ["gpu", "xcd"] dim = 0 : tensor<1x3xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [64, 3]>> -> tensor<64x3xbf16, #sharding.of<@node, [{}, {}], global = [64, 3]>>
  func.return
}

// CHECK-LABEL: func.func @scatter
// CHECK-NEXT:    collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 0 : {{.*}} -> tensor<16x3xbf16, #sharding.of<@node, [{"xcd"} cyclic(2), {}], partial = sum{"gpu"},
// CHECK-NEXT:    collective.reduce_scatter %0 on @node axes = ["gpu"] reduction = sum dim = 0 :
func.func @scatter(%x : tensor<128x3xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [128, 3]>>) {
  %0 = collective.reduce_scatter %x on @node axes = ["gpu", "xcd"] reduction = sum dim = 0 : tensor<128x3xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [128, 3]>> -> tensor<2x3xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [128, 3]>>
  func.return
}

// Behind axes that stay, no map says what is held between the phases: shards change devices.
// CHECK-LABEL: func.func @scatter_behind
// CHECK-NEXT:    collective.reduce_scatter %x on @node axes = ["xcd"]
// CHECK-NEXT:    collective.reduce_scatter %0 on @node axes = ["gpu":(2)4]
// CHECK-NEXT:    collective.permute %1 on @node axes = ["gpu":(2)4, "xcd"] :
func.func @scatter_behind(%x : tensor<64x3xbf16, #sharding.of<@node, [{"gpu":(1)2}, {}], partial = sum{"gpu":(2)4, "xcd"}, global = [128, 3]>>) {
  %0 = collective.reduce_scatter %x on @node axes = ["gpu":(2)4, "xcd"] reduction = sum dim = 0 : tensor<64x3xbf16, #sharding.of<@node, [{"gpu":(1)2}, {}], partial = sum{"gpu":(2)4, "xcd"}, global = [128, 3]>> -> tensor<2x3xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [128, 3]>>
  func.return
}

// CHECK-LABEL: func.func @gather_behind
// CHECK-NEXT:    collective.permute %x on @node axes = ["gpu":(2)4, "xcd"] :
// CHECK-NEXT:    collective.all_gather %0 on @node axes = ["gpu":(2)4] dim = 0
// CHECK-NEXT:    collective.all_gather %1 on @node axes = ["xcd"] dim = 0
func.func @gather_behind(%x : tensor<2x3xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [128, 3]>>) {
  %0 = collective.all_gather %x on @node axes = ["gpu":(2)4, "xcd"] dim = 0 : tensor<2x3xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [128, 3]>> -> tensor<64x3xbf16, #sharding.of<@node, [{"gpu":(1)2}, {}], global = [128, 3]>>
  func.return
}

// CHECK-LABEL: func.func @exchange
// CHECK-NEXT:    collective.all_to_all %x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 : {{.*}} -> tensor<8x16xbf16, #sharding.of<@node, [{"xcd"} cyclic(1), {"gpu"}],
// CHECK-NEXT:    collective.all_to_all %0 on @node axes = ["gpu"] split_dim = 0 concat_dim = 1 :
func.func @exchange(%x : tensor<64x2xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}], global = [64, 128]>>) {
  %0 = collective.all_to_all %x on @node axes = ["gpu", "xcd"] split_dim = 0 concat_dim = 1 : tensor<64x2xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}], global = [64, 128]>> -> tensor<1x128xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}], global = [64, 128]>>
  func.return
}

// Nothing divides: one level after the other, or uneven pieces where a dimension has enough.
// CHECK-LABEL: func.func @few
// CHECK-NEXT:    collective.all_reduce %x on @node axes = ["xcd"] reduction = sum :
// CHECK-NEXT:    collective.all_reduce %0 on @node axes = ["gpu"] reduction = sum :
// CHECK-NEXT:    func.return
// UNEVEN-LABEL: func.func @few
// UNEVEN-NEXT:    collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 1 : {{.*}} -> tensor<3x2xbf16,
// UNEVEN-NEXT:    collective.all_reduce %0 on @node axes = ["gpu"] reduction = sum :
// UNEVEN-NEXT:    collective.all_gather %1 on @node axes = ["xcd"] dim = 1 :
func.func @few(%x : tensor<3x9xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [3, 9]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = sum : tensor<3x9xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [3, 9]>> -> tensor<3x9xbf16, #sharding.of<@node, [{}, {}], global = [3, 9]>>
  func.return
}

// The gather inside and the slice behind it cancel; the dimension is the one that is sliced.
// CHECK-LABEL: func.func @sliced
// CHECK-NEXT:    collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 0
// CHECK-NEXT:    %[[sum:.*]] = collective.all_reduce %0 on @node axes = ["gpu"] reduction = sum
// CHECK-NEXT:    func.return %[[sum]]
func.func @sliced(%x : tensor<64x64xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [64, 64]>>) -> tensor<8x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [64, 64]>> {
  %0 = collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = sum : tensor<64x64xbf16, #sharding.of<@node, [{}, {}], partial = sum{"gpu", "xcd"}, global = [64, 64]>> -> tensor<64x64xbf16, #sharding.of<@node, [{}, {}], global = [64, 64]>>
  %1 = collective.all_slice %0 on @node axes = ["xcd"] dim = 0 : tensor<64x64xbf16, #sharding.of<@node, [{}, {}], global = [64, 64]>> -> tensor<8x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [64, 64]>>
  func.return %1 : tensor<8x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [64, 64]>>
}

// A gather whose one use cuts another dimension is an all-to-all.
// CHECK-LABEL: func.func @turned
// CHECK-NEXT:    collective.all_to_all %x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1
// CHECK-NEXT:    func.return
func.func @turned(%x : tensor<64x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [64, 64]>>) -> tensor<8x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [64, 64]>> {
  %0 = collective.all_gather %x on @node axes = ["xcd"] dim = 1 : tensor<64x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [64, 64]>> -> tensor<64x64xbf16, #sharding.of<@node, [{}, {}], global = [64, 64]>>
  %1 = collective.all_slice %0 on @node axes = ["xcd"] dim = 0 : tensor<64x64xbf16, #sharding.of<@node, [{}, {}], global = [64, 64]>> -> tensor<8x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [64, 64]>>
  func.return %1 : tensor<8x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [64, 64]>>
}

// A partial softmax is cut at heads, its three values together.
// CHECK-LABEL: func.func @softmax
// CHECK-NEXT:    collective.reduce_scatter %m, %m, %o on @node axes = ["xcd"] reduction = lse dim = 2
// CHECK-SAME:    -> tensor<2x1x2xf32,{{.*}}, tensor<2x1x2xf32,{{.*}}, tensor<2x1x32xf32,
// CHECK-NEXT:    collective.all_reduce %0, %1, %2 on @node axes = ["gpu"] reduction = lse
// CHECK-NEXT:    collective.all_gather %3, %4, %5 on @node axes = ["xcd"] dim = 2
func.func @softmax(%m : tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"gpu", "xcd"}, global = [2, 1, 16]>>, %o : tensor<2x1x256xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"gpu", "xcd"}, global = [2, 1, 256]>>) {
  %0, %1, %2 = collective.all_reduce %m, %m, %o on @node axes = ["gpu", "xcd"] reduction = lse : tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"gpu", "xcd"}, global = [2, 1, 16]>>, tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"gpu", "xcd"}, global = [2, 1, 16]>>, tensor<2x1x256xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"gpu", "xcd"}, global = [2, 1, 256]>> -> tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 16]>>, tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 16]>>, tensor<2x1x256xf32, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 256]>>
  func.return
}

// What only the first device of a group has must not be combined in another order; one level stays.
// CHECK-LABEL: func.func @declined
// CHECK-NEXT:    collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = root :
// CHECK-NEXT:    collective.all_reduce %y on @node axes = ["gpu"] reduction = sum :
// CHECK-NEXT:    func.return
func.func @declined(%x : tensor<64xbf16, #sharding.of<@node, [{}], partial = root{"gpu", "xcd"}, global = [64]>>, %y : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = root : tensor<64xbf16, #sharding.of<@node, [{}], partial = root{"gpu", "xcd"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %1 = collective.all_reduce %y on @node axes = ["gpu"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}
