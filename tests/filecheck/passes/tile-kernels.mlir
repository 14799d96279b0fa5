// RUN: starc-opt %s -p tile-kernels | filecheck %s
// RUN: starc-opt %s -p tile-kernels | starc-opt | filecheck %s

// A skinny product shares K out, so that every compute unit streams weights.
// CHECK-LABEL: func.func @skinny
// CHECK: kernel.launch @skinny.w gemm {{.*}}tile = array<i64: 16, {{[0-9]+}}, {{[0-9]+}}>, split = {{[1-9][0-9]*}} : i64, combine = "owner", combine_stages = {{[0-9]+}} : i64, stages = {{[234]}} : i64, waves = 4 : i64, window_bytes = {{[0-9]+}} : i64, kernel_class = "gemm", piece_bytes = 4096 : i64
nn.parameter @skinny.w : tensor<8192x160xbf16>
func.func @skinny(%x : tensor<8x1x8192xbf16>) -> tensor<8x1x160xbf16> {
  %w = nn.read @skinny.w : tensor<8192x160xbf16>
  %y = kernel.launch @skinny.w gemm (%a = %x : tensor<8x1x8192xbf16>, %b = %w : tensor<8192x160xbf16>) -> (tensor<8x1x160xbf16>) {
    %c = nn.linear %a, %b : tensor<8x1x8192xbf16>, tensor<8192x160xbf16> -> tensor<8x1x160xbf16>
    kernel.yield %c : tensor<8x1x160xbf16>
  }
  func.return %y : tensor<8x1x160xbf16>
}

// Decode packs the query heads of a KV head and shares its keys out.
// CHECK-LABEL: func.func @decode
// CHECK: kernel.launch @decode.attention attention {{.*}}tile = array<i64: 8, {{[0-9]+}}, 128>, group = 8 : i64, split = {{[0-9]+}} : i64, combine =
func.func @decode(%q : tensor<8x1x1024xbf16>, %k : tensor<8x1x16384x128xbf16>, %v : tensor<8x1x16384x128xbf16>) -> tensor<8x1x1024xbf16> {
  %y = kernel.launch @decode.attention attention (%a = %q : tensor<8x1x1024xbf16>, %b = %k : tensor<8x1x16384x128xbf16>, %c = %v : tensor<8x1x16384x128xbf16>) -> (tensor<8x1x1024xbf16>) {
    %d = nn.attention %a, %b, %c {head_dim = 128 : i64, start = 16383 : i64, scale = 0.08 : f64, causal} : tensor<8x1x1024xbf16>, tensor<8x1x16384x128xbf16>, tensor<8x1x16384x128xbf16> -> tensor<8x1x1024xbf16>
    kernel.yield %d : tensor<8x1x1024xbf16>
  }
  func.return %y : tensor<8x1x1024xbf16>
}

// Prefill takes tiles of one head's queries, each over all its keys.
// CHECK-LABEL: func.func @prefill
// CHECK: kernel.launch @prefill.attention attention {{.*}}tile = array<i64: {{64|128}}, {{[0-9]+}}, 128>, group = 1 : i64, split = 1 : i64, stages
func.func @prefill(%q : tensor<1x2048x1024xbf16>, %k : tensor<1x1x2048x128xbf16>, %v : tensor<1x1x2048x128xbf16>) -> tensor<1x2048x1024xbf16> {
  %y = kernel.launch @prefill.attention attention (%a = %q : tensor<1x2048x1024xbf16>, %b = %k : tensor<1x1x2048x128xbf16>, %c = %v : tensor<1x1x2048x128xbf16>) -> (tensor<1x2048x1024xbf16>) {
    %d = nn.attention %a, %b, %c {head_dim = 128 : i64, start = 0 : i64, scale = 0.08 : f64, causal} : tensor<1x2048x1024xbf16>, tensor<1x1x2048x128xbf16>, tensor<1x1x2048x128xbf16> -> tensor<1x2048x1024xbf16>
    kernel.yield %d : tensor<1x2048x1024xbf16>
  }
  func.return %y : tensor<1x2048x1024xbf16>
}

// A tile that is given stays.
// CHECK-LABEL: func.func @given
// CHECK: tile = array<i64: 2, 32>}
func.func @given(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  %y = kernel.launch @given.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) attributes {tile = array<i64: 2, 32>} {
    %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
    kernel.yield %b : tensor<2x1x64xbf16>
  }
  func.return %y : tensor<2x1x64xbf16>
}
