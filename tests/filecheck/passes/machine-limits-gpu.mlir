// RUN: not starc-opt %s --machine mi300x --gpus 1 -p verify-schedule 2>&1 | filecheck %s

isa.kernel @streams coords(%device, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %y = isa.alloc scratch offset 0 : !isa.tile<16x64xbf16>
  // CHECK: machine-limits-gpu.mlir:[[# @LINE + 1]]:3: error: template @streams has a stream for "math", an engine that mi300x does not have
  isa.stream "math" {
    isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
  }
}
// CHECK: hint: its compute units execute a kernel as one stream

isa.kernel @tiles coords(%device, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  // CHECK: machine-limits-gpu.mlir:[[# @LINE + 1]]:3: error: template @tiles: tile %y takes bytes 64,512 to 66,560 of scratch memory, which has 0 to 65,536 for tiles
  %y = isa.alloc scratch offset 64512 : !isa.tile<16x64xbf16>
  isa.vector "zero"(%y) : !isa.tile<16x64xbf16>
}
// CHECK: hint: legal offsets are 0 to 63,488
