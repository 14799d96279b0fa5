// A value whose encoding its operation does not give is an error: no pass can lose an all-reduce.
// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK: 'nn.linear': result 0 is not partial, but the operation leaves partial sum{"x"}
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, %w: tensor<64x32xbf16, #sharding.of<@node, [{"x"}, {}]>>) {
  %y = nn.linear %x, %w : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, tensor<64x32xbf16, #sharding.of<@node, [{"x"}, {}]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.linear': dim 0 of operand 1 is split over {"x"}, dim 2 of operand 0 over {}: they must agree
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, %w: tensor<64x32xbf16, #sharding.of<@node, [{"x"}, {}]>>) {
  %y = nn.linear %x, %w : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64x32xbf16, #sharding.of<@node, [{"x"}, {}]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.rms_norm': operand 0 is partial sum{"x"}, the operation needs its value: an all-reduce was lost
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>>, %w: tensor<64xbf16, #sharding.of<@node, [{}]>>) {
  %y = nn.rms_norm %x, %w {eps = 1.0e-05 : f64} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>>, tensor<64xbf16, #sharding.of<@node, [{}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.rms_norm': dim 2 of operand 0 is split over {"x"}, but must be whole
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, %w: tensor<64xbf16, #sharding.of<@node, [{"x"}]>>) {
  %y = nn.rms_norm %x, %w {eps = 1.0e-05 : f64} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, tensor<64xbf16, #sharding.of<@node, [{"x"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
  func.return
}

// -----
// CHECK: 'nn.add': operand 0 is partial sum{"x"}, operand 1 is not: an all-reduce was lost
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>, %y: tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>>) {
  %z = nn.add %x, %y : tensor<8x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>, tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>> -> tensor<8x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>
  func.return
}

// -----
// The square of a partial sum is not the partial sum of squares.
// CHECK: 'arith.mulf': operand 0 is partial sum{"x"}, the operation needs its value: an all-reduce was lost
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>) {
  %z = arith.mulf %x, %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>
  func.return
}

// -----
// CHECK: 'tensor.cast': result 0 is not partial, but the operation leaves partial sum{"x"}
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>) {
  %z = tensor.cast %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}], partial = sum{"x"}>> to tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.silu': result 0 is partial sum{"x"}, but nothing makes it so
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>>) {
  %z = nn.silu %x : tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>> -> tensor<8x8xbf16, #sharding.of<@node, [{}, {}], partial = sum{"x"}>>
  func.return
}

// -----
// CHECK: 'nn.rope': dim 2 of operand 0 of size 64 is split over {"x"} inside a block of 32
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>) {
  %y = nn.rope %x {theta = 10000.0 : f64, head_dim = 32 : i64, start = 0 : i64} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
  func.return
}

// -----
// CHECK: 'nn.attention': dim 2 of operand 0 is split over {"x"}, dim 1 of operand 1 over {"y"}: the axes of the second must come first in the first, and its shards cover those of the first
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%q: tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, %k: tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"y"}, {}, {}]>>) {
  %a = nn.attention %q, %k, %k {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"y"}, {}, {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"y"}, {}, {}]>> -> tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
  func.return
}

// -----
// Five heads on 2 x 2 devices are 2, 2, 1 and none, on 2 they are 3 and 2: one needs a head that
// it does not have.
// CHECK: 'nn.attention': dim 2 of operand 0 is split over {"x", "y"} offsets [0, 2, 4, 5, 5], dim 1 of operand 1 over {"x"}: the axes
sharding.mesh @node = ["x"=2 : outer link, "y"=2 : inner link]
func.func @f(%q: tensor<2x1x80xbf16, #sharding.of<@node, [{}, {}, {"x", "y"} offsets [0, 32, 64, 80, 80]]>>, %k: tensor<2x5x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>) {
  %a = nn.attention %q, %k, %k {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x80xbf16, #sharding.of<@node, [{}, {}, {"x", "y"} offsets [0, 32, 64, 80, 80]]>>, tensor<2x5x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>, tensor<2x5x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>> -> tensor<2x1x80xbf16, #sharding.of<@node, [{}, {}, {"x", "y"} offsets [0, 32, 64, 80, 80]]>>
  func.return
}

// -----
// Each device has seen its own positions alone.
// CHECK: 'nn.partial_attention': result 0 is not partial, but the operation leaves partial lse{"x"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%q: tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {}]>>, %k: tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>) {
  %m, %l, %o = nn.partial_attention %q, %k, %k {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>> -> tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.partial_attention': result 0 is partial sum{"x"}, expected partial lse{"x"}
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%q: tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {}]>>, %k: tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>) {
  %m, %l, %o = nn.partial_attention %q, %k, %k {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>> -> tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>>, tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>
  func.return
}

// -----
// A partial softmax is nothing that a non-combiner understands.
// CHECK: 'nn.lse_finish': operand 0 is partial lse{"x"}, the operation needs its value: an all-reduce was lost
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%m: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, %l: tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, %o: tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>) {
  %y = nn.lse_finish %m, %l, %o {head_dim = 16 : i64} : tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, tensor<2x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>> -> tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.add': operand 0 is partial lse{"x"}, the operation needs its value: an all-reduce was lost
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
func.func @f(%o: tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>) {
  %y = nn.add %o, %o : tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>, tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>> -> tensor<2x1x128xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"x"}>>
  func.return
}

