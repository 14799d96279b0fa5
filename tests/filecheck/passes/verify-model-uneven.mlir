// Under uneven nothing is refused but a tensor-parallel size that does not divide the devices.
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{uneven=true tensor-parallel-size=4}' | filecheck %s
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{tensor-parallel-size=4}' 2>&1 | filecheck %s --check-prefix=EVEN
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{uneven=true tensor-parallel-size=3}' 2>&1 | filecheck %s --check-prefix=THREE

// CHECK: nn.parameter @mlp.up : tensor<8x6xbf16>

// EVEN: 6 columns of @mlp.up cannot be split over 4 devices
// EVEN: hint: 6 columns of @mlp.up allow --tensor-parallel-size 1, 2, or any with --uneven
// EVEN: batch 3 cannot be divided over 2 data-parallel replicas
// EVEN: hint: use a batch that is a multiple of 2, or fewer devices, or any with --uneven

// THREE: tensor-parallel size 3 does not divide the 8 devices

nn.parameter @mlp.up : tensor<8x6xbf16>
nn.parameter @mlp.down : tensor<6x8xbf16>
func.func @mlp(%x : tensor<3x1x8xbf16>) -> tensor<3x1x8xbf16> {
  %wu = nn.read @mlp.up : tensor<8x6xbf16>
  %u = nn.linear %x, %wu : tensor<3x1x8xbf16>, tensor<8x6xbf16> -> tensor<3x1x6xbf16>
  %wd = nn.read @mlp.down : tensor<6x8xbf16>
  %d = nn.linear %u, %wd : tensor<3x1x6xbf16>, tensor<6x8xbf16> -> tensor<3x1x8xbf16>
  func.return %d : tensor<3x1x8xbf16>
}
