// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p fuse-compute-collectives | filecheck %s
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p fuse-compute-collectives | starc-opt --machine mi300x-cpx --gpus 1 | filecheck %s
// RUN: starc-opt %s --machine mi300x-cpx --gpus 1 -p 'fuse-compute-collectives{pull="staged" unfuse="sync","launch"}' | filecheck %s --check-prefix=TAXED

!slice = tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>
!whole = tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 4096]>>
!partial = tensor<8x1x4096xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [8, 1, 4096]>>
!columns = tensor<4096x512xbf16, #sharding.of<@node, [{}, {"xcd"}], global = [4096, 4096]>>
!rows = tensor<512x4096xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [4096, 4096]>>
!all = tensor<4096x64xbf16, #sharding.of<@node, [{}, {}], global = [4096, 64]>>
!narrow = tensor<8x1x64xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 64]>>
!factors = tensor<8x1x1xf32, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 1]>>

sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
nn.parameter @f.columns : !columns
nn.parameter @f.rows : !rows
nn.parameter @f.up : !rows
nn.parameter @f.all : !all

// The gather moves into the launch, which takes the slice; the result of another launch is its own.
// CHECK-LABEL: func.func @pull
// TAXED-LABEL: func.func @pull
func.func @pull(%x : !slice) -> !slice {
  %w = nn.read @f.columns : !columns
  // CHECK-NOT: collective (
  %g = kernel.launch @f.gather collective (%a = %x : !slice) -> (!whole) {
    %b = collective.all_gather %a on @node axes = ["xcd"] dim = 2 {algorithm = "ring", transport = "bulk"} : !slice -> !whole
    kernel.yield %b : !whole
  }
  // CHECK: kernel.launch @f.columns gemm (%c = %x : tensor<8x1x512xbf16,
  // CHECK-SAME: tile = array<i64: {{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}}>
  // CHECK-SAME: pull = "cached"
  // CHECK-NEXT: [[G:%[a-z0-9]+]] = collective.all_gather %c
  // CHECK-NEXT: nn.linear [[G]], %d
  // TAXED: pull = "staged", unfuse = ["sync", "launch"]
  %y = kernel.launch @f.columns gemm (%c = %g : !whole, %d = %w : !columns) -> (!slice) {
    %e = nn.linear %c, %d : !whole, !columns -> !slice
    kernel.yield %e : !slice
  }
  func.return %y : !slice
}

// Rows are scaled before they are pushed, of the part that is; one scatters, the other does not.
// CHECK-LABEL: func.func @push
func.func @push(%x : !slice, %r : !factors) -> (!slice, !partial) {
  %w = nn.read @f.rows : !rows
  %u = nn.read @f.up : !rows
  // CHECK: kernel.launch @f.rows_up gemm (
  // CHECK-SAME: -> (tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [8, 1, 4096]>>, tensor<8x1x4096xbf16,
  %p, %q = kernel.launch @f.rows_up gemm (%a = %x : !slice, %b = %w : !rows, %c = %u : !rows) -> (!partial, !partial) {
    // CHECK: [[L:%[a-z0-9]+]] = nn.linear
    %d = nn.linear %a, %b : !slice, !rows -> !partial
    // CHECK: [[Q:%[a-z0-9]+]] = nn.linear
    %e = nn.linear %a, %c : !slice, !rows -> !partial
    kernel.yield %d, %e : !partial, !partial
  }
  // CHECK-NEXT: [[S:%[a-z0-9]+]] = nn.scale_rows [[L]]
  %s = kernel.launch @f.scale elementwise (%f = %p : !partial, %h = %r : !factors) -> (!partial) {
    %i = nn.scale_rows %f, %h : !partial, !factors -> !partial
    kernel.yield %i : !partial
  }
  // CHECK-NEXT: [[Y:%[a-z0-9]+]] = collective.reduce_scatter [[S]]
  // CHECK-NEXT: kernel.yield [[Y]], [[Q]]
  // CHECK-NOT: kernel.launch
  %y = kernel.launch @f.scatter collective (%j = %s : !partial) -> (!slice) {
    %k = collective.reduce_scatter %j on @node axes = ["xcd"] reduction = sum dim = 2 {algorithm = "ring", transport = "bulk"} : !partial -> !slice
    kernel.yield %k : !slice
  }
  func.return %y, %q : !slice, !partial
}

