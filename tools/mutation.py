"""Mutation testing: does a test fail when a line of the core says something else?

    python tools/mutation.py                     all groups of tools/mutation.toml
    python tools/mutation.py merge --sample 50   one group, 50 mutants a module
    python tools/mutation.py cost --all          every mutant instead of a sample

cosmic-ray makes the mutants: one operator, number or truth value of a module is changed. Each is
run against the tests that ``tools/mutation.toml`` names for the module, in a process forked from
one that has imported pytest and the libraries already. The changed module is handed to the import
of that process: no file is written. A mutant that no test notices has survived; the report lists
all of them.

What says nothing about behaviour is no mutant: annotations, decorators (caches, frozen classes),
``__all__``, and code that does not compile. A mutant that the configuration names as equivalent,
with the reason, is counted apart.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import random
import re
import signal
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
CONFIGURATION: Final = ROOT / "tools" / "mutation.toml"


class Outcome(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    EQUIVALENT = "equivalent"


@dataclass(frozen=True)
class Subject:
    """A module to be mutated and the tests that state what it does."""

    group: str
    module: str
    path: Path
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Mutant:
    """A changed module: the operator's name, the changed line before and after, the source."""

    operator: str
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.line}: {self.before}\n      -> {self.after}   [{self.operator}]"


@dataclass(frozen=True)
class Configuration:
    """``tools/mutation.toml``."""

    seed: int
    sample: int
    examples: int
    excluded: re.Pattern[str]
    subjects: tuple[Subject, ...]
    equivalent: frozenset[tuple[str, str, str]]
    """Module, line and changed line."""


def read_configuration() -> Configuration:
    raw: dict[str, Any] = tomllib.loads(CONFIGURATION.read_text())
    subjects = tuple(
        Subject(group, module, path, tuple(tests))
        for group, modules in raw["groups"].items()
        for name, tests in modules.items()
        for module, path in _files(name)
    )
    equivalent = frozenset(
        (row["module"], row["line"], mutant)
        for row in raw["equivalent"]
        for mutant in row["mutants"]
    )
    return Configuration(
        raw["seed"],
        raw["sample"],
        raw["examples"],
        re.compile("|".join(raw["excluded_operators"])),
        subjects,
        equivalent,
    )


def _spaced(line: str) -> str:
    """A line with single spaces: cosmic-ray writes numbers with one more in front."""
    return re.sub(r"(?<=[(\[]) |(?<=\w=) ", "", " ".join(line.split()))


def _files(name: str) -> list[tuple[str, Path]]:
    """The modules that a name stands for: itself, or all of a package."""
    parts = name.split(".")
    # These two folders lie beside the package.
    folder = ROOT.joinpath(*parts[1:] if parts[1] in ("dialects", "passes") else parts)
    if folder.is_dir():
        return [
            (f"{name}.{path.stem}", path)
            for path in sorted(folder.glob("*.py"))
            if path.stem != "__init__"
        ]
    return [(name, folder.with_suffix(".py"))]


# ---------------------------------------------------------------------------------------------
# Mutants
# ---------------------------------------------------------------------------------------------


def _cosmic_ray(part: str) -> Any:
    """A module of cosmic-ray, which only this tool needs (``make mutation`` installs it)."""
    return importlib.import_module(f"cosmic_ray.{part}")


def _silent_spans(tree: ast.AST) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations, decorators and ``__all__`` stand: from, to, as (line, column)."""
    spans: list[tuple[tuple[int, int], tuple[int, int]]] = []
    for node in ast.walk(tree):
        silent: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef):
            silent += [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            silent += node.decorator_list
        elif isinstance(node, ast.arg | ast.AnnAssign):
            silent.append(node.annotation)
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            silent.append(node)
        for part in silent:
            if isinstance(part, ast.expr | ast.stmt):
                end = (part.end_lineno or 0, part.end_col_offset or 0)
                spans.append(((part.lineno, part.col_offset), end))
    return spans


def places_of(source: str, excluded: re.Pattern[str]) -> list[tuple[str, int]]:
    """Where a source can be mutated: the names of operators and their occurrences."""
    plugins, trees = _cosmic_ray("plugins"), _cosmic_ray("ast")
    spans = _silent_spans(ast.parse(source))
    nodes: list[Any] = list(trees.ast_nodes(trees.get_ast(source)))
    places: list[tuple[str, int]] = []
    for name in plugins.operator_names():
        operator = plugins.get_operator(name)
        if operator.arguments() or excluded.search(name):
            continue
        starts = [start for node in nodes for start, _ in operator().mutation_positions(node)]
        places += [
            (name, occurrence)
            for occurrence, start in enumerate(starts)
            if not any(first <= start < last for first, last in spans)
        ]
    return places


def _meaning(source: str) -> str:
    """The syntax tree as text. The ``*`` and ``/`` of a signature are no operators."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.posonlyargs, node.kwonlyargs = [], []
            node.defaults, node.kw_defaults = [*node.defaults, *filter(None, node.kw_defaults)], []
    return ast.dump(tree)


def mutant_at(source: str, name: str, occurrence: int) -> Mutant | None:
    """The mutant of a place; ``None`` where it does not compile or changes nothing."""
    operator = _cosmic_ray("plugins").get_operator(name)
    mutated: str = _cosmic_ray("mutating").mutate_code(source, operator(), occurrence)
    try:
        if _meaning(mutated) == _meaning(source):
            return None
    except SyntaxError:
        return None
    pairs = enumerate(zip(source.splitlines(), mutated.splitlines(), strict=False), 1)
    line, before, after = next((line, a, b) for line, (a, b) in pairs if a != b)
    return Mutant(name.removeprefix("core/"), line, _spaced(before), _spaced(after), mutated)


