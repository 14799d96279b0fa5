// RUN: starc-opt %s -p compose-reshards | filecheck %s

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
nn.parameter @m.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
// A parameter of which every use takes a part is stored in parts.
// CHECK: nn.parameter @m.norm : tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>>

// A gather and the slice of it cancel.
// CHECK-LABEL: func.func @cancel
// CHECK-NEXT:    %{{.*}} = nn.silu %x :
func.func @cancel(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>) {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = sharding.reshard %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  %2 = nn.silu %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  func.return
}

// A reduction and a slice are a reduce-scatter; not where the whole is used too.
// CHECK-LABEL: func.func @scatter
// CHECK-NEXT:    %{{.*}} = sharding.reshard %x : {{.*}}partial = sum{"xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
// CHECK-NEXT:    func.return
func.func @scatter(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = sharding.reshard %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  func.return %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
}

// CHECK-LABEL: func.func @whole_and_part
// CHECK-NEXT:    %[[W:.*]] = sharding.reshard %x : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    %[[P:.*]] = sharding.reshard %[[W]] :
// CHECK-NEXT:    func.return %[[W]], %[[P]]
func.func @whole_and_part(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>) {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = sharding.reshard %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  func.return %0, %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
}

// A reduce-scatter, an operation linear in the sum and a gather are an all-reduce behind it.
// CHECK-LABEL: func.func @linear
// CHECK-NEXT:    %[[R:.*]] = nn.rope %x {{.*}}, partial = sum{"xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>
// CHECK-NEXT:    %[[A:.*]] = sharding.reshard %[[R]] : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
// CHECK-NEXT:    func.return %[[A]]
func.func @linear(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %1 = nn.rope %0 {theta = 1.0e+04 : f64, head_dim = 16 : i64, start = 3 : i64} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %2 = sharding.reshard %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
  func.return %2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
}

// Not below an operation that is not linear.
// CHECK-LABEL: func.func @not_linear
// CHECK-NEXT:    sharding.reshard %x
// CHECK-NEXT:    nn.silu
// CHECK-NEXT:    sharding.reshard
func.func @not_linear(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}], partial = sum{"xcd"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %1 = nn.silu %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  %2 = sharding.reshard %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
  func.return %2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>
}

// The reductions of the terms of a sum are one.
// CHECK-LABEL: func.func @terms
// CHECK-NEXT:    %[[S:.*]] = nn.add %x, %y :
// CHECK-NEXT:    %[[R:.*]] = sharding.reshard %[[S]] :
// CHECK-NEXT:    func.return %[[R]]
func.func @terms(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}>>, %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = sharding.reshard %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %2 = nn.add %0, %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return %2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
}

// A gather sinks below operations on single elements, and the other operand is sliced.
// CHECK-LABEL: func.func @sink
// CHECK-NEXT:    %[[S:.*]] = nn.silu %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
// CHECK-NEXT:    %[[Y:.*]] = sharding.reshard %y : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
// CHECK-NEXT:    %[[M:.*]] = nn.mul %[[S]], %[[Y]] :
// CHECK-NEXT:    %[[G:.*]] = sharding.reshard %[[M]] : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    func.return %[[G]]
func.func @sink(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = nn.silu %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %2 = nn.mul %1, %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return %2 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
}

// Not where the gathered value is needed anyway: a second gather would be one too many.
// CHECK-LABEL: func.func @needed
// CHECK-NEXT:    %[[G:.*]] = sharding.reshard %x
// CHECK-NEXT:    %[[S:.*]] = nn.silu %[[G]]
// CHECK-NEXT:    func.return %[[G]], %[[S]]
func.func @needed(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) {
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = nn.silu %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return %0, %1 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
}

// A norm needs whole rows; equal reshards are one, unused ones none.
// CHECK-LABEL: func.func @norm
// CHECK-NEXT:    %[[N:.*]] = nn.read @m.norm : tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>>
// CHECK-NEXT:    %[[C:.*]] = nn.scale_columns %x, %[[N]] :
// CHECK-NEXT:    %[[G:.*]] = sharding.reshard %x : {{.*}} -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
// CHECK-NEXT:    %[[A:.*]] = nn.attention
// CHECK-NEXT:    func.return %[[C]]
func.func @norm(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, %k : tensor<2x4x8x16xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> {
  %n = nn.read @m.norm : tensor<64xbf16, #sharding.of<@node, [{}]>>
  %s = sharding.reshard %n : tensor<64xbf16, #sharding.of<@node, [{}]>> -> tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>>
  %c = nn.scale_columns %x, %s : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>, tensor<64xbf16, #sharding.of<@node, [{"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
  %0 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %1 = sharding.reshard %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  %2 = sharding.reshard %0 : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}]>>
  %3 = nn.attention %1, %k, %k {head_dim = 16 : i64, start = 7 : i64, scale = 0.25 : f64} : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, tensor<2x4x8x16xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>, tensor<2x4x8x16xbf16, #sharding.of<@node, [{}, {}, {}, {}]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>
  func.return %c : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {"xcd"}]>>
}
