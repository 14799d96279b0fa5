// RUN: starc-opt %s --machine mi300x-cpx -p merge-collectives | filecheck %s

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]

// Two that wait for nothing are one; the third needs the first's result and stays.
// CHECK-LABEL: func.func @side_by_side
// CHECK-NEXT:    %0, %1 = collective.all_reduce %x, %y on @node axes = ["gpu"] reduction = sum :
// CHECK-NEXT:    collective.all_reduce %z on @node axes = ["xcd"] reduction = sum :
// CHECK-NEXT:    func.return
func.func @side_by_side(%x : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>, %y : tensor<32xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [32]>>, %z : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"xcd"}, global = [64]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %1 = collective.all_reduce %z on @node axes = ["xcd"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"xcd"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %2 = collective.all_reduce %y on @node axes = ["gpu"] reduction = sum : tensor<32xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [32]>> -> tensor<32xbf16, #sharding.of<@node, [{}], global = [32]>>
  func.return
}

// One behind the other, of other dimensions, other reductions or other types, and partial states.
// CHECK-LABEL: func.func @apart
// CHECK-NEXT:    collective.all_gather %x on @node axes = ["gpu":(2)4] dim = 0
// CHECK-NEXT:    collective.all_gather %0 on @node axes = ["gpu":(1)2] dim = 1
// CHECK-NEXT:    collective.all_reduce %s on @node axes = ["gpu"] reduction = sum
// CHECK-NEXT:    collective.all_reduce %t on @node axes = ["gpu"] reduction = max
// CHECK-NEXT:    collective.all_reduce %u on @node axes = ["gpu"] reduction = sum
// CHECK-NEXT:    func.return
func.func @apart(%x : tensor<8x8xbf16, #sharding.of<@node, [{"gpu":(2)4}, {"gpu":(1)2}], global = [32, 16]>>, %s : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>, %t : tensor<64xbf16, #sharding.of<@node, [{}], partial = max{"gpu"}, global = [64]>>, %u : tensor<64xf32, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>) {
  %0 = collective.all_gather %x on @node axes = ["gpu":(2)4] dim = 0 : tensor<8x8xbf16, #sharding.of<@node, [{"gpu":(2)4}, {"gpu":(1)2}], global = [32, 16]>> -> tensor<32x8xbf16, #sharding.of<@node, [{}, {"gpu":(1)2}], global = [32, 16]>>
  %1 = collective.all_gather %0 on @node axes = ["gpu":(1)2] dim = 1 : tensor<32x8xbf16, #sharding.of<@node, [{}, {"gpu":(1)2}], global = [32, 16]>> -> tensor<32x16xbf16, #sharding.of<@node, [{}, {}], global = [32, 16]>>
  %2 = collective.all_reduce %s on @node axes = ["gpu"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %3 = collective.all_reduce %t on @node axes = ["gpu"] reduction = max : tensor<64xbf16, #sharding.of<@node, [{}], partial = max{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %4 = collective.all_reduce %u on @node axes = ["gpu"] reduction = sum : tensor<64xf32, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xf32, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// What uses the first waits for the second.
// CHECK-LABEL: func.func @needed_between
// CHECK:         %y = nn.read @f.w
// CHECK-NEXT:    %[[a:.*]], %[[b:.*]] = collective.all_reduce %x, %y on @node axes = ["gpu"]
// CHECK-NEXT:    nn.add %[[a]], %[[a]]
func.func @needed_between(%x : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [1, 1, 64]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [1, 1, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>
  %n = nn.add %0, %0 : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>, tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>
  %y = nn.read @f.w : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [1, 1, 64]>>
  %1 = collective.all_reduce %y on @node axes = ["gpu"] reduction = sum : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [1, 1, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>
  func.return
}
nn.parameter @f.w : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [1, 1, 64]>>

// The second is made of the first.
// CHECK-LABEL: func.func @made_of_the_first
// CHECK-NEXT:    collective.all_gather %x on
// CHECK-NEXT:    nn.silu
// CHECK-NEXT:    collective.all_slice
// CHECK-NEXT:    collective.all_gather %{{.*}} on
func.func @made_of_the_first(%x : tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [1, 1, 64]>>) {
  %0 = collective.all_gather %x on @node axes = ["gpu"] dim = 2 : tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [1, 1, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>
  %1 = nn.silu %0 : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>
  %2 = collective.all_slice %1 on @node axes = ["gpu"] dim = 2 : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>> -> tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [1, 1, 64]>>
  %3 = collective.all_gather %2 on @node axes = ["gpu"] dim = 2 : tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [1, 1, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 1, 64]>>
  func.return
}
