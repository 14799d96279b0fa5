// Operations on types that are not those of whole tensors: relations that hold of whole tensors
// alone (heads to KV heads, positions to the cache's length) are not asked of them.
// RUN: starc-opt %s | starc-opt | filecheck %s

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
nn.state @l.cache : tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
nn.state @m.cache : tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {}, {}, {}], global = [2, 2, 32, 16]>>
// CHECK: func.func @l
func.func @l(%x : tensor<2x4x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>) {
  // CHECK-NEXT: nn.append @l.cache, %x {start = 28 : i64} : tensor<2x4x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %k = nn.append @l.cache, %x {start = 28 : i64} : tensor<2x4x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  func.return
}
// One of four heads on a device that keeps both KV heads.
// CHECK: func.func @m
func.func @m(%q : tensor<2x4x16xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}], global = [2, 4, 64]>>,
             %k : tensor<2x4x32xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 4, 32]>>) {
  // CHECK-NEXT: %c = nn.append @m.cache, %k {start = 28 : i64}
  %c = nn.append @m.cache, %k {start = 28 : i64} : tensor<2x4x32xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 4, 32]>> -> tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {}, {}, {}], global = [2, 2, 32, 16]>>
  // CHECK-NEXT: nn.attention %q, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 2.500000e-01 : f64, causal}
  %a = nn.attention %q, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64, causal} : tensor<2x4x16xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}], global = [2, 4, 64]>>, tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {}, {}, {}], global = [2, 2, 32, 16]>>, tensor<2x2x32x16xbf16, #sharding.of<@node, [{}, {}, {}, {}], global = [2, 2, 32, 16]>> -> tensor<2x4x16xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}], global = [2, 4, 64]>>
  func.return
}
