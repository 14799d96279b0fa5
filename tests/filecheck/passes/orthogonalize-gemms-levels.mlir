// A mesh whose inner level has one device, and weights that only one level splits, stay.
// RUN: starc-opt %s -p orthogonalize-gemms | filecheck %s
// RUN: not starc-opt %s -p 'orthogonalize-gemms{x=1}' 2>&1 | filecheck %s --check-prefix=OPTION
// OPTION: starc-opt: error:

sharding.mesh @node = ["gpu"=4 : outer xgmi, "xcd"=1 : inner usr]
// CHECK: nn.parameter @m.w : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu"}]>>
nn.parameter @m.w : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu"}]>>
// CHECK:      func.func @m(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>)
// CHECK-NEXT:   nn.read
// CHECK-NEXT:   nn.linear
// CHECK-NEXT:   func.return
func.func @m(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> {
  %0 = nn.read @m.w : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu"}]>>
  %1 = nn.linear %x, %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu"}]>> -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
  func.return %1 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
}
