// RUN: starc-opt %s -p 'interchange-collectives{fused=false}' | filecheck %s
// RUN: starc-opt %s -p interchange-collectives | filecheck %s
// RUN: starc-opt %s -p 'interchange-collectives{form="gather"}' | filecheck %s --check-prefix=GATHER
// RUN: starc-opt %s -p 'interchange-collectives{exact=true}' | filecheck %s --check-prefix=EXACT

builtin.module attributes {dlti.target_system_spec = #dlti.target_system_spec<"starc" = #dlti.target_device_spec<"base" = "mi300x-cpx", "gpus" = 2 : i64>>} {
sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=8 : inner usr]

// Few activations and many partial sums: the exchange goes in front, once for both products. Many
// activations and few partial sums: it goes behind.
// CHECK:       nn.parameter @m.gate : tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
// CHECK-NEXT:  nn.parameter @m.up : tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
// CHECK-NEXT:  nn.parameter @m.down : tensor<4096x64xbf16, #sharding.of<@node, [{"gpu", "xcd"}, {}]>>
// GATHER:      nn.parameter @m.gate : tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
// GATHER-NEXT: nn.parameter @m.up : tensor<64x4096xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}]>>
// GATHER-NEXT: nn.parameter @m.down : tensor<4096x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
// EXACT:       nn.parameter @m.gate : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
// EXACT-NEXT:  nn.parameter @m.up : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
// EXACT-NEXT:  nn.parameter @m.down : tensor<4096x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
nn.parameter @m.gate : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
nn.parameter @m.up : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
nn.parameter @m.down : tensor<4096x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>

// CHECK-LABEL: func.func @m
// CHECK:         %[[X:.*]] = sharding.reshard %x : {{.*}} -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    %[[G:.*]] = nn.linear %[[X]],
// CHECK-NEXT:    %[[R:.*]] = nn.scale_rows %[[G]], %r : {{.*}} -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
// CHECK:         %[[U:.*]] = nn.linear %[[X]],
// CHECK-NEXT:    %[[P:.*]] = nn.mul %[[R]], %[[U]]
// CHECK:         %[[D:.*]] = nn.linear %[[P]], {{.*}} -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu", "xcd"}>>
// CHECK-NEXT:    %[[S:.*]] = sharding.reshard %[[D]] : {{.*}} -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
func.func @m(%x : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, %r : tensor<2x64x1xf32, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
  %0 = nn.read @m.gate : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
  %1 = nn.linear %x, %0 : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
  %2 = nn.scale_rows %1, %r : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>, tensor<2x64x1xf32, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
  %3 = sharding.reshard %2 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %4 = nn.read @m.up : tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>>
  %5 = nn.linear %x, %4 : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, tensor<64x4096xbf16, #sharding.of<@node, [{"xcd"}, {"gpu"}]>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
  %6 = sharding.reshard %5 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %7 = nn.mul %3, %6 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %8 = sharding.reshard %7 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
  %9 = nn.read @m.down : tensor<4096x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>>
  %10 = nn.linear %8, %9 : tensor<2x64x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>, tensor<4096x64xbf16, #sharding.of<@node, [{"gpu"}, {"xcd"}]>> -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>>
  %11 = sharding.reshard %10 : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], partial = sum{"gpu"}>> -> tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  func.return %11 : tensor<2x64x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
}
}
