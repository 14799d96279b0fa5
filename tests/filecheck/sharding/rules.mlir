// What the sharding rules allow.
// RUN: starc-opt %s | filecheck %s

sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]

// Columns over one axis, the sum over the other: a partial sum of a split result.
// CHECK-LABEL: func.func @linear
func.func @linear(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, %w: tensor<64x32xbf16, #sharding.of<@node, [{"x"}, {"y"}]>>) {
  %y = nn.linear %x, %w : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, tensor<64x32xbf16, #sharding.of<@node, [{"x"}, {"y"}]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>
  func.return
}

// A sum of partial sums is one; linear operations carry it on.
// CHECK-LABEL: func.func @carried
func.func @carried(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>, %s: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}]>>, %w: tensor<64x32xbf16, #sharding.of<@node, [{"y"}, {}]>>) {
  %a = nn.add %x, %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>
  %b = nn.mul %a, %s : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>
  %c = nn.linear %b, %w : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>, tensor<64x32xbf16, #sharding.of<@node, [{"y"}, {}]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"x", "y"}>>
  func.return
}

// Query heads over all devices, KV heads over the outer axis.
// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x", "y"}]>>, %k: tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>) {
  %a = nn.attention %q, %k, %k {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x", "y"}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>> -> tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x", "y"}]>>
  func.return
}

// Operations of xDSL have rules too: the first of joined dimensions may be split.
// CHECK-LABEL: func.func @reused
func.func @reused(%x: tensor<8x4x16xf32, #sharding.of<@node, [{}, {"x"}, {}], partial = sum{"y"}>>) {
  %a = arith.negf %x : tensor<8x4x16xf32, #sharding.of<@node, [{}, {"x"}, {}], partial = sum{"y"}>>
  %b = tensor.collapse_shape %a [[0], [1, 2]] : tensor<8x4x16xf32, #sharding.of<@node, [{}, {"x"}, {}], partial = sum{"y"}>> into tensor<8x64xf32, #sharding.of<@node, [{}, {"x"}], partial = sum{"y"}>>
  func.return
}

// The parts of a norm whose features are split: a partial sum of squares; the scale of rows goes
// through a partial sum.
// CHECK-LABEL: func.func @norm
func.func @norm(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, %w: tensor<64xbf16, #sharding.of<@node, [{"x"}]>>, %r: tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>>, %y: tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>) {
  %s = nn.sum_squares %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>> -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>>
  %a = nn.scale_columns %x, %w : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, tensor<64xbf16, #sharding.of<@node, [{"x"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
  %b = nn.scale_rows %y, %r : tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>, tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"y"}], partial = sum{"x"}>>
  func.return
}

// A sink is split as the heads are.
// CHECK-LABEL: func.func @sink
func.func @sink(%q: tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x", "y"}]>>, %k: tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>, %s: tensor<8xbf16, #sharding.of<@node, [{"x", "y"}]>>) {
  %a = nn.attention %q, %k, %k sink %s : tensor<8xbf16, #sharding.of<@node, [{"x", "y"}]>> {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal, window = 8 : i64} : tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x", "y"}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>> -> tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x", "y"}]>>
  func.return
}
