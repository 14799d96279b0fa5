// RUN: starc-opt %s -p assign-queues | filecheck %s
// RUN: starc-opt %s -p assign-queues | starc-opt | filecheck %s

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]

// The next launch needs the sum: nothing to hide it behind.
// CHECK-LABEL: func.func @dependent
// CHECK: kernel.launch @sum collective {{.*}} attributes {queue = 0 : i64}
// CHECK: kernel.launch @next elementwise {{.*}} attributes {queue = 0 : i64}
func.func @dependent(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [2, 1, 64]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> {
  %s = kernel.launch @sum collective (%a = %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [2, 1, 64]>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) {
    %r = collective.all_reduce %a on @node axes = ["gpu"] reduction = sum : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
    kernel.yield %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  }
  %y = kernel.launch @next elementwise (%a = %s : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) {
    %r = nn.silu %a : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
    kernel.yield %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  }
  func.return %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
}

// Another launch stands between the sum and its first use.
// CHECK-LABEL: func.func @independent
// CHECK: kernel.launch @sum collective {{.*}} attributes {queue = 1 : i64}
// CHECK: kernel.launch @beside elementwise {{.*}} attributes {queue = 0 : i64}
// CHECK: kernel.launch @next elementwise {{.*}} attributes {queue = 0 : i64}
func.func @independent(%x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [2, 1, 64]>>, %z : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> {
  %s = kernel.launch @sum collective (%a = %x : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [2, 1, 64]>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) {
    %r = collective.all_reduce %a on @node axes = ["gpu"] reduction = sum : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"gpu"}, global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
    kernel.yield %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  }
  %t = kernel.launch @beside elementwise (%a = %z : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) {
    %r = nn.silu %a : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
    kernel.yield %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  }
  %y = kernel.launch @next elementwise (%a = %s : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>, %b = %t : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) -> (tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>) {
    %r = nn.add %a, %b : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>, tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>> -> tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
    kernel.yield %r : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
  }
  func.return %y : tensor<2x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 64]>>
}
