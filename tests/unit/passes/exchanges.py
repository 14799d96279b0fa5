"""Collectives as layers of their own: compiled, executed, compared with their lockstep meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, Block, Region, SSAValue

from starc.backend.functional import FunctionalMachine
from starc.backend.program import Program
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.shard_map import CONTIGUOUS, ShardMap
from starc.dialects import kernel
from starc.dialects.collective import CollectiveOp
from starc.dialects.kernel_attributes import YieldOp
from starc.interpreter.collectives import run_collective
from starc.interpreter.concurrent import ConcurrentMachine
from starc.interpreter.values import Distributed, placement_of
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.isa.lower_to_isa import LowerToIsa
from starc.passes.isa.pipeline_loops import PipelineLoops
from starc.passes.isa.plan_scratch import PlanScratch
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.passes.kernel.assign_queues import AssignQueues
from starc.passes.kernel.form_kernels import FormKernels
from starc.passes.kernel.map_workgroups import MapWorkgroups
from starc.passes.kernel.plan_memory import PlanMemory
from starc.passes.kernel.tile_kernels import TileKernels
from starc.passes.program.pack import pack
from starc.passes.verification import verify
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.interpreter.modules import parse

Array = npt.NDArray[Any]

BEFORE = (FormKernels, AssignQueues, TileKernels, MapWorkgroups, PlanMemory)


@dataclass(frozen=True)
class Tensor:
    """A global tensor and where it lies: by dimension the axes and the map of their shards."""

    shape: tuple[int, ...]
    dims: dict[int, tuple[AxisRef, ...]] = field(default_factory=dict[int, tuple[AxisRef, ...]])
    maps: dict[int, ShardMap] = field(default_factory=dict[int, ShardMap])
    partial: tuple[str, tuple[AxisRef, ...]] | None = None
    element: str = "bf16"

    def encoding(self, mesh: Mesh) -> Encoding:
        result = Encoding.replicated(mesh, len(self.shape))
        for dim, axes in self.dims.items():
            result = result.with_dim(dim, axes, self.maps.get(dim, CONTIGUOUS))
        return result if self.partial is None else result.with_partial(*self.partial)

    def text(self, mesh: Mesh) -> str:
        encoding = self.encoding(mesh)
        local = "x".join(map(str, encoding.local_shape(self.shape)))
        return (
            f"tensor<{local}x{self.element}, #sharding.of<@node, {encoding}, "
            f"global = {list(self.shape)}>>"
        )


@dataclass(frozen=True)
class Exchange:
    """``steps`` are operations with their clauses (``all_gather``, ``dim = 1``), axes and
    algorithms, each on the results of the one before; ``values`` the tensors before, between and
    behind them, as many at each place as are exchanged together."""

    mesh_shape: tuple[int, int]
    steps: Sequence[tuple[str, str, tuple[AxisRef, ...], str]]
    values: Sequence[Sequence[Tensor]]
    chunks: int = 1
    transport: str = "device_put"
    rings: tuple[int, ...] = ()
    name: str = "mi300x-cpx"

    @cached_property
    def mesh(self) -> Mesh:
        gpus, dies = self.mesh_shape
        return Mesh("node", (Axis("gpu", gpus, "outer", "xgmi"), Axis("xcd", dies, "inner", "usr")))

    @cached_property
    def target(self) -> Target:
        gpus, dies = self.mesh_shape
        return load_target(self.name, mesh={"gpu": gpus, "xcd": dies})

    def source(self) -> ModuleOp:
        """The module at the collective level."""
        gpus, dies = self.mesh_shape
        first, last = self.values[0], self.values[-1]
        arguments = ", ".join(f"%x{n} : {t.text(self.mesh)}" for n, t in enumerate(first))
        results = ", ".join(t.text(self.mesh) for t in last)
        lines = [
            f'sharding.mesh @node = ["gpu"={gpus} : outer xgmi, "xcd"={dies} : inner usr]',
            f"func.func @f({arguments}) -> ({results}) {{",
        ]
        names = [f"%x{n}" for n in range(len(first))]
        for number, (operation, clauses, axes, algorithm) in enumerate(self.steps):
            before, after = self.values[number], self.values[number + 1]
            wanted = [f"%y{number}_{n}" for n in range(len(after))]
            refs = ", ".join(str(axis) for axis in axes)
            rings = f", rings = array<i64: {', '.join(map(str, self.rings))}>" if self.rings else ""
            lines.append(
                f"{', '.join(wanted)} = collective.{operation} {', '.join(names)} on @node "
                f'axes = [{refs}] {clauses} {{algorithm = "{algorithm}", '
                f'transport = "{self.transport}"{rings}}} : '
                f"{', '.join(t.text(self.mesh) for t in before)} -> "
                f"{', '.join(t.text(self.mesh) for t in after)}"
            )
            names = wanted
        lines.append(
            f"func.return {', '.join(names)} : {', '.join(t.text(self.mesh) for t in last)}"
        )
        return parse("builtin.module {\n" + "\n".join(lines) + "\n}\n}")

    def planned(self) -> ModuleOp:
        """The module at the kernel level, over buffers."""
        module = self.source()
        sink = RemarkSink()
        passes: list[StarcPass] = [kind() for kind in BEFORE]
        for number, current in enumerate(passes):
            current.run(module, self.target, sink)
            if number == 1 and len(self.steps) > 1:
                chain(module, self.chunks)
            verify(module, locations=False)
        return module

    def lowered(self) -> ModuleOp:
        """The module at the isa level."""
        module = self.planned()
        for current in (LowerToIsa(), PipelineLoops(), PlanScratch(), VerifySchedule()):
            current.run(module, self.target, RemarkSink())
            verify(module, locations=False)
        return module

    @cached_property
    def program(self) -> Program:
        return pack(self.lowered(), self.target)

    def contributions(self, seed: int = 0) -> list[list[Array]]:
        """What the devices hold of every operand: random where they contribute to a partial value,
        else their part of one random tensor."""
        result: list[list[Array]] = []
        for number, tensor in enumerate(self.values[0]):
            encoding = tensor.encoding(self.mesh)
            placement = placement_of(encoding, tensor.shape)
            rng = np.random.default_rng((seed, number))
            whole = rng.normal(size=tensor.shape)
            seeds: dict[tuple[int, ...], Array] = {}
            parts: list[Array] = []
            for device, coords in enumerate(self.mesh.devices()):
                if tensor.partial is not None:
                    kind, axes = tensor.partial
                    key = (self.mesh.rank(axes, coords),)
                    if key not in seeds:
                        seeds[key] = np.random.default_rng((seed, number, *key)).normal(
                            size=tensor.shape
                        )
                        if kind == "lse" and number == 0 and key[0] % 3 == 1:
                            seeds[key][..., ::2] = -np.inf  # nothing was visible there
                        if kind == "lse" and number == 1:
                            seeds[key] = np.abs(seeds[key]) + 1
                    whole = seeds[key]
                parts.append(_part(whole, placement.indices[device]))
            result.append(parts)
        if self.values[0][0].partial is not None and self.values[0][0].partial[0] == "lse":
            _empty(result)
        return result

    def expected(self, given: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The results of all devices by the meaning of the operations."""
        held = [
            Distributed(tuple(parts), placement_of(t.encoding(self.mesh), t.shape))
            for parts, t in zip(given, self.values[0], strict=True)
        ]
        arrays: list[list[Array]] = []
        ops = [op for op in self.source().walk() if isinstance(op, CollectiveOp)]
        for op, after in zip(ops, self.values[1:], strict=True):
            targets = [placement_of(t.encoding(self.mesh), t.shape) for t in after]
            arrays = run_collective(op, self.mesh, held, targets)
            held = [
                Distributed(tuple(parts), target)
                for parts, target in zip(arrays, targets, strict=True)
            ]
        return arrays

    def check(self, seeds: Sequence[int | None] = (None, 1, 2, 3)) -> None:
        """All executions give what the operations mean."""
        given = self.contributions()
        expected = self.expected(given)
        for seed in seeds:
            found = self.run(given, seed)
            for number, parts in enumerate(expected):
                for device, wanted in enumerate(parts):
                    own = found[number][device]
                    if np.isnan(wanted).all():
                        continue
                    box = tuple(slice(0, extent) for extent in wanted.shape)
                    known = ~np.isnan(wanted)
                    np.testing.assert_allclose(
                        own[box][known],
                        wanted[known],
                        rtol=1e-9,
                        atol=1e-9,
                        err_msg=f"result {number} of device {device}, seed {seed}",
                    )

    def run(
        self, given: Sequence[Sequence[Array]], seed: int | None, mode: Any = "exact"
    ) -> list[list[Array]]:
        """The results of every device; ``seed`` picks an interleaving, without one the packed rows
        are executed."""
        devices = self.mesh.size
        names, results = self._names
        padded = [
            [_padded(part, t.encoding(self.mesh).local_shape(t.shape)) for part in parts]
            for parts, t in zip(given, self.values[0], strict=True)
        ]
        if seed is not None:
            buffers = {
                (device, name): parts[device]
                for name, parts in zip(names, padded, strict=True)
                for device in range(devices)
            }
            machine = ConcurrentMachine(self.lowered(), buffers, seed=seed, mode=mode)
            machine.run()
            contents = machine.contents()
            empty = np.zeros((0,))
            return [[contents.get((d, name), empty) for d in range(devices)] for name in results]
        inputs = [
            {name: parts[device] for name, parts in zip(names, padded, strict=True)}
            for device in range(devices)
        ]
        functional = FunctionalMachine(self.program, inputs, mode=mode)
        functional.run()
        return [[functional.buffer(d, name) for d in range(devices)] for name in results]

    @cached_property
    def _names(self) -> tuple[list[str], list[str]]:
        function = next(op for op in self.planned().walk() if op.name == "func.func")
        return tuple(  # pyright: ignore[reportReturnType]
            [ref.root_reference.data for ref in cast(Any, function.attributes[key]).data]
            for key in ("kernel.arguments", "kernel.results")
        )


