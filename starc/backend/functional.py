"""Functional execution: the rows of a program on data, without time.

Streams run one after another as far as their waits allow, so that every wait is satisfied by
signals that precede it (happens-before order). The result is what the instruction stream computes,
independent of every other level: tiles come from the functions of
``starc.core.vector_functions.table``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starc.backend.functional_memory import (
    DeviceMemory,
    FunctionalError,
    TooManyInstructions,
    overlaps,
)
from starc.backend.functional_streams import (
    VARIABLES,
    Decoder,
    Pause,
    Shared,
    Stream,
    Workgroup,
)
from starc.backend.numerics import Array, Mode, Numerics
from starc.backend.program import LayerInfo, Program, Var
from starc.backend.rows import ProgramReader

MAX_INSTRUCTIONS: Final = 2_000_000

__all__ = [
    "MAX_INSTRUCTIONS",
    "FunctionalError",
    "FunctionalMachine",
    "TooManyInstructions",
    "execute",
]


class FunctionalMachine:
    """Executes layers of a program on the memories of all devices.

    ``inputs`` has for every device (row-major rank) the contents of buffers by name, in logical
    shape; other buffers are poisoned. ``run`` executes layers in order, or one; memories keep
    their contents in between, counters start at zero for every layer.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Mapping[str, Array]],
        *,
        mode: Mode = "exact",
        limit: int = MAX_INSTRUCTIONS,
    ) -> None:
        self.program = program
        self.reader = ProgramReader(program)
        self.numerics = Numerics(mode)
        self.limit = limit
        self.instructions = 0
        self.devices = self.reader.devices
        if len(inputs) != self.devices:
            raise ValueError(f"inputs for {len(inputs)} devices; the mesh has {self.devices}")
        self.index = {buffer.name: i for i, buffer in enumerate(program.buffers)}
        shared = overlaps(program)
        self.memories = [
            DeviceMemory(program, device, self.numerics, shared) for device in range(self.devices)
        ]
        for device, buffers in enumerate(inputs):
            for name, values in buffers.items():
                self.set_buffer(device, name, values)
        self.counter_base = [
            sum(counter.count for counter in program.counters[:i])
            for i in range(len(program.counters) + 1)
        ]
        self.counters: list[list[int]] = []
        self.decoder = Decoder(self.reader)

    # Memory

    def set_buffer(self, device: int, name: str, values: Array) -> None:
        """Fills a buffer. Raises ``ValueError`` for a wrong shape."""
        self.memories[device].fill(self.index[name], values)

    def buffer(self, device: int, name: str) -> Array:
        """The contents of a buffer (poison where nobody wrote)."""
        return self.memories[device].contents(self.index[name])

    def count_instruction(self) -> None:
        """Counts an executed instruction; raises ``TooManyInstructions`` beyond the limit."""
        self.instructions += 1
        if self.instructions > self.limit:
            raise TooManyInstructions(
                f"functional execution stops after {self.limit} instructions; the program "
                "executes more (check a smaller model, or its shrunk twin)"
            )

    # Execution

    def run(self, layers: Sequence[int] | None = None) -> None:
        """Executes layers by index, by default all in order."""
        chosen = range(len(self.program.layers)) if layers is None else layers
        for layer in chosen:
            self._run_layer(self.program.layers[layer])

    def _run_layer(self, layer: LayerInfo) -> None:
        self.counters = [[0] * self.counter_base[-1] for _ in range(self.devices)]
        launches = range(layer.first_launch, layer.first_launch + layer.launches)
        queues = sorted({int(self.program.launches[i]["queue"]) for i in launches})
        ended: set[tuple[int, int]] = set()
        lanes = [
            _Lane(
                self,
                device,
                [i for i in launches if self.program.launches[i]["queue"] == queue],
                layer.first_launch,
                ended,
            )
            for device in range(self.devices)
            for queue in queues
        ]
        while True:
            progress = [lane.advance() for lane in lanes]
            if not any(progress):
                break
        stuck = [lane.describe() for lane in lanes if lane.running]
        if stuck:
            raise FunctionalError("deadlock: " + "; ".join(stuck))

    def streams(self, template: int, device: int, workgroup: int) -> list[Stream]:
        """The streams of one workgroup, each up to where it has to wait at every step."""
        values = [0] * VARIABLES
        coordinates = self.reader.coordinates(device)
        for variable, name in self.reader.variables.items():
            values[variable] = coordinates.get(name, 0)
        values[Var.WORKGROUP] = workgroup
        shared = Shared(self, self.program.templates[template])
        return [
            Workgroup(self, shared, list(values), device).run(body)
            for body in self.decoder.template(template)
        ]


