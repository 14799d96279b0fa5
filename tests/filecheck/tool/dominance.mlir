// xDSL accepts a use before its definition; starc-opt does not.
// RUN: not starc-opt %s 2>&1 | filecheck %s

// CHECK: error: 'arith.addi' uses %b before it is defined
// CHECK: in: %{{.*}} = arith.addi
func.func @f(%a : i32) -> i32 {
  %c = arith.addi %a, %b : i32
  %b = arith.addi %a, %a : i32
  func.return %c : i32
}
