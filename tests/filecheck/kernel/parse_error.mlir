// RUN: starc-opt --split-input-file --parsing-diagnostics %s | filecheck %s

// CHECK: Expected 'blocked'
"test.op"() {layout = #kernel.layout<diagonal>} : () -> ()

// -----
// CHECK: expect symbol name
kernel.launch @k norm reads (%a = %b : tensor<4xbf16>) writes () {
  kernel.yield
}
