"""Which rows a validation is about: those shipped with starc, or those of a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starc.diagnostics import Diagnostic, InputError, UsageError, did_you_mean
from starc.validation.registry import FILES, CaseFile, left_out_of, module_of
from starc.validation.rows import Case


@dataclass(frozen=True)
class Dataset:
    """The cases of some files. ``reference`` are shipped cases of the same classes, on whose fitted
    rows baselines are refit."""

    cases: tuple[Case, ...]
    reference: tuple[Case, ...]
    shipped: bool
    warnings: tuple[str, ...] = ()


def product_of(target: str) -> str:
    """The product of a target name, as far as the name says it."""
    return target.split("-", 1)[0]


def load_shipped(
    product: str | None,
    only: Sequence[str] = (),
    *,
    warn: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """The rows shipped for a product, or for all. Raises ``UsageError`` where there are none. What
    is not simulated of a file is told to ``warn``."""
    files = [
        item for item in FILES.values() if product is None or product_of(item.target) == product
    ]
    if not files:
        known = sorted({product_of(item.target) for item in FILES.values()})
        raise UsageError(
            f"no measurements of '{product}' are shipped: give some with --data\n"
            f"  products with measurements: {', '.join(known)}"
        )
    cases = _chosen(_read_all([(item, item.shipped) for item in files]), only)
    _tell([(item, item.shipped) for item in files], cases, warn)
    return Dataset(cases, cases, True)


def _tell(
    files: Sequence[tuple[CaseFile, Path]], cases: Sequence[Case], warn: Callable[[str], None]
) -> None:
    """Tells what rows are left out of the files that cases are taken from, or that have none."""
    chosen = {case.file for case in cases}
    for item, path in files:
        if item.name in chosen or not chosen:
            for line in left_out_of(item, path):
                warn(line)


def load_folder(
    folder: Path, only: Sequence[str] = (), *, warn: Callable[[str], None] = lambda _: None
) -> Dataset:
    """The rows of the CSV files of a folder, by their names. Raises ``InputError`` with all that is
    wrong with any of them; a file of an unknown name is left out with a warning."""
    if not folder.is_dir():
        raise InputError(Diagnostic("this is no folder", key=str(folder)))
    known: list[tuple[CaseFile, Path]] = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() != ".csv" or not path.is_file():
            continue
        if path.name in FILES:
            known.append((FILES[path.name], path))
        else:
            hint = did_you_mean(path.name, tuple(FILES))
            warn(
                f"{path}: the name is not known, the file is left out{f' ({hint})' if hint else ''}"
            )
    if not known:
        legal = ", ".join(FILES)
        raise InputError(
            Diagnostic("no file of a known name is in it", key=str(folder), hint=f"names: {legal}")
        )
    cases = _chosen(_read_all(known), only)
    _tell(known, cases, warn)
    kinds = {case.kind for case in cases}
    ours = _read_all([(item, item.shipped) for item in FILES.values()])
    return Dataset(cases, tuple(case for case in ours if case.kind in kinds), False)


def _read_all(files: Sequence[tuple[CaseFile, Path]]) -> tuple[Case, ...]:
    cases: list[Case] = []
    problems: list[Diagnostic] = []
    sources: dict[str, str] = {}
    for item, path in files:
        try:
            cases += module_of(item.name).read(path)
        except InputError as error:
            problems += error.diagnostics
            sources |= error.sources
    if problems:
        raise InputError(problems, sources)
    return tuple(cases)


def _chosen(cases: tuple[Case, ...], only: Sequence[str]) -> tuple[Case, ...]:
    """The cases of the files or classes named. Raises ``UsageError`` for a name that is neither."""
    if not only:
        return cases
    files = dict.fromkeys(case.file for case in cases)
    kinds = dict.fromkeys(case.kind for case in cases)
    names = {*files, *kinds}
    for name in only:
        if name not in names:
            hint = did_you_mean(name, (*files, *kinds))
            raise UsageError(
                f"--only '{name}' is neither a file nor a class here"
                + (f" ({hint})" if hint and hint.startswith("did") else "")
                + f"\n  files: {', '.join(files)}\n  classes: {', '.join(kinds)}"
            )
    return tuple(case for case in cases if case.file in only or case.kind in only)
