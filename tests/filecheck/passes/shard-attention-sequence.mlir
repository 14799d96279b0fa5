// One copy of every KV cache: positions are dealt out over the devices that would all keep it.
// RUN: starc-opt %s -p shard-attention-sequence | filecheck %s
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries"},localize' | filecheck %s --check-prefix=LOCAL
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="keys" block=16}' | filecheck %s --check-prefix=KEYS
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries" map="contiguous" partial="f32"}' | filecheck %s --check-prefix=STRETCH
// RUN: not starc-opt %s -p 'shard-attention-sequence{mode="query" map="zigzag" block=0}' 2>&1 | filecheck %s --check-prefix=WRONG
// RUN: not starc-opt %s -p 'shard-attention-sequence{mode="ring"}' 2>&1 | filecheck %s --check-prefix=RING
// Keys go around on machines whose elements have engines of their own.
// RING: error: shard-attention-sequence: option 'mode' has no value 'ring' on mi300x{{.*}}, one of auto, queries, keys{{$}}

// WRONG:      error: shard-attention-sequence: option 'mode' has no value 'query' on mi300x{{.*}}, one of auto, queries, keys{{$}}
// WRONG-NEXT: hint: did you mean 'queries'?
// WRONG-NEXT: error: shard-attention-sequence: option 'map' has no value 'zigzag', one of cyclic, contiguous
// WRONG-NEXT: error: block of shard-attention-sequence must be at least 1, got 0

sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]

// LOCAL-LABEL: func.func @decode
// Every device has the new keys and stores those that it owns.
// LOCAL-NEXT:    nn.append @decode.k, %k {
// LOCAL-NEXT:    nn.append @decode.v, %v {
// LOCAL-NEXT:        collective.all_gather %q on @node axes = ["xcd"] dim = 2
// LOCAL-NEXT:    nn.partial_attention
// LOCAL-NEXT:    collective.reduce_scatter %m, %l, %o on @node axes = ["xcd"] reduction = lse dim = 2
// LOCAL-NEXT:    nn.lse_finish
// LOCAL-LABEL: func.func @two_levels
// LOCAL:         collective.reduce_scatter %m, %l, %o on @node axes = ["gpu":(4)2, "xcd"] reduction = lse dim = 2
// LOCAL-LABEL: func.func @groups
// LOCAL:         collective.all_reduce %m, %l, %o on @node axes = ["gpu":(4)2, "xcd"] reduction = lse
// LOCAL-LABEL: func.func @largest_factor
// LOCAL:         collective.reduce_scatter %m, %l, %o on @node axes = ["gpu":(1)2] reduction = lse dim = 2
// LOCAL-NEXT:    collective.all_reduce {{.*}} axes = ["gpu":(2)4, "xcd"] reduction = lse

// KEYS:       nn.state @decode.k : {{.*}} [{}, {"gpu"}, {"xcd"} cyclic(16, by = 0), {}]
// KEYS-LABEL: func.func @decode
// KEYS:         sharding.reshard %k : {{.*}} [{}, {"xcd"} cyclic(16, offset = 127, by = 0), {"gpu"}]
// KEYS:         nn.attention %q, %2, %3

// STRETCH:       nn.state @decode.k : {{.*}} [{}, {"gpu"}, {"xcd"}, {}]
// STRETCH-LABEL: func.func @decode
// STRETCH:         sharding.reshard %k : {{.*}} [{}, {"xcd"} offsets [0, 0, 0, 0, 0, 0, 0, 0, 1], {"gpu"}]
// STRETCH:         nn.partial_attention {{.*}} tensor<16x1x4096xf32,
// STRETCH:       nn.state @one_head.k : {{.*}} [{}, {}, {"gpu", "xcd"}, {}]
// STRETCH-LABEL: func.func @one_head
// STRETCH:         nn.partial_attention {{.*}} [{}, {}, {}], partial = lse{"gpu", "xcd"}
// STRETCH-LABEL: func.func @largest_factor
// STRETCH:         sharding.reshard %m, %l, %o : {{.*}} [{}, {}, {}], partial = lse{"gpu", "xcd"}>> -> {{.*}} [{}, {}, {"gpu":(1)2}]
// STRETCH-LABEL: func.func @short
// STRETCH:         nn.partial_attention

