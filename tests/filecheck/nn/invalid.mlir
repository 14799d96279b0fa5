// One error a case.
// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK: a state must be [batch, kv_head, position, head_dim], got shape [2, 32, 16]
builtin.module {
  nn.state @l.cache : tensor<2x32x16xbf16>
}

// -----

// CHECK: Redefinition of symbol "l.w"
builtin.module {
  nn.parameter @l.w : tensor<64xbf16>
  nn.parameter @l.w : tensor<64xbf16>
}

// -----

// CHECK: a stack must have at least one layer
builtin.module {
  nn.stack []
}

// -----

// CHECK: the count of @l must be at least 1, got 0
builtin.module {
  nn.stack [@l * 0]
  func.func @l() {
    func.return
  }
}

// -----

// CHECK: no layer @m in the module
builtin.module {
  nn.stack [@m * 2]
}

// -----

// CHECK: no layer @l.w in the module
builtin.module {
  nn.parameter @l.w : tensor<64xbf16>
  nn.stack [@l.w * 2]
}

// -----

// CHECK: no parameter @l.v in the module
builtin.module {
  func.func @l() {
    %w = nn.read @l.v : tensor<64x32xbf16>
    func.return
  }
}

// -----

// CHECK: @l.cache is not a parameter but nn.state
builtin.module {
  nn.state @l.cache : tensor<2x2x32x16xbf16>
  func.func @l() {
    %w = nn.read @l.cache : tensor<2x2x32x16xbf16>
    func.return
  }
}

// -----

// CHECK: the parameter @l.w must have the shape and element type of its value: [64, 32] of bf16 and [32, 64] of bf16
builtin.module {
  nn.parameter @l.w : tensor<64x32xbf16>
  func.func @l() {
    %w = nn.read @l.w : tensor<32x64xbf16>
    func.return
  }
}

// -----

// CHECK: @l.w is not a state but nn.parameter
builtin.module {
  nn.parameter @l.w : tensor<2x2x32x16xbf16>
  func.func @l(%x : tensor<2x4x32xbf16>) {
    %c = nn.append @l.w, %x {start = 0 : i64} : tensor<2x4x32xbf16> -> tensor<2x2x32x16xbf16>
    func.return
  }
}

// -----

// CHECK: batch 3 is appended to a cache of batch 2
builtin.module {
  nn.state @l.cache : tensor<2x2x32x16xbf16>
  func.func @l(%x : tensor<3x4x32xbf16>) {
    %c = nn.append @l.cache, %x {start = 0 : i64} : tensor<3x4x32xbf16> -> tensor<2x2x32x16xbf16>
    func.return
  }
}

// -----

// CHECK: 48 features do not fill 2 heads of 16
builtin.module {
  nn.state @l.cache : tensor<2x2x32x16xbf16>
  func.func @l(%x : tensor<2x4x48xbf16>) {
    %c = nn.append @l.cache, %x {start = 0 : i64} : tensor<2x4x48xbf16> -> tensor<2x2x32x16xbf16>
    func.return
  }
}

// -----

// CHECK: position 33 is beyond the cache's 32
builtin.module {
  nn.state @l.cache : tensor<2x2x32x16xbf16>
  func.func @l(%x : tensor<2x4x32xbf16>) {
    %c = nn.append @l.cache, %x {start = 30 : i64} : tensor<2x4x32xbf16> -> tensor<2x2x32x16xbf16>
    func.return
  }
}

// -----

// CHECK: start must be at least 0, got -1
builtin.module {
  nn.state @l.cache : tensor<2x2x32x16xbf16>
  func.func @l(%x : tensor<2x4x32xbf16>) {
    %c = nn.append @l.cache, %x {start = -1 : i64} : tensor<2x4x32xbf16> -> tensor<2x2x32x16xbf16>
    func.return
  }
}

// -----

