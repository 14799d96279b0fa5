"""The files of measurements that are known, each with the module that reads and simulates it.

A module of ``starc.validation.cases`` has ``read``, ``simulate`` and ``role`` (see ``CaseModule``),
and may have:

- ``work(case) -> Work | None``: what a roofline knows of the case; without it, or with None, the
  rows have no baselines;
- ``margin(case) -> float | None``: the largest error allowed of a row, as a fraction;
- ``MARGINS: Mapping[str, float]``: the largest mean error allowed of the tests of a class;
- ``group(case) -> str``: a part of the class that is summed up by itself; otherwise the whole file;
- ``key(case) -> tuple``: cases of equal keys are simulated once; otherwise all parameters;
- ``effort(case) -> float``: long cases start first;
- ``left_out(path) -> list[str]``: rows of a file that are not simulated, in words;
- ``NOTES: Mapping[str, str]``: by class, what the model lacks where its rows are off;
- ``CONSTANTS: tuple[str, ...]``: numbers of the target, by key path, that were fitted on its rows;
- ``NEEDS: tuple[str, ...]``: sections ``kernels.NAME`` of the target that its simulation needs.

Files of the same kinds measured on other devices are known by the end of their names:
``mygpu_rms_norm.csv`` is read and simulated as ``h200_rms_norm.csv`` is, on its own machine.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from starc.validation.rows import Case, CaseModule, Role, Work


@dataclass(frozen=True)
class CaseFile:
    """A known file: the module for it, the target that its rows were measured on, and the folder
    of ``starc/validation/data`` that has our rows. ``like`` is the file of ours that one of another
    device is of the kind of; its target is empty where its name does not say it."""

    name: str
    module: str
    target: str
    folder: str
    like: str = ""

    @property
    def what(self) -> str:
        """What was measured: the name without the device."""
        return (self.like or self.name).removeprefix(f"{self.folder}_").removesuffix(".csv")

    @property
    def shipped(self) -> Path:
        """Where our rows of the file are."""
        return Path(__file__).parent / "data" / self.folder / (self.like or self.name)


def _files(folder: str, target: str, modules: Mapping[str, str]) -> tuple[CaseFile, ...]:
    return tuple(CaseFile(name, module, target, folder) for name, module in modules.items())


FILES: Final[Mapping[str, CaseFile]] = {
    item.name: item
    for item in (
        *_files(
            "h200",
            "h200",
            {
                "h200_gemm.csv": "gemm",
                "h200_gemm_fp8.csv": "gemm",
                "h200_rms_norm.csv": "rms_norm",
                "h200_attn_decode.csv": "attn_decode",
                "h200_attn_decode_fixed_splits.csv": "attn_decode",
                "h200_attn_prefill.csv": "attn_prefill",
                "h200_read.csv": "streams",
                "h200_read_l2.csv": "streams",
                "h200_copy.csv": "streams",
                "h200_micro.csv": "micro",
                "h200_launch_graph.csv": "micro",
                "h200_launch_eager.csv": "micro",
            },
        ),
        *_files(
            "h200x2",
            "h200",
            {"h200x2_collectives.csv": "collectives", "h200x2_fused_gemm.csv": "fused_gemm"},
        ),
        *_files(
            "mi300x",
            "mi300x",
            {
                "mi300x_published.csv": "mi300x_published",
                "mi300x_public.csv": "mi300x_public",
                "mi300x_collectives.csv": "mi300x_collectives",
            },
        ),
    )
}
"""By file name: one row a file."""

GENERAL: Final = ("h200", "h200x2")
"""Folders of the files that ``tools/measure`` writes for any device."""

FOR_PEOPLE: Final = (
    "attn_decode_combine",
    "attn_decode_parts",
    "attn_decode_warps",
    "bank_page",
    "collective_protocols",
    "copy_rotation",
    "gemm_load",
    "gemm_warmth",
    "launches",
    "peers",
    "rms_norm_types",
    "stream_types",
)
"""What is measured for people to read, and is not simulated."""


@cache
def file_of(name: str) -> CaseFile | None:
    """The known file of a name, or the one that a file of another device is like: the name of the
    device, an underscore and what was measured. None for an unknown name."""
    if name in FILES:
        return FILES[name]
    if is_for_people(name):
        return None
    for item in FILES.values():
        device = name.removesuffix(f"_{item.what}.csv")
        general = item.folder in GENERAL
        if general and device and device != name and not _is_longer(name, item):
            return CaseFile(name, item.module, _product_of(device), item.folder, item.name)
    return None


def _is_longer(name: str, item: CaseFile) -> bool:
    """Whether another kind ends with this one and fits the name too: the longest counts."""
    return any(
        len(other.what) > len(item.what) and name.endswith(f"_{other.what}.csv")
        for other in FILES.values()
        if other.folder in GENERAL
    )


def _product_of(device: str) -> str:
    """The product that a device is called after, with or without a count (``mi300xx8``)."""
    from starc.targets.machine_file import products

    names = (device.lower(), re.sub(r"x\d+$", "", device.lower()))
    return next((whole_gpu(name) for name in names if name in products()), "")


def whole_gpu(target: str) -> str:
    """The target of a product named without a mode whose one device is a whole GPU: what programs
    see of it as it comes. Any other name is taken as it is."""
    from starc.targets.machine_file import products
    from starc.targets.names import modes

    if target not in products():
        return target
    most = max(int(entry["dies_per_device"]) for entry in modes(target).values())
    whole = [mode for mode, entry in modes(target).items() if entry["dies_per_device"] == most]
    validated = [mode for mode in whole if modes(target)[mode]["status"] == "validated"]
    mode = next(iter((*validated, *whole)))
    return target if len(modes(target)) == 1 else f"{target}-{mode}"


def machine_of(file: str, target: str | None) -> str:
    """The target that a known file is simulated on where the user named ``target``, or none."""
    found = known_file(file)
    if target is None:
        return found.target
    return whole_gpu(target) if found.folder in GENERAL else target


def is_for_people(name: str) -> bool:
    """Whether a file is of a kind that is measured and not simulated."""
    return any(name.endswith(f"_{what}.csv") for what in FOR_PEOPLE)


def known_file(name: str) -> CaseFile:
    """The file of a name that is known."""
    found = file_of(name)
    assert found is not None, name
    return found


def what_of(name: str) -> str:
    """What was measured, by the name of a known file."""
    return known_file(name).what


def target_of(file: str) -> str:
    """The target that the rows of a known file were measured on; empty where it does not say."""
    return known_file(file).target


@cache
def module_of(file: str) -> CaseModule:
    """The module of a known file."""
    return cast(
        CaseModule, importlib.import_module(f"starc.validation.cases.{known_file(file).module}")
    )


def _optional(case: Case, name: str) -> Any:
    return getattr(module_of(case.file), name, None)


def role_of(case: Case, *, shipped: bool) -> Role:
    """The role of a case. What was not shipped with starc was fitted by nobody."""
    role = module_of(case.file).role(case)
    return "test" if role in ("anchor", "fitted") and not shipped else role


def work_of(case: Case) -> Work | None:
    """What a roofline knows of a case, None where it has none."""
    rule = _optional(case, "work")
    return None if rule is None else rule(case)


def margin_of(case: Case) -> float | None:
    """The largest error allowed of a case, as a fraction, where one is stated."""
    rule = _optional(case, "margin")
    return None if rule is None else rule(case)


def class_margins(file: str) -> Mapping[str, float]:
    """The largest mean errors allowed of tests, by class."""
    return getattr(module_of(file), "MARGINS", {})


def group_of(case: Case) -> str:
    """The part of its class that a case is summed up with."""
    rule = _optional(case, "group")
    return case.kind if rule is None else rule(case)


def key_of(case: Case) -> Hashable:
    """Cases of equal keys are the same program."""
    rule = _optional(case, "key")
    found = tuple(case.parameters.items()) if rule is None else rule(case)
    file = known_file(case.file)
    return (file.module, file.target, case.kind, found)


def left_out_of(file: CaseFile, path: Path) -> list[str]:
    """What rows of a file are not simulated, and why."""
    rule = getattr(module_of(file.name), "left_out", None)
    return [] if rule is None else rule(path)


def effort_of(case: Case) -> float:
    """How long a simulation takes, in units of its module."""
    rule = _optional(case, "effort")
    return 0.0 if rule is None else rule(case)


def notes_of(file: str) -> Mapping[str, str]:
    """By class what the model lacks, in words."""
    return getattr(module_of(file), "NOTES", {})


def constants_of(file: str) -> tuple[str, ...]:
    """Numbers of the target that were fitted on rows of the file's class."""
    return getattr(module_of(file), "CONSTANTS", ())


def missing_constants(file: CaseFile, target: str) -> tuple[str, ...]:
    """What the simulation of a file needs of a measured library's kernels and a target's machine
    file does not have: the keys that our machine of the file has."""
    from starc.targets.names import numbers

    sections = getattr(module_of(file.name), "NEEDS", ())
    if not sections:
        return ()
    ours = FILES[file.like or file.name].target
    prefixes = tuple(f"{section}." for section in sections)
    wanted = (number.key for number in numbers(ours) if number.key.startswith(prefixes))
    there = {number.key for number in numbers(target)}
    return tuple(key for key in wanted if key not in there)