// One copy over the inner level: queries are gathered over it, parts go to the owners of heads.
// CHECK:       nn.state @decode.k : {{.*}} [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]
// CHECK-NEXT:  nn.state @decode.v : {{.*}} [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]
// CHECK-LABEL: func.func @decode
// CHECK-NEXT:  sharding.reshard %k : {{.*}} [{}, {}, {"gpu"}]>> -> {{.*}} [{}, {"xcd"} cyclic(1, offset = 7, by = 0), {"gpu"}]
// CHECK-NEXT:  nn.append @decode.k, %k_1
// CHECK-NEXT:  sharding.reshard %v : {{.*}} [{}, {}, {"gpu"}]>> -> {{.*}} [{}, {"xcd"} cyclic(1, offset = 7, by = 0), {"gpu"}]
// CHECK-NEXT:  nn.append @decode.v, %v_1
// CHECK-NEXT:  sharding.reshard %q : {{.*}} [{}, {}, {"gpu", "xcd"}]>> -> {{.*}} [{}, {}, {"gpu"}]
// CHECK-NEXT:  %m, %l, %o = nn.partial_attention %q_1, %0, %1 {head_dim = 64 : i64, start = 32767 : i64, scale = 1.250000e-01 : f64, causal} : {{.*}} -> tensor<16x1x64xf32, {{.*}} [{}, {}, {"gpu"}], partial = lse{"xcd"}>>, tensor<16x1x64xf32, {{.*}}, tensor<16x1x4096xbf16, {{.*}} [{}, {}, {"gpu"}], partial = lse{"xcd"}>>
// CHECK-NEXT:  %m_1, %l_1, %o_1 = sharding.reshard %m, %l, %o : {{.*}} -> {{.*}} [{}, {}, {"gpu", "xcd"}]>>, {{.*}} [{}, {}, {"gpu", "xcd"}]>>, {{.*}} [{}, {}, {"gpu", "xcd"}]>>
// CHECK-NEXT:  nn.lse_finish %m_1, %l_1, %o_1 {head_dim = 64 : i64} : {{.*}} -> tensor<16x1x4096xbf16, {{.*}} [{}, {}, {"gpu", "xcd"}]>>
nn.state @decode.k : tensor<16x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
nn.state @decode.v : tensor<16x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
func.func @decode(%q : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<16x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>, %v : tensor<16x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>) -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @decode.k, %k {start = 32767 : i64} : tensor<16x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<16x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %1 = nn.append @decode.v, %v {start = 32767 : i64} : tensor<16x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<16x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 32767 : i64, scale = 0.125 : f64, causal} : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<16x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>, tensor<16x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>> -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// A prompt: the keys and values come to the queries.
// CHECK:       nn.state @prefill.k : {{.*}} [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]
// CHECK-NEXT:  nn.state @prefill.v
// CHECK-LABEL: func.func @prefill
// CHECK-NEXT:  sharding.reshard %k : {{.*}} -> {{.*}} [{}, {"xcd"} cyclic(1, by = 0), {"gpu"}]
// CHECK-NEXT:  nn.append @prefill.k, %k_1
// CHECK-NEXT:  sharding.reshard %v
// CHECK-NEXT:  nn.append @prefill.v, %v_1
// CHECK-NEXT:  sharding.reshard %0 : {{.*}} [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>> -> {{.*}} [{}, {"gpu"}, {}, {}]
// CHECK-NEXT:  sharding.reshard %1 : {{.*}} [{}, {"gpu"}, {"xcd"} cyclic(1, by = 0), {}]>> -> {{.*}} [{}, {"gpu"}, {}, {}]
// CHECK-NEXT:  nn.attention %q, %2, %3
nn.state @prefill.k : tensor<1x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
nn.state @prefill.v : tensor<1x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
func.func @prefill(%q : tensor<1x32768x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<1x32768x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>, %v : tensor<1x32768x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>) -> tensor<1x32768x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @prefill.k, %k {start = 0 : i64} : tensor<1x32768x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<1x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %1 = nn.append @prefill.v, %v {start = 0 : i64} : tensor<1x32768x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<1x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 0 : i64, scale = 0.125 : f64, causal} : tensor<1x32768x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<1x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>, tensor<1x8x32768x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>> -> tensor<1x32768x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<1x32768x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// A chunk of 2k tokens at a context of 128k: the queries are fewer.
// CHECK-LABEL: func.func @chunk
// CHECK:       sharding.reshard %q : {{.*}} -> {{.*}} [{}, {}, {"gpu"}]
// CHECK-NEXT:  %m, %l, %o = nn.partial_attention
nn.state @chunk.k : tensor<1x8x131072x128xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
nn.state @chunk.v : tensor<1x8x131072x128xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
func.func @chunk(%q : tensor<1x2048x16384xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<1x2048x1024xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>, %v : tensor<1x2048x1024xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>) -> tensor<1x2048x16384xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @chunk.k, %k {start = 129024 : i64} : tensor<1x2048x1024xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<1x8x131072x128xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %1 = nn.append @chunk.v, %v {start = 129024 : i64} : tensor<1x2048x1024xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<1x8x131072x128xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 128 : i64, start = 129024 : i64, scale = 0.125 : f64, causal} : tensor<1x2048x16384xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<1x8x131072x128xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>, tensor<1x8x131072x128xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>> -> tensor<1x2048x16384xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<1x2048x16384xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// Four KV heads on eight GPUs: two GPUs share a head, and its positions, beside the inner level.
// CHECK:       nn.state @two_levels.k : {{.*}} [{}, {"gpu":(1)4}, {"gpu":(4)2, "xcd"} cyclic(1, by = 0), {}]
// CHECK-LABEL: func.func @two_levels
// CHECK:       sharding.reshard %k : {{.*}} -> {{.*}} [{}, {"gpu":(4)2, "xcd"} cyclic(1, offset = 15, by = 0), {"gpu":(1)4}]
// CHECK:       sharding.reshard %q : {{.*}} -> {{.*}} [{}, {}, {"gpu":(1)4}]
// CHECK-NEXT:  nn.partial_attention {{.*}} [{}, {}, {"gpu":(1)4}], partial = lse{"gpu":(4)2, "xcd"}
// CHECK-NEXT:  sharding.reshard %m, %l, %o : {{.*}} -> {{.*}} [{}, {}, {"gpu", "xcd"}]
// CHECK-NEXT:  nn.lse_finish %m_1, %l_1, %o_1 sink %s : tensor<64xbf16, #sharding.of<@node, [{"gpu", "xcd"}]>>
nn.state @two_levels.k : tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
nn.state @two_levels.v : tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
func.func @two_levels(%q : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>, %v : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>, %s : tensor<64xbf16, #sharding.of<@node, [{"gpu", "xcd"}]>>) -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @two_levels.k, %k {start = 32767 : i64} : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>> -> tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
  %1 = nn.append @two_levels.v, %v {start = 32767 : i64} : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>> -> tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 sink %s : tensor<64xbf16, #sharding.of<@node, [{"gpu", "xcd"}]>> {head_dim = 64 : i64, start = 32767 : i64, scale = 0.125 : f64, causal} : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>, tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>> -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// One KV head: as many devices share its positions as pays, the inner level first.
// CHECK:       nn.state @one_head.k : {{.*}} [{}, {}, {"xcd"} cyclic(1, by = 0), {}]
// CHECK-LABEL: func.func @one_head
// CHECK:       nn.partial_attention {{.*}} causal, window = 4096 : i64, keep = 4 : i64} : {{.*}} [{}, {}, {"gpu"}], partial = lse{"xcd"}
nn.state @one_head.k : tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
nn.state @one_head.v : tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
func.func @one_head(%q : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, %v : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @one_head.k, %k {start = 32767 : i64} : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
  %1 = nn.append @one_head.v, %v {start = 32767 : i64} : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 32767 : i64, scale = 0.125 : f64, causal, window = 4096 : i64, keep = 4 : i64} : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>, tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>> -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// Seven heads a KV head do not divide: all devices of a KV head combine the parts of all seven.
// CHECK-LABEL: func.func @groups
// CHECK:       nn.partial_attention %q,
// CHECK-NEXT:  sharding.reshard %m, %l, %o : {{.*}} partial = lse{"gpu":(4)2, "xcd"}>> -> {{.*}} [{}, {}, {"gpu":(1)4}]
nn.state @groups.k : tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
nn.state @groups.v : tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
func.func @groups(%q : tensor<16x1x1792xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>, %k : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>, %v : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>) -> tensor<16x1x1792xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>> {
  %0 = nn.append @groups.k, %k {start = 32767 : i64} : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>> -> tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
  %1 = nn.append @groups.v, %v {start = 32767 : i64} : tensor<16x1x256xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>> -> tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 32767 : i64, scale = 0.125 : f64, causal} : tensor<16x1x1792xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>, tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>>, tensor<16x4x32768x64xbf16, #sharding.of<@node, [{}, {"gpu":(1)4}, {}, {}]>> -> tensor<16x1x1792xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>
  func.return %2 : tensor<16x1x1792xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)4}]>>
}