// What else uses the gathered value keeps it; devices that compute the same would not agree in bits.
// CHECK-LABEL: func.func @kept
func.func @kept(%x : !slice) -> (!slice, !whole, !narrow) {
  %w = nn.read @f.columns : !columns
  %v = nn.read @f.all : !all
  // CHECK: kernel.launch @f.gather collective
  %g = kernel.launch @f.gather collective (%a = %x : !slice) -> (!whole) {
    %b = collective.all_gather %a on @node axes = ["xcd"] dim = 2 {algorithm = "ring", transport = "bulk"} : !slice -> !whole
    kernel.yield %b : !whole
  }
  // CHECK: kernel.launch @f.columns gemm
  // CHECK-NOT: all_gather
  %y = kernel.launch @f.columns gemm (%c = %g : !whole, %d = %w : !columns) -> (!slice) {
    %e = nn.linear %c, %d : !whole, !columns -> !slice
    kernel.yield %e : !slice
  }
  // CHECK: kernel.launch @f.gather_2 collective
  %h = kernel.launch @f.gather_2 collective (%a = %x : !slice) -> (!whole) {
    %b = collective.all_gather %a on @node axes = ["xcd"] dim = 2 {algorithm = "ring", transport = "bulk"} : !slice -> !whole
    kernel.yield %b : !whole
  }
  // CHECK: kernel.launch @f.all gemm
  // CHECK-NOT: all_gather
  %z = kernel.launch @f.all gemm (%c = %h : !whole, %d = %v : !all) -> (!narrow) {
    %e = nn.linear %c, %d : !whole, !all -> !narrow
    kernel.yield %e : !narrow
  }
  func.return %y, %g, %z : !slice, !whole, !narrow
}

!query = tensor<2x1x2048xbf16, #sharding.of<@node, [{}, {}, {}], global = [2, 1, 2048]>>
!cache = tensor<2x2x4096x128xbf16, #sharding.of<@node, [{}, {}, {"xcd"} cyclic(1, by = 0), {}], global = [2, 2, 32768, 128]>>
!heads = tensor<2x1x16xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 16]>>
!wide = tensor<2x1x2048xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"xcd"}, global = [2, 1, 2048]>>
!own = tensor<2x1x2xf32, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 16]>>
!ownwide = tensor<2x1x256xf32, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 2048]>>
!done = tensor<2x1x256xbf16, #sharding.of<@node, [{}, {}, {"xcd"}], global = [2, 1, 2048]>>

// Owners of heads merge what all devices have of them, in the launch of the attention.
// CHECK-LABEL: func.func @merge
func.func @merge(%q : !query, %k : !cache, %v : !cache) -> !done {
  // CHECK: kernel.launch @f.attention attention (
  // CHECK-SAME: -> (tensor<2x1x256xbf16,
  // CHECK-NEXT: [[M:%[a-z0-9]+]], [[L:%[a-z0-9]+]], [[O:%[a-z0-9]+]] = nn.partial_attention
  // CHECK-NEXT: = collective.reduce_scatter [[M]], [[L]], [[O]] on @node axes = ["xcd"] reduction = lse dim = 2
  // CHECK-NEXT: [[Y:%[a-z0-9_]+]] = nn.lse_finish
  // CHECK-NEXT: kernel.yield [[Y]]
  // CHECK-NOT: kernel.launch
  %m, %l, %o = kernel.launch @f.attention attention (%a = %q : !query, %b = %k : !cache, %c = %v : !cache) -> (!heads, !heads, !wide) {
    %d, %e, %f = nn.partial_attention %a, %b, %c {head_dim = 128 : i64, start = 32767 : i64, scale = 8.8388347648318447e-02 : f64, causal} : !query, !cache, !cache -> !heads, !heads, !wide
    kernel.yield %d, %e, %f : !heads, !heads, !wide
  }
  %m2, %l2, %o2 = kernel.launch @f.scatter collective (%a = %m : !heads, %b = %l : !heads, %c = %o : !wide) -> (!own, !own, !ownwide) {
    %d, %e, %f = collective.reduce_scatter %a, %b, %c on @node axes = ["xcd"] reduction = lse dim = 2 {algorithm = "direct", transport = "bulk"} : !heads, !heads, !wide -> !own, !own, !ownwide
    kernel.yield %d, %e, %f : !own, !own, !ownwide
  }
  %y = kernel.launch @f.finish elementwise (%a = %m2 : !own, %b = %l2 : !own, %c = %o2 : !ownwide) -> (!done) {
    %d = nn.lse_finish %a, %b, %c {head_dim = 128 : i64} : !own, !own, !ownwide -> !done
    kernel.yield %d : !done
  }
  func.return %y : !done
}

