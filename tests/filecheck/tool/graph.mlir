// A block sees the values of the blocks that dominate it, and only those.
// RUN: starc-opt --split-input-file --verify-diagnostics %s | filecheck %s

// CHECK-LABEL: func.func @good
func.func @good(%c : i1, %a : i32) -> i32 {
  %d = arith.addi %a, %a : i32
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  cf.br ^bb2
^bb2:
  func.return %d : i32
}

// -----

// CHECK: 'func.return' uses %d before it is defined
func.func @bad(%c : i1, %a : i32) -> i32 {
  cf.cond_br %c, ^bb1, ^bb2
^bb1:
  %d = arith.addi %a, %a : i32
  cf.br ^bb2
^bb2:
  func.return %d : i32
}