// Of six heads the largest factor in common with the devices is scattered.
nn.state @largest_factor.k : tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
nn.state @largest_factor.v : tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
func.func @largest_factor(%q : tensor<16x1x384xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)2}]>>, %k : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>, %v : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>>) -> tensor<16x1x384xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)2}]>> {
  %0 = nn.append @largest_factor.k, %k {start = 32767 : i64} : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
  %1 = nn.append @largest_factor.v, %v {start = 32767 : i64} : tensor<16x1x64xbf16, #sharding.of<@node, [{}, {}, {}]>> -> tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 32767 : i64, scale = 0.125 : f64, causal} : tensor<16x1x384xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)2}]>>, tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>, tensor<16x1x32768x64xbf16, #sharding.of<@node, [{}, {}, {}, {}]>> -> tensor<16x1x384xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)2}]>>
  func.return %2 : tensor<16x1x384xbf16, #sharding.of<@node, [{}, {}, {"gpu":(1)2}]>>
}

// Nothing is replicated, nothing changes.
// CHECK:       nn.state @nothing.k : {{.*}} [{}, {"gpu", "xcd"}, {}, {}]
// CHECK-LABEL: func.func @nothing
// CHECK:       nn.attention %q, %0, %1
nn.state @nothing.k : tensor<16x64x1024x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}, {}, {}]>>
nn.state @nothing.v : tensor<16x64x1024x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}, {}, {}]>>
func.func @nothing(%q : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %v : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>) -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @nothing.k, %k {start = 1023 : i64} : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<16x64x1024x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}, {}, {}]>>
  %1 = nn.append @nothing.v, %v {start = 1023 : i64} : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> -> tensor<16x64x1024x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 1023 : i64, scale = 0.125 : f64, causal} : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<16x64x1024x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}, {}, {}]>>, tensor<16x64x1024x64xbf16, #sharding.of<@node, [{}, {"gpu", "xcd"}, {}, {}]>> -> tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<16x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}

