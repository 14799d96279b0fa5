// Decode attention on memory cubes: owners of heads, one kernel for the sweep and the merge, queues
// in scratch memory.
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries" output="root"},localize' | filecheck %s --check-prefix=ROOT
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries"},localize' | filecheck %s --check-prefix=SCATTER
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries" output="root"},localize,hierarchical-collectives,select-collective-algorithm,form-kernels,fuse-compute-collectives,assign-queues,tile-kernels{reduce-pe=ring},map-workgroups,plan-memory' | filecheck %s --check-prefix=KERNEL
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries" output="root"},localize,hierarchical-collectives,select-collective-algorithm,form-kernels,fuse-compute-collectives,assign-queues,tile-kernels,map-workgroups,plan-memory,lower-to-isa' | filecheck %s --check-prefix=ISA
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="queries" output="root"},localize,hierarchical-collectives,select-collective-algorithm,form-kernels,fuse-compute-collectives,assign-queues,tile-kernels{softmax=fused},map-workgroups,plan-memory,lower-to-isa' | filecheck %s --check-prefix=FUSED
// RUN: not starc-opt %s -p 'shard-attention-sequence{output="middle"}' 2>&1 | filecheck %s --check-prefix=WRONG

// WRONG:      error: shard-attention-sequence: option 'output' has no value 'middle', one of auto, result, root, scatter

// All heads end at element 0 of cube 0; what the result has of them is gathered from there.
// ROOT:      nn.partial_attention
// ROOT-NEXT: collective.reduce_scatter %m, %l, %o on @node axes = ["cube", "pe"] reduction = lse dim = 2
// ROOT-SAME: {"cube", "pe"} offsets [0, 4, 4, 4, 4]
// ROOT-NEXT: nn.lse_finish
// ROOT-NEXT: collective.all_gather %{{.*}} on @node axes = ["cube", "pe"] dim = 2

// Each element owns a head.
// SCATTER:      nn.partial_attention
// SCATTER-NEXT: collective.reduce_scatter %m, %l, %o on @node axes = ["cube", "pe"] reduction = lse dim = 2
// SCATTER-NEXT: nn.lse_finish
// SCATTER-NEXT: func.return

// One launch of one workgroup merges too: its queues have a slot for each child of the tree.
// KERNEL:      kernel.buffer @decode.partial_attention.queue.inside : tensor<1x1x4x10xf32>
// KERNEL-SAME: space = "symmetric", role = "communication", memory = "scratch"
// KERNEL:      kernel.buffer @decode.partial_attention.queue.across : tensor<1x1x4x10xf32>
// KERNEL:      kernel.launch @decode.partial_attention attention
// KERNEL-SAME: split = 1 : i64
// KERNEL-SAME: grid = array<i64: 1>
// KERNEL-SAME: waits
// KERNEL-SAME: staging = [@decode.partial_attention.queue.inside, @decode.partial_attention.queue.across]
// KERNEL-SAME: sub_tile = 16 : i64, softmax = "operations", reduce_inside = "ring", reduce_across = "mesh"

// ISA-LABEL: isa.kernel @decode.partial_attention
// ISA:         isa.loop %j = [0] to [%steps] attributes {sweep} {
// ISA:           isa.composite {
// ISA-NEXT:        isa.vector "zero"(%s)
// ISA-NEXT:        isa.loop %i
// ISA:               isa.load %k, @decode.k_cache
// ISA-NEXT:          isa.matrix %s, %q, %k columns [%i * 16] {transpose_b}
// ISA:             isa.vector "scale"(%s, %s)
// ISA:           isa.scope {
// ISA-NEXT:        %p = isa.alloc scratch
// ISA:             isa.vector "mask_sharded"(%s, %s)
// ISA:             isa.vector "row_max"(%n, %s)
// ISA:             isa.vector "maximum"(%n, %m, %n)
// ISA:             isa.vector "exp_difference"(%p, %s, %n)
// ISA:             isa.vector "exp_difference"(%correction, %m, %n)
// ISA:             isa.vector "copy"(%m, %n)
// ISA:             isa.vector "row_sum"(%n, %p)
// ISA:             isa.vector "mul"(%l, %l, %correction)
// ISA:             isa.vector "add"(%l, %l, %n)
// ISA:             isa.composite {
// ISA:                 isa.load %v, @decode.v_cache
// ISA-NEXT:            isa.matrix %pv, %p, %v inner [%i_1 * 16]
// ISA:             isa.vector "rescale"
// ISA-NEXT:        isa.vector "add"
// ISA:         isa.loop %child
// ISA:           isa.wait @decode.partial_attention.inside
// ISA:           isa.load %{{.*}}, @decode.partial_attention.queue.inside
// ISA:           isa.vector "lse_merge"
// ISA:         isa.put %{{.*}}, @decode.partial_attention.queue.inside
// ISA-NEXT:    isa.signal @decode.partial_attention.inside[%{{.*}}] add [1] to [%{{.*}}] attached
// ISA:         isa.wait @decode.partial_attention.across
// ISA:         isa.put %{{.*}}, @decode.partial_attention.queue.across
// ISA:         isa.vector "lse_finish"
// ISA-NEXT:    isa.store %result, @decode

// The softmax as one command, which scales the scores, too.
// FUSED-LABEL: isa.kernel @decode.partial_attention
// FUSED:         isa.matrix %s, %q, %k columns
// FUSED-NOT:     "scale"
// FUSED:         isa.vector "softmax_step_sharded"(%p, %s, %m, %l, %correction)
// FUSED-NEXT:    %pv = isa.alloc
builtin.module attributes {dlti.target_system_spec = #dlti.target_system_spec<
    "starc" = #dlti.target_device_spec<"base" = "ahbm", "mesh" = [["sip", 1, "outer", "ucie"],
    ["group", 1, "outer", "noc"], ["cube", 2, "inner", "noc"], ["pe", 2, "inner", "pe_mesh"]]>>} {
  sharding.mesh @node = ["sip"=1 : outer ucie, "group"=1 : outer noc, "cube"=2 : inner noc, "pe"=2 : inner pe_mesh]
  nn.state @decode.k_cache : tensor<1x1x64x8xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
  nn.state @decode.v_cache : tensor<1x1x64x8xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
  func.func @decode(%q : tensor<1x1x32xbf16, #sharding.of<@node, [{}, {}, {"cube", "pe"}]>>,
                    %k : tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>)
      -> tensor<1x1x32xbf16, #sharding.of<@node, [{}, {}, {"cube", "pe"}]>> {
    %0 = nn.append @decode.k_cache, %k {start = 63 : i64}
      : tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>
      -> tensor<1x1x64x8xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
    %1 = nn.append @decode.v_cache, %k {start = 63 : i64}
      : tensor<1x1x8xbf16, #sharding.of<@node, [{}, {}, {}]>>
      -> tensor<1x1x64x8xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
    %2 = nn.attention %q, %0, %1
      {head_dim = 8 : i64, start = 63 : i64, scale = 0.35 : f64, causal}
      : tensor<1x1x32xbf16, #sharding.of<@node, [{}, {}, {"cube", "pe"}]>>,
        tensor<1x1x64x8xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>,
        tensor<1x1x64x8xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>
      -> tensor<1x1x32xbf16, #sharding.of<@node, [{}, {}, {"cube", "pe"}]>>
    func.return %2 : tensor<1x1x32xbf16, #sharding.of<@node, [{}, {}, {"cube", "pe"}]>>
  }
}
