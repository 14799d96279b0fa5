// RUN: starc-opt %s -p orthogonalize-gemms | filecheck %s

sharding.mesh @node = ["gpu"=4 : outer xgmi, "xcd"=2 : inner usr]

// Rows of both levels stay with the outer one, columns go to the inner one, and the other way round;
// what the inner level replicated is cut, and a table too. A size that does not divide stays.
// CHECK:       nn.parameter @embed.table : tensor<128x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
// CHECK-NEXT:  nn.parameter @layer.up : tensor<64x256xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
// CHECK-NEXT:  nn.parameter @layer.few : tensor<64x32xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
// CHECK-NEXT:  nn.parameter @layer.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
// CHECK-NEXT:  nn.parameter @layer.odd : tensor<256x63xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
// CHECK-NEXT:  nn.parameter @layer.turned : tensor<256x64xbf16, #sharding.of<@node, [{"xcd", "gpu"}, {}]>>
nn.parameter @embed.table : tensor<128x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
nn.parameter @layer.up : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
nn.parameter @layer.few : tensor<64x32xbf16, #sharding.of<@node, [{}, {"gpu"}]>>
nn.parameter @layer.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
nn.parameter @layer.odd : tensor<256x63xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
nn.parameter @layer.turned : tensor<256x64xbf16, #sharding.of<@node, [{"xcd", "gpu"}, {}]>>
nn.stack [@embed * 1, @layer * 2]

// What passes between layers is split over the inner level.
// CHECK-LABEL: func.func @embed(%ids: tensor<2x1xi32, #sharding.of<@node, [{}, {}]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
// CHECK:         %{{.*}} = nn.embedding {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
// CHECK:         func.return %{{.*}} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
func.func @embed(%ids : tensor<2x1xi32, #sharding.of<@node, [{}, {}]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> {
  %t = nn.read @embed.table : tensor<128x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
  %x = nn.embedding %ids, %t : tensor<2x1xi32, #sharding.of<@node, [{}, {}]>>, tensor<128x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
  %y = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
}

// CHECK-LABEL: func.func @layer(%x: tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>)
// CHECK-NEXT:    %[[X:.*]] = sharding.reshard %x : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK:         %[[S:.*]] = sharding.reshard %[[X]] : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
// CHECK-NEXT:    %[[U:.*]] = nn.linear %[[S]], {{.*}} -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
// CHECK-NEXT:    %[[V:.*]] = sharding.reshard %[[U]] : {{.*}} -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
// CHECK:         %[[F:.*]] = nn.linear %[[S]], {{.*}} -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
// CHECK-NEXT:    %{{.*}} = sharding.reshard %[[F]] : {{.*}} -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
// CHECK:         %[[G:.*]] = sharding.reshard %[[V]] : {{.*}} -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
// CHECK-NEXT:    %[[D:.*]] = nn.linear %[[G]], {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
// CHECK:         nn.linear %[[V]], {{.*}} -> tensor<2x1x63xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
func.func @layer(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> {
  %0 = nn.read @layer.up : tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
  %1 = nn.linear %x, %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64x256xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>> -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %2 = nn.read @layer.few : tensor<64x32xbf16, #sharding.of<@node, [{}, {"gpu"}]>>
  %3 = nn.linear %x, %2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<64x32xbf16, #sharding.of<@node, [{}, {"gpu"}]>> -> tensor<2x1x32xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
  %4 = nn.read @layer.down : tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
  %5 = nn.linear %1, %4 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<256x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
  %6 = sharding.reshard %5 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %7 = nn.read @layer.odd : tensor<256x63xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
  %8 = nn.linear %1, %7 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<256x63xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>> -> tensor<2x1x63xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
  %9 = sharding.reshard %1 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"xcd", "gpu"}]>>
  %10 = nn.read @layer.turned : tensor<256x64xbf16, #sharding.of<@node, [{"xcd", "gpu"}, {}]>>
  %11 = nn.linear %9, %10 : tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"xcd", "gpu"}]>>, tensor<256x64xbf16, #sharding.of<@node, [{"xcd", "gpu"}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
  func.return %6 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
}