// A short context: the exchange costs more than it saves.
// CHECK:       nn.state @short.k : {{.*}} [{}, {"gpu"}, {}, {}]
// CHECK-LABEL: func.func @short
// CHECK:       nn.attention %q, %0, %1
nn.state @short.k : tensor<1x8x256x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
nn.state @short.v : tensor<1x8x256x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
func.func @short(%q : tensor<1x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, %k : tensor<1x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>, %v : tensor<1x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>>) -> tensor<1x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>> {
  %0 = nn.append @short.k, %k {start = 255 : i64} : tensor<1x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<1x8x256x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %1 = nn.append @short.v, %v {start = 255 : i64} : tensor<1x1x512xbf16, #sharding.of<@node, [{}, {}, {"gpu"}]>> -> tensor<1x8x256x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>
  %2 = nn.attention %q, %0, %1 {head_dim = 64 : i64, start = 255 : i64, scale = 0.125 : f64, causal} : tensor<1x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>, tensor<1x8x256x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>>, tensor<1x8x256x64xbf16, #sharding.of<@node, [{}, {"gpu"}, {}, {}]>> -> tensor<1x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
  func.return %2 : tensor<1x1x4096xbf16, #sharding.of<@node, [{}, {}, {"gpu", "xcd"}]>>
}
