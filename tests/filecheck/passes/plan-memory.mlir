// RUN: starc-opt %s -p form-kernels,assign-queues,tile-kernels,map-workgroups,plan-memory | filecheck %s
// RUN: starc-opt %s -p form-kernels,assign-queues,tile-kernels,map-workgroups,plan-memory | starc-opt | filecheck %s

// Parameters and states become buffers of their names; tables lie row-major, weights in blocks.
// CHECK-NOT: nn.parameter
// CHECK-DAG: kernel.buffer @embedding.table : tensor<512x64xbf16> {{.*}} bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "weight"
// CHECK-DAG: kernel.buffer @decoder.gate : tensor<64x64xbf16> {{.*}} bytes = 8192 : i64, layout = #kernel.layout<blocked [{{[0-9]+}}, {{[0-9]+}}]>, space = "private", role = "weight"
// CHECK-DAG: kernel.buffer @decoder.k : tensor<2x2x32x32xbf16> {{.*}} layout = #kernel.layout<blocked [1, 1, 32, 32]>, space = "private", role = "state"
// CHECK-DAG: kernel.buffer @embedding.ids : tensor<2x1xi32> {{.*}} role = "input"
// CHECK-DAG: kernel.buffer @embedding.result : tensor<2x1x64xbf16> {{.*}} role = "activation"
// CHECK-DAG: kernel.buffer @decoder.result : tensor<2x1x64xbf16> {{.*}} role = "output"
nn.stack [@embedding * 1, @decoder * 4]
nn.parameter @embedding.table : tensor<512x64xbf16>
nn.parameter @decoder.gate : tensor<64x64xbf16>
nn.state @decoder.k : tensor<2x2x32x32xbf16>

// CHECK: func.func @embedding() attributes {kernel.arguments = [@embedding.ids], kernel.results = [@embedding.result]} {
// CHECK-NEXT: kernel.launch @embedding.embedding embedding reads (%{{.*}} = @embedding.ids : tensor<2x1xi32>, %{{.*}} = @embedding.table : tensor<512x64xbf16>) writes (@embedding.result)
func.func @embedding(%ids : tensor<2x1xi32>) -> tensor<2x1x64xbf16> {
  %t = nn.read @embedding.table : tensor<512x64xbf16>
  %x = nn.embedding %ids, %t : tensor<2x1xi32>, tensor<512x64xbf16> -> tensor<2x1x64xbf16>
  func.return %x : tensor<2x1x64xbf16>
}

// A layer reads the result of the layer before it; the cache is written in place.
// CHECK: func.func @decoder() attributes {kernel.arguments = [@embedding.result], kernel.results = [@decoder.result]} {
// CHECK: kernel.launch @decoder.append append reads (%{{.*}} = @embedding.result : tensor<2x1x64xbf16>) writes (@decoder.k)
// CHECK: kernel.launch @decoder.attention attention reads (%{{.*}} = @embedding.result : {{.*}}, %{{.*}} = @decoder.k : {{.*}}) writes (@decoder.attention.out)
// CHECK: kernel.launch @decoder.gate gemm reads ({{.*}} = @decoder.attention.out : tensor<2x1x64xbf16>, {{.*}} = @decoder.gate : tensor<64x64xbf16>) writes (@decoder.result)
// CHECK: func.return
func.func @decoder(%x : tensor<2x1x64xbf16>) -> tensor<2x1x64xbf16> {
  %c = nn.append @decoder.k, %x {start = 31 : i64} : tensor<2x1x64xbf16> -> tensor<2x2x32x32xbf16>
  %a = nn.attention %x, %c, %c {head_dim = 32 : i64, start = 31 : i64, scale = 0.25 : f64, causal} : tensor<2x1x64xbf16>, tensor<2x2x32x32xbf16>, tensor<2x2x32x32xbf16> -> tensor<2x1x64xbf16>
  %w = nn.read @decoder.gate : tensor<64x64xbf16>
  %y = nn.linear %a, %w : tensor<2x1x64xbf16>, tensor<64x64xbf16> -> tensor<2x1x64xbf16>
  func.return %y : tensor<2x1x64xbf16>
}
