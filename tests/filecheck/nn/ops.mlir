// RUN: starc-opt %s | starc-opt | filecheck %s --strict-whitespace --match-full-lines

// CHECK:builtin.module attributes {nn.model = "tiny", nn.phase = "prefill", nn.batch = 2 : i64, nn.query = 4 : i64, nn.context = 32 : i64} {
builtin.module attributes {nn.model = "tiny", nn.phase = "prefill", nn.batch = 2 : i64, nn.query = 4 : i64, nn.context = 32 : i64} {
  // CHECK-NEXT:  nn.parameter @embedding.table : tensor<512x64xbf16>
  nn.parameter @embedding.table : tensor<512x64xbf16>
  // CHECK-NEXT:  nn.parameter @decoder.attn_norm : tensor<64xbf16>
  nn.parameter @decoder.attn_norm : tensor<64xbf16>
  // CHECK-NEXT:  nn.parameter @decoder.q : tensor<64x64xf8E4M3FN>
  nn.parameter @decoder.q : tensor<64x64xf8E4M3FN>
  // CHECK-NEXT:  nn.state @decoder.k_cache : tensor<2x2x32x16xbf16>
  nn.state @decoder.k_cache : tensor<2x2x32x16xbf16>
  // CHECK-NEXT:  nn.state @decoder.v_cache : tensor<2x2x32x16xbf16>
  nn.state @decoder.v_cache : tensor<2x2x32x16xbf16>
  // CHECK-NEXT:  nn.stack [@embedding * 1, @decoder * 4]
  nn.stack [@embedding * 1, @decoder * 4]
  // CHECK-NEXT:  func.func @embedding(%ids: tensor<2x4xi32>) -> tensor<2x4x64xbf16> {
  func.func @embedding(%ids : tensor<2x4xi32>) -> tensor<2x4x64xbf16> {
    // CHECK-NEXT:    %table = nn.read @embedding.table : tensor<512x64xbf16>
    %table = nn.read @embedding.table : tensor<512x64xbf16>
    // CHECK-NEXT:    %x = nn.embedding %ids, %table : tensor<2x4xi32>, tensor<512x64xbf16> -> tensor<2x4x64xbf16>
    %x = nn.embedding %ids, %table : tensor<2x4xi32>, tensor<512x64xbf16> -> tensor<2x4x64xbf16>
    func.return %x : tensor<2x4x64xbf16>
  }
  func.func @decoder(%x : tensor<2x4x64xbf16>, %kv : tensor<2x4x32xbf16>) -> tensor<2x1x64xbf16> {
    %norm = nn.read @decoder.attn_norm : tensor<64xbf16>
    // CHECK:    %h = nn.rms_norm %x, %norm {eps = 1.000000e-05 : f64} : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xbf16>
    %h = nn.rms_norm %x, %norm {eps = 1.0e-5 : f64} : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xbf16>
    %w = nn.read @decoder.q : tensor<64x64xf8E4M3FN>
    // CHECK:    %y = nn.linear %h, %w : tensor<2x4x64xbf16>, tensor<64x64xf8E4M3FN> -> tensor<2x4x64xbf16>
    %y = nn.linear %h, %w : tensor<2x4x64xbf16>, tensor<64x64xf8E4M3FN> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %q = nn.rope %y {theta = 5.000000e+05 : f64, head_dim = 16 : i64, start = 28 : i64} : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %q = nn.rope %y {theta = 5.0e5 : f64, head_dim = 16 : i64, start = 28 : i64} : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %k = nn.append @decoder.k_cache, %kv {start = 28 : i64} : tensor<2x4x32xbf16> -> tensor<2x2x32x16xbf16>
    %k = nn.append @decoder.k_cache, %kv {start = 28 : i64} : tensor<2x4x32xbf16> -> tensor<2x2x32x16xbf16>
    %v = nn.append @decoder.v_cache, %kv {start = 28 : i64} : tensor<2x4x32xbf16> -> tensor<2x2x32x16xbf16>
    // CHECK:    %a = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.088388347648318447 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    %a = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.088388347648318447 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %b = nn.attention %a, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 2.500000e-01 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    %b = nn.attention %a, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %c = nn.silu %b : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %c = nn.silu %b : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %d = nn.gelu %c : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %d = nn.gelu %c : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %e = nn.mul %c, %d : tensor<2x4x64xbf16>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %e = nn.mul %c, %d : tensor<2x4x64xbf16>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %f = nn.add %x, %e : tensor<2x4x64xbf16>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %f = nn.add %x, %e : tensor<2x4x64xbf16>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %last = nn.last_token %f : tensor<2x4x64xbf16> -> tensor<2x1x64xbf16>
    %last = nn.last_token %f : tensor<2x4x64xbf16> -> tensor<2x1x64xbf16>
    func.return %last : tensor<2x1x64xbf16>
  }
  func.func @parts(%x : tensor<2x4x64xbf16>, %kv : tensor<2x2x32x16xbf16>, %w : tensor<64xbf16>, %s : tensor<4xbf16>) -> tensor<2x4x64xbf16> {
    // CHECK:    %a = nn.attention %x, %kv, %kv sink %s : tensor<4xbf16> {head_dim = 16 : i64, start = 28 : i64, scale = 2.500000e-01 : f64, causal, window = 8 : i64, keep = 2 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    %a = nn.attention %x, %kv, %kv sink %s : tensor<4xbf16> {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64, causal, window = 8 : i64, keep = 2 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %m, %l, %o = nn.partial_attention %x, %kv, %kv {head_dim = 16 : i64, start = 28 : i64, scale = 2.500000e-01 : f64, causal, window = 8 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xbf16>
    %m, %l, %o = nn.partial_attention %x, %kv, %kv {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64, causal, window = 8 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xbf16>
    // CHECK-NEXT:    %y = nn.lse_finish %m, %l, %o {head_dim = 16 : i64} : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %y = nn.lse_finish %m, %l, %o {head_dim = 16 : i64} : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %z = nn.lse_finish %m, %l, %o sink %s : tensor<4xbf16> {head_dim = 16 : i64} : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    %z = nn.lse_finish %m, %l, %o sink %s : tensor<4xbf16> {head_dim = 16 : i64} : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %ss = nn.sum_squares %x : tensor<2x4x64xbf16> -> tensor<2x4x1xf32>
    %ss = nn.sum_squares %x : tensor<2x4x64xbf16> -> tensor<2x4x1xf32>
    // CHECK-NEXT:    %r = nn.norm_scale %ss {eps = 1.000000e-05 : f64, count = 64 : i64} : tensor<2x4x1xf32> -> tensor<2x4x1xf32>
    %r = nn.norm_scale %ss {eps = 1.0e-5 : f64, count = 64 : i64} : tensor<2x4x1xf32> -> tensor<2x4x1xf32>
    // CHECK-NEXT:    %xw = nn.scale_columns %x, %w : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xbf16>
    %xw = nn.scale_columns %x, %w : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xbf16>
    // CHECK-NEXT:    %n = nn.scale_rows %xw, %r : tensor<2x4x64xbf16>, tensor<2x4x1xf32> -> tensor<2x4x64xbf16>
    %n = nn.scale_rows %xw, %r : tensor<2x4x64xbf16>, tensor<2x4x1xf32> -> tensor<2x4x64xbf16>
    func.return %n : tensor<2x4x64xbf16>
  }
}
