// RUN: starc-opt %s -p form-kernels,assign-queues,tile-kernels,map-workgroups,plan-memory | filecheck %s

// All-reduces of one shape share a staging buffer with a slot per reducing step, and write their
// result where peers can put it. A split product has a workspace that lives during its launch.

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
nn.parameter @f.w : tensor<8192x160xbf16, #sharding.of<@node, [{"gpu"}, {}], global = [65536, 160]>>

// CHECK-COUNT-1: kernel.buffer @all_reduce.staging : tensor<7x{{[0-9]+x[0-9]+x[0-9]+}}xbf16> {{.*}} layout = #kernel.layout<row_major>, space = "symmetric", role = "communication"
// CHECK-DAG: kernel.buffer @f.w_all_reduce.out : {{.*}} space = "symmetric", role = "activation"
// CHECK-DAG: kernel.buffer @f.w.partial : tensor<{{[0-9]+}}x{{[0-9]+}}x16x{{[0-9]+}}xf32> {{.*}} space = "private", role = "activation"
// CHECK-NOT: role = "communication"
// CHECK: kernel.launch @f.w gemm {{.*}} workspace = [@f.w.partial]
// CHECK: kernel.launch @f.w_all_reduce collective {{.*}} waits, {{.*}} staging = [@all_reduce.staging]
// CHECK: kernel.launch @f.all_reduce collective {{.*}} staging = [@all_reduce.staging]
func.func @f(%x : tensor<8x1x8192xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [8, 1, 65536]>>, %p : tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [8, 1, 160]>>) -> tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>> {
  %w = nn.read @f.w : tensor<8192x160xbf16, #sharding.of<@node, [{"gpu"}, {}], global = [65536, 160]>>
  %y = nn.linear %x, %w : tensor<8x1x8192xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], global = [8, 1, 65536]>>, tensor<8192x160xbf16, #sharding.of<@node, [{"gpu"}, {}], global = [65536, 160]>> -> tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [8, 1, 160]>>
  %a = collective.all_reduce %y on @node axes = ["gpu"] reduction = sum {algorithm = "ring", transport = "bulk", rings = array<i64: 1>} : tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [8, 1, 160]>> -> tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>>
  %s = nn.silu %a : tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>> -> tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>>
  %b = collective.all_reduce %p on @node axes = ["gpu"] reduction = sum {algorithm = "ring", transport = "bulk", rings = array<i64: 1>} : tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [8, 1, 160]>> -> tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>>
  %z = nn.add %s, %b : tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>>, tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>> -> tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>>
  func.return %z : tensor<8x1x160xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 160]>>
}
