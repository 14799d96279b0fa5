// RUN: starc-opt %s -p 'tile-kernels{launches="f.w" gemm-tile=16,32,64 gemm-split=2 gemm-combine=kernel}' | filecheck %s --check-prefix=SPLIT
// RUN: starc-opt %s -p 'tile-kernels{gemm-tile=16,32,64 gemm-streams=5 gemm-whole-rounds=0 gemm-multicast=2 gemm-group=1}' | filecheck %s --check-prefix=STREAMS
// RUN: not starc-opt %s -p 'tile-kernels{gemm-combine=both gemm-tile=16,32 gemm-split=0}' 2>&1 | filecheck %s --check-prefix=ERROR
// RUN: not starc-opt %s -p 'tile-kernels{gemm-tile=512,512,512}' 2>&1 | filecheck %s --check-prefix=ROOM
// RUN: not starc-opt %s -p 'tile-kernels{launches="f.v"}' 2>&1 | filecheck %s --check-prefix=NAME

// SPLIT: kernel.launch @f.w gemm {{.*}}tile = array<i64: 16, 32, 64>, split = 2 : i64, combine = "kernel"
// STREAMS: kernel.launch @f.w gemm {{.*}}tile = array<i64: 16, 32, 64>, split = 1 : i64, stages = {{[234]}} : i64, streams = 5 : i64, whole_rounds = 0 : i64, multicast = 2 : i64, swizzle = array<i64: 1, 1>
// ERROR: tile-kernels: option 'gemm-combine' has no value 'both', one of owner, kernel
// ERROR: tile-kernels gemm-split: is 0, at least 1
// ERROR: tile-kernels gemm-tile: is '16,32': 3 numbers, each at least 1
// NAME: there is no launch 'f.v'
// ROOM: f.w: no tile as asked for fits the scratch memory and registers of a compute unit: gemm-tile=512,512,512 in 2 slots takes 2,097,152 of 65,536 bytes of scratch memory for its operands, its accumulator 1,048,576 of {{.*}} bytes
nn.parameter @f.w : tensor<256x160xbf16>
func.func @f(%x : tensor<64x1x256xbf16>) -> tensor<64x1x160xbf16> {
  %w = nn.read @f.w : tensor<256x160xbf16>
  %y = kernel.launch @f.w gemm (%a = %x : tensor<64x1x256xbf16>, %b = %w : tensor<256x160xbf16>) -> (tensor<64x1x160xbf16>) {
    %c = nn.linear %a, %b : tensor<64x1x256xbf16>, tensor<256x160xbf16> -> tensor<64x1x160xbf16>
    kernel.yield %c : tensor<64x1x160xbf16>
  }
  func.return %y : tensor<64x1x160xbf16>
}
