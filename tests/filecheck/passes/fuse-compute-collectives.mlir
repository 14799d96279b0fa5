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
