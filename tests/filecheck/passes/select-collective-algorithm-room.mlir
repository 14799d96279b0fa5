// RUN: starc-opt %s -p select-collective-algorithm | filecheck %s

// An element has room for one workgroup. A ring of eight elements in two cubes has two workgroups
// that wait for each other, so that the exchange is done by another algorithm.
// CHECK: collective.reduce_scatter {{.*}}algorithm = "direct"
builtin.module attributes {dlti.target_system_spec = #dlti.target_system_spec<"starc" = #dlti.target_device_spec<"base" = "ahbm", "gpus" = 1 : i64, "devices_per_gpu" = 8 : i64, "mesh" = [["sip", 1 : i64, "outer", "ucie"], ["group", 1 : i64, "outer", "noc"], ["cube", 2 : i64, "inner", "noc"], ["pe", 4 : i64, "inner", "pe_mesh"]], "dies_per_gpu" = 8 : i64, "carriers" = 24 : i64, "port_carriers" = [9 : i64, 15 : i64, 21 : i64, 12 : i64], "memory_domains" = 8 : i64>>} {
  sharding.mesh @node = ["sip"=1 : outer ucie, "group"=1 : outer noc, "cube"=2 : inner noc, "pe"=4 : inner pe_mesh]
  func.func @room(%m: tensor<1x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"cube", "pe"}, global = [1, 1, 8]>>, %l: tensor<1x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"cube", "pe"}, global = [1, 1, 8]>>, %o: tensor<1x1x1024xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"cube", "pe"}, global = [1, 1, 1024]>>) {
    %m_1, %l_1, %o_1 = collective.reduce_scatter %m, %l, %o on @node axes = ["cube", "pe"] reduction = lse dim = 2 : tensor<1x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"cube", "pe"}, global = [1, 1, 8]>>, tensor<1x1x8xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"cube", "pe"}, global = [1, 1, 8]>>, tensor<1x1x1024xf32, #sharding.of<@node, [{}, {}, {}], partial = lse{"cube", "pe"}, global = [1, 1, 1024]>> -> tensor<1x1x1xf32, #sharding.of<@node, [{}, {}, {"cube", "pe"}], global = [1, 1, 8]>>, tensor<1x1x1xf32, #sharding.of<@node, [{}, {}, {"cube", "pe"}], global = [1, 1, 8]>>, tensor<1x1x128xf32, #sharding.of<@node, [{}, {}, {"cube", "pe"}], global = [1, 1, 1024]>>
    func.return
  }
}
