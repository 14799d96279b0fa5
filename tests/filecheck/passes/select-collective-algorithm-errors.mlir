// RUN: not starc-opt %s --machine mi300x-cpx -p select-collective-algorithm 2>&1 | filecheck %s
// RUN: starc-opt %s --machine mi300x-cpx -p 'select-collective-algorithm{algorithm="auto"}' | filecheck %s --check-prefix=AUTO

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]

// What only the first device of a group holds is not combined in any order.
// CHECK: a ring needs an associative and commutative reduction, root is not
// AUTO: reduction = root {algorithm = "one_shot", transport = "bulk"}
func.func @f(%x : tensor<64xbf16, #sharding.of<@node, [{}], partial = root{"gpu"}, global = [64]>>) {
  %0 = collective.all_reduce %x on @node axes = ["gpu"] reduction = root : tensor<64xbf16, #sharding.of<@node, [{}], partial = root{"gpu"}, global = [64]>> -> tensor<64xbf16, #sharding.of<@node, [{}], global = [64]>>
  func.return
}
