"""Kernel launches with schedules of a test's choice, executed as instruction streams.

A case is the text of one ``kernel.launch`` over buffers. It is lowered, pipelined, given scratch
memory and run by the concurrent interpreter, whose memory is poisoned and whose interleavings a
seed chooses, and by the functional execution of the packed rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.dialects.builtin import ModuleOp

from starc.backend.functional import FunctionalMachine
from starc.interpreter.concurrent import ConcurrentMachine
from starc.passes.base import RemarkSink
from starc.passes.isa.lower_to_isa import LowerToIsa
from starc.passes.isa.pipeline_loops import PipelineLoops
from starc.passes.isa.plan_scratch import PlanScratch
from starc.passes.program.pack import pack
from starc.passes.verification import verify
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.interpreter.modules import parse

Array = npt.NDArray[Any]
Values = Mapping[str, Array | Sequence[Array]]

WIDTH = {"bf16": 2, "f32": 4, "i32": 4}


@dataclass(frozen=True)
class Launch:
    """A launch and its buffers by name: (shape as in ``2x1x64xbf16``, encoding or nothing)."""

    text: str
    buffers: Mapping[str, str]
    mesh: tuple[int, int] = (1, 1)
    symmetric: tuple[str, ...] = ()

    @cached_property
    def target(self) -> Target:
        gpus, dies = self.mesh
        return load_target("mi300x-cpx", mesh={"gpu": gpus, "xcd": dies})

    def module(self) -> ModuleOp:
        """The module at the kernel level."""
        gpus, dies = self.mesh
        lines = [f'sharding.mesh @node = ["gpu"={gpus} : outer xgmi, "xcd"={dies} : inner usr]']
        address = 0
        for name, type_ in self.buffers.items():
            *shape, element = type_.split(",")[0].split("x")
            size = prod(map(int, shape)) * WIDTH[element]
            space = "symmetric" if name in self.symmetric else "private"
            lines.append(
                f"kernel.buffer @{name} : tensor<{type_}> {{address = {address} : i64, "
                f"bytes = {size} : i64, layout = #kernel.layout<row_major>, "
                f'space = "{space}", role = "activation"}}'
            )
            address += -(-size // 4096) * 4096
        body = "\n".join(lines)
        return parse(
            f"builtin.module {{\n{body}\nfunc.func @layer() {{\n{self.text}\nfunc.return\n}}\n}}"
        )

    def lowered(self, *, pipelined: bool = True) -> ModuleOp:
        """The module at the isa level."""
        module = self.module()
        sink = RemarkSink()
        LowerToIsa().run(module, self.target, sink)
        verify(module, locations=False)
        if pipelined:
            PipelineLoops().run(module, self.target, sink)
            verify(module, locations=False)
        PlanScratch().run(module, self.target, sink)
        verify(module, locations=False)
        return module

    def run(self, inputs: Values, seed: int | None = None) -> list[dict[str, Array]]:
        """Buffers of every device after the launch. ``seed`` picks an interleaving; without one
        the packed rows are executed."""
        devices = self.mesh[0] * self.mesh[1]
        given = [
            {
                name: np.asarray(values if isinstance(values, np.ndarray) else values[device])
                for name, values in inputs.items()
            }
            for device in range(devices)
        ]
        if seed is not None:
            module = self.lowered(pipelined=seed % 4 != 0)
            buffers = {(d, name): v for d, own in enumerate(given) for name, v in own.items()}
            machine = ConcurrentMachine(module, buffers, seed=seed)
            machine.run()
            contents = machine.contents()
            return [
                {name: contents[d, name] for name in self.buffers if (d, name) in contents}
                for d in range(devices)
            ]
        program = pack(self.lowered(), self.target)
        functional = FunctionalMachine(program, given)
        functional.run()
        return [{name: functional.buffer(d, name) for name in self.buffers} for d in range(devices)]


SEEDS = (None, 0, 1, 2, 3, 4, 5, 6)


def check(launch: Launch, inputs: Values, expected: Values, seeds: Sequence[int | None] = SEEDS):
    """Runs a launch with every seed; buffers named in ``expected`` must hold those values."""
    for seed in seeds:
        found = launch.run(inputs, seed)
        for name, values in expected.items():
            for device, buffers in enumerate(found):
                wanted = values if isinstance(values, np.ndarray) else values[device]
                np.testing.assert_allclose(
                    buffers[name],
                    wanted,
                    rtol=1e-9,
                    atol=1e-9,
                    err_msg=f"@{name} of device {device}, seed {seed}",
                )
