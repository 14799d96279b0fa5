// All violated rules are reported at once, each with the sizes it allows, then what all allow.
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 1 -p verify-model 2>&1 | filecheck %s
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{tensor-parallel-size=3}' 2>&1 | filecheck %s --check-prefix=DIVIDE
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{tensor-parallel-size=1}' | filecheck %s --check-prefix=LEGAL

// CHECK:      12 heads cannot be split over 8 devices
// CHECK:        hint: 12 heads allow --tensor-parallel-size 1, 2, 4
// CHECK:      6 KV heads can neither be split over nor replicated evenly on 8 devices: neither is a multiple of the other
// CHECK:        hint: 6 KV heads allow --tensor-parallel-size 1, 2
// CHECK:      100 columns of @decoder.up cannot be split over 8 devices
// CHECK:        hint: 100 columns of @decoder.up allow --tensor-parallel-size 1, 2, 4
// CHECK:      note: all rules together allow --tensor-parallel-size 1, 2

// DIVIDE: tensor-parallel size 3 does not divide the 8 devices of mi300x-cpx
// DIVIDE-NEXT: hint: the model and machine allow --tensor-parallel-size 1, 2

// LEGAL: nn.parameter @decoder.q : tensor<48x48xbf16>

nn.parameter @decoder.q : tensor<48x48xbf16>
nn.parameter @decoder.k : tensor<48x24xbf16>
nn.parameter @decoder.o : tensor<48x48xbf16>
nn.parameter @decoder.up : tensor<48x100xbf16>
nn.parameter @decoder.down : tensor<100x48xbf16>
nn.state @decoder.k_cache : tensor<8x6x32x4xbf16>
func.func @decoder(%x : tensor<8x1x48xbf16>) -> tensor<8x1x48xbf16> {
  %wq = nn.read @decoder.q : tensor<48x48xbf16>
  %q = nn.linear %x, %wq : tensor<8x1x48xbf16>, tensor<48x48xbf16> -> tensor<8x1x48xbf16>
  %wk = nn.read @decoder.k : tensor<48x24xbf16>
  %k = nn.linear %x, %wk : tensor<8x1x48xbf16>, tensor<48x24xbf16> -> tensor<8x1x24xbf16>
  %c = nn.append @decoder.k_cache, %k {start = 31 : i64} : tensor<8x1x24xbf16> -> tensor<8x6x32x4xbf16>
  %a = nn.attention %q, %c, %c {head_dim = 4 : i64, start = 31 : i64, scale = 0.5 : f64} : tensor<8x1x48xbf16>, tensor<8x6x32x4xbf16>, tensor<8x6x32x4xbf16> -> tensor<8x1x48xbf16>
  %wo = nn.read @decoder.o : tensor<48x48xbf16>
  %o = nn.linear %a, %wo : tensor<8x1x48xbf16>, tensor<48x48xbf16> -> tensor<8x1x48xbf16>
  %wu = nn.read @decoder.up : tensor<48x100xbf16>
  %u = nn.linear %o, %wu : tensor<8x1x48xbf16>, tensor<48x100xbf16> -> tensor<8x1x100xbf16>
  %wd = nn.read @decoder.down : tensor<100x48xbf16>
  %d = nn.linear %u, %wd : tensor<8x1x100xbf16>, tensor<100x48xbf16> -> tensor<8x1x48xbf16>
  func.return %d : tensor<8x1x48xbf16>
}
