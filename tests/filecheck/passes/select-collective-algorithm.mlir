// RUN: starc-opt %s --machine mi300x-cpx -p select-collective-algorithm | filecheck %s
// RUN: not starc-opt %s --machine mi300x-cpx -p 'select-collective-algorithm{transport="pigeon"}' 2>&1 | filecheck %s --check-prefix=TRANSPORT
// TRANSPORT: select-collective-algorithm: option 'transport' has no value 'pigeon' on mi300x-cpx{{.*}}, one of auto, {{.*}}bulk

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]

// A flat group is one ring; GPUs that are all linked to each other are several.
// CHECK-LABEL: func.func @rings
// CHECK:         axes = ["gpu", "xcd"] reduction = sum {algorithm = "ring", transport = "bulk", rings = array<i64: 1>}
// CHECK:         axes = ["gpu"] reduction = sum {algorithm = "ring", transport = "bulk", rings = array<i64: 1, 3, 5, 7>}
// CHECK:         axes = ["xcd"] dim = 0 {algorithm = "ring", transport = "bulk", rings = array<i64: 1>}
func.func @rings(%x : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu", "xcd"}, global = [64]>>, %y : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>, %z : tensor<8xbf16, #sharding.of<@node, [{"xcd"}], global = [64]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu", "xcd"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu", "xcd"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %1 = collective.all_reduce %y on @node axes = ["gpu"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %2 = collective.all_gather %z on @node axes = ["xcd"] dim = 0 : tensor<8xbf16, #sharding.of<@node, [{"xcd"}], global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}

// A slice moves nothing; an exchange is direct.
// CHECK-LABEL: func.func @others
// CHECK:         collective.all_slice %x on @node axes = ["gpu"] dim = 0 : tensor
// CHECK:         collective.all_to_all %y on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 {algorithm = "direct", transport = "bulk"} :
func.func @others(%x : tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>, %y : tensor<8x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [8, 64]>>) {
  %0 = collective.all_slice %x on @node axes = ["gpu"] dim = 0 : tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>> -> tensor<8xbf16, #sharding.of<@node, [{"gpu"}], global = [64]>>
  %1 = collective.all_to_all %y on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 : tensor<8x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [8, 64]>> -> tensor<1x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [8, 64]>>
  func.return
}

// By cost: few bytes over fully connected links in one or two steps, whatever the combiner with the
// one that keeps the order of the group.
// RUN: starc-opt %s --machine mi300x-cpx -p 'select-collective-algorithm{algorithm="auto" transport="auto"}' | filecheck %s --check-prefix=AUTO
// RUN: not starc-opt %s --machine mi300x-cpx -p 'select-collective-algorithm{algorithm="telegraph"}' 2>&1 | filecheck %s --check-prefix=ALGORITHM
// ALGORITHM: select-collective-algorithm: option 'algorithm' has no value 'telegraph', one of auto, bidirectional_ring, direct, one_shot, ring, tree, two_shot
// AUTO-LABEL: func.func @by_cost
// AUTO-NEXT:    collective.all_reduce %x on @node axes = ["gpu"] reduction = sum {algorithm = "{{one|two}}_shot", transport = "device_put"} :
// AUTO-NEXT:    collective.all_to_all %z on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 {algorithm = "direct", transport = "device_put"} :
func.func @by_cost(%x : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>>, %z : tensor<8x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [8, 64]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = sum : tensor<64xbf16, #sharding.of<@node, [{}], partial = sum{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  %1 = collective.all_to_all %z on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 : tensor<8x8xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [8, 64]>> -> tensor<1x64xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [8, 64]>>
  func.return
}
