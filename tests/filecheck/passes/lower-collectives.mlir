// RUN: starc-opt %s -p form-kernels,assign-queues,tile-kernels,map-workgroups,plan-memory,lower-to-isa | filecheck %s

// Schedules of collectives as templates: every event in a loop over pieces and targets, one signal
// to each target behind all puts of a step, a counter for each arrival and workgroup.

sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=4 : inner usr]

// Everybody stages its whole data everywhere, itself included; all add in the order of the group.
// CHECK-LABEL: isa.kernel @one_shot.all_reduce
// CHECK: isa.put %own, @one_shot.all_reduce.staging[%device mod 4, %piece, 0, 0] to [(%device - %event + 3) mod 4]
// CHECK: isa.signal @one_shot.all_reduce.arrived[(%device mod 4) * 4 + %wg] add [1] to [(%device - %e + 3) mod 4]
// CHECK-COUNT-4: isa.wait
// CHECK: isa.load %in, @one_shot.all_reduce.staging[0, %i_1, 0, 0] {acquire}
// CHECK-COUNT-3: isa.vector "add"
// CHECK: isa.store %sum, @one_shot.result
// CHECK-NOT: isa.put
func.func @one_shot(%x : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>>) -> tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>> {
  %y = collective.all_reduce %x on @node axes = ["xcd"] reduction = sum {algorithm = "one_shot", transport = "device_put"} : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>> -> tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>>
  func.return %y : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>>
}

// Pieces to their owners, sums back to everyone.
// CHECK-LABEL: isa.kernel @two_shot.all_reduce
// CHECK: isa.put %own, @all_reduce.staging[%event, %piece, 0, 0] to [(%device - %event + 3) mod 4]
// CHECK-COUNT-3: isa.wait
// CHECK: isa.store %sum, @two_shot.result
// CHECK-COUNT-3: isa.put %sum, @two_shot.result
// CHECK-COUNT-3: isa.signal
// CHECK: isa.wait
func.func @two_shot(%x : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>>) -> tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>> {
  %y = collective.all_reduce %x on @node axes = ["xcd"] reduction = sum {algorithm = "two_shot", transport = "device_put"} : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>> -> tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>>
  func.return %y : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>>
}

// Level by level to the root and back; who has nothing to do in a level skips it.
// CHECK-LABEL: isa.kernel @tree.all_reduce
// CHECK: isa.if [table<-1, 0, -1, 0>[%device]] {
// CHECK: isa.put %own, @tree.all_reduce.staging[0, %i, 0, 0] to [(%device + 3) mod 4]
// CHECK: isa.if [table<-1, -1, 0, -1>[%device]] {
// CHECK: isa.put %sum, @tree.all_reduce.staging[1, %i_1, 0, 0] to [0]
// CHECK: isa.if [table<0, -1, -1, -1>[%device]] {
// CHECK: isa.store %sum_1, @tree.result
// CHECK: isa.load %passed, @tree.result[0, %i_3, 0] {acquire}
// CHECK: isa.put %passed, @tree.result[0, %i_3, 0] to [3]
func.func @tree(%x : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>>) -> tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>> {
  %y = collective.all_reduce %x on @node axes = ["xcd"] reduction = sum {algorithm = "tree", transport = "device_put"} : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>> -> tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>>
  func.return %y : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [1, 4, 64]>>
}

// Two devices share a carrier: they exchange what is for the other's place, then two halves go each
// way between the two carriers.
// CHECK-LABEL: isa.kernel @bidirectional.reduce_scatter
// CHECK: isa.put %own, @bidirectional.reduce_scatter.staging[%event, %piece, 0, 0] to [(%device * -1 + 1) mod 4]
// CHECK: isa.put %sum, @bidirectional.reduce_scatter.staging[%event_1 + 4, %piece_1, 0, 0] to [(%device + 2) mod 4]
// CHECK: isa.store %sum_1, @bidirectional.result
func.func @bidirectional(%x : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>>) -> tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>> {
  %y = collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2 {algorithm = "bidirectional_ring", transport = "device_put"} : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>> -> tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>>
  func.return %y : tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>>
}

// Owners read their pieces of what the others hold, who do not end before that.
// CHECK-LABEL: isa.kernel @direct.reduce_scatter
// CHECK: isa.signal @direct.reduce_scatter.arrived
// CHECK-COUNT-3: isa.wait @direct.reduce_scatter.arrived
// CHECK: isa.get %in, @direct.x[0, %i, (%device mod 4) * 16] from [(%device + 1) mod 4]
// CHECK: isa.store %sum, @direct.result
// CHECK: isa.signal @direct.reduce_scatter.read
// CHECK: isa.wait @direct.reduce_scatter.read
func.func @direct(%x : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>>) -> tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>> {
  %y = collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2 {algorithm = "direct", transport = "device_put"} : tensor<1x4x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [1, 4, 64]>> -> tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>>
  func.return %y : tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>>
}

// CHECK-LABEL: isa.kernel @to_all.all_to_all
// CHECK: isa.load %own, @{{.*}}[0, (%device - %event + 3) mod 4, 0]
// CHECK: isa.put %own, @to_all.result[0, 0, %device * 16] to [(%device - %event + 3) mod 4]
// CHECK: isa.wait
func.func @to_all(%x : tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>>) -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {"xcd"}, {}], global = [1, 4, 64]>> {
  %y = collective.all_to_all %x on @node axes = ["xcd"] split_dim = 1 concat_dim = 2 {algorithm = "direct", transport = "device_put"} : tensor<1x4x16xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [1, 4, 64]>> -> tensor<1x1x64xbf16, #sharding.of<@node, [{}, {"xcd"}, {}], global = [1, 4, 64]>>
  func.return %y : tensor<1x1x64xbf16, #sharding.of<@node, [{}, {"xcd"}, {}], global = [1, 4, 64]>>
}