def _part(whole: Array, indices: Sequence[Array]) -> Array:
    """A device's part of a tensor; NaN in the empty slots of a rotated dimension."""
    turned = [dim for dim, held in enumerate(indices) if held.ndim == 2]
    if not turned:
        return whole[np.ix_(*indices)]
    (dim,) = turned
    rows = indices[dim]
    flat: list[Array] = [
        held if held.ndim == 1 else np.arange(whole.shape[n]) for n, held in enumerate(indices)
    ]
    part = whole[np.ix_(*flat)]
    by = next(n for n, held in enumerate(indices) if n != dim and len(held) == len(rows))
    taken = [
        np.take(np.take(part, [row], axis=by), np.maximum(rows[row], 0), axis=dim)
        for row in range(len(rows))
    ]
    return np.concatenate(taken, axis=by)


def _padded(part: Array, shape: tuple[int, ...]) -> Array:
    """A part in the physical shape of its buffer, NaN where a device holds nothing."""
    result = np.full(shape, np.nan)
    result[tuple(slice(0, extent) for extent in part.shape)] = part
    return result


def _empty(parts: Sequence[Sequence[Array]]) -> None:
    """States of which nothing was visible are the identity."""
    for m, total, o in zip(*parts, strict=True):
        absent: Array = m == -np.inf
        total[absent] = 0
        width = o.shape[-1] // m.shape[-1]
        o[np.repeat(absent, width, axis=-1)] = 0


