// One error of commands, scopes and streams a case.
// RUN: starc-opt --split-input-file --verify-diagnostics --parsing-diagnostics %s | filecheck %s

// CHECK: 'isa.signal' is not part of a composite
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.signal @c[0] add [1]
  }
  }
}

// -----

// CHECK: 'isa.wait' is not part of a composite
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.wait @c[0] until [1]
  }
  }
}

// -----

// CHECK: 'isa.put' is not part of a composite
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.put %a, @x[0, 0] to [1] : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: 'isa.delay' is not part of a composite
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.delay 5
  }
  }
}

// -----

// CHECK: 'row_sum_squares_add' is not elementwise
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.vector "row_sum_squares_add"(%r, %a) : !isa.tile<32x1xf32>, !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: the accumulator of a composite is set in it before its first matrix
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  }
}

// -----

// CHECK: the accumulator of a composite is set in it before its first matrix
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.vector "rescale"(%o, %r) : !isa.tile<32x64xf32>, !isa.tile<32x1xf32>
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  }
}

// -----

// CHECK: a composite is one product and adds to one accumulator, not to 2
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.vector "zero"(%o) : !isa.tile<32x64xf32>
    isa.vector "zero"(%p) : !isa.tile<32x64xf32>
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
    isa.matrix %p, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  }
}

// -----

// CHECK: 'isa.composite' is not part of a composite
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite stateful {
    isa.composite {
      isa.vector "zero"(%o) : !isa.tile<32x64xf32>
    }
  }
  }
}

// -----

// CHECK: 'isa.composite' is not part of a composite
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.composite {
    isa.scope {
      isa.composite {
        isa.vector "zero"(%o) : !isa.tile<32x64xf32>
      }
    }
  }
  }
}

// -----

// CHECK: what stands directly in a composite has the composite's stage
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.loop %i = [0] to [2] {
    isa.composite {
      isa.vector "zero"(%o) {stage = 1 : i64} : !isa.tile<32x64xf32>
    }
  }
  }
}

// -----

// CHECK: a scope has no stage, what it holds has
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.loop %i = [0] to [2] {
    isa.scope attributes {stage = 1 : i64} {
      isa.delay 5
    }
  }
  }
}

// -----

// CHECK: 'isa.delay' has a stage but is not directly in a loop
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.loop %i = [0] to [2] {
    isa.if [%i] {
      isa.delay 5 {stage = 1 : i64}
    }
  }
  }
}

// -----

// CHECK: values used but not defined: [%t]
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.scope {
    %t = isa.alloc scratch : !isa.tile<32x64xf32>
  }
  isa.vector "zero"(%t) : !isa.tile<32x64xf32>
  }
}

// -----

// CHECK: accumulator 32x64, a 32x64 and b 64x64 do not multiply
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.matrix %o, %a, %b columns [8] : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
}

// -----

// CHECK: accumulator 32x64, a 32x64 and b 64x64 do not multiply
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.matrix %o, %a, %b inner [-1] : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
}

// -----

// CHECK: accumulator 32x64, a 32x64 and b 64x128 do not multiply
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %w = isa.alloc scratch : !isa.tile<64x128xf32>
  isa.matrix %o, %a, %w columns [%wg] : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x128xf32>
  }
}

// -----

// CHECK: a tile of several slots must be allocated directly in a loop
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.scope {
    %t = isa.alloc scratch slots 2 : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: a tile whose slots a loop of the streams turns is the kernel's
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.loop %i = [0] to [2] {
    %t = isa.alloc scratch slots 2 turns 1 : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: turns names a loop by its depth, 1 to 4, not 5
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %t = isa.alloc scratch slots 2 turns 5 : !isa.tile<32x64xf32>
  }
}

// -----

// CHECK: 'isa.vector' uses a tile that loop 2 turns, inside 1 loops
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %t = isa.alloc scratch slots 2 turns 2 : !isa.tile<32x64xf32>
  isa.loop %i = [0] to [2] {
    isa.vector "zero"(%t) : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: a semaphore starts at 0 or more
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %s = isa.semaphore initial -1 : !isa.semaphore
  }
}

// -----

// CHECK: 'isa.semaphore' stands directly in a kernel
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.scope {
    %s = isa.semaphore initial 0 : !isa.semaphore
  }
  }
}

// -----

// CHECK: 'isa.stream' stands directly in a kernel
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.scope {
    isa.stream "cpu" {
      isa.delay 5
    }
  }
  }
}

