// A module that a target of xDSL cannot write is a message.
// RUN: not starc-opt %s -t arm-asm 2>&1 | filecheck %s

// CHECK: output.mlir:1:1: error: the module cannot be written as arm-asm
// CHECK-NOT: Traceback
nn.parameter @layer.w : tensor<64x64xbf16>
