"""Runs passes over a module: verification after each, timing, dumps, and what a crash leaves.

Dumps are written as they happen, so that a crash keeps them. A pass that fails by a bug of its own
leaves a directory with the IR before it and one command that repeats the failure.
"""

from __future__ import annotations

import dataclasses
import io
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TextIO, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.printer import Printer

from starc.diagnostics import InputError, UsageError, suggestion
from starc.passes.base import RemarkSink, StarcPass
from starc.passes.pipeline import PASSES, load_pass
from starc.passes.selection import PassSpec
from starc.passes.verification import verify
from starc.targets.target import Target


@dataclass(frozen=True)
class Inspection:
    """Which IR to show. Names of passes, or ``all``; ``tree_dir`` gets numbered files."""

    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    tree_dir: Path | None = None
    changed_only: bool = False

    def shows(self, names: tuple[str, ...], name: str) -> bool:
        return "all" in names or name in names


NO_INSPECTION: Final = Inspection()


@dataclass(frozen=True)
class PassTiming:
    """Seconds of a pass, of the checks after it, and the operations of its result."""

    name: str
    seconds: float
    verify_seconds: float
    operations: int


class CompilerBug(Exception):
    """A pass failed by a bug of starc; ``directory`` has what is needed to repeat it."""

    def __init__(self, stage: str, directory: Path, command: str, cause: BaseException) -> None:
        text = str(cause).strip().split("\n", 1)[0]
        super().__init__(f"{type(cause).__name__}: {text}" if text else type(cause).__name__)
        self.stage = stage
        self.directory = directory
        self.command = command


def ir_text(module: ModuleOp, *, locations: bool = False) -> str:
    """The module as text that parses back, with a final newline."""
    stream = io.StringIO()
    Printer(stream=stream, print_debuginfo=locations).print_op(module)
    return stream.getvalue() + "\n"


@dataclass
class Driver:
    """Runs passes on modules for one target and collects timings and remarks."""

    target: Target
    inspection: Inspection = NO_INSPECTION
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    progress: Callable[[str], None] = lambda _: None
    sink: RemarkSink = field(default_factory=RemarkSink)
    timings: list[PassTiming] = field(default_factory=list[PassTiming])
    loading_s: float = 0.0  # seconds for imports of the passes
    inspection_s: float = 0.0  # seconds for copies of the IR, and for showing it
    checked: set[str] = field(default_factory=set[str])
    """The passes that only check which have accepted the module as it is now."""
    _files: int = 0
    _last: str | None = None
    _input: str | None = None

    def show_input(self, module: ModuleOp) -> None:
        """Notes the IR that enters the pipeline: file 00 of the tree, as soon as a pass has
        accepted it, so that refused input leaves nothing behind."""
        if self.inspection.tree_dir is not None or self.inspection.changed_only:
            self._input = self._last = ir_text(module)

    def run(self, module: ModuleOp, specs: Sequence[PassSpec]) -> None:
        """Runs the passes in order, in place.

        Raises ``InputError`` and ``UsageError`` as the passes do, ``CompilerBug`` for anything
        else, IR that does not verify included.
        """
        started = time.perf_counter()
        start = module.clone()
        self.inspection_s += time.perf_counter() - started
        ran: list[StarcPass] = []
        for spec in specs:
            started = time.perf_counter()
            instance = instantiate(spec)
            self.loading_s += time.perf_counter() - started
            self.run_pass(module, spec, instance, lambda: self._again(start, ran))
            ran.append(instance)

    def _again(self, start: ModuleOp, passes: Sequence[StarcPass]) -> ModuleOp:
        """The module that passes, which always do the same, make of ``start``: a copy before every
        pass would take more time than most of them."""
        for instance in passes:
            instance.run_on_level(start, self.target, RemarkSink())
        return start

    def run_pass(
        self,
        module: ModuleOp,
        spec: PassSpec,
        instance: StarcPass,
        before: Callable[[], ModuleOp] | None = None,
    ) -> None:
        """Runs one pass with its checks and dumps. ``before`` gives the module as it was, if the
        pass fails by a bug; without it a copy is made."""
        self.progress(spec.name)
        if self.inspection.shows(self.inspection.before, spec.name):
            self._print(f"IR before {spec.name}", ir_text(module))
        copying = time.perf_counter()
        if before is None:
            copy = module.clone()
            before = lambda: copy  # noqa: E731
        self.sink.pass_name = spec.name
        started = time.perf_counter()
        try:
            instance.run_on_level(module, self.target, self.sink)
        except (InputError, UsageError):
            raise
        except Exception as error:
            raise self._bug(spec, before(), error) from error
        ran = time.perf_counter()
        # A file that cannot be written is not the pass's fault.
        self._show_after(module, spec.name)
        shown = time.perf_counter()
        if instance.only_checks:
            self.checked.add(spec.name)
        else:
            self.checked.clear()
            try:
                verify(module)
            except (InputError, UsageError):
                raise
            except Exception as error:
                raise self._bug(spec, before(), error) from error
        self.inspection_s += started - copying + shown - ran
        self.timings.append(
            PassTiming(
                spec.name,
                ran - started,
                time.perf_counter() - shown,
                sum(1 for _ in module.walk()),
            )
        )

    def _show_after(self, module: ModuleOp, name: str) -> None:
        inspection = self.inspection
        to_stream = inspection.shows(inspection.after, name)
        if not to_stream and inspection.tree_dir is None:
            return
        text = ir_text(module)
        changed = text != self._last
        self._last = text
        if to_stream:
            if changed or not inspection.changed_only:
                self._print(f"IR after {name}", text)
            else:
                self._print(f"IR after {name}: unchanged", "")
        if inspection.tree_dir is not None:
            if self._input is not None:
                self._prepare_tree(inspection.tree_dir)
                self._write_file("input", self._input)
                self._input = None
            if changed or not inspection.changed_only:
                self._write_file(name, text)
            else:
                self._files += 1

    def _prepare_tree(self, directory: Path) -> None:
        """Makes the folder, and takes the files of an earlier run out of it: of a longer one some
        would stay and look like this run's."""
        directory.mkdir(parents=True, exist_ok=True)
        names = {"input", *(entry.name for entry in PASSES)}
        for path in directory.glob("[0-9][0-9]_*.mlir"):
            if path.stem[3:] in names:
                path.unlink()

    def _print(self, title: str, text: str) -> None:
        self.stream.write(f"// ----- {title} -----\n{text}")
        self.stream.flush()

    def _write_file(self, name: str, text: str) -> None:
        assert self.inspection.tree_dir is not None
        path = self.inspection.tree_dir / f"{self._files:02d}_{name}.mlir"
        path.write_text(text, encoding="utf-8")
        self._files += 1

    def _bug(self, spec: PassSpec, before: ModuleOp, error: Exception) -> CompilerBug:
        files: dict[str, str | bytes] = {"before.mlir": ir_text(before, locations=True)}
        return record_bug(spec.name, files, f"starc-opt {{}}/before.mlir -p '{spec}'", error)