!stream = tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 512]>>
!parts = tensor<8x1x512xbf16, #sharding.of<@node, [{}, {}, {}], partial = sum{"xcd"}, global = [8, 1, 512]>>
!narrows = tensor<512x512xbf16, #sharding.of<@node, [{"xcd"}, {}], global = [4096, 512]>>
!weight = tensor<512xbf16, #sharding.of<@node, [{}], global = [512]>>
!rowsums = tensor<8x1x1xf32, #sharding.of<@node, [{}, {}, {}], global = [8, 1, 1]>>
!keys = tensor<8x1x512xbf16, #sharding.of<@node, [{}, {"xcd"} cyclic(1, offset = 7, by = 0), {}], global = [8, 1, 512]>>
!kcache = tensor<8x4x2048x128xbf16, #sharding.of<@node, [{}, {}, {"xcd"} cyclic(1, by = 0), {}], global = [8, 4, 16384, 128]>>
nn.parameter @f.k : !narrows
nn.parameter @f.v : !narrows
nn.parameter @f.o : !narrows
nn.parameter @f.norm : !weight
nn.state @f.k_cache : !kcache
nn.state @f.v_cache : !kcache

// Rows of keys go to the devices that hold their positions, turned by them, in the launch of the
// product; the sum of another product, the residual, and the norm of it are another launch.
// CHECK-LABEL: func.func @behind
func.func @behind(%x : !slice, %z : !stream) -> (!stream, !stream, !rowsums, !kcache, !kcache) {
  %wk = nn.read @f.k : !narrows
  %wv = nn.read @f.v : !narrows
  %wo = nn.read @f.o : !narrows
  %n = nn.read @f.norm : !weight
  // CHECK: kernel.launch @f.k_v gemm (
  // CHECK: [[K:%[a-z0-9_]+]] = nn.linear
  // CHECK: [[V:%[a-z0-9_]+]] = nn.linear
  // CHECK-NEXT: [[T:%[a-z0-9_]+]] = nn.rope [[K]]
  // CHECK-NEXT: [[A:%[a-z0-9_]+]] = collective.reduce_scatter [[T]] on @node axes = ["xcd"] reduction = sum dim = 1
  // CHECK-NEXT: [[B:%[a-z0-9_]+]] = collective.reduce_scatter [[V]] on @node axes = ["xcd"] reduction = sum dim = 1
  // CHECK-NEXT: [[C:%[a-z0-9_]+]] = nn.append @f.k_cache, [[A]]
  // CHECK-NEXT: [[D:%[a-z0-9_]+]] = nn.append @f.v_cache, [[B]]
  // CHECK-NEXT: kernel.yield [[C]], [[D]]
  %k, %v = kernel.launch @f.k_v gemm (%a = %x : !slice, %b = %wk : !narrows, %c = %wv : !narrows) -> (!parts, !parts) {
    %d = nn.linear %a, %b : !slice, !narrows -> !parts
    %e = nn.linear %a, %c : !slice, !narrows -> !parts
    kernel.yield %d, %e : !parts, !parts
  }
  %r = kernel.launch @f.rope elementwise (%a = %k : !parts) -> (!parts) {
    %b = nn.rope %a {theta = 1.000000e+04 : f64, head_dim = 128 : i64, start = 16383 : i64} : !parts -> !parts
    kernel.yield %b : !parts
  }
  %k1, %v1 = kernel.launch @f.owners collective (%a = %r : !parts, %b = %v : !parts) -> (!keys, !keys) {
    %c, %d = collective.reduce_scatter %a, %b on @node axes = ["xcd"] reduction = sum dim = 1 {algorithm = "direct", transport = "device_put"} : !parts, !parts -> !keys, !keys
    kernel.yield %c, %d : !keys, !keys
  }
  %kc, %vc = kernel.launch @f.append append (%a = %k1 : !keys, %b = %v1 : !keys) -> (!kcache, !kcache) {
    %c = nn.append @f.k_cache, %a {start = 16383 : i64} : !keys -> !kcache
    %d = nn.append @f.v_cache, %b {start = 16383 : i64} : !keys -> !kcache
    kernel.yield %c, %d : !kcache, !kcache
  }
  // CHECK: kernel.launch @f.o gemm (
  // CHECK-NEXT: [[P:%[a-z0-9_]+]] = nn.linear
  // CHECK-NEXT: [[S:%[a-z0-9_]+]] = collective.all_reduce [[P]]
  // CHECK-NEXT: [[R:%[a-z0-9_]+]] = nn.add %{{[a-z0-9_]+}}, [[S]]
  // CHECK-NEXT: [[Q:%[a-z0-9_]+]] = nn.sum_squares [[R]]
  // CHECK-NEXT: [[W:%[a-z0-9_]+]] = nn.scale_columns [[R]]
  // CHECK-NEXT: kernel.yield [[R]], [[Q]], [[W]]
  // CHECK-NOT: kernel.launch
  %o = kernel.launch @f.o gemm (%a = %x : !slice, %b = %wo : !narrows) -> (!parts) {
    %c = nn.linear %a, %b : !slice, !narrows -> !parts
    kernel.yield %c : !parts
  }
  %s = kernel.launch @f.sum collective (%a = %o : !parts) -> (!stream) {
    %b = collective.all_reduce %a on @node axes = ["xcd"] reduction = sum {algorithm = "one_shot", transport = "device_put"} : !parts -> !stream
    kernel.yield %b : !stream
  }
  %y, %q, %w = kernel.launch @f.norm norm (%a = %z : !stream, %b = %s : !stream, %c = %n : !weight) -> (!stream, !rowsums, !stream) {
    %d = nn.add %a, %b : !stream, !stream -> !stream
    %e = nn.sum_squares %d : !stream -> !rowsums
    %f = nn.scale_columns %d, %c : !stream, !weight -> !stream
    kernel.yield %d, %e, %f : !stream, !rowsums, !stream
  }
  func.return %y, %w, %q, %kc, %vc : !stream, !stream, !rowsums, !kcache, !kcache
}

