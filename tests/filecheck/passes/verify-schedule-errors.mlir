// RUN: not starc-opt %s -p verify-schedule 2>&1 | filecheck %s

sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
isa.counter @arrived count 2
isa.counter @first count 1
isa.counter @second count 1

// Three signals are awaited, two are sent.
isa.kernel @short coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  isa.signal @arrived[%wg] add [2] to [(%device + 1) mod 4]
  isa.wait @arrived[%wg] until [3]
}
// CHECK-DAG: error: short (device 0, workgroup 0) waits forever for @arrived[0] to reach 3 (it is at 2)
// CHECK-DAG: hint: all signals to it add up to 2
func.func @too_few() {
  isa.launch @short [@short grid 2] queue "compute"
  func.return
}

// Every device waits for its neighbour before it signals.
isa.kernel @late coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  isa.wait @first[0] until [1]
  isa.signal @first[0] add [1] to [(%device + 1) mod 4]
}
// CHECK-DAG: deadlock: late (device 0, workgroup 0) waits for @first[0] to reach 1 (it is at 0); late (device 3, workgroup 0) waits for @first[0] to reach 1 (it is at 0); late (device 2, workgroup 0) waits for @first[0] to reach 1 (it is at 0); late (device 1, workgroup 0) waits for @first[0] to reach 1 (it is at 0); which closes the cycle
func.func @cycle() {
  isa.launch @late [@late grid 1] queue "compute"
  func.return
}

// The signals come from a launch that starts when the waiting one has ended.
isa.kernel @consume coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  isa.wait @second[0] until [1]
}
isa.kernel @produce coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  isa.signal @second[0] add [1]
}
// CHECK-DAG: deadlock: consume (device 0, workgroup 0) waits for @second[0] to reach 1 (it is at 0); produce (device 0, workgroup 0) cannot start before the launches ahead of it end; which closes the cycle
func.func @order() {
  isa.launch @consume [@consume grid 1] queue "compute"
  isa.launch @produce [@produce grid 1] queue "compute"
  func.return
}

// Signals go to the wrong side: the last device signals a device that does not exist.
isa.kernel @nowhere coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 4 : i64} {
  isa.signal @arrived[%wg] add [1] to [%device + 1]
  isa.wait @arrived[%wg] until [1]
}
// CHECK-DAG: nowhere (device 3, workgroup 0) signals @arrived[0] of device 4, of a device outside the 4 there are
func.func @bounds() {
  isa.launch @nowhere [@nowhere grid 2] queue "compute"
  func.return
}

// More workgroups than a device holds wait for each other: 38 compute units, 2 of 16 waves on each.
isa.kernel @wide coords(%device, %gpu, %xcd, %wg) attributes {kernel_class = "collective", waves = 16 : i64} {
  isa.signal @arrived[0] add [1]
  isa.wait @arrived[0] until [1]
}
// CHECK-DAG: the workgroups of wide wait for signals, so all 77 must be resident; a device holds 76
func.func @resident() {
  isa.launch @wide [@wide grid 77] queue "compute"
  func.return
}