class _Lane:
    """The launches of one queue of one device, in order."""

    def __init__(
        self,
        machine: FunctionalMachine,
        device: int,
        launches: list[int],
        first: int,
        ended: set[tuple[int, int]],
    ) -> None:
        self.machine = machine
        self.device = device
        self.launches = launches
        self.first = first
        self.ended = ended
        self.position = 0
        self.streams: list[tuple[Stream, int]] | None = None
        self.pauses: list[Pause | None] = []

    @property
    def running(self) -> bool:
        return self.position < len(self.launches)

    def advance(self) -> bool:
        """Runs what can run; whether anything did."""
        progress = False
        while self.running:
            launch = self.launches[self.position]
            if self.streams is None:
                depends = int(self.machine.program.launches[launch]["depends"])
                if depends >= self.first and (self.device, depends) not in self.ended:
                    return progress
                self._start(launch)
                progress = True
            moved = self._step()
            progress |= moved
            if self.streams:
                return progress
            self.ended.add((self.device, launch))
            self.position += 1
            self.streams = None
        return progress

    def _start(self, launch: int) -> None:
        self.streams = [
            (stream, workgroup)
            for template, grid in self.machine.reader.parts(launch)
            for workgroup in range(grid)
            for stream in self.machine.streams(template, self.device, workgroup)
        ]
        self.pauses = [None] * len(self.streams)

    def _step(self) -> bool:
        assert self.streams is not None
        streams: list[tuple[Stream, int]] = []
        pauses: list[Pause | None] = []
        moved = False
        for (stream, workgroup), pause in zip(self.streams, self.pauses, strict=True):
            if pause is None or pause.over:
                moved = True
                pause = next(stream, None)
                if pause is None:
                    continue
            streams.append((stream, workgroup))
            pauses.append(pause)
        self.streams, self.pauses = streams, pauses
        return moved

    def describe(self) -> str:
        """What the lane is stuck at."""
        name = self.machine.program.launch_names[self.launches[self.position]]
        if not self.streams:
            return f"{name} of device {self.device} waits for another queue"
        # A semaphore may wait for a stream that waits for a counter, which says more.
        counters = self.machine.counters[self.device]
        stuck = [
            (pause, workgroup)
            for pause, (_, workgroup) in zip(self.pauses, self.streams, strict=True)
            if pause is not None
        ]
        pause, workgroup = next(((p, w) for p, w in stuck if p.values is counters), stuck[0])
        return (
            f"{name} (device {self.device}, workgroup {workgroup}) waits for {pause.what} to reach "
            f"{pause.until} (it is at {pause.values[pause.slot]})"
        )


def execute(
    program: Program,
    inputs: Sequence[Mapping[str, Array]],
    *,
    mode: Mode = "exact",
    limit: int = MAX_INSTRUCTIONS,
) -> list[dict[str, Array]]:
    """Runs every layer once and returns the buffers of every device that still hold data.

    Raises ``FunctionalError``; see ``FunctionalMachine`` for the arguments.
    """
    machine = FunctionalMachine(program, inputs, mode=mode, limit=limit)
    machine.run()
    results: list[dict[str, Array]] = []
    for memory in machine.memories:
        results.append(
            {
                info.name: contents
                for info, contents in zip(program.buffers, memory.arrays, strict=True)
                if contents is not None
            }
        )
    return results
