"""Machine descriptions: one TOML file a product, read into a ``Target``.

A name is a product with its partition mode (``mi300x-cpx-nps4``) or a short name of one
(``mi300x-cpx``). In a file every number is a table of value, unit, kind and source.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final, cast

from starc.diagnostics import Diagnostic, InputError, suggestion
from starc.targets.target import Target, Transport

KINDS: Final = ("vendor_peak", "measured", "derived", "assumed", "calibrated")

AXES: Final = ("gpu", "xcd")
"""Axes of a node's mesh, outer to inner: its GPUs, the devices of a GPU."""


@dataclass(frozen=True)
class Number:
    """One number of a machine with where it comes from."""

    key: str
    value: int | float
    unit: str
    kind: str
    source: str
    note: str


@lru_cache
def _product(name: str) -> Mapping[str, Any]:
    return tomllib.loads(resources.files("starc.targets").joinpath(f"{name}.toml").read_text())


def products() -> tuple[str, ...]:
    """The products that have a description."""
    files = resources.files("starc.targets").iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".toml")))


def aliases() -> dict[str, str]:
    """Short names: ``mi300x-cpx`` is ``mi300x-cpx-nps4``."""
    return {
        mode["alias"]: f"{product}-{key}"
        for product in products()
        for key, mode in _product(product)["modes"].items()
        if "alias" in mode
    }


def target_names() -> tuple[str, ...]:
    """Every legal full name."""
    return tuple(
        f"{product}-{mode}" for product in products() for mode in _product(product)["modes"]
    )


def numbers(name: str) -> tuple[Number, ...]:
    """Every number of a target's product with unit, kind and source, in the file's order."""
    product, _ = _resolve(name)
    data = _product(product)

    def walk(prefix: str, table: Mapping[str, Any]) -> Iterator[Number]:
        for key, value in table.items():
            if not isinstance(value, dict) or key in ("sources", "modes"):
                continue
            entry = cast("dict[str, Any]", value)
            path = f"{prefix}{key}"
            if "value" in entry:
                source = data["sources"][entry["source"]]
                yield Number(
                    path,
                    entry["value"],
                    entry["unit"],
                    entry["kind"],
                    source,
                    entry.get("note", ""),
                )
            else:
                yield from walk(path + ".", entry)

    return tuple(walk("", data))


def modes(product: str) -> Mapping[str, Mapping[str, Any]]:
    """The partition modes of a product with their status (validated, documented)."""
    return _product(product)["modes"]


def _resolve(name: str) -> tuple[str, str]:
    """Product and mode of a name. Raises ``InputError`` with the legal names."""
    name = name.lower()
    full = aliases().get(name, name)
    for product in products():
        if full == product:
            return product, _product(product)["default_mode"]
        if full.startswith(f"{product}-"):
            mode = full.removeprefix(f"{product}-")
            if mode in modes(product):
                return product, mode
            raise InputError(Diagnostic(_refusal(product, mode), hint=_legal(product)))
    known = (*aliases(), *target_names())
    close = suggestion(name, known)
    hint = (f"{close} " if close else "") + "known: " + ", ".join(known)
    raise InputError(Diagnostic(f"unknown target '{name}'", hint=hint))


def _legal(product: str) -> str:
    short = {full: alias for alias, full in aliases().items()}
    rows: list[str] = []
    for mode, entry in modes(product).items():
        full = f"{product}-{mode}"
        note = f" (short: {short[full]})" if full in short else ""
        rows.append(full + note + ("" if entry["status"] == "validated" else " (not validated)"))
    return "legal modes: " + ", ".join(rows)


def _refusal(product: str, mode: str) -> str:
    """Why a mode is refused: impossible, or possible but not offered."""
    compute, _, memory = mode.partition("-")
    partitions = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
    domains = {"nps1": 1, "nps2": 2, "nps4": 4, "nps8": 8}
    dies = int(_product(product)["structure"]["dies"]["value"])
    if compute not in partitions or (memory and memory not in domains):
        return f"'{product}-{mode}' is not a partition mode"
    if not memory:
        return f"'{product}-{mode}' lacks its memory mode"
    if dies % partitions[compute] or domains[memory] > partitions[compute]:
        return (
            f"'{product}-{mode}' is impossible: {partitions[compute]} partitions of {dies} dies "
            f"over {domains[memory]} memory domains"
        )
    return f"'{product}-{mode}' is not offered by {product}"