// -----
// Rows on their way to the owners go where the cache has their positions.
// CHECK: 'nn.append': dim 1 of operand 0 is split over {"x"} cyclic(1, offset = 1) by batch, dim 2 of the state over {"x"} cyclic(1) by batch: tokens 22..24 must be whole, or split over {"x"} cyclic(1, offset = 2) by batch
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
nn.state @c : tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>
func.func @f(%k: tensor<2x3x64xbf16, #sharding.of<@node, [{}, {"x"} cyclic(1, offset = 1, by = 0), {}]>>) {
  %0 = nn.append @c, %k {start = 22 : i64} : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {"x"} cyclic(1, offset = 1, by = 0), {}]>> -> tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>
  func.return
}

// -----
// CHECK: 'nn.append': dim 1 of operand 0 is split over {"x"}, dim 2 of the state over {"x"} cyclic(1) by batch: tokens 22..24 must be whole, or split over
sharding.mesh @node = ["x"=4 : outer link, "y"=2 : inner link]
nn.state @c : tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>
func.func @f(%k: tensor<2x3x64xbf16, #sharding.of<@node, [{}, {"x"}, {}]>>) {
  %0 = nn.append @c, %k {start = 22 : i64} : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {"x"}, {}]>> -> tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {}, {"x"} cyclic(1, by = 0), {}]>>
  func.return
}

// -----
// CHECK: 'math.exp': operand 0 is sharded, but the operation has no sharding rule
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>) {
  %z = math.exp %x : tensor<8x8xf32, #sharding.of<@node, [{}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.add': operand 1 has no encoding, operand 0 has one
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>>, %y: tensor<8x8xbf16>) {
  %z = nn.add %x, %y : tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>>, tensor<8x8xbf16> -> tensor<8x8xbf16, #sharding.of<@node, [{}, {}]>>
  func.return
}

// -----
// A layer of a stack returns what the next one takes.
// CHECK: layer @decoder returns tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, but @decoder behind it takes tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
sharding.mesh @node = ["x"=4 : outer link]
nn.stack [@decoder * 2]
func.func @decoder(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>> {
  %y = nn.silu %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %z = sharding.reshard %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
  func.return %z : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
}

// -----
// CHECK: 'nn.norm_scale': operand 0 is partial sum{"x"}, the operation needs its value: an all-reduce was lost
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%s: tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>>) {
  %r = nn.norm_scale %s {eps = 1.0e-5 : f64, count = 64 : i64} : tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>> -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"x"}>>
  func.return
}

// -----
// CHECK: 'nn.sum_squares': result 0 is not partial, but the operation leaves partial sum{"x"}
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>) {
  %s = nn.sum_squares %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"x"}]>> -> tensor<2x1x1xf32, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}

// -----
// CHECK: 'nn.attention': dim 0 of operand 3 is split over {}, dim 2 of operand 0 over {"x"}: they must agree
sharding.mesh @node = ["x"=4 : outer link]
func.func @f(%q: tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, %k: tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>, %s: tensor<8xbf16, #sharding.of<@node, [{}]>>) {
  %a = nn.attention %q, %k, %k sink %s : tensor<8xbf16, #sharding.of<@node, [{}]>> {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>>, tensor<2x4x32x16xbf16, #sharding.of<@node, [{}, {"x"}, {}, {}]>> -> tensor<2x1x128xbf16, #sharding.of<@node, [{}, {}, {"x"}]>>
  func.return
}