def chain(module: ModuleOp, chunks: int) -> None:
    """Joins the collective launches of a module, each of which reads the one before, into one."""
    launches = [op for op in module.walk() if isinstance(op, kernel.LaunchOp)]
    first = launches[0]
    types = [argument.type for argument in first.block.args]
    block = Block(arg_types=types)
    values: dict[SSAValue, SSAValue] = dict(zip(first.inputs, block.args, strict=True))
    for launch in launches:
        inner: dict[SSAValue, SSAValue] = {
            argument: values[outer]
            for argument, outer in zip(launch.block.args, launch.inputs, strict=True)
        }
        for op in launch.block.ops:
            if op is launch.block.last_op:
                continue
            copy = op.clone(value_mapper=inner)
            block.add_op(copy)
        for result, yielded in zip(launch.results, launch.yielded, strict=True):
            values[result] = inner[yielded]
    last = launches[-1]
    block.add_op(YieldOp(*[values[result] for result in last.results]))
    properties: dict[str, Attribute] = {
        key: value for key, value in first.properties.items() if key == "queue"
    }
    properties["chunks"] = IntegerAttr(chunks, i64)
    joined = kernel.LaunchOp(
        first.sym_name.data,
        "collective",
        list(first.inputs),
        Region(block),
        result_types=[result.type for result in last.results],
        properties=properties,
    )
    parent = last.parent_block()
    assert parent is not None
    parent.insert_op_after(joined, last)
    for old, new in zip(last.results, joined.results, strict=True):
        old.replace_all_uses_with(new)
    for launch in reversed(launches):
        launch.detach()
        launch.erase(safe_erase=False)