def mutants_of(
    path: Path, excluded: re.Pattern[str], seed: int, sample: int | None
) -> tuple[list[Mutant], int]:
    """The mutants of a file, and in how many places it can be mutated."""
    source = path.read_text()
    places = places_of(source, excluded)
    count = len(places)
    if sample is not None and count > sample:
        places = random.Random(seed).sample(places, sample)
    found = [mutant_at(source, *place) for place in places]
    return [mutant for mutant in found if mutant is not None], count


# ---------------------------------------------------------------------------------------------
# Runs
# ---------------------------------------------------------------------------------------------


class _Loader(SourceLoader):
    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str) -> bytes:
        return self._source.encode()

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self._path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    """Finds one module, as a text."""

    def __init__(self, module: str, path: Path, source: str) -> None:
        self._module, self._loader = module, _Loader(str(path), source)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._module:
            return None
        return importlib.util.spec_from_loader(fullname, self._loader)


def _start(subject: Subject, source: str, examples: int) -> int:
    """Forks a process that runs the tests; its exit status is 0 if all pass. Returns its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        os.setsid()
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        sys.meta_path.insert(0, _Finder(subject.module, subject.path, source))
        import hypothesis
        import pytest

        hypothesis.settings.register_profile(
            "mutation",
            derandomize=True,
            database=None,
            deadline=None,
            max_examples=examples,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        )
        hypothesis.settings.load_profile("mutation")
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist"]
        status = int(pytest.main([*options, *subject.tests]))
    finally:
        os._exit(status)


def _is_killed(
    subject: Subject, mutant: str, examples: int, limit_s: float = 600.0
) -> tuple[bool, float]:
    """Whether the tests fail, or do not end within ``limit_s``; and the seconds that they took."""
    begin = time.monotonic()
    child = _start(subject, mutant, examples)
    while time.monotonic() - begin < limit_s:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0, time.monotonic() - begin
        time.sleep(0.01)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True, time.monotonic() - begin


def run(
    subject: Subject, configuration: Configuration, sample: int | None, until: float
) -> tuple[list[tuple[Mutant, Outcome]], int, float]:
    """Outcomes of the mutants of one module, how many it has in all, and the seconds it took."""
    begin = time.monotonic()
    original = subject.path.read_text()
    failed, seconds = _is_killed(subject, original, configuration.examples)
    if failed:
        raise SystemExit(f"{subject.module}: its tests fail without a mutant")
    limit_s = 10 + 5 * seconds
    lines = set(map(_spaced, original.splitlines()))
    for module, line, _ in sorted(configuration.equivalent):
        if module == subject.module and line not in lines:
            print(f"  named as equivalent, but no line any more: {line}", flush=True)
    mutants, count = mutants_of(subject.path, configuration.excluded, configuration.seed, sample)
    outcomes: list[tuple[Mutant, Outcome]] = []
    for mutant in mutants:
        if time.monotonic() > until:
            print(f"  stopped after {len(outcomes)} of {len(mutants)}", flush=True)
            break
        if (subject.module, mutant.before, mutant.after) in configuration.equivalent:
            outcomes.append((mutant, Outcome.EQUIVALENT))
            continue
        killed, _ = _is_killed(subject, mutant.source, configuration.examples, limit_s)
        outcomes.append((mutant, Outcome.KILLED if killed else Outcome.SURVIVED))
        if not killed:
            print(f"  {subject.path.relative_to(ROOT)}:{mutant}", flush=True)
    return outcomes, count, time.monotonic() - begin


def _row(what: str, count: int, outcomes: Sequence[Outcome], seconds: float) -> str:
    killed, equivalent = outcomes.count(Outcome.KILLED), outcomes.count(Outcome.EQUIVALENT)
    share = 100 * killed / max(1, len(outcomes) - equivalent)
    return (
        f"{what:<48} {count:>7} {len(outcomes):>6} {killed:>6} {equivalent:>10} "
        f"{share:>5.1f} % {seconds:>6.0f}"
    )


def main() -> None:
    configuration = read_configuration()
    groups = list(dict.fromkeys(subject.group for subject in configuration.subjects))
    parser = argparse.ArgumentParser(description="Mutation testing of the core.")
    parser.add_argument("names", nargs="*", metavar="GROUP", help=f"of {', '.join(groups)}")
    parser.add_argument("--sample", type=int, default=configuration.sample, metavar="N")
    parser.add_argument("--all", action="store_true", help="every mutant instead of a sample")
    parser.add_argument("--minutes", type=float, default=600.0, help="stop after so many")
    options = parser.parse_args()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for library in ("pytest", "hypothesis", "hypothesis.extra", "numpy", "xdsl.dialects.builtin"):
        importlib.import_module(library)
    until = time.monotonic() + 60 * options.minutes
    table: list[str] = []
    for group in groups:
        results: list[tuple[int, list[Outcome], float]] = []
        for subject in configuration.subjects:
            whole = subject.module.split(".")[-1]
            if subject.group != group or (
                options.names and group not in options.names and whole not in options.names
            ):
                continue
            print(subject.module, flush=True)
            found, count, seconds = run(
                subject, configuration, None if options.all else options.sample, until
            )
            results.append((count, [outcome for _, outcome in found], seconds))
            table.append(_row(f"  {subject.module}", *results[-1]))
        if results:
            every = [outcome for _, outcomes, _ in results for outcome in outcomes]
            table.append(_row(group, sum(r[0] for r in results), every, sum(r[2] for r in results)))
    print(f"\n{'':<48} mutants    run killed equivalent   score      s")
    print("\n".join(table))


if __name__ == "__main__":
    main()
