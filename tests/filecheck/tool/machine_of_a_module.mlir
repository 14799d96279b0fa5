// RUN: not starc-opt %s 2>&1 | filecheck %s

// CHECK: machine_of_a_module.mlir:1:1: error: {{.*}}gpus
builtin.module attributes {dlti.target_system_spec = #dlti.target_system_spec<"starc" = #dlti.target_device_spec<"base" = "mi300x-cpx", "gpus" = "a">>} {
}
