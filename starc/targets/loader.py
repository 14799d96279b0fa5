"""Machine descriptions: one TOML file a product, read into a ``Target``.

A name is a product with its partition mode (``mi300x-cpx-nps4``), a short name of one
(``mi300x-cpx``), or the path of a machine file of the user's, ``FILE.toml`` or ``FILE.toml:MODE``.
In a file every number is a table of value, unit, kind and source (``machine_file``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil, prod
from typing import Any, Final

from starc.diagnostics import Diagnostic, InputError, counted, suggestion
from starc.targets import cubes, machine_file
from starc.targets.graph import distances, neighbours
from starc.targets.machine_file import KINDS, MachineFile, Number, products, read, shipped
from starc.targets.target import Target, Transport

__all__ = (
    "AXES",
    "KINDS",
    "Number",
    "aliases",
    "dram_fraction",
    "issue_keys",
    "load_target",
    "machine_file_of",
    "modes",
    "numbers",
    "products",
    "refusals",
    "target_names",
    "title",
)

AXES: Final = ("gpu", "xcd")
"""Axes of a node's mesh, outer to inner: its GPUs, the devices of a GPU."""

_COMPUTE: Final = ("spx", "dpx", "tpx", "qpx", "cpx")
_COMPUTE_TEXT: Final = ", ".join(_COMPUTE)
_MEMORY: Final = {"nps1": 1, "nps2": 2, "nps4": 4, "nps8": 8}


def aliases() -> dict[str, str]:
    """Short names: ``mi300x-cpx`` is ``mi300x-cpx-nps4``."""
    return {
        mode["alias"]: f"{product}-{key}"
        for product in products()
        for key, mode in shipped(product).modes.items()
        if "alias" in mode
    }


def target_names() -> tuple[str, ...]:
    """Every legal full name."""
    return tuple(f"{product}-{mode}" for product in products() for mode in modes(product))


def numbers(name: str) -> tuple[Number, ...]:
    """Every number of a target's machine with unit, kind and source, in the file's order."""
    return _resolve(name)[0].numbers()


def machine_file_of(name: str) -> MachineFile:
    """The machine file that a target's name stands for."""
    return _resolve(name)[0]


def modes(product: str) -> Mapping[str, Mapping[str, Any]]:
    """The partition modes of a product with their status: validated, documented by the vendor, or
    what the driver takes."""
    return shipped(product).modes


def refusals(product: str) -> Mapping[str, str]:
    """Modes that a product is known not to have, and why."""
    return shipped(product).data.get("refused", {})


def title(product: str) -> str:
    """A product's full name."""
    return str(shipped(product).data["title"])


def is_path(name: str) -> bool:
    """Whether a name is that of a machine file."""
    return name.endswith(".toml") or ".toml:" in name


def machine_label(name: str) -> str:
    """What a report calls the machine of a target's name: a machine file by its own name, and the
    product that it is based on."""
    if not is_path(name):
        return name
    file = machine_file_of(name)
    base = str(file.data.get("base", file.name))
    shown = name.replace("\\", "/").rpartition("/")[2]
    return f"machine file {shown}" + (f" (based on {base})" if base in products() else "")


def _resolve(name: str) -> tuple[MachineFile, str]:
    """Machine file and mode of a name. Raises ``InputError`` with the legal names."""
    if is_path(name):
        path, _, mode = name.rpartition(":") if not name.endswith(".toml") else (name, "", "")
        file = read(path)
        mode = mode or str(file.data["default_mode"])
        if mode not in file.modes:
            hint = f"legal modes: {', '.join(file.modes)}"
            raise InputError(Diagnostic(f"'{path}' has no mode '{mode}'", hint=hint))
        return file, mode
    name = name.lower()
    full = aliases().get(name, name)
    for product in products():
        if full == product:
            return shipped(product), str(shipped(product).data["default_mode"])
        if full.startswith(f"{product}-"):
            mode = full.removeprefix(f"{product}-")
            if mode in modes(product):
                return shipped(product), mode
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
        status = "" if entry["status"] == "validated" else f" ({entry['status']}, not validated)"
        rows.append(full + note + status)
    return "legal modes: " + ", ".join(rows)


def has_partitions(product: str) -> bool:
    """Whether a shipped product has modes of partition, as SPX and CPX."""
    return any(mode.split("-")[0] in _COMPUTE for mode in shipped(product).modes)


