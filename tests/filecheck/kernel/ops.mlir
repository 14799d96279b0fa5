// RUN: starc-opt %s | starc-opt | filecheck %s

// CHECK: kernel.buffer @decoder.h : tensor<2x1x64xbf16> {address = 0 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
kernel.buffer @decoder.h : tensor<2x1x64xbf16> {address = 0 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// The padding of an edge block counts.
// CHECK: kernel.buffer @decoder.w : tensor<40x64xbf16> {address = 4096 : i64, bytes = 8192 : i64, layout = #kernel.layout<blocked [32, 64]>, space = "private", role = "weight"}
kernel.buffer @decoder.w : tensor<40x64xbf16> {address = 4096 : i64, bytes = 8192 : i64, layout = #kernel.layout<blocked [32, 64]>, space = "private", role = "weight"}

// CHECK: space = "symmetric", role = "communication"
kernel.buffer @decoder.staging : tensor<1x1x2x64xbf16> {address = 16384 : i64, bytes = 256 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication"}

// Launches over values.
// CHECK-LABEL: func.func @values
func.func @values(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  // CHECK: %y = kernel.launch @decoder.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) {
  %y = kernel.launch @decoder.silu elementwise (%a = %x : tensor<2x1x64xbf16>) -> (tensor<2x1x64xbf16>) {
    %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
    // CHECK: kernel.yield %b : tensor<2x1x64xbf16>
    kernel.yield %b : tensor<2x1x64xbf16>
  }
  func.return %y : tensor<2x1x64xbf16>
}

// Launches over buffers, with a schedule.
// CHECK-LABEL: func.func @buffers
func.func @buffers() attributes {kernel.arguments = [@decoder.h], kernel.results = [@decoder.h]} {
  // CHECK: kernel.launch @decoder.silu elementwise reads (%a = @decoder.h : tensor<2x1x64xbf16>) writes (@decoder.h) attributes {queue = 1 : i64, tile = array<i64: 1, 64>, grid = array<i64: 2>, waves = 4 : i64, waits, window_bytes = 4096 : i64, kernel_class = "elementwise", piece_bytes = 4096 : i64, staging = [@decoder.staging]} {
  kernel.launch @decoder.silu elementwise reads (%a = @decoder.h : tensor<2x1x64xbf16>) writes (@decoder.h) attributes {piece_bytes = 4096 : i64, queue = 1 : i64, tile = array<i64: 1, 64>, grid = array<i64: 2>, waves = 4 : i64, waits, window_bytes = 4096 : i64, kernel_class = "elementwise", staging = [@decoder.staging]} {
    %b = nn.silu %a : tensor<2x1x64xbf16> -> tensor<2x1x64xbf16>
    kernel.yield %b : tensor<2x1x64xbf16>
  }
  func.return
}
