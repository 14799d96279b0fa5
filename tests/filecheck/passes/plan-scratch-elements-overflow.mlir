// RUN: not starc-opt %s --machine ahbm -p plan-scratch 2>&1 | filecheck %s

kernel.buffer @x : tensor<65536x512xbf16> {address = 0 : i64, bytes = 67108864 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}

// CHECK: error: @low takes bytes 786,304 to 786,432 of scratch memory, which has 786,432 to 1,048,576 for queues
kernel.buffer @low : tensor<1x64xbf16> {address = 786304 : i64, bytes = 128 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}
kernel.buffer @high : tensor<1x64xbf16> {address = 1048448 : i64, bytes = 128 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}

// Tiles reach the region of the queues.
// CHECK: error: template @slots needs 1,048,576 bytes of scratch memory for tiles that are alive at the same time, an element has 786,432 (1,048,576 less 262,144 for queues): %b 512x512xbf16 in 2 slots 1,048,576 B
// CHECK: hint: with one slot for every tile they take 524,288 bytes, which fits; options of the tile: tile-kernels{gemm-tile=ROWS,COLUMNS,INNER} and {gemm-stages=N}
isa.kernel @slots coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
  isa.loop %k = [0] to [8] {
    %b = isa.alloc scratch slots 2 : !isa.tile<512x512xbf16>
    isa.load %b, @x[%k * 512, 0] : !isa.tile<512x512xbf16>
  }
}

// CHECK: error: template @rows needs 1,048,576 bytes of scratch memory for tiles that are alive at the same time, an element has 786,432 (1,048,576 less 262,144 for queues): %b 768x512xbf16 786,432 B ({{.*}}overflow.mlir:23:3), %a 256x512xbf16 262,144 B ({{.*}}overflow.mlir:22:3)
// CHECK: hint: %b fits with at most 512 rows; options of the tile: tile-kernels{attention-keys=N}, {attention-rows=N} and {attention-stages=N}
isa.kernel @rows coords(%device, %sip, %group, %cube, %pe, %wg) attributes {kernel_class = "attention", waves = 4 : i64} {
  %a = isa.alloc scratch : !isa.tile<256x512xbf16>
  %b = isa.alloc scratch : !isa.tile<768x512xbf16>
  isa.load %a, @x[0, 0] : !isa.tile<256x512xbf16>
  isa.load %b, @x[0, 0] : !isa.tile<768x512xbf16>
  isa.store %a, @x[0, 0] : !isa.tile<256x512xbf16>
}