def load_target(
    name: str, *, gpus: int | None = None, mesh: Mapping[str, int] | None = None
) -> Target:
    """The machine of this name with ``gpus`` GPUs (default: the whole node).

    ``mesh`` makes an illustration machine of other sizes from the same product's numbers: axis
    ``gpu`` counts GPUs, ``xcd`` the devices of a GPU, at most as many as the product has.
    Raises ``InputError`` for an unknown name, an illegal mode or an impossible size.
    """
    product, mode = _resolve(name)
    data = _product(product)
    entry = data["modes"][mode]
    most = int(data["max_gpus"])
    structure = {key: int(item["value"]) for key, item in data["structure"].items()}
    dies_per_device = int(entry["dies_per_device"])
    devices_per_gpu = structure["dies"] // dies_per_device
    if mesh is not None:
        wanted, devices_per_gpu = _mesh_sizes(mesh, most, devices_per_gpu)
        if gpus is not None and gpus != wanted:
            raise InputError(Diagnostic(f"--gpus {gpus} contradicts the mesh, which has {wanted}"))
        gpus = wanted
    count = most if gpus is None else gpus
    if not 1 <= count <= most:
        raise InputError(Diagnostic(f"a node has 1 to {most} GPUs, not {count}", key="gpus"))
    warnings = ()
    if entry["status"] != "validated":
        warnings = (f"{product}-{mode} is documented but not validated",)
    return _build(
        data, entry, name.lower(), product, mode, count, devices_per_gpu, structure, warnings
    )


def _mesh_sizes(mesh: Mapping[str, int], most_gpus: int, most_devices: int) -> tuple[int, int]:
    """GPUs and devices of a GPU of an illustration mesh; an axis that is not given has size 1."""
    most = dict(zip(AXES, (most_gpus, most_devices), strict=True))
    problems = [
        Diagnostic(f"unknown mesh axis '{axis}'", key="--mesh", hint=f"axes: {', '.join(AXES)}")
        for axis in mesh
        if axis not in most
    ]
    problems += [
        Diagnostic(f"mesh axis '{axis}' can be 1 to {most[axis]}, not {size}", key="--mesh")
        for axis, size in mesh.items()
        if axis in most and not 1 <= size <= most[axis]
    ]
    if problems or not mesh:
        raise InputError(problems or Diagnostic("a mesh has at least one axis", key="--mesh"))
    return mesh.get(AXES[0], 1), mesh.get(AXES[1], 1)


