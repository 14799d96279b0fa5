// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK: address 100 is not 4 KiB aligned
kernel.buffer @b : tensor<4x4xbf16> {address = 100 : i64, bytes = 32 : i64, layout = #kernel.layout<row_major>, space = "private", role = "weight"}

// -----
// CHECK: has 32 bytes, not 16
kernel.buffer @b : tensor<4x4xbf16> {address = 0 : i64, bytes = 16 : i64, layout = #kernel.layout<row_major>, space = "private", role = "weight"}

// -----
// CHECK: block [2, 2, 2] does not fit shape [4, 4]
kernel.buffer @b : tensor<4x4xbf16> {address = 0 : i64, bytes = 32 : i64, layout = #kernel.layout<blocked [2, 2, 2]>, space = "private", role = "weight"}

// -----
// CHECK: unknown space 'shared'
kernel.buffer @b : tensor<4x4xbf16> {address = 0 : i64, bytes = 32 : i64, layout = #kernel.layout<row_major>, space = "shared", role = "weight"}

// -----
// CHECK: unknown role 'scratch'
kernel.buffer @b : tensor<4x4xbf16> {address = 0 : i64, bytes = 32 : i64, layout = #kernel.layout<row_major>, space = "private", role = "scratch"}

// -----
// CHECK: unknown kind 'matmul'
func.func @f(%x : tensor<4xbf16>) {
  kernel.launch @k matmul (%a = %x : tensor<4xbf16>) {
    kernel.yield
  }
  func.return
}

// -----
// CHECK: the body of a launch ends with kernel.yield
func.func @f(%x : tensor<4xbf16>) {
  kernel.launch @k norm (%a = %x : tensor<4xbf16>) {
    "test.termop"() : () -> ()
  }
  func.return
}

// -----
// CHECK: results and yielded values have different types
func.func @f(%x : tensor<4xbf16>) {
  %y = kernel.launch @k norm (%a = %x : tensor<4xbf16>) -> (tensor<8xbf16>) {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: split must be positive
func.func @f(%x : tensor<4xbf16>) {
  %y = kernel.launch @k gemm (%a = %x : tensor<4xbf16>) -> (tensor<4xbf16>) attributes {split = 0 : i64} {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: combine stands exactly where split is more than 1
func.func @f(%x : tensor<4xbf16>) {
  %y = kernel.launch @k gemm (%a = %x : tensor<4xbf16>) -> (tensor<4xbf16>) attributes {tile = array<i64: 4, 1, 1>, split = 2 : i64} {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: the tile of a kernel of this kind has 3 extents
func.func @f(%x : tensor<4xbf16>) {
  %y = kernel.launch @k gemm (%a = %x : tensor<4xbf16>) -> (tensor<4xbf16>) attributes {tile = array<i64: 1, 2>} {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: grid has 2 entries for 1 parts
func.func @f(%x : tensor<4xbf16>) {
  %y = kernel.launch @k norm (%a = %x : tensor<4xbf16>) -> (tensor<4xbf16>) attributes {grid = array<i64: 1, 2>} {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: @nowhere is not a kernel.buffer
func.func @f() {
  kernel.launch @k norm reads (%a = @nowhere : tensor<4xbf16>) writes (@nowhere) {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: @b is not of type tensor<8xbf16>
kernel.buffer @b : tensor<4xbf16> {address = 0 : i64, bytes = 8 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
func.func @f() {
  kernel.launch @k norm reads (%a = @b : tensor<8xbf16>) writes (@b) {
    kernel.yield %a : tensor<8xbf16>
  }
  func.return
}

// -----
// CHECK: one yielded value per buffer that is written
kernel.buffer @b : tensor<4xbf16> {address = 0 : i64, bytes = 8 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
func.func @f() {
  kernel.launch @k norm reads (%a = @b : tensor<4xbf16>) writes (@b, @b) {
    kernel.yield %a : tensor<4xbf16>
  }
  func.return
}

// -----
// CHECK: using value defined out of its IsolatedFromAbove parent
func.func @f(%x : tensor<4xbf16>) {
  %y = kernel.launch @k norm () -> (tensor<4xbf16>) {
    kernel.yield %x : tensor<4xbf16>
  }
  func.return
}
