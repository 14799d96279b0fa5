// Shares of different size: heads with their KV head, columns and sequences in blocks.
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'assign-tensor-parallel{uneven=true}' | filecheck %s
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'verify-model{uneven=true},assign-tensor-parallel{uneven=true},propagate-shardings,localize' | filecheck %s --check-prefix=LOCAL
// RUN: not starc-opt %s --machine mi300x-cpx --gpus 1 -p assign-tensor-parallel 2>&1 | filecheck %s --check-prefix=EVEN
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'assign-tensor-parallel{uneven=true tensor-parallel-size=2}' | filecheck %s --check-prefix=TWO

// EVEN: :1: error: 28 heads or columns cannot be split evenly over 8 ranks
// EVEN: hint: run verify-model for the sizes that are possible, or allow any with --uneven

// Two devices share the seven query heads of a KV head: 4 and 3 heads of 4 columns.
// CHECK:      nn.parameter @decoder.q : tensor<56x112xbf16, #sharding.of<@node, [{}, {"xcd"} offsets [0, 16, 28, 44, 56, 72, 84, 100, 112]]>>
// CHECK-NEXT: nn.parameter @decoder.k : tensor<56x16xbf16, #sharding.of<@node, [{}, {"xcd":(1)4}]>>
// CHECK-NEXT: nn.parameter @decoder.o : tensor<112x56xbf16, #sharding.of<@node, [{"xcd"} offsets [0, 16, 28, 44, 56, 72, 84, 100, 112], {}]>>
// CHECK-NEXT: nn.parameter @decoder.up : tensor<56x100xbf16, #sharding.of<@node, [{}, {"xcd"}]>>
// CHECK-NEXT: nn.parameter @decoder.down : tensor<100x56xbf16, #sharding.of<@node, [{"xcd"}, {}]>>
// CHECK-NEXT: nn.state @decoder.k_cache : tensor<3x4x32x4xbf16, #sharding.of<@node, [{}, {"xcd":(1)4}, {}, {}]>>

// A local type has the size of the largest share.
// LOCAL:      nn.parameter @decoder.q : tensor<56x16xbf16, #sharding.of<@node, [{}, {"xcd"} offsets [0, 16, 28, 44, 56, 72, 84, 100, 112]], global = [56, 112]>>
// LOCAL:      nn.parameter @decoder.up : tensor<56x13xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [56, 100]>>

// Three sequences on four replicas: one has none.
// TWO: nn.state @decoder.k_cache : tensor<3x4x32x4xbf16, #sharding.of<@node, [{"xcd":(1)4}, {"xcd":(4)2}, {}, {}]>>

nn.parameter @decoder.q : tensor<56x112xbf16>
nn.parameter @decoder.k : tensor<56x16xbf16>
nn.parameter @decoder.o : tensor<112x56xbf16>
nn.parameter @decoder.up : tensor<56x100xbf16>
nn.parameter @decoder.down : tensor<100x56xbf16>
nn.state @decoder.k_cache : tensor<3x4x32x4xbf16>
func.func @decoder(%x : tensor<3x1x56xbf16>) -> tensor<3x1x56xbf16> {
  %wq = nn.read @decoder.q : tensor<56x112xbf16>
  %q = nn.linear %x, %wq : tensor<3x1x56xbf16>, tensor<56x112xbf16> -> tensor<3x1x112xbf16>
  %wk = nn.read @decoder.k : tensor<56x16xbf16>
  %k = nn.linear %x, %wk : tensor<3x1x56xbf16>, tensor<56x16xbf16> -> tensor<3x1x16xbf16>
  %c = nn.append @decoder.k_cache, %k {start = 31 : i64} : tensor<3x1x16xbf16> -> tensor<3x4x32x4xbf16>
  %a = nn.attention %q, %c, %c {head_dim = 4 : i64, start = 31 : i64, scale = 0.5 : f64} : tensor<3x1x112xbf16>, tensor<3x4x32x4xbf16>, tensor<3x4x32x4xbf16> -> tensor<3x1x112xbf16>
  %wo = nn.read @decoder.o : tensor<112x56xbf16>
  %o = nn.linear %a, %wo : tensor<3x1x112xbf16>, tensor<112x56xbf16> -> tensor<3x1x56xbf16>
  %wu = nn.read @decoder.up : tensor<56x100xbf16>
  %u = nn.linear %o, %wu : tensor<3x1x56xbf16>, tensor<56x100xbf16> -> tensor<3x1x100xbf16>
  %wd = nn.read @decoder.down : tensor<100x56xbf16>
  %d = nn.linear %u, %wd : tensor<3x1x100xbf16>, tensor<100x56xbf16> -> tensor<3x1x56xbf16>
  func.return %d : tensor<3x1x56xbf16>
}
