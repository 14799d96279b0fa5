// Every operation, as it prints and as it is read back.
// RUN: starc-opt %s | starc-opt | filecheck %s
// RUN: starc-opt %s --print-op-generic | starc-opt | filecheck %s

kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "activation"}
kernel.buffer @y : tensor<2x3x4x8xbf16> {address = 4096 : i64, bytes = 384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// CHECK: isa.counter @ready count 8
isa.counter @ready count 8

// CHECK: isa.kernel @copy coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
isa.kernel @copy coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "elementwise", waves = 4 : i64} {
  // Index values are quasi-affine: sums, products and divisions by constants, minima, tables.
  // CHECK-NEXT: %row = isa.index [min(%wg mod 8, table<1, 2, 3>[%gpu]) - %xcd * 2]
  %row = isa.index [min(%wg mod 8, table<1, 2, 3>[%gpu]) - %xcd * 2]
  // CHECK-NEXT: isa.loop %i = [0] to [max(%row, 4) floordiv 2] attributes {stages = 3 : i64} {
  isa.loop %i = [0] to [max(%row, 4) floordiv 2] attributes {stages = 3 : i64} {
    // CHECK-NEXT: %t = isa.alloc scratch slots 2 offset 4096 : !isa.tile<1x64xbf16>
    %t = isa.alloc scratch slots 2 offset 4096 : !isa.tile<1x64xbf16>
    // CHECK-NEXT: isa.load %t, @x[%row, %i * 64] {stage = 1 : i64} : !isa.tile<1x64xbf16>
    isa.load %t, @x[%row, %i * 64] {stage = 1 : i64} : !isa.tile<1x64xbf16>
    // CHECK-NEXT: isa.load %t, @x[%row, %i * 64] {acquire} : !isa.tile<1x64xbf16>
    isa.load %t, @x[%row, %i * 64] {acquire} : !isa.tile<1x64xbf16>
    // CHECK-NEXT: isa.store %t, @y[%wg, 0, 0, 0] extents [2, 1, 4, 8] : !isa.tile<1x64xbf16>
    isa.store %t, @y[%wg, 0, 0, 0] extents [2, 1, 4, 8] : !isa.tile<1x64xbf16>
    // CHECK-NEXT: isa.put %t, @x[%wg, %i * 64] to [(%device + 1) mod 8] : !isa.tile<1x64xbf16>
    isa.put %t, @x[%wg, %i * 64] to [(%device + 1) mod 8] : !isa.tile<1x64xbf16>
    // CHECK-NEXT: isa.get %t, @x[%wg, %i * 64] from [%device - %xcd] : !isa.tile<1x64xbf16>
    isa.get %t, @x[%wg, %i * 64] from [%device - %xcd] : !isa.tile<1x64xbf16>
  }
  // CHECK: %ids = isa.alloc register : !isa.tile<2x1xi32>
  %ids = isa.alloc register : !isa.tile<2x1xi32>
  %g = isa.alloc register : !isa.tile<2x64xbf16>
  // CHECK: isa.gather %g, @x[%wg * 64] rows %ids - [%device * 4] : !isa.tile<2x64xbf16>, !isa.tile<2x1xi32>
  isa.gather %g, @x[%wg * 64] rows %ids - [%device * 4] : !isa.tile<2x64xbf16>, !isa.tile<2x1xi32>
  // CHECK-NEXT: isa.vector "rope"(%g, %g) params [16, 7, 0, 1, %wg] : !isa.tile<2x64xbf16>, !isa.tile<2x64xbf16>
  isa.vector "rope"(%g, %g) params [16, 7, 0, 1, %wg] : !isa.tile<2x64xbf16>, !isa.tile<2x64xbf16>
  %a = isa.alloc register : !isa.tile<16x32xbf16>
  %b = isa.alloc register : !isa.tile<64x32xbf16>
  %c = isa.alloc register : !isa.tile<16x64xf32>
  // CHECK: isa.matrix %c, %a, %b {transpose_b} : !isa.tile<16x64xf32>, !isa.tile<16x32xbf16>, !isa.tile<64x32xbf16>
  isa.matrix %c, %a, %b {transpose_b} : !isa.tile<16x64xf32>, !isa.tile<16x32xbf16>, !isa.tile<64x32xbf16>
  // CHECK-NEXT: isa.signal @ready[%wg] add [1] to [%device]
  isa.signal @ready[%wg] add [1] to [%device]
  // CHECK-NEXT: isa.signal @ready[%wg + 1] add [2]
  isa.signal @ready[%wg + 1] add [2]
  // CHECK-NEXT: isa.wait @ready[%wg] until [%row + 1]
  isa.wait @ready[%wg] until [%row + 1]
  // CHECK-NEXT: isa.if [%device - 1] {
  isa.if [%device - 1] {
    // CHECK-NEXT: isa.delay 300
    isa.delay 300
  }
}
// CHECK: isa.launch @go [@copy grid 4, @copy grid 2] queue "compute" {kind = "elementwise", info = {m = 3 : i64}}
isa.launch @go [@copy grid 4, @copy grid 2] queue "compute" {kind = "elementwise", info = {m = 3 : i64}}