// CHECK: the input has 64 features, the weight 32 rows
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<32x64xbf16>) {
    %y = nn.linear %x, %w : tensor<2x4x64xbf16>, tensor<32x64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must be [2, 4, 32], got [2, 4, 64]
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<64x32xbf16>) {
    %y = nn.linear %x, %w : tensor<2x4x64xbf16>, tensor<64x32xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the weight must be [k, n], got shape [64]
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<64xbf16>) {
    %y = nn.linear %x, %w : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the values must have the shape and element type of the keys: [2, 2, 16, 16] of bf16 and [2, 2, 32, 16] of bf16
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<2x2x32x16xbf16>, %v : tensor<2x2x16x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x16x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must have the shape and element type of the queries: [2, 4, 32] of bf16 and [2, 4, 64] of bf16
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<2x2x32x16xbf16>, %v : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x32xbf16>
    func.return
  }
}

// -----

// CHECK: the queries' last dimension is 72, not a multiple of head_dim = 16
builtin.module {
  func.func @l(%q : tensor<2x4x72xbf16>, %k : tensor<2x2x32x16xbf16>, %v : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x72xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x72xbf16>
    func.return
  }
}

// -----

// CHECK: the cache has head_dim 16, not 32
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<2x2x32x16xbf16>, %v : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 32 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: queries of batch 2, keys of batch 3
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<3x2x32x16xbf16>, %v : tensor<3x2x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<3x2x32x16xbf16>, tensor<3x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: 4 heads are not a multiple of 3 KV heads
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<2x3x32x16xbf16>, %v : tensor<2x3x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x3x32x16xbf16>, tensor<2x3x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: query position 33 is beyond the cache's 32
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<2x2x32x16xbf16>, %v : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 16 : i64, start = 30 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: head_dim must be at least 1, got 0
builtin.module {
  func.func @l(%q : tensor<2x4x64xbf16>, %k : tensor<2x2x32x16xbf16>, %v : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %q, %k, %v {head_dim = 0 : i64, start = 28 : i64, scale = 0.25 : f64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the input has 64 features, the weight 32
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<32xbf16>) {
    %y = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<2x4x64xbf16>, tensor<32xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must have the shape and element type of the input: [2, 4, 64] of f32 and [2, 4, 64] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<64xbf16>) {
    %y = nn.rms_norm %x, %w {eps = 1.0e-5 : f64} : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xf32>
    func.return
  }
}

// -----

// CHECK: eps must not be negative, got -1.0
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<64xbf16>) {
    %y = nn.rms_norm %x, %w {eps = -1.0 : f64} : tensor<2x4x64xbf16>, tensor<64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: head_dim must be even, got 1
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.rope %x {theta = 1.0e4 : f64, head_dim = 1 : i64, start = 0 : i64} : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the last dimension is 64, not a multiple of head_dim = 24
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.rope %x {theta = 1.0e4 : f64, head_dim = 24 : i64, start = 0 : i64} : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: theta must be positive, got 0.0
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.rope %x {theta = 0.0 : f64, head_dim = 16 : i64, start = 0 : i64} : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must have the shape and element type of the input: [2, 4, 32] of bf16 and [2, 4, 64] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.silu %x : tensor<2x4x64xbf16> -> tensor<2x4x32xbf16>
    func.return
  }
}

// -----

// CHECK: the second operand must have the shape and element type of the first: [2, 4, 32] of bf16 and [2, 4, 64] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %z : tensor<2x4x32xbf16>) {
    %y = nn.add %x, %z : tensor<2x4x64xbf16>, tensor<2x4x32xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must have the shape and element type of the operands: [2, 4, 64] of f32 and [2, 4, 64] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.mul %x, %x : tensor<2x4x64xbf16>, tensor<2x4x64xbf16> -> tensor<2x4x64xf32>
    func.return
  }
}

// -----

