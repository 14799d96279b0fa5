// RUN: not starc-opt %s -p form-kernel 2>&1 | filecheck %s
// RUN: not starc-opt %s -p 'cse{' 2>&1 | filecheck %s --check-prefix=SYNTAX
// RUN: not starc-opt %s -p 'cse{depth=1}' 2>&1 | filecheck %s --check-prefix=OPTION
// RUN: not starc-opt no-such-file.mlir 2>&1 | filecheck %s --check-prefix=MISSING

// CHECK: starc-opt: error: unknown pass 'form-kernel' (did you mean 'form-kernels'?)
// SYNTAX: starc-opt: error: -p 'cse{':
// OPTION: starc-opt: error: pass 'cse' has no option 'depth'
// MISSING: no-such-file.mlir: error: no such file
func.func @f() {
  func.return
}
