// RUN: starc-opt %s -p propagate-shardings | filecheck %s
// RUN: not starc-opt %s -p 'propagate-shardings{x=1}' 2>&1 | filecheck %s --check-prefix=OPTION
// OPTION: starc-opt: error:

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
nn.parameter @a.down : tensor<64x32xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
nn.parameter @a.norm : tensor<32xbf16, #sharding.of<@node, [{}]>>

// A partial sum is carried through linear operations, combined once, and used by all.
// CHECK-LABEL: func.func @partial
// CHECK-NEXT:    %0 = nn.read @a.down : tensor<64x32xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
// CHECK-NEXT:    %1 = nn.linear {{.*}} -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
// CHECK-NEXT:    %2 = nn.add %1, %1 : {{.*}} -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
// CHECK-NEXT:    %3 = nn.read @a.norm
// CHECK-NEXT:    %4 = sharding.reshard %2 : {{.*}}partial = sum{"gpu", "xcd"}>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    %5 = nn.rms_norm %4, %3
// CHECK-NEXT:    %6 = nn.add %4, %5
// CHECK-NEXT:    func.return %6 : tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {}]>>
func.func @partial(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>) -> tensor<2x1x32xbf16> {
  %0 = nn.read @a.down : tensor<64x32xbf16>
  %1 = nn.linear %x, %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
  %2 = nn.add %1, %1 : tensor<2x1x32xbf16>, tensor<2x1x32xbf16> -> tensor<2x1x32xbf16>
  %3 = nn.read @a.norm : tensor<32xbf16>
  %4 = nn.rms_norm %2, %3 {eps = 1.0e-05 : f64} : tensor<2x1x32xbf16>, tensor<32xbf16> -> tensor<2x1x32xbf16>
  %5 = nn.add %2, %4 : tensor<2x1x32xbf16>, tensor<2x1x32xbf16> -> tensor<2x1x32xbf16>
  func.return %5 : tensor<2x1x32xbf16>
}

// A weight keeps its encoding; the activation is resharded. A result stays split.
// CHECK-LABEL: func.func @weights_win
// CHECK:         %[[R:.*]] = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
// CHECK-NEXT:    nn.linear %[[R]], %{{.*}} :
func.func @weights_win(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>) -> tensor<2x1x32xbf16> {
  %0 = nn.read @a.down : tensor<64x32xbf16>
  %1 = nn.linear %x, %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>, tensor<64x32xbf16> -> tensor<2x1x32xbf16>
  func.return %1 : tensor<2x1x32xbf16>
}

// Activations that disagree are gathered to what they have in common.
// CHECK-LABEL: func.func @common
// CHECK-NEXT:    %[[Y:.*]] = sharding.reshard %y : {{.*}} -> tensor<4x8xbf16, #sharding.of<@node, [{"gpu"}, {}]>>
// CHECK-NEXT:    %{{.*}} = nn.add %x, %[[Y]] :
func.func @common(%x : tensor<4x8xbf16, #sharding.of<@node, [{"gpu"}, {}]>>, %y : tensor<4x8xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>) -> tensor<4x8xbf16> {
  %0 = nn.add %x, %y : tensor<4x8xbf16, #sharding.of<@node, [{"gpu"}, {}]>>, tensor<4x8xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>> -> tensor<4x8xbf16>
  func.return %0 : tensor<4x8xbf16>
}
