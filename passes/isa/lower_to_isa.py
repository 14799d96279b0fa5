"""Kernel launches become templates of instructions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import (
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    i64,
)
from xdsl.ir import Attribute, Operation
from xdsl.rewriter import InsertPoint, Rewriter

from starc.analysis.cost import work_facts
from starc.core.sharding.mesh import Mesh
from starc.diagnostics import Diagnostic, InputError, counted
from starc.dialects import isa, kernel
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel_buffers import BufferOp, element_bytes
from starc.dialects.kernel_kinds import LaunchKind
from starc.dialects.kernel_problems import ops_of
from starc.dialects.locations import location_of
from starc.dialects.sharding import mesh_op
from starc.kernel_bodies.body import Buffer, Template
from starc.kernel_bodies.context import LaunchContext
from starc.kernel_bodies.table import KERNEL_BODIES
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.isa.lowering.launch_order import cross_queue_waits
from starc.quantities import LARGEST
from starc.targets.target import Target


@dataclass(frozen=True)
class LowerToIsa(StarcPass):
    """Every ``kernel.launch`` becomes an ``isa.launch`` of templates, one ``isa.kernel`` a part,
    and a second launch where partial results are combined by one.

    After it no ``kernel.launch`` and no operation on tensors remains; buffers stay as they are.

    ```mlir
    sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
    kernel.buffer @a : tensor<1x4x64xbf16> {address = 0 : i64, bytes = 512 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    kernel.buffer @b : tensor<1x4x64xbf16> {address = 4096 : i64, bytes = 512 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    func.func @layer() {
      kernel.launch @layer.silu elementwise reads (%x = @a : tensor<1x4x64xbf16>)
          writes (@b)
          attributes {tile = array<i64: 2, 64>, grid = array<i64: 2>, waves = 4 : i64} {
        %y = nn.silu %x : tensor<1x4x64xbf16> -> tensor<1x4x64xbf16>
        kernel.yield %y : tensor<1x4x64xbf16>
      }
      func.return
    }
    ```
    ```mlir
    sharding.mesh @node = ["gpu"=1 : outer xgmi, "xcd"=8 : inner usr]
    kernel.buffer @a : tensor<1x4x64xbf16> {address = 0 : i64, bytes = 512 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    kernel.buffer @b : tensor<1x4x64xbf16> {address = 4096 : i64, bytes = 512 : i64,
        layout = #kernel.layout<row_major>, space = "private", role = "activation"}
    isa.kernel @layer.silu coords(%device, %gpu, %xcd, %wg) attributes
        {kernel_class = "elementwise", waves = 4 : i64, window_bytes = 16384 : i64,
            piece_bytes = 4096 : i64} {
      %position = isa.index [%wg * 2]
      %x = isa.alloc register : !isa.tile<2x64xbf16>
      isa.load %x, @a[0, %position, 0] : !isa.tile<2x64xbf16>
      %silu = isa.alloc register : !isa.tile<2x64xf32>
      isa.vector "silu"(%silu, %x) : !isa.tile<2x64xf32>, !isa.tile<2x64xbf16>
      isa.store %silu, @b[0, %position, 0] : !isa.tile<2x64xf32>
    }
    func.func @layer() {
      isa.launch @layer.silu [@layer.silu grid 2] queue "compute" {kind = "elementwise", info =
          {flops = 0 : i64, bytes = 1024 : i64, cold_bytes = 0 : i64}}
      func.return
    }
    ```
    """

    name = "lower-to-isa"

    def run(self, module: ModuleOp, target: Target, sink: RemarkSink) -> None:
        found = mesh_op(module)
        mesh = found.mesh if found is not None else Mesh.from_rows("node", target.mesh)
        buffers = {
            op.sym_name.data: Buffer(
                op.sym_name.data, op.shape, op.type.element_type, element_bytes(op.type)
            )
            for op in module.ops
            if isinstance(op, BufferOp)
        }
        roles = {op.sym_name.data: op.role.data for op in module.ops if isinstance(op, BufferOp)}
        names = (op.properties.get("sym_name") for op in module.ops)
        taken = {name.data for name in names if isinstance(name, StringAttr)}
        launches = [op for op in module.walk() if isinstance(op, kernel.LaunchOp)]
        waits = cross_queue_waits(module)
        last: dict[kernel.LaunchOp, isa.LaunchOp] = {}
        for launch in launches:
            context = LaunchContext(launch, buffers, mesh, target)
            kernel_body = KERNEL_BODIES[LaunchKind(launch.kind.data)]
            groups = kernel_body.lower(context)
            facts = kernel_body.facts(context)
            lowered = self._insert(launch, context, groups, facts, taken, roles)
            last[launch] = lowered[-1]
            if launch in waits:
                lowered[0].attributes["depends"] = last[waits[launch]].label
            records = max(isa.count_records(t.kernel) for group in groups for t in group)
            templates = sum(len(group) for group in groups)
            sink.remark(
                "lowered",
                f"@{context.name}: {counted(templates, 'program')} for its workgroups, of at most "
                f"{counted(records, 'instruction')}",
                launch,
                templates=templates,
                records=records,
                workgroups=sum(template.grid for template in groups[0]),
            )
            Rewriter.erase_op(launch)

    def _insert(
        self,
        launch: kernel.LaunchOp,
        context: LaunchContext,
        groups: list[list[Template]],
        facts: Mapping[str, int | str],
        taken: set[str],
        roles: Mapping[str, str],
    ) -> list[isa.LaunchOp]:
        """Puts templates and counters before the function and launches in place of ``launch``,
        which it returns in order."""
        function = _outermost(launch)
        before = InsertPoint.before(function)
        for name, count in context.counters.items():
            counter = isa.CounterOp(name, count)
            counter.location = launch.location
            taken.add(name)
            Rewriter.insert_op(counter, before)
        numbers = {**facts, **work_facts(launch, roles), **_fusion(launch)}
        for what, amount in numbers.items():
            if isinstance(amount, int) and amount > LARGEST:
                raise InputError(
                    Diagnostic(
                        f"the {what} of {context.name} do not fit in 63 bits: {amount}",
                        location_of(launch),
                    )
                )
        info = _dictionary(numbers)
        lowered: list[isa.LaunchOp] = []
        for number, group in enumerate(groups):
            for template in group:
                name = _unique(template.kernel.sym_name.data, taken)
                template.kernel.sym_name = StringAttr(name)
                Rewriter.insert_op(template.kernel, before)
            op = isa.LaunchOp(
                context.name + (f".combine{number if number > 1 else ''}" if number else ""),
                [(t.kernel.sym_name.data, t.grid) for t in group],
                queue=isa.QUEUES[launch.integer("queue", 0)],
                bands=launch.integer("bands", 1) if number == 0 else 1,
                engines=context.engines,
                kind=launch.kind.data,
                info=info if number == 0 else None,
            )
            op.location = launch.location
            Rewriter.insert_op(op, InsertPoint.before(launch))
            lowered.append(op)
        return lowered


def _fusion(launch: kernel.LaunchOp) -> dict[str, str]:
    """Of a launch that computes and exchanges: its operations, each once, in order."""
    ops = ops_of(launch)
    exchanges = [isinstance(op, CollectiveOp) for op in ops]
    if all(exchanges) or not any(exchanges):
        return {}
    return {"fused": ",".join(dict.fromkeys(op.name.split(".")[-1] for op in ops))}


def _outermost(op: Operation) -> Operation:
    """The operation of the module that contains ``op``."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, ModuleOp):
        op, parent = parent, parent.parent_op()
    return op


def _unique(name: str, taken: set[str]) -> str:
    """A symbol that nothing else in the module has: templates share the names of launches, and a
    parameter may have it too."""
    unique = name
    if unique in taken:
        unique = f"{name}.kernel"
    number = 1
    while unique in taken:
        unique, number = f"{name}.kernel{number}", number + 1
    taken.add(unique)
    return unique


def _dictionary(values: Mapping[str, int | str]) -> DictionaryAttr:
    attributes: dict[str, Attribute] = {
        key: StringAttr(value) if isinstance(value, str) else IntegerAttr(value, i64)
        for key, value in values.items()
    }
    return DictionaryAttr(attributes)
