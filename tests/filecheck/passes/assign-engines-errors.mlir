// RUN: not starc-opt %s --machine ahbm -p assign-engines 2>&1 | filecheck %s

kernel.buffer @x : tensor<512x64xbf16> {address = 0 : i64, bytes = 65536 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// CHECK-DAG: template @stages: tile %t has 1 slot: it is used again before the stages that need it are over
isa.kernel @stages coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  %u = isa.alloc scratch offset 16384 : !isa.tile<64x64xbf16>
  isa.loop %i = [0] to [8] {
    %t = isa.alloc scratch offset 0 : !isa.tile<64x64xbf16>
    isa.load %t, @x[%i * 64, 0] : !isa.tile<64x64xbf16>
    isa.vector "silu"(%u, %t) {stage = 1 : i64} : !isa.tile<64x64xbf16>, !isa.tile<64x64xbf16>
  }
}
