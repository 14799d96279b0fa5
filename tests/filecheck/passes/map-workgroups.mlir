// RUN: starc-opt %s -p map-workgroups | filecheck %s
// RUN: starc-opt %s -p map-workgroups | starc-opt | filecheck %s

nn.parameter @f.a : tensor<8192x160xbf16>
nn.parameter @f.b : tensor<8192x64xbf16>

// One entry of the grid per output: row tiles x column tiles x shares.
// CHECK-LABEL: func.func @grouped
// CHECK: grid = array<i64: 35, 14>, swizzle = array<i64: 1, 1>, waits
func.func @grouped(%x : tensor<8x1x8192xbf16>) -> (tensor<8x1x160xbf16>, tensor<8x1x64xbf16>) {
  %a = nn.read @f.a : tensor<8192x160xbf16>
  %b = nn.read @f.b : tensor<8192x64xbf16>
  %y, %z = kernel.launch @f.a_b gemm (%0 = %x : tensor<8x1x8192xbf16>, %1 = %a : tensor<8192x160xbf16>, %2 = %b : tensor<8192x64xbf16>) -> (tensor<8x1x160xbf16>, tensor<8x1x64xbf16>) attributes {tile = array<i64: 16, 32, 64>, split = 7 : i64, combine = "owner", stages = 3 : i64} {
    %3 = nn.linear %0, %1 : tensor<8x1x8192xbf16>, tensor<8192x160xbf16> -> tensor<8x1x160xbf16>
    %4 = nn.linear %0, %2 : tensor<8x1x8192xbf16>, tensor<8192x64xbf16> -> tensor<8x1x64xbf16>
    kernel.yield %3, %4 : tensor<8x1x160xbf16>, tensor<8x1x64xbf16>
  }
  func.return %y, %z : tensor<8x1x160xbf16>, tensor<8x1x64xbf16>
}

// An owner that cannot be resident with those it waits for: a second launch combines instead.
// CHECK-LABEL: func.func @crowded
// CHECK: combine = "kernel", combine_rows = {{[0-9]+}} : i64, combine_stages = {{[0-9]+}} : i64, stages = 3 : i64, grid = array<i64: 640>
// CHECK-NOT: waits
func.func @crowded(%x : tensor<8x1x8192xbf16>) -> tensor<8x1x160xbf16> {
  %a = nn.read @f.a : tensor<8192x160xbf16>
  %y = kernel.launch @f.a gemm (%0 = %x : tensor<8x1x8192xbf16>, %1 = %a : tensor<8192x160xbf16>) -> (tensor<8x1x160xbf16>) attributes {tile = array<i64: 16, 32, 64>, split = 128 : i64, combine = "owner", stages = 3 : i64} {
    %3 = nn.linear %0, %1 : tensor<8x1x8192xbf16>, tensor<8192x160xbf16> -> tensor<8x1x160xbf16>
    kernel.yield %3 : tensor<8x1x160xbf16>
  }
  func.return %y : tensor<8x1x160xbf16>
}

// A norm has a workgroup per row tile, an append one per head and row tile.
// CHECK-LABEL: func.func @rows
// CHECK: kernel.launch @rows.norm norm {{.*}} grid = array<i64: 8>
// CHECK: kernel.launch @rows.append append {{.*}} grid = array<i64: 16>
nn.parameter @rows.norm : tensor<64xbf16>
nn.state @rows.k : tensor<8x2x32x32xbf16>
func.func @rows(%x : tensor<8x1x64xbf16>) {
  %w = nn.read @rows.norm : tensor<64xbf16>
  %h = kernel.launch @rows.norm norm (%0 = %x : tensor<8x1x64xbf16>, %1 = %w : tensor<64xbf16>) -> (tensor<8x1x64xbf16>) attributes {tile = array<i64: 1, 64>} {
    %2 = nn.rms_norm %0, %1 {eps = 1.0e-5 : f64} : tensor<8x1x64xbf16>, tensor<64xbf16> -> tensor<8x1x64xbf16>
    kernel.yield %2 : tensor<8x1x64xbf16>
  }
  %c = kernel.launch @rows.append append (%0 = %h : tensor<8x1x64xbf16>) -> (tensor<8x2x32x32xbf16>) attributes {tile = array<i64: 1, 32>} {
    %2 = nn.append @rows.k, %0 {start = 31 : i64} : tensor<8x1x64xbf16> -> tensor<8x2x32x32xbf16>
    kernel.yield %2 : tensor<8x2x32x32xbf16>
  }
  func.return
}
