"""What the numbers of a machine file have to do with each other, as far as each of them is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final, cast

from starc.targets import cube_rules
from starc.targets.file_problems import FileProblems, listed
from starc.targets.graph import unconnected
from starc.targets.machine_file import walk

_MOST_STACKS: Final = 255
_MOST_CACHED: Final = 1 << 39
_MOST_MEMORY: Final = 1 << 43
# What the shape of a GPU follows from.
_SHAPE: Final = (
    "structure.dies",
    "structure.dies_per_carrier",
    "structure.carriers",
    "structure.stacks_per_carrier",
    "memory.channels",
)


def check_structure(found: FileProblems) -> None:
    """What numbers have to do with each other, as far as each of them is one."""
    data = found.file.data
    number = {key: entry["value"] for key, entry in walk(data) if key not in found.bad}

    def get(key: str, default: int = 1) -> int:
        return int(number.get(key, default))

    granule = get("memory.interleave_granule", 4096)
    if granule < 256 or granule & (granule - 1):
        found.wrong("memory.interleave_granule", f"is {granule}: a power of two from 256 on")
    for key in ("caches.l2_ways", "caches.mall_ways"):
        if not 1 <= get(key) <= 16:
            found.wrong(key, f"is {get(key)}: 1 to 16")
    if get("caches.l2_line", 128) != 128:
        found.wrong("caches.l2_line", f"is {get('caches.l2_line')}: 128")
    _latencies(found, number)
    _cubes(found, number)
    fabric = data.get("fabric")
    fabric = cast("dict[str, Any]", fabric) if isinstance(fabric, dict) else {}
    _memory(found, number)
    if all(key in number for key in cube_rules.KEYS):
        # The meshes of cubes and PEs say how many dies there are.
        number["structure.dies"] = prod(get(key) for key in cube_rules.KEYS)
    if found.bad.isdisjoint(_SHAPE) and number.get("structure.dies", 256) < 256:
        _shape(found, get, fabric)
    if found.bad.isdisjoint(("max_gpus", "fabric.network")):
        _node(found, number, fabric, data["max_gpus"])


def _shape(found: FileProblems, get: Callable[..., int], fabric: Mapping[str, Any]) -> None:
    """Dies, carriers and stacks of a GPU, and its modes."""
    dies, each = get("structure.dies"), get("structure.dies_per_carrier")
    carriers = get("structure.carriers", -(-dies // each))
    stacks = get("structure.stacks_per_carrier") * carriers * get("memory.channels")
    if carriers * each < dies:
        found.wrong("structure.carriers", f"{carriers} carriers of {each} dies hold no {dies}")
    if stacks > _MOST_STACKS:
        found.wrong("memory.channels", f"a GPU has at most {_MOST_STACKS}, not {stacks}")
    if "fabric.carrier_links" not in found.bad:
        _connected(found, "fabric.carrier_links", fabric.get("carrier_links"), carriers)
    modes = found.file.data.get("modes")
    if not isinstance(modes, dict):
        return
    for name, mode in cast("dict[str, Any]", modes).items():
        keys = (f"modes.{name}.dies_per_device", f"modes.{name}.memory_domains")
        if found.bad.isdisjoint((f"modes.{name}", *keys)):
            _mode(found, keys, dies, carriers, cast("dict[str, Any]", mode))


def _mode(
    found: FileProblems, keys: tuple[str, str], dies: int, carriers: int, mode: Mapping[str, Any]
) -> None:
    """Whether dies and carriers divide as a mode wants them to."""
    size, domains = mode["dies_per_device"], mode["memory_domains"]
    if dies % size:
        divisors = (n for n in range(1, dies + 1) if dies % n == 0)
        found.wrong(keys[0], f"{size} do not divide {dies}", f"legal: {listed(divisors)}")
    elif carriers % domains or domains > dies // size:
        legal = (n for n in range(1, carriers + 1) if carriers % n == 0 and n <= dies // size)
        message = f"{domains} domains of {carriers} carriers and {dies // size} devices"
        found.wrong(keys[1], message, f"legal: {listed(legal)}")


def _node(
    found: FileProblems, number: Mapping[str, float], fabric: Mapping[str, Any], gpus: int
) -> None:
    """How the GPUs of a node are linked."""
    network = fabric.get("network", "direct")
    if network == "links" and "gpu_links" not in fabric:
        found.wrong("fabric.gpu_links", "is missing: the network is 'links'")
    if network != "links" and "gpu_links" in fabric:
        found.wrong("fabric.gpu_links", f"says nothing: the network is '{network}', not 'links'")
    if "fabric.gpu_links" not in found.bad:
        _connected(found, "fabric.gpu_links", fabric.get("gpu_links"), gpus)
    if network == "direct" and number.get("structure.ports", gpus) < gpus:
        found.wrong("structure.ports", "there is a port for each other GPU, and one to the host")
    if gpus > 1 and number.get("latency.xgmi", 1024) < 1024:
        found.wrong("latency.xgmi", "links between GPUs take at least 1024 ps")


def _cubes(found: FileProblems, number: Mapping[str, float]) -> None:
    """The numbers of a machine of cubes, which others do not have."""
    modes = found.file.data.get("modes")
    whole = isinstance(modes, dict) and not any(key.startswith("modes.") for key in found.bad)
    known = cast("dict[str, Any]", modes) if whole else {}
    present = {key for key, _ in walk(found.file.data)}
    for key, message in cube_rules.rule_problems(number, known, present):
        found.wrong(key, message)
    is_cubes = all(key in present for key in cube_rules.KEYS)
    if number.get("caches.l2_bytes", 1) < 1 and not is_cubes:
        found.unusable("caches.l2_bytes", "must be at least 1, not 0")


def _memory(found: FileProblems, number: Mapping[str, float]) -> None:
    """What the simulator can address: its caches have tags of fewer bits than memory has."""
    most = _MOST_CACHED if number.get("caches.l2_bytes", 1) else _MOST_MEMORY
    if number.get("memory.device_bytes", 0) >= most:
        size = int(number["memory.device_bytes"])
        found.wrong("memory.device_bytes", f"is {size}: less than {most:,} of a GPU")


def _latencies(found: FileProblems, number: Mapping[str, float]) -> None:
    side = number.get("latency.memory_side", number.get("latency.mall_nps1"))
    parts = ("latency.request_up", "latency.port_to_cu")
    if side is not None and all(part in number for part in parts):
        if sum(number[part] for part in parts) > side:
            found.wrong("latency.request_up", "with port_to_cu it is more than the memory side")
    whole = number.get("latency.hbm", number.get("latency.hbm_nps1"))
    if side is not None and whole is not None and whole < side:
        found.wrong("latency.hbm", f"is {whole:g}, less than to the memory side, {side:g}")


def _connected(found: FileProblems, key: str, links: Any, count: int) -> None:
    if links is None:
        return
    pairs = cast("list[list[int]]", links)
    outside = sorted({node for pair in pairs for node in pair if node >= count})
    if outside:
        found.wrong(key, f"there is no {listed(outside)}", f"legal: 0 to {count - 1}")
        return
    missing = unconnected(count, pairs)
    if missing:
        found.wrong(key, f"{listed(missing)} cannot be reached from 0")