def _refusal(product: str, mode: str) -> str:
    """Why a mode is refused: impossible, or possible but not offered."""
    file = shipped(product)
    compute, _, memory = mode.partition("-")
    if not has_partitions(product):
        return f"'{product}-{mode}' is not a mode: {product} has no partitions"
    if mode in file.data.get("refused", {}):
        return f"'{product}-{mode}' {file.data['refused'][mode]}"
    if compute not in _COMPUTE:
        return f"'{product}-{mode}' is not a partition mode: {compute!r} is none of {_COMPUTE_TEXT}"
    structure = {key: int(item["value"]) for key, item in file.data["structure"].items()}
    dies = structure["dies"]
    carriers = structure.get("carriers", dies // structure["dies_per_carrier"])
    # CPX makes every die a device; the other names are numbers of partitions.
    partitions = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": dies}[compute]
    if dies % partitions:
        return f"'{product}-{mode}' is impossible: {dies} dies do not divide by {partitions}"
    asked = memory.removeprefix("nps")
    if asked.isdecimal() and memory != asked and (not int(asked) or carriers % int(asked)):
        return f"'{product}-{mode}' is impossible: {carriers} carriers do not divide by {asked}"
    if memory and memory not in _MEMORY:
        legal = ", ".join(_MEMORY)
        return f"'{product}-{mode}' is not a partition mode: {memory!r} is none of {legal}"
    if not memory:
        return f"'{product}-{mode}' lacks its memory mode"
    if (domains := _MEMORY[memory]) > partitions:
        return (
            f"'{product}-{mode}' is impossible: {domains} memory domains, and only "
            f"{counted(partitions, 'partition')}"
        )
    return f"'{product}-{mode}' is possible but not offered by {product}"


def load_target(
    name: str,
    *,
    gpus: int | None = None,
    mesh: Mapping[str, int] | None = None,
    overrides: Mapping[str, float] | None = None,
) -> Target:
    """The machine of this name with ``gpus`` GPUs (default: the whole node).

    ``mesh`` makes an illustration machine of other sizes from the same product's numbers: axis
    ``gpu`` counts GPUs, ``xcd`` the devices of a GPU, at most as many as the product has.
    ``overrides`` replaces numbers of the file by key path, such as ``fabric.usr_rate``.
    Raises ``InputError`` for an unknown name or number, an illegal mode or an impossible size.
    """
    file, mode = _resolve(name)
    own = {number.key: number.value for number in file.numbers()} if overrides else {}
    file = file.replaced(overrides or {}, mode)
    entry = file.modes[mode]
    most = int(file.data["max_gpus"])
    structure = _Structure(file)
    dies_per_device = int(entry["dies_per_device"])
    devices_per_gpu = structure["dies"] // dies_per_device
    grid = cubes.grid_of(structure)
    sizes = cubes.default_sizes(grid) if grid is not None else []
    if mesh is not None:
        if grid is not None:
            wanted, *sizes = cubes.mesh_sizes(mesh, grid, most)
            devices_per_gpu = prod(sizes)
        else:
            wanted, devices_per_gpu = _mesh_sizes(mesh, most, devices_per_gpu)
        if gpus is not None and gpus != wanted:
            option = "--gpus" if grid is None else "--sips"
            text = f"{option} {gpus} contradicts the mesh, which has {wanted}"
            raise InputError(Diagnostic(text))
        gpus = wanted
    count = most if gpus is None else gpus
    if not 1 <= count <= most:
        what = "GPUs" if grid is None else "SIPs"
        text = f"a node has 1 to {most} {what}, not {count}"
        raise InputError(Diagnostic(text, key=what.lower()))
    warnings: tuple[str, ...] = ()
    if entry["status"] == "own":
        warnings = (f"{file.name}-{mode} is a machine of your own, and not validated",)
    elif entry["status"] != "validated":
        warnings = (f"{file.name}-{mode} is {entry['status']} but not validated",)
    if is_path(name) and file.name in products():
        warnings += (f"{machine_label(name)}: not the shipped {file.name}",)
    warnings += tuple(
        f"{key} is {value:g} instead of {own[key]:g}"
        for key, value in (overrides or {}).items()
        if value != own[key]
    )
    shown = f"{file.name}-{mode}" if is_path(name) else name.lower()
    target = _build(file, entry, shown, mode, count, devices_per_gpu, structure, warnings)
    if grid is not None and not structure.problems:
        target = cubes.with_cubes(target, grid, sizes, _values(file))
    parts = target.request_up_ps + target.port_to_cu_ps
    if not structure.problems and target.mall_latency_ps < parts:
        message = (
            f"leaves {target.mall_latency_ps:,} ps to the memory side of a die's own carrier, "
            f"less than request_up and port_to_cu take, {parts:,}"
        )
        structure.problems.append(Diagnostic(message, key=f"{file.label}: latency.hop"))
    if not structure.problems:
        structure.problems += _short_latencies(file, target)
    if structure.problems:
        raise InputError(structure.problems)
    return target


def _short_latencies(file: MachineFile, target: Target) -> list[Diagnostic]:
    """Latencies from load to use that are shorter than a line takes at the port of a compute unit,
    which is part of them."""
    line_ps = ceil(Fraction(128, target.cu_port_bytes_per_clock) * target.cycle_ps)
    known = {"latency.port_to_cu": target.port_to_cu_ps}
    if target.has_l2:
        known["latency.l2"] = target.l2_latency_ps
    return [
        Diagnostic(
            f"is {ps:,}: a line of 128 B alone takes {line_ps:,} ps at the port of a compute unit "
            f"({target.cu_port_bytes_per_clock} B a clock at {target.core_clock_mhz} MHz)",
            key=f"{file.label}: {key}",
            hint="caches.cu_port and clock.core_mhz say how long",
        )
        for key, ps in known.items()
        if ps < line_ps
    ]


def dram_fraction(name: str, fraction: float) -> dict[str, float]:
    """Overrides that set the sustained fraction of the memory's rate in every memory mode."""
    keys = (number.key for number in numbers(name))
    return {key: fraction for key in keys if key.startswith("memory.sustained")}


def _values(file: MachineFile) -> dict[str, float]:
    return {key: entry["value"] for key, entry in machine_file.walk(file.data)}


def issue_keys(name: str) -> tuple[str, ...]:
    """The keys of a target's numbers that say what it costs the CPU of a device to issue commands.
    The scheduler, which hands on the records of a composite, is another engine."""
    keys = (number.key for number in numbers(name) if number.key.startswith("issue."))
    return tuple(key for key in keys if key != "issue.scheduler")


class _Structure(dict[str, int]):
    """The numbers of the section ``structure``, and what a file turns out to lack."""

    def __init__(self, file: MachineFile) -> None:
        super().__init__(
            {key: int(item["value"]) for key, item in file.data.get("structure", {}).items()}
        )
        self.label = file.label
        self.base = str(file.data.get("base", ""))
        self.known = [key for key, _ in machine_file.walk(file.data)]
        self.problems: list[Diagnostic] = []

    def lacks(self, *keys: str) -> int:
        message = f"is missing{', and so is ' + ' or '.join(keys[1:]) if keys[1:] else ''}"
        hint = None
        if self.base and (others := [key for key in self.known if _stem(key) == _stem(keys[0])]):
            hint = (
                f"{self.base} has it for its own modes only ({', '.join(others)}): "
                f"give {keys[-1]} for yours"
            )
        self.problems.append(Diagnostic(message, key=f"{self.label}: {keys[0]}", hint=hint))
        return 1

    def __missing__(self, key: str) -> int:
        return self.lacks(f"structure.{key}")


def _stem(key: str) -> str:
    """A key without what it says of a mode: ``kernel.gap_cpx`` is ``kernel.gap``."""
    head, _, end = key.rpartition("_")
    return head if end in (*_COMPUTE, *_MEMORY) else key


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
    file: MachineFile,
    entry: Mapping[str, Any],
    name: str,
    mode: str,
    gpus: int,
    devices_per_gpu: int,
    structure: _Structure,
    warnings: tuple[str, ...],
) -> Target:
    data = file.data

    def value(section: str, key: str, default: Any = None) -> Any:
        if key in data.get(section, {}):
            return data[section][key]["value"]
        return structure.lacks(f"{section}.{key}") if default is None else default

    def first_of(section: str, *keys: str) -> Any:
        found = [data[section][key]["value"] for key in keys if key in data.get(section, {})]
        return found[0] if found else structure.lacks(*(f"{section}.{key}" for key in keys))

    dies_per_device = int(entry["dies_per_device"])
    dies = devices_per_gpu * dies_per_device
    # A device has its share of the engines of a whole GPU.
    engines = int(value("copy_engines", "count", 0)) * dies_per_device // structure["dies"]
    idle = [key for key in ("rate", "window") if engines and value("copy_engines", key, 0) < 1]
    if idle:
        problem = "must be at least 1 where a device has copy engines"
        raise InputError([Diagnostic(problem, key=f"copy_engines.{key}") for key in idle])
    all_carriers = structure.get("carriers", -(-structure["dies"] // structure["dies_per_carrier"]))
    is_whole = dies == structure["dies"]
    carriers = all_carriers if is_whole else -(-dies // structure["dies_per_carrier"])
    clock = int(value("clock", "core_mhz"))
    memory_mode = mode.partition("-")[2]
    # A channel, where stacks are modelled as several, is a stack of its own to the simulator.
    channels = int(value("memory", "channels", 1))
    stacks_per_carrier = structure["stacks_per_carrier"] * channels
    # A device's share of the stacks of its GPU, which need not be a whole number.
    share = Fraction(all_carriers * stacks_per_carrier * dies_per_device, structure["dies"])
    stack_peak = int(value("memory", "stack_rate")) // channels
    fractions = (*((f"sustained_{memory_mode}",) if memory_mode else ()), "sustained")
    stack_rate = round(stack_peak * first_of("memory", *fractions))
    # Without a memory-side cache nothing but the stack itself limits its rate.
    mall_bytes = int(value("caches", "mall_bytes_per_stack", 0)) // channels
    mall_peak = int(value("caches", "mall_rate_per_stack", stack_peak * channels)) // channels
    hop = int(value("latency", "hop"))
    # PEs have memory of their own, which all of their loads reach.
    is_cubes = cubes.grid_of(structure) is not None
    l2 = int(value("latency", "l2", first_of("latency", "hbm", "hbm_nps1") if is_cubes else None))
    # The published latencies are means over the stacks of a whole GPU, as its dies see them: on a
    # ring of four carriers they are one hop away on average.
    links = tuple((int(a), int(b)) for a, b in data.get("fabric", {}).get("carrier_links", ()))
    homes = sorted({die // structure["dies_per_carrier"] for die in range(structure["dies"])})
    whole_hops = 0.0 if is_cubes else _mean_hops(all_carriers, links, homes, 1)
    mall_mean = int(first_of("latency", "memory_side", "mall_nps1"))
    mall_local = mall_mean - round(whole_hops * hop)
    extra = int(first_of("latency", "hbm", "hbm_nps1")) - mall_mean
    domains = min(int(entry["memory_domains"]), carriers)
    links = tuple(pair for pair in links if max(pair) < carriers)
    gpu_links = tuple(
        (int(a), int(b)) for a, b in data.get("fabric", {}).get("gpu_links", ()) if max(a, b) < gpus
    )
    for key, count, pairs in (
        ("carrier_links", carriers, links),
        ("gpu_links", gpus, gpu_links),
    ):
        if data.get("fabric", {}).get(key) and (away := machine_file.unconnected(count, pairs)):
            message = f"the first {count} of them leave {away[0]} without a way"
            structure.problems.append(Diagnostic(message, key=f"{file.label}: fabric.{key}"))
            links, gpu_links = (), ()
    homes = sorted({die // structure["dies_per_carrier"] for die in range(dies)})
    mean_hops = 0.0 if is_cubes else _mean_hops(carriers, links, homes, domains)
    l2_bytes = int(value("caches", "l2_bytes"))
    # Without an L2 the ports of a compute unit are those of its die.
    cu_port = int(value("caches", "cu_port"))
    beyond = None if l2_bytes else cu_port
    xgmi = 1 if is_cubes else int(value("fabric", "xgmi_rate"))
    port = int(value("caches", "die_port", beyond)) * clock * 1_000_000
    usr = int(value("fabric", "usr_rate", port))
    compute = data.get("compute", {})
    memory_bytes = int(value("memory", "device_bytes"))
    return Target(
        name=name,
        product=file.name,
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
        routers=0,
        grid=(),
        ports=structure["ports"],
        ports_per_carrier=structure["ports_per_carrier"],
        port_carriers=(),
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
        matrix_rows=int(value("compute", "matrix_rows", 16 if is_cubes else None)),
        matrix_tile=(),
        matrix_latency_ps=int(value("compute", "matrix_latency", 0)),
        vector_latency_ps=int(value("compute", "vector_latency", 0)),
        vector_ops_per_clock=int(value("compute", "vector_lanes")),
        special_lanes=float(
            value("compute", "special_lanes", value("compute", "vector_lanes") / 4)
        ),
        special_apart=int(value("compute", "special_apart", 0)),
        scratch_bytes_per_clock=int(value("compute", "scratch_rate", 0)),
        scratch_sustained=float(value("compute", "scratch_sustained", 1.0)),
        matrix_direct_rows=int(value("compute", "matrix_direct_rows", 0)),
        scratch_bytes_per_cu=structure["scratch_bytes_per_cu"],
        registers_bytes_per_cu=structure["register_bytes_per_cu"],
        register_bytes_per_lane=structure["register_bytes_per_lane"],
        working_bytes_per_lane=structure.get("working_bytes_per_lane", 0),
        async_copies=structure.get("async_copies", 0),
        multicast_workgroups=structure.get("multicast", 1),
        wave_size=structure["wave_size"],
        max_waves_per_cu=structure["max_waves_per_cu"],
        max_workgroups_per_cu=structure.get("max_workgroups_per_cu", structure["max_waves_per_cu"]),
        engines=(),
        issue_ps={},
        stateful_composites=False,
        queue_bytes=0,
        queue_depth=0,
        queue_commands=0,
        scratch_port_bytes_per_clock=0,
        scratch_latency_ps=0,
        window_bytes_per_cu=int(value("dispatch", "window_bytes_per_cu")),
        window_bytes_per_wave=int(value("dispatch", "window_bytes_per_wave")),
        cu_port_bytes_per_clock=cu_port,
        device_memory_bytes=memory_bytes * dies_per_device // structure["dies"],
        visible_memory_bytes=memory_bytes
        if entry.get("shared_memory")
        else memory_bytes * dies_per_device // structure["dies"],
        has_l2=l2_bytes > 0,
        l2_bytes_per_die=l2_bytes,
        l2_ways=int(value("caches", "l2_ways", None if l2_bytes else 1)),
        l2_line=int(value("caches", "l2_line", None if l2_bytes else 128)),
        l2_bytes_per_clock=int(value("caches", "l2_read", beyond)),
        l2_write_bytes_per_clock=int(value("caches", "l2_write", beyond)),
        die_port_bytes_per_clock=int(value("caches", "die_port", beyond)),
        mall_bytes=int(mall_bytes * share),
        mall_bytes_per_stack=mall_bytes,
        mall_ways=int(value("caches", "mall_ways", 16)),
        mall_stack_rate=round(mall_peak * value("caches", "mall_sustained", 1.0)),
        mall_stack_peak=mall_peak,
        hbm_rate=int(stack_rate * share),
        hbm_peak=int(stack_peak * share),
        hbm_stack_rate=stack_rate,
        hbm_stack_peak=stack_peak,
        hbm_access_bytes=int(value("memory", "access_bytes")),
        channels=1,
        channel_granule=0,
        hbm_read_share=_share(value("memory", "read_share"), "memory.read_share"),
        hbm_write_share=_share(value("memory", "write_share"), "memory.write_share"),
        hbm_turnaround_ps=int(value("memory", "turnaround")),
        hbm_write_batch_bytes=int(value("memory", "write_batch")),
        coherent=dies_per_device == 1
        or data.get("caches", {}).get("coherence", "software") == "hardware",
        network=str(data.get("fabric", {}).get("network", "direct")),
        gpu_links=gpu_links,
        carrier_links=links,
        link_rate={
            "xgmi": 1 if is_cubes else round(xgmi * value("fabric", "xgmi_sustained")),
            "usr": usr,
            "die": port,
        },
        link_peak={"xgmi": xgmi, "usr": usr, "die": port},
        link_latency_ps={
            "xgmi": 0 if is_cubes else int(value("latency", "xgmi")),
            "usr": mall_local + hop // 2,
            "die": mall_local,
        },
        l2_latency_ps=l2,
        mall_latency_ps=mall_local,
        memory_latency_ps=round(mall_local + extra + mean_hops * hop),
        hop_latency_ps=hop,
        noc_hop_latency_ps=0,
        hbm_extra_ps=extra,
        request_up_ps=int(value("latency", "request_up")),
        port_to_cu_ps=int(value("latency", "port_to_cu")),
        store_latency_ps=int(value("latency", "store")),
        l2_retains=bool(value("caches", "l2_retains", 0)),
        write_back_queue_ps=int(value("latency", "write_back_queue")),
        kernel_gap_ps=int(
            first_of("kernel", "gap", "gap_cpx" if dies_per_device == 1 else "gap_spx")
        ),
        kernel_issue_ps=int(
            first_of("kernel", "issue", "issue_cpx" if dies_per_device == 1 else "issue_spx")
        ),
        prologue_ps={
            key.removeprefix("prologue_"): int(item["value"])
            for key, item in data.get("kernel", {}).items()
            if key.startswith("prologue_")
        },
        dispatch_clocks=int(value("dispatch", "clocks")),
        dispatch_clocks_per_wave=float(value("dispatch", "clocks_per_wave")),
        start_skew_ps=int(value("dispatch", "skew")),
        transports={
            key: Transport(
                start_ps=int(item["start"]["value"]),
                step_ps=int(item["step"]["value"]),
                workgroups=_streams(item, dies_per_device, engines),
                window_bytes=int(item["window"]["value"]),
                payload_factor=float(item["payload_factor"]["value"]),
                share_bytes=int(item["share"]["value"]),
                reserves=int(item.get("reserves", {"value": 0})["value"]),
                copy_engines=int(item.get("copy_engines", {"value": 0})["value"]),
            )
            for key, item in data.get("transports", {}).items()
        },
        kernels={
            name: {key: float(item["value"]) for key, item in constants.items()}
            for name, constants in data.get("kernels", {}).items()
        },
        power={key: float(item["value"]) for key, item in data.get("power", {}).items()},
        usr_queue_bytes=int(value("fabric", "usr_queue", 0)),
        die_port_queue_bytes=int(value("caches", "die_port_queue", 0)),
        xgmi_queue_bytes=int(value("fabric", "xgmi_queue", 0)),
        copy_engines=engines,
        copy_engine_rate=int(value("copy_engines", "rate", 0)),
        copy_engine_start_ps=int(value("copy_engines", "start", 0)),
        copy_engine_window_bytes=int(value("copy_engines", "window", 0)),
        tlb_entries=int(value("caches", "tlb_entries", 1024)),
        tlb_page_bytes=int(value("caches", "tlb_page", 65536)),
        page_walk_ps=int(value("latency", "page_walk", 0)),
        warnings=warnings,
    )


def _channels(transport: Mapping[str, Any], dies_per_device: int) -> Mapping[str, Any]:
    """The number of a transport's workgroups; devices of one die may have one of their own."""
    if dies_per_device == 1 and "workgroups_cpx" in transport:
        return transport["workgroups_cpx"]
    return transport["workgroups"]


def _streams(transport: Mapping[str, Any], dies_per_device: int, engines: int) -> int:
    """The number of a transport's workgroups; of streams of copy engines no more than a device
    has."""
    count = int(_channels(transport, dies_per_device)["value"])
    if not transport.get("copy_engines", {"value": 0})["value"]:
        return count
    if engines < 1:
        problem = "leaves a device without copy engines, which a transport needs"
        raise InputError(Diagnostic(problem, key="copy_engines.count"))
    return min(count, engines)


def _share(value: float, key: str) -> float:
    """A share of a rate, above 0 and at most 1. Raises ``InputError``."""
    if not 0 < value <= 1:
        raise InputError(Diagnostic(f"is {value}: a share is above 0 and at most 1", key=key))
    return float(value)


def _mean_hops(
    carriers: int, links: tuple[tuple[int, int], ...], homes: Sequence[int], domains: int
) -> float:
    """Mean distance between the carriers that dies stand on, ``homes``, and those whose stacks the
    memory of the dies' domain lies on; domains are runs of carriers."""
    far = distances(neighbours(carriers, links))
    size = carriers // domains
    pairs = [
        far[a][b]
        for a in homes
        for b in range(carriers)
        if min(a // size, domains - 1) == min(b // size, domains - 1)
    ]
    return sum(pairs) / len(pairs)


def _inner_class(dies: int, structure: Mapping[str, int], devices_per_gpu: int) -> str:
    """The link class of the inner axis: its slowest links."""
    if devices_per_gpu == 1 or dies <= structure["dies_per_carrier"]:
        return "die"
    return "usr"
