// What is wrong inside of a stream is shown there, not at the stream or the kernel.
// RUN: not starc-opt %s 2>&1 | filecheck %s
// RUN: not starc-opt %S/inputs/load-on-math.mlir 2>&1 | filecheck %s --check-prefix=LOAD

isa.kernel @two coords(%device, %wg) attributes {kernel_class = "gemm"} {
  %done = isa.semaphore initial 0 : !isa.semaphore
  isa.stream "cpu" {
    isa.release %done
  }
  isa.stream "gemm" {
    isa.acquire %done
  }
  isa.stream "math" {
    // CHECK: places-of-commands.mlir:[[# @LINE + 1]]:5: error: one stream acquires a semaphore, not both gemm and math: %done
    isa.acquire %done
  }
}

// LOAD: load-on-math.mlir:5:5: error: 'isa.load' runs on dma, not on math
