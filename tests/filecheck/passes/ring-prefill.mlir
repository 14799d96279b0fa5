// Keys of a prompt go around the cubes of a group; query rows lie over the PEs of a cube.
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="ring" block=16}' | filecheck %s
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="ring" map="contiguous" rows="zigzag"}' | filecheck %s --check-prefix=STRETCH
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="auto"}' | filecheck %s --check-prefix=AUTO
// RUN: starc-opt %s -p 'shard-attention-sequence{mode="ring" block=16},localize,hierarchical-collectives,select-collective-algorithm{algorithm="auto" transport="auto"},form-kernels,fuse-compute-collectives,tile-kernels,map-workgroups' | filecheck %s --check-prefix=LAUNCH
// RUN: not starc-opt %s -p 'shard-attention-sequence{mode="ring" rows="random"}' 2>&1 | filecheck %s --check-prefix=WRONG

// WRONG:      error: shard-attention-sequence: option 'rows' has no value 'random', one of auto, cyclic, contiguous, zigzag

// CHECK:       nn.state @f.k : {{.*}} [{}, {}, {"cube", "pe"} cyclic(16), {}]
// CHECK-LABEL: func.func @f
// The new keys go to their owners, who keep them; each PE takes its rows of the queries.
// CHECK:         sharding.reshard %k : {{.*}} -> {{.*}} [{}, {"cube", "pe"} cyclic(16), {}]
// CHECK:         [[Q:%[a-z0-9_]+]] = sharding.reshard %q : {{.*}} -> {{.*}} [{}, {"pe"} cyclic(32), {"cube"}]
// CHECK:         [[Y:%[a-z0-9_]+]] = nn.attention [[Q]], {{.*}} -> tensor<1x128x64xbf16, #sharding.of<@node, [{}, {"pe"} cyclic(32), {"cube"}]>>
// CHECK-NEXT:    sharding.reshard [[Y]] : {{.*}} -> {{.*}} [{}, {}, {"cube"}]

// STRETCH: nn.state @f.k : {{.*}} [{}, {}, {"cube", "pe"}, {}]
// STRETCH: nn.attention {{.*}} [{}, {"pe"} zigzag, {"cube"}]

// Prompts go around by themselves.
// AUTO: nn.attention {{.*}} [{}, {"pe"} cyclic(32), {"cube"}]

// The gathers move into the launch, whose ring follows neighbours in the rectangle of 2 x 2 cubes.
// LAUNCH:      kernel.launch {{.*}} attention (
// LAUNCH-SAME:   tile = array<i64: 32, 16, 16>, group = 1 : i64
// LAUNCH-SAME:   grid = array<i64: 1>
// LAUNCH-SAME:   waits
// LAUNCH-SAME:   ring = array<i64: 0, 1, 3, 2>, ring_slots = 3 : i64
// LAUNCH-NEXT:   collective.all_gather {{.*}} axes = ["cube", "pe"] dim = 2 {algorithm = "ring"
// LAUNCH-NEXT:   collective.all_gather {{.*}} axes = ["cube", "pe"] dim = 2 {algorithm = "ring"
// LAUNCH-NEXT:   nn.attention

!q = tensor<1x128x64xbf16, #sharding.of<@node, [{}, {}, {"cube"}]>>
!new = tensor<1x128x16xbf16, #sharding.of<@node, [{}, {}, {}]>>
!cache = tensor<1x1x128x16xbf16, #sharding.of<@node, [{}, {}, {}, {}]>>

builtin.module attributes {
  dlti.target_system_spec = #dlti.target_system_spec<
    "starc" = #dlti.target_device_spec<"base" = "ahbm", "mesh" = [["sip", 1, "outer", "ucie"],
      ["group", 1, "outer", "noc"], ["cube", 4, "inner", "noc"], ["pe", 2, "inner", "pe_mesh"]]>>
} {
  sharding.mesh @node = ["sip"=1 : outer ucie, "group"=1 : outer noc, "cube"=4 : inner noc, "pe"=2 : inner pe_mesh]
  nn.state @f.k : !cache
  nn.state @f.v : !cache
  func.func @f(%q : !q, %k : !new, %v : !new) -> !q {
    %0 = nn.append @f.k, %k {start = 0 : i64} : !new -> !cache
    %1 = nn.append @f.v, %v {start = 0 : i64} : !new -> !cache
    %y = nn.attention %q, %0, %1 {head_dim = 16 : i64, start = 0 : i64, scale = 0.25 : f64, causal}
      : !q, !cache, !cache -> !q
    func.return %y : !q
  }
}