// -----

// CHECK: 'isa.acquire' stands in a stream
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %s = isa.semaphore initial 0 : !isa.semaphore
  isa.acquire %s
  }
}

// -----

// CHECK: 'isa.release' stands in a stream
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %s = isa.semaphore initial 0 : !isa.semaphore
  isa.release %s
  }
}

// -----

// CHECK: unknown engine 'vector', one of cpu, scheduler, dma, gemm, math
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "vector" {
    isa.delay 5
  }
  }
}

// -----

// CHECK: 'isa.load' runs on dma, not on gemm
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "gemm" {
    isa.load %a, @x[0, 0] : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: 'isa.matrix' runs on gemm, not on cpu
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "cpu" {
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  }
}

// -----

// CHECK: 'isa.vector' runs on math, not on dma
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "dma" {
    isa.vector "zero"(%o) : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: 'isa.delay' runs on cpu or scheduler, not on math
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "math" {
    isa.delay 5
  }
  }
}

// -----

// CHECK: 'isa.wait' runs on cpu, not on dma
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "dma" {
    isa.wait @c[0] until [1]
  }
  }
}

// -----

// CHECK: 'isa.wait' runs on dma, not on cpu
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "cpu" {
    isa.wait @c[0] until [1] deferred
  }
  }
}

// -----

// CHECK: 'isa.signal' runs on dma, not on cpu
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "cpu" {
    isa.signal @c[0] add [1]
  }
  }
}

// -----

// CHECK: 'isa.composite' does not stand in a stream
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "gemm" {
    isa.composite {
      isa.vector "zero"(%o) : !isa.tile<32x64xf32>
    }
  }
  }
}

// -----

// CHECK: 'isa.alloc' does not stand in a stream
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "gemm" {
    %t = isa.alloc scratch : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: only the dma stream releases after a tile
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %s = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "gemm" {
    isa.release %s after %a : !isa.tile<32x64xf32>
  }
  }
}

// -----

// CHECK: 'isa.delay' stands beside streams, not in one of them
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.delay 5
  isa.stream "gemm" {
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  }
}

// -----

// CHECK: a kernel has one stream for an engine, two for 'gemm'
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "gemm" {
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  isa.stream "gemm" {
    isa.matrix %o, %a, %b : !isa.tile<32x64xf32>, !isa.tile<32x64xf32>, !isa.tile<64x64xf32>
  }
  }
}

// -----

// CHECK: one stream acquires a semaphore, not both cpu and gemm: %s
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %s = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {
    isa.acquire %s
  }
  isa.stream "gemm" {
    isa.acquire %s
  }
  }
}

// -----

// CHECK: one stream releases a semaphore, not both cpu and gemm: %s
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  %s = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {
    isa.release %s
  }
  isa.stream "gemm" {
    isa.release %s
  }
  }
}

// -----

// CHECK: the cpu stream has 257 records, more than 256
builtin.module {
  kernel.buffer @x : tensor<64x64xf32> {address = 4096 : i64, bytes = 16384 : i64, layout = #kernel.layout<row_major>, space = "private", role = "activation"}
  isa.counter @c count 1
  isa.kernel @k coords(%device, %wg) attributes {kernel_class = "gemm"} {
    %a = isa.alloc scratch : !isa.tile<32x64xf32>
    %b = isa.alloc scratch : !isa.tile<64x64xf32>
    %o = isa.alloc scratch : !isa.tile<32x64xf32>
    %p = isa.alloc scratch : !isa.tile<32x64xf32>
    %r = isa.alloc scratch : !isa.tile<32x1xf32>
  isa.stream "cpu" {
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
}

// -----

// CHECK: unknown memory 'sram', one of ['hbm', 'scratch']
builtin.module {
  kernel.buffer @x : tensor<4x64xf32> {address = 4096 : i64, bytes = 1024 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "sram"}
}

// -----

// CHECK: a buffer in scratch is symmetric: peers write it
builtin.module {
  kernel.buffer @x : tensor<4x64xf32> {address = 4096 : i64, bytes = 1024 : i64, layout = #kernel.layout<row_major>, space = "private", role = "communication", memory = "scratch"}
}

// -----

// CHECK: scratch address 1032 is not aligned to 16 bytes
builtin.module {
  kernel.buffer @x : tensor<4x64xf32> {address = 1032 : i64, bytes = 1024 : i64, layout = #kernel.layout<row_major>, space = "symmetric", role = "communication", memory = "scratch"}
}
