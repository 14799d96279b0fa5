// A repeated layer returns what it takes; what it returns is what the next layer takes.
// RUN: starc-opt %s -p propagate-shardings | filecheck %s

sharding.mesh @node = ["x"=2 : outer link]
nn.parameter @a.w : tensor<8x8xbf16, #sharding.of<@node, [{}, {"x"}]>>
nn.parameter @b.w : tensor<8x8xbf16, #sharding.of<@node, [{}, {"x"}]>>
nn.stack [@a * 2, @b * 1]

// CHECK-LABEL: func.func @a({{.*}}) -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>> {
// CHECK:         %2 = sharding.reshard %1 : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"x"}]>> -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    func.return %2
func.func @a(%x : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x1x8xbf16> {
  %0 = nn.read @a.w : tensor<8x8xbf16>
  %1 = nn.linear %x, %0 : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<8x8xbf16> -> tensor<2x1x8xbf16>
  func.return %1 : tensor<2x1x8xbf16>
}

// The last layer's result stays as it falls.
// CHECK-LABEL: func.func @b({{.*}}) -> tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {"x"}]>> {
func.func @b(%x : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x1x8xbf16> {
  %0 = nn.read @b.w : tensor<8x8xbf16>
  %1 = nn.linear %x, %0 : tensor<2x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<8x8xbf16> -> tensor<2x1x8xbf16>
  func.return %1 : tensor<2x1x8xbf16>
}
