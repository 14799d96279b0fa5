// RUN: not starc-opt %s --machine ahbm --gpus 1 -p verify-schedule 2>&1 | filecheck %s
// RUN: not starc-opt %s --machine ahbm --gpus 1 -p assign-engines 2>&1 | filecheck %s --check-prefix=ASSIGN

kernel.buffer @x : tensor<4096x64xbf16> {address = 0 : i64, bytes = 524288 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// CHECK-DAG: machine-limits.mlir:[[# @LINE + 1]]:1: error: @low takes bytes 0 to 512 of scratch memory, which has 786,432 to 1,048,576 for queues
kernel.buffer @low : tensor<4x64xbf16> {address = 0 : i64, bytes = 512 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}

isa.kernel @tiles coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  // CHECK-DAG: machine-limits.mlir:[[# @LINE + 1]]:3: error: template @tiles: tile %far takes bytes 2,000,000 to 2,002,048 of scratch memory, which has 0 to 786,432 for tiles and 786,432 to 1,048,576 for queues
  %far = isa.alloc scratch offset 2000000 : !isa.tile<16x64xbf16>
  // CHECK-DAG: machine-limits.mlir:[[# @LINE + 1]]:3: error: template @tiles: tile %queue takes bytes 786,432 to 788,480 of scratch memory
  %queue = isa.alloc scratch offset 786432 : !isa.tile<16x64xbf16>
  // The first slot fits, the last does not.
  // CHECK-DAG: machine-limits.mlir:[[# @LINE + 2]]:3: error: template @tiles: tile %slots takes bytes 782,336 to 788,480 of scratch memory with its 3 slots
  // CHECK-DAG: hint: legal offsets are 0 to 780,288
  %slots = isa.alloc scratch slots 3 turns 1 offset 782336 : !isa.tile<16x64xbf16>
  // CHECK-NOT: %fits takes
  %fits = isa.alloc scratch offset 784384 : !isa.tile<16x64xbf16>
  isa.stream "math" {
    isa.vector "zero"(%far) : !isa.tile<16x64xbf16>
    isa.vector "zero"(%queue) : !isa.tile<16x64xbf16>
    isa.vector "zero"(%fits) : !isa.tile<16x64xbf16>
    isa.loop %i = [0] to [3] {
      isa.vector "zero"(%slots) : !isa.tile<16x64xbf16>
    }
  }
}

isa.kernel @commands coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %y = isa.alloc scratch offset 0 : !isa.tile<16x64xbf16>
  // CHECK-DAG: machine-limits.mlir:[[# @LINE + 2]]:3: error: template @commands: a composite continues a command, and none comes before it
  // ASSIGN-DAG: machine-limits.mlir:[[# @LINE + 1]]:3: error: template @commands: a composite continues a command, and none comes before it
  isa.composite attributes {continues} {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
  }
  // Behind a command of the block it may continue, seen through a scope.
  isa.scope {
    isa.composite attributes {continues} {
      isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
    }
  }
  isa.loop %i = [0] to [8] {
    // CHECK-DAG: machine-limits.mlir:[[# @LINE + 2]]:5: error: template @commands: a composite continues a command, and none comes before it
    // ASSIGN-DAG: machine-limits.mlir:[[# @LINE + 1]]:5: error: template @commands: a composite continues a command, and none comes before it
    isa.composite attributes {continues} {
      isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
    }
  }
  // CHECK-DAG: machine-limits.mlir:[[# @LINE + 2]]:3: error: template @commands: ahbm has no composites that carry state (its number compute.stateful_composites is 0)
  // ASSIGN-DAG: machine-limits.mlir:[[# @LINE + 1]]:3: error: template @commands: ahbm has no composites that carry state (its number compute.stateful_composites is 0)
  isa.composite stateful {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
  }
  // Written among the attributes it says the same.
  // CHECK-DAG: machine-limits.mlir:[[# @LINE + 2]]:3: error: template @commands: ahbm has no composites that carry state
  // ASSIGN-DAG: machine-limits.mlir:[[# @LINE + 1]]:3: error: template @commands: ahbm has no composites that carry state
  isa.composite attributes {stateful} {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
  }
}