// Nothing else tells that peers have read what was sent to all.
// CHECK-LABEL: func.func @alone
func.func @alone(%x : !slice) -> !stream {
  %wo = nn.read @f.o : !narrows
  // CHECK: kernel.launch @g.o gemm (
  // CHECK: kernel.launch @g.sum collective
  %o = kernel.launch @g.o gemm (%a = %x : !slice, %b = %wo : !narrows) -> (!parts) {
    %c = nn.linear %a, %b : !slice, !narrows -> !parts
    kernel.yield %c : !parts
  }
  %s = kernel.launch @g.sum collective (%a = %o : !parts) -> (!stream) {
    %b = collective.all_reduce %a on @node axes = ["xcd"] reduction = sum {algorithm = "one_shot", transport = "device_put"} : !parts -> !stream
    kernel.yield %b : !stream
  }
  func.return %s : !stream
}

// A gate and what it gates are made of sums of the same owner.
// CHECK-LABEL: func.func @gate
func.func @gate(%x : !slice) -> !slice {
  %w = nn.read @f.rows : !rows
  %u = nn.read @f.up : !rows
  // CHECK: kernel.launch @h.gate_up gemm (
  // CHECK: [[A:%[a-z0-9_]+]] = collective.reduce_scatter
  // CHECK-NEXT: [[B:%[a-z0-9_]+]] = collective.reduce_scatter
  // CHECK-NEXT: [[S:%[a-z0-9_]+]] = nn.silu [[A]]
  // CHECK-NEXT: [[M:%[a-z0-9_]+]] = nn.mul [[S]], [[B]]
  // CHECK-NEXT: kernel.yield [[M]]
  // CHECK-NOT: kernel.launch
  %p, %q = kernel.launch @h.gate_up gemm (%a = %x : !slice, %b = %w : !rows, %c = %u : !rows) -> (!partial, !partial) {
    %d = nn.linear %a, %b : !slice, !rows -> !partial
    %e = nn.linear %a, %c : !slice, !rows -> !partial
    kernel.yield %d, %e : !partial, !partial
  }
  %g, %h = kernel.launch @h.scatter collective (%a = %p : !partial, %b = %q : !partial) -> (!slice, !slice) {
    %c, %d = collective.reduce_scatter %a, %b on @node axes = ["xcd"] reduction = sum dim = 2 {algorithm = "direct", transport = "device_put"} : !partial, !partial -> !slice, !slice
    kernel.yield %c, %d : !slice, !slice
  }
  %y = kernel.launch @h.silu_mul elementwise (%a = %g : !slice, %b = %h : !slice) -> (!slice) {
    %c = nn.silu %a : !slice -> !slice
    %d = nn.mul %c, %b : !slice, !slice -> !slice
    kernel.yield %d : !slice
  }
  func.return %y : !slice
}
