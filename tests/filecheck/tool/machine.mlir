// The machine of the options, and that of the module, are checked whether a pass uses them or not.
// RUN: starc-opt %s --machine mi300x-cpx --gpus 2 | filecheck %s
// RUN: not starc-opt %s --machine foo 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 99 2>&1 | filecheck %s --check-prefix=GPUS
// RUN: not starc-opt %s --gpus 2 2>&1 | filecheck %s --check-prefix=ALONE
// RUN: starc-opt %s --machine mi300x-cpx --gpus 2 | not starc-opt --machine mi300x-spx 2>&1 | filecheck %s --check-prefix=OTHER

// CHECK: "base" = "mi300x-cpx", "gpus" = 2 : i64>>
// NAME: starc-opt: error: unknown target 'foo'
// GPUS: starc-opt: error: gpus: a node has 1 to 8 GPUs, not 99
// ALONE: starc-opt: error: --gpus belongs to --machine
// OTHER: starc-opt: error: --machine: the module is for mi300x-cpx with 2 GPUs
func.func @f() {
  func.return
}
