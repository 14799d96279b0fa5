// RUN: starc-opt %s -p form-kernels | filecheck %s
// RUN: starc-opt %s -p form-kernels | starc-opt | filecheck %s

nn.parameter @decoder.norm : tensor<64xbf16>
nn.parameter @decoder.q : tensor<64x64xbf16>
nn.parameter @decoder.k : tensor<64x32xbf16>
nn.parameter @decoder.v : tensor<64x32xbf16>
nn.parameter @decoder.o : tensor<64x64xbf16>
nn.state @decoder.k_cache : tensor<2x2x32x16xbf16>
nn.state @decoder.v_cache : tensor<2x2x32x16xbf16>

// Reads of parameters stand at the top; nothing else stays outside a launch.
// CHECK-LABEL: func.func @decoder
// CHECK-NEXT: nn.read @decoder.norm
// CHECK-NEXT: nn.read @decoder.q
// CHECK-NEXT: nn.read @decoder.k
// CHECK-NEXT: nn.read @decoder.v
// CHECK-NEXT: nn.read @decoder.o
func.func @decoder(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  // CHECK-NEXT: kernel.launch @decoder.norm norm
  %wn = nn.read @decoder.norm : tensor<64xbf16>
  %h = nn.rms_norm %x, %wn {eps = 1.0e-5 : f64} : tensor<2x1x64xbf16>, tensor<64xbf16> -> tensor<2x1x64xbf16>
  // Siblings of one input are one launch.
  // CHECK: kernel.launch @decoder.q_k_v gemm
  // CHECK-COUNT-3: nn.linear
  // CHECK-NEXT: kernel.yield
  %wq = nn.read @decoder.q : tensor<64x64xbf16>
  %q = nn.linear %h, %wq : tensor<2x1x64xbf16>, tensor<64x64xbf16> -> tensor<2x1x64xbf16>
  // CHECK: kernel.launch @decoder.rope_append append
  // CHECK-NEXT: nn.rope
  // CHECK-NEXT: nn.rope
  // CHECK-NEXT: nn.append @decoder.k_cache
  // CHECK-NEXT: nn.append @decoder.v_cache
  // CHECK-NEXT: kernel.yield
  %qr = nn.rope %q {theta = 10000.0 : f64, head_dim = 16 : i64, start = 31 : i64} : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  %wk = nn.read @decoder.k : tensor<64x32xbf16>
  %k = nn.linear %h, %wk : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
  %kr = nn.rope %k {theta = 10000.0 : f64, head_dim = 16 : i64, start = 31 : i64} : tensor<2x1x32xbf16> -> tensor<2x1x32xbf16>
  %kc = nn.append @decoder.k_cache, %kr {start = 31 : i64} : tensor<2x1x32xbf16> -> tensor<2x2x32x16xbf16>
  %wv = nn.read @decoder.v : tensor<64x32xbf16>
  %v = nn.linear %h, %wv : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
  %vc = nn.append @decoder.v_cache, %v {start = 31 : i64} : tensor<2x1x32xbf16> -> tensor<2x2x32x16xbf16>
  // CHECK: kernel.launch @decoder.attention attention
  %a = nn.attention %qr, %kc, %vc {head_dim = 16 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x1x64xbf16>
  // CHECK: kernel.launch @decoder.o gemm
  %wo = nn.read @decoder.o : tensor<64x64xbf16>
  %o = nn.linear %a, %wo : tensor<2x1x64xbf16>, tensor<64x64xbf16> -> tensor<2x1x64xbf16>
  // CHECK: kernel.launch @decoder.add elementwise
  %y = nn.add %x, %o : tensor<2x1x64xbf16>, tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  // CHECK: func.return
  func.return %y : tensor<2x1x64xbf16>
}

// An operation that needs what it would be merged into, through another kernel, stays apart.
// CHECK-LABEL: func.func @apart
// CHECK: kernel.launch @apart.silu elementwise
// CHECK: kernel.launch @apart.o gemm
// CHECK: kernel.launch @apart.add elementwise
nn.parameter @apart.o : tensor<64x64xbf16>
func.func @apart(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  %s = nn.silu %x : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  %w = nn.read @apart.o : tensor<64x64xbf16>
  %o = nn.linear %s, %w : tensor<2x1x64xbf16>, tensor<64x64xbf16> -> tensor<2x1x64xbf16>
  %y = nn.add %s, %o : tensor<2x1x64xbf16>, tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  func.return %y : tensor<2x1x64xbf16>
}

// Rows that differ are not merged, what nothing uses is dropped, and the last of one token is it.
// CHECK-LABEL: func.func @tail
// CHECK-NOT: nn.gelu
// CHECK-NOT: nn.last_token
// CHECK: kernel.launch @tail.add elementwise
func.func @tail(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  %unused = nn.gelu %x : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  %t = nn.last_token %x : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  %y = nn.add %t, %x : tensor<2x1x64xbf16>, tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  func.return %y : tensor<2x1x64xbf16>
}

// The sums of squares of a residual stream are computed where the stream is, with the scaling of
// its columns and the scale that the sum gives; the factors of rows join the products.
// CHECK-LABEL: func.func @parts
// CHECK: %[[X:.*]], %[[R:.*]], %[[H:.*]] = kernel.launch @parts.norm norm
// CHECK-NEXT: nn.add
// CHECK-NEXT: nn.sum_squares
// CHECK-NEXT: nn.norm_scale
// CHECK-NEXT: nn.scale_columns
// CHECK-NEXT: kernel.yield
// CHECK: kernel.launch @parts.gate_up gemm (%{{.*}} = %[[H]] : {{.*}} = %[[R]] :
// CHECK-NEXT: nn.linear
// CHECK-NEXT: nn.scale_rows
// CHECK-NEXT: nn.linear
// CHECK-NEXT: nn.scale_rows
// CHECK-NEXT: kernel.yield
// A product that somebody else reads too is not scaled by its own launch.
// CHECK: kernel.launch @parts.twice gemm
// CHECK-NEXT: nn.linear
// CHECK-NEXT: kernel.yield
// CHECK: kernel.launch @parts.scale_rows_add elementwise
nn.parameter @parts.norm : tensor<64xbf16>
nn.parameter @parts.gate : tensor<64x96xbf16>
nn.parameter @parts.up : tensor<64x96xbf16>
nn.parameter @parts.twice : tensor<96x96xbf16>
func.func @parts(%a : tensor<2x1x64xbf16>, %b : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>, tensor<2x1x96xbf16>) {
  %x = nn.add %a, %b : tensor<2x1x64xbf16>, tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
  %s = nn.sum_squares %x : tensor<2x1x64xbf16> -> tensor<2x1x1xf32>
  %r = nn.norm_scale %s {eps = 1.0e-05 : f64, count = 64 : i64} : tensor<2x1x1xf32> -> tensor<2x1x1xf32>
  %w = nn.read @parts.norm : tensor<64xbf16>
  %h = nn.scale_columns %x, %w : tensor<2x1x64xbf16>, tensor<64xbf16> -> tensor<2x1x64xbf16>
  %wg = nn.read @parts.gate : tensor<64x96xbf16>
  %g = nn.linear %h, %wg : tensor<2x1x64xbf16>, tensor<64x96xbf16> -> tensor<2x1x96xbf16>
  %gs = nn.scale_rows %g, %r : tensor<2x1x96xbf16>, tensor<2x1x1xf32> -> tensor<2x1x96xbf16>
  %wu = nn.read @parts.up : tensor<64x96xbf16>
  %u = nn.linear %h, %wu : tensor<2x1x64xbf16>, tensor<64x96xbf16> -> tensor<2x1x96xbf16>
  %us = nn.scale_rows %u, %r : tensor<2x1x96xbf16>, tensor<2x1x1xf32> -> tensor<2x1x96xbf16>
  %p = nn.mul %gs, %us : tensor<2x1x96xbf16>, tensor<2x1x96xbf16> -> tensor<2x1x96xbf16>
  %wt = nn.read @parts.twice : tensor<96x96xbf16>
  %t = nn.linear %p, %wt : tensor<2x1x96xbf16>, tensor<96x96xbf16> -> tensor<2x1x96xbf16>
  %ts = nn.scale_rows %t, %r : tensor<2x1x96xbf16>, tensor<2x1x1xf32> -> tensor<2x1x96xbf16>
  %y = nn.add %ts, %t : tensor<2x1x96xbf16>, tensor<2x1x96xbf16> -> tensor<2x1x96xbf16>
  func.return %x, %y : tensor<2x1x64xbf16>, tensor<2x1x96xbf16>
}

// A scale that products of one launch alone multiply their rows with is computed there; appends of
// rows from different launches are one.
// CHECK-LABEL: func.func @folded
// CHECK: kernel.launch @folded.k_v gemm
// CHECK-NEXT: nn.linear
// CHECK-NEXT: nn.norm_scale
// CHECK-NEXT: nn.scale_rows
// CHECK-NEXT: nn.linear
// CHECK-NEXT: nn.scale_rows
// CHECK-NEXT: kernel.yield
// CHECK-NOT: kernel.launch {{.*}} elementwise
// CHECK: kernel.launch @folded.append append
// CHECK-NEXT: nn.append @folded.k_cache
// CHECK-NEXT: nn.append @folded.v_cache
// CHECK-NEXT: kernel.yield
nn.parameter @folded.k : tensor<64x32xbf16>
nn.parameter @folded.v : tensor<64x32xbf16>
nn.state @folded.k_cache : tensor<2x2x32x16xbf16>
nn.state @folded.v_cache : tensor<2x2x32x16xbf16>
func.func @folded(%x : tensor<2x1x64xbf16>, %s : tensor<2x1x1xf32>) -> tensor<2x1x64xbf16> {
  %r = nn.norm_scale %s {eps = 1.0e-05 : f64, count = 64 : i64} : tensor<2x1x1xf32> -> tensor<2x1x1xf32>
  %wk = nn.read @folded.k : tensor<64x32xbf16>
  %k = nn.linear %x, %wk : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
  %ks = nn.scale_rows %k, %r : tensor<2x1x32xbf16>, tensor<2x1x1xf32> -> tensor<2x1x32xbf16>
  %wv = nn.read @folded.v : tensor<64x32xbf16>
  %v = nn.linear %x, %wv : tensor<2x1x64xbf16>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
  %vs = nn.scale_rows %v, %r : tensor<2x1x32xbf16>, tensor<2x1x1xf32> -> tensor<2x1x32xbf16>
  %kc = nn.append @folded.k_cache, %ks {start = 31 : i64} : tensor<2x1x32xbf16> -> tensor<2x2x32x16xbf16>
  %vc = nn.append @folded.v_cache, %vs {start = 31 : i64} : tensor<2x1x32xbf16> -> tensor<2x2x32x16xbf16>
  func.return %x : tensor<2x1x64xbf16>
}

// Collectives are named after what they exchange, however many stand in a row.
// CHECK-LABEL: func.func @named
// CHECK: kernel.launch @named.silu elementwise
// CHECK: kernel.launch @named.silu_all_slice collective
// CHECK: kernel.launch @named.silu_all_gather collective
sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
func.func @named(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> {
  %s = nn.silu %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  %a = collective.all_slice %s on @node axes = ["xcd"] dim = 2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>>
  %b = collective.all_gather %a on @node axes = ["xcd"] dim = 2 : tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  func.return %b : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
}
