// RUN: not starc-opt %s 2>&1 | filecheck %s

// CHECK: parse_error.mlir:6:{{[0-9]+}}: error:
// CHECK-NEXT: %c = arith.addi %a %a : i32
func.func @f(%a : i32) -> i32 {
  %c = arith.addi %a %a : i32
  func.return %c : i32
}
