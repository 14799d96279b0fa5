// Columns, rows, heads; KV heads over leading sub-axes; the rest of the devices takes the batch.
// RUN: starc-opt %s --machine mi300x-cpx --gpus 2 -p assign-tensor-parallel | filecheck %s
// RUN: starc-opt %s --machine mi300x-cpx --gpus 2 -p 'assign-tensor-parallel{tensor-parallel-size=4}' | filecheck %s --check-prefix=FOUR
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 2 -p 'assign-tensor-parallel{tensor-parallel-size=5}' 2>&1 | filecheck %s --check-prefix=FIVE

// FIVE: tensor-parallel size 5 does not divide the 16 devices

// CHECK:      sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=8 : inner usr]
// CHECK-NEXT: nn.parameter @decoder.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
// CHECK-NEXT: nn.parameter @decoder.q : tensor<64x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
// CHECK-NEXT: nn.parameter @decoder.k : tensor<64x16xbf16, #sharding.of<@node, [{}, {"gpu", "xcd":(1)2}]>>
// CHECK-NEXT: nn.parameter @decoder.o : tensor<64x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
// CHECK-NEXT: nn.parameter @decoder.sink : tensor<16xbf16, #sharding.of<@node, [{"gpu", "xcd"}]>>
// CHECK-NEXT: nn.state @decoder.k_cache : tensor<4x4x32x4xbf16, #sharding.of<@node, [{}, {"gpu", "xcd":(1)2}, {}, {}]>>
// CHECK-NEXT: func.func @decoder(%x: tensor<4x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<4x1x64xbf16> {

// FOUR:      nn.parameter @decoder.q : tensor<64x64xbf16, #sharding.of<@node, [{}, {"xcd":(2)4}]>>
// FOUR-NEXT: nn.parameter @decoder.k : tensor<64x16xbf16, #sharding.of<@node, [{}, {"xcd":(2)4}]>>
// FOUR-NEXT: nn.parameter @decoder.o : tensor<64x64xbf16, #sharding.of<@node, [{"xcd":(2)4}, {}]>>
// FOUR-NEXT: nn.parameter @decoder.sink : tensor<16xbf16, #sharding.of<@node, [{"xcd":(2)4}]>>
// FOUR-NEXT: nn.state @decoder.k_cache : tensor<4x4x32x4xbf16, #sharding.of<@node, [{"gpu", "xcd":(1)2}, {"xcd":(2)4}, {}, {}]>>
// FOUR-NEXT: func.func @decoder(%x: tensor<4x1x64xbf16, #sharding.of<@node, [{"gpu", "xcd":(1)2}, {}, {}]>>)

nn.parameter @decoder.norm : tensor<64xbf16>
nn.parameter @decoder.q : tensor<64x64xbf16>
nn.parameter @decoder.k : tensor<64x16xbf16>
nn.parameter @decoder.o : tensor<64x64xbf16>
nn.parameter @decoder.sink : tensor<16xbf16>
nn.state @decoder.k_cache : tensor<4x4x32x4xbf16>
func.func @decoder(%x : tensor<4x1x64xbf16>) -> tensor<4x1x64xbf16> {
  %wn = nn.read @decoder.norm : tensor<64xbf16>
  %h = nn.rms_norm %x, %wn {eps = 1.0e-05 : f64} : tensor<4x1x64xbf16>, tensor<64xbf16> -> tensor<4x1x64xbf16>
  %wq = nn.read @decoder.q : tensor<64x64xbf16>
  %q = nn.linear %h, %wq : tensor<4x1x64xbf16>, tensor<64x64xbf16> -> tensor<4x1x64xbf16>
  %wk = nn.read @decoder.k : tensor<64x16xbf16>
  %k = nn.linear %h, %wk : tensor<4x1x64xbf16>, tensor<64x16xbf16> -> tensor<4x1x16xbf16>
  %r = nn.rope %k {theta = 10000.0 : f64, head_dim = 4 : i64, start = 31 : i64} : tensor<4x1x16xbf16> -> tensor<4x1x16xbf16>
  %c = nn.append @decoder.k_cache, %r {start = 31 : i64} : tensor<4x1x16xbf16> -> tensor<4x4x32x4xbf16>
  %s = nn.read @decoder.sink : tensor<16xbf16>
  %a = nn.attention %q, %c, %c sink %s : tensor<16xbf16> {head_dim = 4 : i64, start = 31 : i64, scale = 0.5 : f64, causal} : tensor<4x1x64xbf16>, tensor<4x4x32x4xbf16>, tensor<4x4x32x4xbf16> -> tensor<4x1x64xbf16>
  %wo = nn.read @decoder.o : tensor<64x64xbf16>
  %o = nn.linear %a, %wo : tensor<4x1x64xbf16>, tensor<64x64xbf16> -> tensor<4x1x64xbf16>
  func.return %o : tensor<4x1x64xbf16>
}
