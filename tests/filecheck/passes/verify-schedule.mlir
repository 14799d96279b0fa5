// RUN: starc-opt %s -p verify-schedule | filecheck %s

// A ring of signals around four devices: every wait is satisfied, nothing is changed.

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
isa.counter @arrived count 2
// CHECK-LABEL: isa.kernel @ring
isa.kernel @ring coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  // CHECK: isa.signal @arrived[%wg] add [1] to [(%device + 1) mod 4]
  isa.signal @arrived[%wg] add [1] to [(%device + 1) mod 4]
  isa.loop %s = [1] to [3] {
    // CHECK: isa.wait @arrived[%wg] until [%s]
    isa.wait @arrived[%wg] until [%s]
    isa.signal @arrived[%wg] add [1] to [(%device + 1) mod 4]
  }
  isa.wait @arrived[%wg] until [3]
}
func.func @layer() {
  isa.launch @all_reduce [@ring grid 2] queue "compute"
  func.return
}
