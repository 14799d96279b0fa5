// One error a case.
// RUN: starc-opt --split-input-file --verify-diagnostics --parsing-diagnostics %s | filecheck %s

// CHECK: there is no buffer @z
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc scratch : !isa.tile<1x64xbf16>
    isa.load %t, @z[0, 0] : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: @x has 2 dimensions, the access has 3
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc scratch : !isa.tile<1x64xbf16>
    isa.load %t, @x[0, 0, 0] : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: a box of [2, 64] has 128 elements, the tile 64
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc scratch : !isa.tile<1x64xbf16>
    isa.load %t, @x[0, 0] extents [2, 64] : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: accumulator 16x64, a 16x32 and b 64x32 do not multiply
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %a = isa.alloc register : !isa.tile<16x32xbf16>
    %b = isa.alloc register : !isa.tile<64x32xbf16>
    %c = isa.alloc register : !isa.tile<16x64xf32>
    isa.matrix %c, %a, %b : !isa.tile<16x64xf32>, !isa.tile<16x32xbf16>, !isa.tile<64x32xbf16>
  }
}

// -----

// CHECK: there is no vector function 'softmax'
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc register : !isa.tile<1x64xbf16>
    isa.vector "softmax"(%t) : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: 'add' takes 3 tiles, got 1
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc register : !isa.tile<1x64xbf16>
    isa.vector "add"(%t) : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: 'scale' takes 1 parameters, got 0
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc register : !isa.tile<1x64xbf16>
    isa.vector "scale"(%t, %t) : !isa.tile<1x64xbf16>, !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: there is no counter @ready
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.wait @ready[0] until [1]
  }
}

// -----

// CHECK: 'isa.delay' has a stage but is not directly in a loop
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.delay 5 {stage = 1 : i64}
  }
}

// -----

// CHECK: a tile of several slots must be allocated directly in a loop
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc scratch slots 2 : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: unknown tile space 'cache': scratch or register
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc cache : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: loops nest more than 4 deep
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.loop %a = [0] to [2] {
      isa.loop %b = [0] to [2] {
        isa.loop %c = [0] to [2] {
          isa.loop %d = [0] to [2] {
            isa.loop %e = [0] to [2] {
            }
          }
        }
      }
    }
  }
}

// -----

// CHECK: template @k has 65 records, more than 64
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
    isa.delay 1
  }
}

// -----

// CHECK: 'isa.load' uses a value that is not defined before it in its kernel
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.load %t, @x[0, 0] : !isa.tile<1x64xbf16>
    %t = isa.alloc scratch : !isa.tile<1x64xbf16>
  }
}

// -----

// CHECK: there is no template @nothing
builtin.module {
  isa.launch @go [@nothing grid 4] queue "compute"
}

// -----

// CHECK: @k is launched with 0 workgroups
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.delay 1
  }
  isa.launch @go [@k grid 0] queue "compute"
}

// -----

// CHECK: 1 row numbers for 2 rows
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %ids = isa.alloc register : !isa.tile<1x1xi32>
    %g = isa.alloc register : !isa.tile<2x64xbf16>
    isa.gather %g, @x[0] rows %ids - [0] : !isa.tile<2x64xbf16>, !isa.tile<1x1xi32>
  }
}

// -----

// CHECK: floordiv by 0: the divisor must be positive
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %i = isa.index [%wg floordiv 0]
  }
}

// -----

// CHECK: expected a quasi-affine expression
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %i = isa.index [%wg ? 2]
  }
}

// -----

// CHECK: a tile has at least one row and one column
builtin.module {
  kernel.buffer @x : tensor<4x256xbf16> {address = 0 : i64, bytes = 2048 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    %t = isa.alloc register : !isa.tile<0x4xf32>
  }
}

// -----

// CHECK: unknown queue 'dma', one of compute, communication
builtin.module {
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm", waves = 4 : i64} {
    isa.delay 5
  }
  isa.launch @go [@k grid 4] queue "dma"
}