def instantiate(spec: PassSpec) -> StarcPass:
    """The pass with its options. Raises ``UsageError`` for an option that it does not have."""
    from xdsl.utils.arg_spec import ArgSpec

    kind = load_pass(spec.name)
    check_pass_options(kind, spec.name, spec.options)
    parameters = {
        key.replace("-", "_"): value if isinstance(value, tuple) else (value,)
        for key, value in spec.options.items()
    }
    try:
        return kind.from_spec(ArgSpec(spec.name, parameters))
    except ValueError as error:
        raise UsageError(f"pass '{spec.name}': {error}") from error


_KINDS: Final[Mapping[str, tuple[type | tuple[type, ...], str]]] = {
    "int": (int, "a whole number"),
    "float": ((int, float), "a number"),
    "bool": (bool, "true or false"),
    "str": (str, "a name"),
}


def check_pass_options(kind: type[ModulePass], name: str, options: Mapping[str, object]) -> None:
    """Checks names of options and the types of plain ones. Raises ``UsageError`` that says what is
    legal."""
    fields = {
        field.name.replace("_", "-"): str(field.type).removesuffix(" | None")
        for field in dataclasses.fields(kind)
    }
    for key, given in options.items():
        option = key.replace("_", "-")
        if option not in fields:
            legal = f"options: {', '.join(fields)}" if fields else "it has none"
            hint = suggestion(option, list(fields))
            raise UsageError(
                f"pass '{name}' has no option '{option}'{f' ({hint})' if hint else ''}; {legal}"
            )
        if fields[option] not in _KINDS:
            continue
        expected, words = _KINDS[fields[option]]
        values = cast("tuple[object, ...]", given if isinstance(given, tuple) else (given,))
        # A bool is an int in Python, but "true" is no number.
        plain = len(values) == 1 and isinstance(values[0], expected)
        if not plain or (isinstance(values[0], bool) and expected is not bool):
            shown = ",".join(str(value) for value in values)
            if key.replace("-", "_") in (names := getattr(kind, "VALUES", {})):
                legal = ", ".join(names[key.replace("-", "_")])
                text = f"option '{option}' has no value '{shown}', one of {legal}"
                raise UsageError(f"{name}: {text}")
            raise UsageError(f"pass '{name}': option '{option}' is {words}, not '{shown}'")


def record_bug(
    stage: str, files: dict[str, str | bytes], command: str, error: BaseException
) -> CompilerBug:
    """Writes the files and the traceback of a bug into a new directory; ``{}`` in ``command``
    becomes its path."""
    directory = Path(tempfile.mkdtemp(prefix="starc-bug-"))
    for name, content in files.items():
        if isinstance(content, bytes):
            (directory / name).write_bytes(content)
        else:
            (directory / name).write_text(content, encoding="utf-8")
    command = command.replace("{}", str(directory))
    (directory / "command.txt").write_text(command + "\n", encoding="utf-8")
    (directory / "traceback.txt").write_text(
        "".join(traceback.format_exception(error)), encoding="utf-8"
    )
    return CompilerBug(stage, directory, command, error)
