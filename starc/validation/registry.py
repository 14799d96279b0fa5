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
- ``CONSTANTS: tuple[str, ...]``: numbers of the target, by key path, that were fitted on its rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from starc.validation.rows import Case, CaseModule, Role, Work


@dataclass(frozen=True)
class CaseFile:
    """A known file: the module for it, the target that its rows were measured on, and the folder
    of ``starc/validation/data`` that has our rows."""

    name: str
    module: str
    target: str
    folder: str

    @property
    def shipped(self) -> Path:
        """Where our rows of the file are."""
        return Path(__file__).parent / "data" / self.folder / self.name


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


@cache
def module_of(file: str) -> CaseModule:
    """The module of a known file."""
    return cast(CaseModule, importlib.import_module(f"starc.validation.cases.{FILES[file].module}"))


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
    return (FILES[case.file].module, case.kind, found)


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