def _build(
    data: Mapping[str, Any],
    entry: Mapping[str, Any],
    name: str,
    product: str,
    mode: str,
    gpus: int,
    devices_per_gpu: int,
    structure: Mapping[str, int],
    warnings: tuple[str, ...],
) -> Target:
    def value(section: str, key: str, default: Any = None) -> Any:
        if default is not None and key not in data.get(section, {}):
            return default
        return data[section][key]["value"]

    def first_of(section: str, *keys: str) -> Any:
        return next(data[section][key]["value"] for key in keys if key in data[section])

    dies_per_device = int(entry["dies_per_device"])
    dies = devices_per_gpu * dies_per_device
    carriers = -(-dies // structure["dies_per_carrier"])
    clock = int(value("clock", "core_mhz"))
    memory_mode = mode.partition("-")[2]
    # A channel, where stacks are modelled as several, is a stack of its own to the simulator.
    channels = int(value("memory", "channels", 1))
    stacks_per_carrier = structure["stacks_per_carrier"] * channels
    device_stacks = stacks_per_carrier * dies_per_device // structure["dies_per_carrier"]
    stack_peak = int(value("memory", "stack_rate")) // channels
    stack_rate = round(stack_peak * first_of("memory", f"sustained_{memory_mode}", "sustained"))
    device_bytes = int(value("memory", "device_bytes")) * dies_per_device // structure["dies"]
    # Without a memory-side cache nothing but the stack itself limits its rate.
    mall_bytes = int(value("caches", "mall_bytes_per_stack", 0)) // channels
    mall_peak = int(value("caches", "mall_rate_per_stack", stack_peak * channels)) // channels
    hop = int(value("latency", "hop"))
    l2 = int(value("latency", "l2"))
    # The published latencies are means over the stacks of a whole GPU: on a ring of four carriers
    # they are one hop away on average.
    all_carriers = structure["dies"] // structure["dies_per_carrier"]
    mall_mean = int(first_of("latency", "memory_side", "mall_nps1"))
    mall_local = mall_mean - round(_mean_hops(all_carriers, all_carriers) * hop)
    extra = int(first_of("latency", "hbm", "hbm_nps1")) - mall_mean
    domains = min(int(entry["memory_domains"]), carriers)
    mean_hops = _mean_hops(carriers, carriers // domains)
    xgmi = int(value("fabric", "xgmi_rate"))
    port = int(value("caches", "die_port")) * clock * 1_000_000
    usr = int(value("fabric", "usr_rate", port))
    compute = data["compute"]
    return Target(
        name=name,
        product=product,
        mode=mode,
        gpus=gpus,
        devices_per_gpu=devices_per_gpu,
        mesh=(
            (AXES[0], gpus, "outer", "xgmi"),
            (AXES[1], devices_per_gpu, "inner", _inner_class(dies, structure, devices_per_gpu)),
        ),
        dies_per_gpu=dies,
        dies_per_device=dies_per_device,
        dies_per_carrier=structure["dies_per_carrier"],
        stacks_per_carrier=stacks_per_carrier,
        carriers=carriers,
        ports=structure["ports"],
        ports_per_carrier=structure["ports_per_carrier"],
        memory_domains=domains,
        interleave_granule=int(value("memory", "interleave_granule")),
        interleave_hashed=bool(value("memory", "hash", 0)),
        cus_per_die=structure["cus_per_die"],
        core_clock_mhz=clock,
        matrix_flops_per_clock={
            key.removeprefix("matrix_"): int(item["value"])
            for key, item in compute.items()
            if item["unit"] == "FLOP/clk/CU"
        },
        matrix_sustained=float(value("compute", "matrix_sustained")),
        matrix_sustained_by_type={
            key.removeprefix("matrix_sustained_"): float(item["value"])
            for key, item in compute.items()
            if key.startswith("matrix_sustained_")
        },
        matrix_rows=int(value("compute", "matrix_rows")),
        matrix_latency_ps=int(value("compute", "matrix_latency", 0)),
        vector_latency_ps=int(value("compute", "vector_latency", 0)),
        vector_ops_per_clock=int(value("compute", "vector_lanes")),
        special_lanes=float(
            value("compute", "special_lanes", value("compute", "vector_lanes") / 4)
        ),
        special_apart=int(value("compute", "special_apart", 0)),
        scratch_bytes_per_clock=int(value("compute", "scratch_rate", 0)),
        scratch_sustained=float(value("compute", "scratch_sustained", 1.0)),
        scratch_reader_waves=int(value("compute", "scratch_reader_waves", 1)),
        scratch_bytes_per_cu=structure["scratch_bytes_per_cu"],
        registers_bytes_per_cu=structure["register_bytes_per_cu"],
        register_bytes_per_lane=structure["register_bytes_per_lane"],
        async_copies=structure.get("async_copies", 0),
        multicast_workgroups=structure.get("multicast", 1),
        wave_size=structure["wave_size"],
        max_waves_per_cu=structure["max_waves_per_cu"],
        window_bytes_per_cu=int(value("dispatch", "window_bytes_per_cu")),
        window_bytes_per_wave=int(value("dispatch", "window_bytes_per_wave")),
        cu_port_bytes_per_clock=int(value("caches", "cu_port")),
        device_memory_bytes=device_bytes,
        l2_bytes_per_die=int(value("caches", "l2_bytes")),
        l2_ways=int(value("caches", "l2_ways")),
        l2_line=int(value("caches", "l2_line")),
        l2_bytes_per_clock=int(value("caches", "l2_read")),
        l2_write_bytes_per_clock=int(value("caches", "l2_write")),
        die_port_bytes_per_clock=int(value("caches", "die_port")),
        mall_bytes=mall_bytes * device_stacks,
        mall_bytes_per_stack=mall_bytes,
        mall_ways=int(value("caches", "mall_ways", 16)),
        mall_stack_rate=round(mall_peak * value("caches", "mall_sustained", 1.0)),
        mall_stack_peak=mall_peak,
        hbm_rate=stack_rate * device_stacks,
        hbm_peak=stack_peak * device_stacks,
        hbm_stack_rate=stack_rate,
        hbm_stack_peak=stack_peak,
        hbm_access_bytes=int(value("memory", "access_bytes")),
        hbm_read_share=_share(value("memory", "read_share"), "memory.read_share"),
        hbm_write_share=_share(value("memory", "write_share"), "memory.write_share"),
        hbm_turnaround_ps=int(value("memory", "turnaround")),
        hbm_write_batch_bytes=int(value("memory", "write_batch")),
        coherent=dies_per_device == 1,
        link_rate={
            "xgmi": round(xgmi * value("fabric", "xgmi_sustained")),
            "usr": usr,
            "die": port,
        },
        link_peak={"xgmi": xgmi, "usr": usr, "die": port},
        link_latency_ps={
            "xgmi": int(value("latency", "xgmi")),
            "usr": mall_local + hop // 2,
            "die": mall_local,
        },
        l2_latency_ps=l2,
        mall_latency_ps=mall_local,
        memory_latency_ps=round(mall_local + extra + mean_hops * hop),
        hop_latency_ps=hop,
        hbm_extra_ps=extra,
        request_up_ps=int(value("latency", "request_up")),
        port_to_cu_ps=int(value("latency", "port_to_cu")),
        store_latency_ps=int(value("latency", "store")),
        write_back_queue_ps=int(value("latency", "write_back_queue")),
        kernel_gap_ps=int(
            first_of("kernel", "gap", "gap_cpx" if dies_per_device == 1 else "gap_spx")
        ),
        kernel_issue_ps=int(
            first_of("kernel", "issue", "issue_cpx" if dies_per_device == 1 else "issue_spx")
        ),
        prologue_ps={
            key.removeprefix("prologue_"): int(item["value"])
            for key, item in data["kernel"].items()
            if key.startswith("prologue_")
        },
        dispatch_clocks=int(value("dispatch", "clocks")),
        dispatch_clocks_per_wave=float(value("dispatch", "clocks_per_wave")),
        start_skew_ps=int(value("dispatch", "skew")),
        copy_engines=int(value("copy_engines", "count", 0)),
        copy_engine_rate=int(value("copy_engines", "rate", 1)),
        copy_engine_start_ps=int(value("copy_engines", "start", 0)),
        transports={
            key: Transport(
                start_ps=int(item["start"]["value"]),
                step_ps=int(item["step"]["value"]),
                workgroups=int(_channels(item, dies_per_device)["value"]),
                window_bytes=int(item["window"]["value"]),
                payload_factor=float(item["payload_factor"]["value"]),
                share_bytes=int(item["share"]["value"]),
            )
            for key, item in data["transports"].items()
        },
        warnings=warnings,
    )


def _channels(transport: Mapping[str, Any], dies_per_device: int) -> Mapping[str, Any]:
    """The number of a transport's workgroups; devices of one die may have one of their own."""
    if dies_per_device == 1 and "workgroups_cpx" in transport:
        return transport["workgroups_cpx"]
    return transport["workgroups"]


def _share(value: float, key: str) -> float:
    """A share of a rate, above 0 and at most 1. Raises ``InputError``."""
    if not 0 < value <= 1:
        raise InputError(Diagnostic(f"is {value}: a share is above 0 and at most 1", key=key))
    return float(value)


def _mean_hops(carriers: int, domain: int) -> float:
    """Mean distance on the ring of carriers between the carriers of one memory domain."""
    around = [min(k, carriers - k) for k in range(carriers)]
    pairs = [(a, b) for a in range(domain) for b in range(domain)]
    return sum(around[abs(a - b)] for a, b in pairs) / len(pairs)


def _inner_class(dies: int, structure: Mapping[str, int], devices_per_gpu: int) -> str:
    """The link class of the inner axis: its slowest links."""
    if devices_per_gpu == 1 or dies <= structure["dies_per_carrier"]:
        return "die"
    return "usr"
