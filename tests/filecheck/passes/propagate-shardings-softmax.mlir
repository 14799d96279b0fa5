// Attention over a cache that is split along the sequence: every device has seen its own positions.
// The three components of what it found are combined together, by one reshard.
// RUN: starc-opt %s -p propagate-shardings | filecheck %s
// RUN: starc-opt %s -p propagate-shardings,localize | filecheck %s --check-prefix=LOCAL

sharding.mesh @node = ["x"=4 : inner link]
nn.state @k : tensor<3x2x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>

// CHECK:       %k = nn.append @k, %new {start = 30 : i64} : tensor<3x2x32xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<3x2x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>
// CHECK-NEXT:  %m, %l, %o = nn.partial_attention %q, %k, %k {{.*}} -> tensor<3x2x4xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, tensor<3x2x4xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, tensor<3x2x64xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>
// CHECK-NEXT:  %m_1, %l_1, %o_1 = sharding.reshard %m, %l, %o : {{.*}}
// CHECK-NEXT:  %y = nn.lse_finish %m_1, %l_1, %o_1 {{.*}} -> tensor<3x2x64xbf16, #sharding.of<@node, [{}, {}, {}]>>

// LOCAL:       nn.state @k : tensor<3x2x8x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}], global = [3, 2, 32, 16]>>
// LOCAL:       collective.all_reduce %m, %l, %o on @node axes = ["x"] reduction = lse
func.func @f(%q : tensor<3x2x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, %new : tensor<3x2x32xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<3x2x64xbf16> {
  %k = nn.append @k, %new {start = 30 : i64} : tensor<3x2x32xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<3x2x32x16xbf16>
  %m, %l, %o = nn.partial_attention %q, %k, %k {head_dim = 16 : i64, start = 30 : i64, scale = 0.25 : f64, causal} : tensor<3x2x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<3x2x32x16xbf16>, tensor<3x2x32x16xbf16> -> tensor<3x2x4xf32>, tensor<3x2x4xf32>, tensor<3x2x64xf32>
  %y = nn.lse_finish %m, %l, %o {head_dim = 16 : i64} : tensor<3x2x4xf32>, tensor<3x2x4xf32>, tensor<3x2x64xf32> -> tensor<3x2x64xbf16>
  func.return %y : tensor<3x2x64xbf16>
}
