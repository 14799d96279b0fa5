// RUN: starc-opt %s -p lower-to-isa | filecheck %s
// RUN: starc-opt %s -p lower-to-isa | starc-opt | filecheck %s

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=4 : inner usr]
kernel.buffer @x : tensor<2x1x64xbf16> {address = 0 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @w : tensor<64x32xbf16> {address = 4096 : i64, bytes = 4096 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @y : tensor<2x1x32xbf16> {address = 8192 : i64, bytes = 128 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @partial : tensor<1x2x16x16xf32> {address = 12288 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @q : tensor<1x2x32xbf16> {address = 16384 : i64, bytes = 128 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @k : tensor<1x2x40x8xbf16> {address = 20480 : i64, bytes = 1280 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @a : tensor<1x2x32xbf16> {address = 24576 : i64, bytes = 128 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [2, 1, 64]>> {address = 28672 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @s : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> {address = 32768 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "activation"}
kernel.buffer @staging : tensor<3x2x1x16xbf16> {address = 36864 : i64, bytes = 192 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "activation"}

// Two shares of K: the first adds the second to its own when it has been signalled.
// CHECK: isa.counter @linear.shares count 2
// CHECK: isa.kernel @linear coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "gemm", {{.*}}waits}
// CHECK-NEXT: %share = isa.index [%wg floordiv 2]
// CHECK: isa.vector "zero"(%acc)
// CHECK-NEXT: isa.loop %k = [%share * 2] to [min(%share * 2 + 2, 4)] attributes {stages = 2 : i64} {
// CHECK: isa.load %a, @x[0, 0, %k * 16] extents [2, 1, 16]
// CHECK-NEXT: isa.load %b, @w[%k * 16, %column]
// CHECK-NEXT: isa.matrix %acc, %a, %b
// CHECK: isa.if [%share * -1] {
// CHECK-NEXT: isa.wait @linear.shares[{{.*}}] until [1]
// CHECK: isa.load %other_acc, @partial[%other, {{.*}}, 0, 0] {acquire}
// CHECK-NEXT: isa.vector "add"(%acc, %acc, %other_acc)
// CHECK: isa.store %acc, @y[0, 0, %column] extents [2, 1, 16]
// CHECK: isa.if [%share - 1] {
// CHECK-NEXT: isa.store %acc, @partial[%share - 1, {{.*}}, 0, 0]
// CHECK-NEXT: isa.signal @linear.shares[{{.*}}] add [1]

// Two query tokens of two heads each are the rows of one tile.
// CHECK: isa.kernel @attention
// CHECK: isa.load %q, @q[0, 0, %head * 8] extents [1, 2, 16] : !isa.tile<4x8xbf16>
// CHECK: isa.loop %j = [0] to [3]
// CHECK: isa.matrix %s, %q, %k {transpose_b}
// CHECK-NEXT: isa.vector "softmax_step"(%p, %s, %m, %l, %correction) params [{{[0-9]+}}, 38, 2, %j * 16, 40]
// CHECK-NEXT: isa.vector "rescale"(%o, %correction)
// CHECK: isa.matrix %o, %p, %v
// CHECK: isa.vector "lse_finish"

// A ring over four dies: three receiving steps, then three gathering ones.
// CHECK: isa.counter @sum.arrived count 2
// CHECK: isa.kernel @sum {{.*}}waits}
// CHECK-NEXT: %rank = isa.index [%device mod 4]
// CHECK: isa.put %own, @staging[0, %i, 0, 0] to [%next]
// CHECK: isa.signal @sum.arrived[%wg] add [1] to [%next]
// CHECK: isa.loop %t = [1] to [3] {
// CHECK: isa.wait @sum.arrived[%wg] until [%t]
// CHECK: isa.vector "add"(%sum, %in, %own
// CHECK: isa.wait @sum.arrived[%wg] until [3]
// CHECK: isa.store %sum{{.*}}, @s
// CHECK: isa.put %sum{{.*}}, @s{{.*}} to [%next]
// CHECK: isa.wait @sum.arrived[%wg] until [6]

// CHECK: func.func @layer
// CHECK-NEXT: isa.launch @linear [@linear grid 4] queue "compute"
// CHECK-NEXT: isa.launch @attention [@attention grid 2] queue "compute"
// CHECK-NEXT: isa.launch @sum [@sum grid 2] queue "communication"
// CHECK-NEXT: func.return
func.func @layer() {
  kernel.launch @linear gemm reads (%x = @x : tensor<2x1x64xbf16>, %w = @w : tensor<64x32xbf16>) writes (@y) attributes {tile = array<i64: 16, 16, 16>, split = 2 : i64, combine = "owner", stages = 2 : i64, grid = array<i64: 4>, waits, workspace = [@partial]} {
    %y = nn.linear %x, %w : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
    kernel.yield %y : tensor<2x1x32xbf16>
  }
  kernel.launch @attention attention reads (%q = @q : tensor<1x2x32xbf16>, %k = @k : tensor<1x2x40x8xbf16>) writes (@a) attributes {tile = array<i64: 4, 16, 8>, group = 2 : i64, stages = 2 : i64, grid = array<i64: 2>} {
    %a = nn.attention %q, %k, %k {head_dim = 8 : i64, start = 38 : i64, scale = 0.35 : f64, causal} : tensor<1x2x32xbf16>, tensor<1x2x40x8xbf16>, tensor<1x2x40x8xbf16> -> tensor<1x2x32xbf16>
    kernel.yield %a : tensor<1x2x32xbf16>
  }
  kernel.launch @sum collective reads (%r = @r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [2, 1, 64]>>) writes (@s) attributes {queue = 1 : i64, tile = array<i64: 1, 16>, grid = array<i64: 2>, waits, staging = [@staging]} {
    %s = collective.all_reduce %r on @node axes = ["xcd"] reduction = sum {algorithm = "ring", transport = "bulk"} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
    kernel.yield %s : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  }
  func.return
}
