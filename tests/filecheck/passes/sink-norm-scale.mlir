// RUN: starc-opt %s -p sink-norm-scale | filecheck %s

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
nn.parameter @m.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
nn.parameter @m.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
nn.parameter @m.whole : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>

// One number a row is reduced. The scale sinks below the product, onto the partial sum; where the
// normed row is used otherwise it is scaled itself; a product on the whole row is scaled behind it.
// CHECK-LABEL: func.func @both
// CHECK-NEXT:    %[[W:.*]] = nn.read @m.norm
// CHECK-NEXT:    %[[S:.*]] = nn.sum_squares %x : {{.*}} -> tensor<2x3x1xf32, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>>
// CHECK-NEXT:    %[[T:.*]] = sharding.reshard %[[S]] : {{.*}} -> tensor<2x3x1xf32, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    %[[R:.*]] = nn.norm_scale %[[T]] {eps = 1.000000e-05 : f64, count = 64 : i64}
// CHECK-NEXT:    %[[V:.*]] = sharding.reshard %[[W]] : {{.*}} -> tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>>
// CHECK-NEXT:    %[[C:.*]] = nn.scale_columns %x, %[[V]] :
// CHECK-NEXT:    %[[H:.*]] = nn.scale_rows %[[C]], %[[R]] :
// CHECK:         %[[Y:.*]] = nn.linear %[[C]],
// CHECK-NEXT:    %[[Z:.*]] = nn.scale_rows %[[Y]], %[[R]] : {{.*}} -> tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
// CHECK:         %[[G:.*]] = sharding.reshard %[[C]] : {{.*}} -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    %[[A:.*]] = nn.linear %[[G]],
// CHECK-NEXT:    %[[B:.*]] = nn.scale_rows %[[A]], %[[R]] : {{.*}} -> tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
// CHECK-NEXT:    %[[U:.*]] = sharding.reshard %[[H]] : {{.*}} -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    nn.silu %[[U]]
// CHECK-NEXT:    func.return %[[Z]], %[[B]]
func.func @both(%x : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>) -> (tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>, tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>) {
  %g = sharding.reshard %x : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %w = nn.read @m.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
  %h = nn.rms_norm %g, %w {eps = 1.0e-05 : f64} : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64xbf16, #sharding.of<@node, [{}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %s = sharding.reshard %h : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  %0 = nn.read @m.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
  %1 = nn.linear %s, %0 : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>> -> tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
  %2 = nn.read @m.whole : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
  %3 = nn.linear %h, %2 : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>> -> tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %4 = nn.silu %h : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return %1, %3 : tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>, tensor<2x3x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// A norm whose result no product takes split stays, and so does one of whole rows.
// CHECK-LABEL: func.func @stays
// CHECK:         nn.rms_norm
// CHECK:         nn.rms_norm
// CHECK-NOT:     nn.sum_squares
func.func @stays(%x : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, %y : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) {
  %g = sharding.reshard %x : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %w = nn.read @m.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
  %0 = nn.rms_norm %g, %w {eps = 1.0e-05 : f64} : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64xbf16, #sharding.of<@node, [{}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = nn.rms_norm %y, %w {eps = 1.0e-05 : f64} : tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64xbf16, #sharding.of<@node, [{}]>> -> tensor<2x3x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return
}
