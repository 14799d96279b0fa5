"""The report as data: what ``--format json`` prints and what the text report reads.

Fields stand in the order of the JSON keys. Times are microseconds unless the name says otherwise,
sizes bytes, cycles those of the target's core clock. Every value is determined by the input,
except ``engine.wall_s`` and ``engine.compile_s``. ``None`` stands for a time that was not
simulated.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class LayerReport:
    """One layer of the most frequent kind, on the slowest device.

    ``lower_bound_us`` is the largest of (work of this program at a server / its sustained rate),
    ``algorithm_bound_us`` the same with the operations' compulsory bytes and ``peak_bound_us``
    that with the vendor's peak rates. ``busiest`` names the server of the lower bound, ``bound_by``
    too, unless no server works for half of the time: then it is ``latency``.
    ``kernels_us`` is the time inside kernels, the rest is gaps between them. ``power_w`` is the
    mean of a GPU over the whole model at ``clock_mhz``, which a cap of ``power_cap_w`` may have
    lowered; both are None for a machine whose file has no energies.
    """

    kind: str
    time_us: float | None
    cycles: int | None
    clock_mhz: float
    spread_us: float | None
    lower_bound_us: float | None
    algorithm_bound_us: float | None
    peak_bound_us: float | None
    bound_by: str | None
    busiest: str | None
    caches: str
    kernels_us: float | None
    power_w: float | None = None
    power_cap_w: float | None = None


@dataclass(frozen=True)
class WholeModelReport:
    """All layers, embedding and head; ``tokens_per_s`` over all sequences of the node."""

    layers: int
    time_us: float | None
    tokens_per_s: float | None
    tpot_ms: float | None
    ttft_ms: float | None


@dataclass(frozen=True)
class MemoryReport:
    """Memory of the fullest partition for the whole model.

    ``padding_bytes`` is what blocked layouts add to weights and caches; ``kv_replication`` bytes
    stored over bytes needed; ``kv_tokens`` the KV-cache tokens that a partition has room for beside
    everything else; ``max_batch`` the largest batch of this context that fits (0: none).
    """

    capacity_bytes: int
    usable_bytes: int
    peak_bytes: int
    weights_bytes: int
    kv_bytes: int
    activations_bytes: int
    communication_bytes: int
    padding_bytes: int
    kv_replication: float
    kv_tokens: int
    max_batch: int
    fits: bool


@dataclass(frozen=True)
class TrafficReport:
    """Bytes of the whole node during one layer. ``links`` counts payload times links crossed,
    ``logical_bytes`` each transfer once."""

    hbm_read_bytes: int
    hbm_write_bytes: int
    hbm_remote_bytes: int
    usr_bytes: int
    xgmi_bytes: int
    links: dict[str, int]
    logical_bytes: dict[str, int]


@dataclass(frozen=True)
class KernelReport:
    """One launch on one device. ``bytes`` are compulsory: operands read once, results written
    once; ``intensity`` is FLOP a byte of them.

    A launch that computes and exchanges is of ``kind`` fused, its ``operations`` say what it does;
    ``group`` is the kind of its computation."""

    name: str
    kind: str
    start_us: float | None
    time_us: float | None
    flops: int
    bytes: int
    intensity: float
    bound_by: str | None
    exposed_comm_us: float | None
    shape: dict[str, int]
    workgroups: int
    group: str
    operations: list[str] = field(default_factory=list[str])
    launch_us: float = 0.0  # the gap before it and its prologue


@dataclass(frozen=True)
class CollectiveReport:
    """One collective as rccl-tests counts it: ``size_bytes`` a rank's buffer, bandwidths in
    GB/s."""

    name: str
    op: str
    axes: list[str]
    ranks: int
    size_bytes: int
    time_us: float | None
    algbw_gbps: float | None
    busbw_gbps: float | None
    algorithm: str
    transport: str


@dataclass(frozen=True)
class ParametersReport:
    total: int
    per_layer: int


@dataclass(frozen=True)
class KindReport:
    """A layer kind of the stack and how often it occurs."""

    name: str
    count: int
    time_us: float | None
    lower_bound_us: float | None
    kernels: int


@dataclass(frozen=True)
class EngineReport:
    """What the simulation took: executed instructions, requests (one an operand and piece),
    events, of the node; seconds in the event loop and from the source to the program. One GPU is
    simulated for all of them where they are the same by rotation; else ``whole_node`` says why
    they are not."""

    instructions: int
    requests: int
    events: int
    wall_s: float
    compile_s: float
    simulated_gpus: int
    whole_node: str


@dataclass(frozen=True)
class UtilizationReport:
    """Share of its time that the mean server of each kind works, over bins of time of the whole
    run, the mean over GPUs. Work counts in the bin in which it begins."""

    bin_us: float
    servers: dict[str, list[float]]


@dataclass(frozen=True)
class EngineUse:
    """One engine in one kernel, the mean of the devices that run it; ``bubbles`` and
    ``instructions`` are those of all devices together.

    ``busy_us`` is the time that it works: the CPU while it issues commands, the DMA while anything
    is on its way. ``idle_us`` is the rest of the kernel's time on the device, ``bubbles_us`` the
    part of it between the engine's first work and its last, in ``bubbles`` pieces. Its stream
    waited ``held_us`` for other streams and ``awaited_us`` for counters that other devices raise.
    """

    busy_us: float
    idle_us: float
    bubbles_us: float
    bubbles: int
    held_us: float
    awaited_us: float
    instructions: int


@dataclass(frozen=True)
class KernelEngines:
    """The engines in one kernel. ``commands`` are those that CPUs issued, by class, ``moves`` the
    instructions of DMAs and their requests, ``messages`` the puts to other devices by the nearest
    class of links between them: of all devices together."""

    name: str
    engines: dict[str, EngineUse]
    commands: dict[str, int]
    moves: dict[str, int]
    messages: dict[str, int]


@dataclass(frozen=True)
class RemarkReport:
    """What a pass did, or declined to do."""

    pass_name: str
    id: str
    message: str
    location: str | None
    declined: bool
    numbers: dict[str, int | float | str]


@dataclass(frozen=True)
class Report:
    """Everything that one compilation and simulation has to say. ``changes`` are the options that
    changed the strategy's plan; ``utilization`` is there where bins of time were asked for,
    ``engines`` where kernels have a stream for each engine of a device."""

    model: str
    target: str
    strategy: str
    phase: str
    batch: int
    context: int
    query: int
    devices: int
    mesh: dict[str, int]
    tensor_parallel: int
    data_parallel: int
    dtype: str
    kv_cache_dtype: str
    gpu_memory_utilization: float
    defaults: list[str]
    layer: LayerReport
    whole_model: WholeModelReport
    memory: MemoryReport
    traffic: TrafficReport | None
    kernels: list[KernelReport]
    collectives: list[CollectiveReport]
    parameters: ParametersReport
    kinds: list[KindReport]
    engine: EngineReport
    remarks: list[RemarkReport] = field(default_factory=list[RemarkReport])
    warnings: list[str] = field(default_factory=list[str])
    checks: list[str] = field(default_factory=list[str])
    changes: list[str] = field(default_factory=list[str])
    utilization: UtilizationReport | None = None
    engines: list[KernelEngines] = field(default_factory=list[KernelEngines])

    def to_json(self) -> dict[str, Any]:
        """The report as plain dictionaries, in a stable order of keys."""
        values: dict[str, Any] = {"schema": SCHEMA, **dataclasses.asdict(self)}
        if self.utilization is None:
            del values["utilization"]
        if not self.engines:
            del values["engines"]
        values["remarks"] = [
            {"pass": remark.pop("pass_name"), **remark} for remark in values["remarks"]
        ]
        return _rounded(values)


def _rounded(value: Any) -> Any:
    """Floats at twelve significant digits: a sum's last bits carry nothing."""
    match value:
        case float():
            return float(f"{value:.12g}")
        case dict():
            return {key: _rounded(item) for key, item in value.items()}  # pyright: ignore
        case list() | tuple():
            return [_rounded(item) for item in value]  # pyright: ignore
        case _:
            return value


def to_json_text(report: Report) -> str:
    """The JSON report as text that ends with a newline."""
    return json.dumps(report.to_json(), indent=2, allow_nan=False) + "\n"
