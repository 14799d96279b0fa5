"""Which rows a validation is about: those shipped with starc, or those of a folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starc.diagnostics import Diagnostic, InputError, UsageError, did_you_mean
from starc.validation.registry import (
    FILES,
    CaseFile,
    file_of,
    is_for_people,
    left_out_of,
    missing_constants,
    module_of,
)
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
    folder: Path,
    only: Sequence[str] = (),
    *,
    target: str | None = None,
    warn: Callable[[str], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """The rows of the CSV files of a folder, by their names, to be simulated on ``target`` or the
    machines that the names say. Raises ``InputError`` with all that is wrong with any of them; a
    file of an unknown name, or one that the machine lacks constants for, is left out with a
    warning, and one that is only for people with a note."""
    if not folder.is_dir():
        raise InputError(Diagnostic("this is no folder", key=str(folder)))
    known: list[tuple[CaseFile, Path]] = []
    for_people: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() != ".csv" or not path.is_file():
            continue
        if (item := file_of(path.name)) is not None:
            known.append((item, path))
        elif is_for_people(path.name):
            for_people.append(path.name)
        else:
            hint = did_you_mean(path.name, tuple(FILES))
            warn(
                f"{path}: the name is not known, the file is left out{f' ({hint})' if hint else ''}"
            )
    if for_people:
        note(f"measured for people, not validated: {', '.join(for_people)}")
    if not known:
        whats = ", ".join(dict.fromkeys(item.what for item in FILES.values()))
        legal = f"names: DEVICE_WHAT.csv, such as {next(iter(FILES))}; WHAT is one of {whats}"
        raise InputError(
            Diagnostic("no file of a known name is in it", key=str(folder), hint=legal)
        )
    known = _runnable(known, target, only, warn)
    cases = _chosen(_read_all(known), only)
    _tell(known, cases, warn)
    # Baselines are refit on our rows: those of another device say nothing of it.
    kinds = {
        case.kind
        for case in cases
        if (item := file_of(case.file))
        and (not item.like or item.target.startswith(FILES[item.like].target))
    }
    ours = _read_all([(item, item.shipped) for item in FILES.values()])
    return Dataset(cases, tuple(case for case in ours if case.kind in kinds), False)


def _runnable(
    known: Sequence[tuple[CaseFile, Path]],
    target: str | None,
    only: Sequence[str],
    warn: Callable[[str], None],
) -> list[tuple[CaseFile, Path]]:
    """The files that their machines can simulate. Raises ``UsageError`` where a file does not say
    its machine, ``InputError`` where none is left."""
    named = [pair for pair in known if pair[0].name in only]
    if named and len(named) == len(set(only)):
        known = named
    nameless = [item.name for item, _ in known if not (target or item.target)]
    if nameless:
        raise UsageError(
            f"say with --target which machine {', '.join(nameless)} "
            f"{'was' if len(nameless) == 1 else 'were'} measured on: the names do not start with "
            "that of a product"
        )
    found: list[tuple[CaseFile, Path]] = []
    problems: list[Diagnostic] = []
    for item, path in known:
        machine = target or item.target
        missing = missing_constants(item, machine)
        if not missing:
            found.append((item, path))
            continue
        problem = (
            f"cannot be simulated on {machine}: its machine file lacks constants of the measured "
            f"library's kernels: {', '.join(missing)}"
        )
        problems.append(
            Diagnostic(
                problem, key=str(path), hint=f"{FILES[item.like or item.name].target} has them"
            )
        )
    if not found:
        raise InputError(problems)
    for problem in problems:
        warn(f"{problem.key}: left out: {problem.message}")
    return found


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