// CHECK: the result must be [2, 4, 64] of bf16, got [2, 64] of bf16
builtin.module {
  func.func @l(%ids : tensor<2x4xi32>, %t : tensor<512x64xbf16>) {
    %y = nn.embedding %ids, %t : tensor<2x4xi32>, tensor<512x64xbf16> -> tensor<2x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must be [2, 1, 64] of bf16, got [2, 4, 64] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.last_token %x : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: a window needs causal: it looks back from the query's position
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %x, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, window = 8 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: window must be at least 1, got 0
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %x, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal, window = 0 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: keep needs a window: without one every position is kept
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>) {
    %y = nn.attention %x, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal, keep = 2 : i64} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the sink has 2 logits for 4 heads
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>, %s : tensor<2xbf16>) {
    %y = nn.attention %x, %c, %c sink %s : tensor<2xbf16> {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the sink must be [head], got shape [4, 1]
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>, %s : tensor<4x1xbf16>) {
    %y = nn.attention %x, %c, %c sink %s : tensor<4x1xbf16> {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: results m and l must be f32, got bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>) {
    %m, %l, %o = nn.partial_attention %x, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x4xbf16>, tensor<2x4x4xbf16>, tensor<2x4x64xf32>
    func.return
  }
}

// -----

// CHECK: result o must be f32 or bf16, got f16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>) {
    %m, %l, %o = nn.partial_attention %x, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xf16>
    func.return
  }
}

// -----

// CHECK: result o must be [2, 4, 32] for m [2, 4, 2] and head_dim 16, got [2, 4, 64]
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %c : tensor<2x2x32x16xbf16>) {
    %m, %l, %o = nn.partial_attention %x, %c, %c {head_dim = 16 : i64, start = 28 : i64, scale = 1.0 : f64, causal} : tensor<2x4x64xbf16>, tensor<2x2x32x16xbf16>, tensor<2x2x32x16xbf16> -> tensor<2x4x2xf32>, tensor<2x4x2xf32>, tensor<2x4x64xf32>
    func.return
  }
}

// -----

// CHECK: operand l must have the shape and element type of operand m: [2, 4, 2] of f32 and [2, 4, 4] of f32
builtin.module {
  func.func @l(%m : tensor<2x4x4xf32>, %l : tensor<2x4x2xf32>, %o : tensor<2x4x64xf32>) {
    %y = nn.lse_finish %m, %l, %o {head_dim = 16 : i64} : tensor<2x4x4xf32>, tensor<2x4x2xf32>, tensor<2x4x64xf32> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the result must have the shape of o, [2, 4, 64], got [2, 4, 32]
builtin.module {
  func.func @l(%m : tensor<2x4x4xf32>, %o : tensor<2x4x64xf32>) {
    %y = nn.lse_finish %m, %m, %o {head_dim = 16 : i64} : tensor<2x4x4xf32>, tensor<2x4x4xf32>, tensor<2x4x64xf32> -> tensor<2x4x32xbf16>
    func.return
  }
}

// -----

// CHECK: the result must be [2, 4, 1] of f32, got [2, 4, 64] of f32
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.sum_squares %x : tensor<2x4x64xbf16> -> tensor<2x4x64xf32>
    func.return
  }
}

// -----

// CHECK: count must be at least 1, got 0
builtin.module {
  func.func @l(%x : tensor<2x4x1xf32>) {
    %y = nn.norm_scale %x {eps = 1.0e-5 : f64, count = 0 : i64} : tensor<2x4x1xf32> -> tensor<2x4x1xf32>
    func.return
  }
}

// -----

// CHECK: the input must be [2, 4, 1] of f32, got [2, 4, 64] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>) {
    %y = nn.norm_scale %x {eps = 1.0e-5 : f64, count = 64 : i64} : tensor<2x4x64xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the input has 64 features, the weight 32
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %w : tensor<32xbf16>) {
    %y = nn.scale_columns %x, %w : tensor<2x4x64xbf16>, tensor<32xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}

// -----

// CHECK: the scale must be [2, 4, 1] of f32, got [2, 4, 1] of bf16
builtin.module {
  func.func @l(%x : tensor<2x4x64xbf16>, %s : tensor<2x4x1xbf16>) {
    %y = nn.scale_rows %x, %s : tensor<2x4x64xbf16>, tensor<2x4x1xbf16> -> tensor<2x4x64xbf16>
    func.return
  }
}
