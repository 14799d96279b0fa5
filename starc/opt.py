"""``starc-opt``: runs any pass on textual IR, for tests and for looking.

It is xDSL's driver with starc's dialects and passes (and xDSL's own), a check of dominance after
parsing and after every pass, and messages instead of tracebacks. Exit codes: 0 done, 1 the input
is wrong, 2 wrong usage, 70 a bug in a pass.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import IO

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline
from xdsl.utils.arg_spec import parse_pipeline
from xdsl.utils.exceptions import (
    ArgSpecParseError,
    DiagnosticException,
    ParseError,
    PassFailedException,
)
from xdsl.xdsl_opt_main import xDSLOptMain

from starc.command_line.console import drop_output, open_streams
from starc.diagnostics import (
    Diagnostic,
    InputError,
    Location,
    UsageError,
    counted,
    render,
    render_error,
)
from starc.dialects.invalid_ir import InvalidIR
from starc.dialects.locations import location_of
from starc.dialects.target import has_target, set_target, target_of
from starc.frontend.located_parser import LocatedParser
from starc.passes.manager import check_pass_options
from starc.passes.pipeline import unknown_name
from starc.passes.verification import verify
from starc.targets.loader import load_target
from starc.targets.target import Target

EXIT_INPUT = 1
EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130


class PassBug(Exception):
    """A pass raised what it should not, or left IR that does not verify."""


class StarcOpt(xDSLOptMain):
    """xDSL's driver with starc's checks."""

    version_format = "starc-opt on xDSL {xdsl_version}"

    def __init__(self, args: Sequence[str] | None = None) -> None:
        self.running: str | None = None
        self.machine: Target | None = None
        self.sources: dict[str, str] = {}
        self.located = False
        self.line_offset = 0
        super().__init__("Runs passes on the IR of starc.", args)

    def register_all_frontends(self) -> None:
        super().register_all_frontends()

        def parse_mlir(stream: IO[bytes]) -> ModuleOp:
            text = stream.read().decode("utf-8")
            name = self.get_input_name()
            self.sources[name] = "\n" * self.line_offset + text
            parser = LocatedParser(self.ctx, text, name, self.line_offset)
            module = parser.parse_module(not self.args.no_implicit_module)
            self.located = parser.complete
            return module

        self.available_frontends["mlir"] = parse_mlir

    def register_all_arguments(self, arg_parser: argparse.ArgumentParser) -> None:
        super().register_all_arguments(arg_parser)
        arg_parser.prog = "starc-opt"
        arg_parser.add_argument(
            "--machine",
            metavar="NAME",
            help="machine of a module that names none, such as mi300x-cpx",
        )
        arg_parser.add_argument(
            "--gpus", type=int, metavar="N", help="GPUs of the machine (default: all of a node)"
        )
        arg_parser.add_argument(
            "--traceback", action="store_true", help="show the Python traceback of a bug"
        )

    def get_input_stream(self) -> tuple[IO[bytes], str]:
        if self.args.input_file == "-":
            self.args.input_file = None
        stream, extension = super().get_input_stream()
        return stream, extension or "mlir"

    def setup_pipeline(self) -> None:
        self._check_machine()

        def between(
            previous: ModulePass | None, module: ModuleOp, following: ModulePass | None
        ) -> None:
            if previous is not None and following is not None and self.args.print_between_passes:
                print(f"// IR after {previous.name}:\n{module}\n")
            if not self.args.disable_verify:
                # Textual IR need not have locations; where it has them, passes keep them.
                verify(module, locations=self.located)
            self.running = following.name if following is not None else None

        try:
            for spec in parse_pipeline(self.args.passes):
                if spec.name in self.available_passes:
                    kind = self.available_passes[spec.name]()
                    check_pass_options(kind, spec.name, spec.parameters)
            self.pipeline = PassPipeline.parse_spec(
                self.available_passes, self.args.passes, between
            )
        except ArgSpecParseError as error:
            raise UsageError(f"-p '{self.args.passes}': {_last_line(error)}") from error
        except ValueError as error:
            unrecognised = self._unrecognised_pass()
            if unrecognised is not None:
                known = tuple(sorted(self.available_passes))
                message = str(unknown_name("pass", unrecognised, known)).split("\n")[0]
                raise UsageError(message) from error
            raise UsageError(f"-p '{self.args.passes}': {error}") from error

    def _unrecognised_pass(self) -> str | None:
        names = [spec.name for spec in parse_pipeline(self.args.passes)]
        return next((name for name in names if name not in self.available_passes), None)

    def shown(self, error: InputError) -> str:
        """The diagnostics of an error. Those that belong to no operation are about the file, whose
        first line says nothing about them."""
        place = Location(self.get_input_name(), 1, 1)
        return "\n".join(
            render((replace(item, location=place),), {})
            if item.location is None
            else render((item,), {**error.sources, **self.sources})
            for item in error.diagnostics
        )

    def _check_machine(self) -> None:
        """Loads the machine of ``--machine``. Raises ``UsageError``."""
        if self.args.machine is None:
            if self.args.gpus is not None:
                raise UsageError("--gpus belongs to --machine")
            return
        try:
            self.machine = load_target(self.args.machine, gpus=self.args.gpus)
        except InputError as error:
            raise UsageError(render_error(error, severity=False)) from error

    def parse_chunk(
        self, chunk: IO[bytes], file_extension: str, start_offset: int = 0
    ) -> ModuleOp | None:
        content = chunk.read()
        if not content.strip() and not self.args.split_input_file:
            raise InputError(self._about_file("the input is empty"))
        self.line_offset = start_offset
        try:
            module = super().parse_chunk(BytesIO(content), file_extension, start_offset)
        except UnicodeDecodeError as error:
            raise InputError(self._about_file("is not UTF-8 text")) from error
        if module is not None:
            self._set_machine(module)
        return module

    def _about_file(self, message: str, hint: str | None = None) -> Diagnostic:
        return Diagnostic(message, Location(self.get_input_name(), 1, 1), hint=hint)

    def _set_machine(self, module: ModuleOp) -> None:
        """Gives a module that names no machine that of the options; checks that of any other."""
        if not has_target(module):
            if self.machine is not None:
                set_target(module, self.machine)
            return
        try:
            own = target_of(module)
        except InputError as error:
            raise PassFailedException(self.shown(error)) from error
        if self.machine is not None and own != self.machine:
            raise UsageError(
                f"--machine: the module is for {own.name} with {counted(own.gpus, 'GPU')}"
            )

    def output_resulting_program(self, prog: ModuleOp) -> str:
        try:
            text = super().output_resulting_program(prog)
        except (DiagnosticException, ParseError):
            raise
        except Exception as error:
            reason = f"the module cannot be written as {self.args.target}"
            raise InputError(self._about_file(reason, _first_line(error)[:200])) from error
        return text.rstrip("\n") + "\n" if self.args.target == "mlir" else text

    def apply_passes(self, prog: ModuleOp) -> None:
        try:
            super().apply_passes(prog)
        except InputError as error:
            # As xDSL's own kind of failure it is seen by --verify-diagnostics.
            raise PassFailedException(self.shown(error)) from error
        except (DiagnosticException, ParseError, UsageError):
            raise
        except Exception as error:
            where = f"pass '{self.running}'" if self.running is not None else "the driver"
            raise PassBug(
                f"bug in {where}: {type(error).__name__}: {_first_line(error)}"
            ) from error


def _first_line(error: BaseException) -> str:
    return str(error).split("\n", 1)[0]


def _last_line(error: BaseException) -> str:
    return str(error).strip().rsplit("\n", 1)[-1].strip()


def describe_parse_error(error: ParseError) -> str:
    """``file:line:column: error: message`` with the line and a caret."""
    span = error.span
    place = span.get_location()
    content = span.input.content
    text = content.decode("utf-8", "replace") if isinstance(content, bytes) else content
    location = Location(place.file, place.line, place.col)
    # The text of a chunk of a split file starts at its own first line.
    sources = {place.file: "\n" * span.line_offset + text}
    return render((Diagnostic(error.msg.strip(), location),), sources)


def describe_verification(error: DiagnosticException, sources: Mapping[str, str]) -> str:
    """The violations with their places, and the operation where one is to blame."""
    if isinstance(error.__cause__, InputError):
        return str(error)
    if isinstance(error, InvalidIR) and error.diagnostics:
        return render(error.diagnostics, sources)
    op = error.op if isinstance(error, InvalidIR) else None
    location = location_of(op) if op is not None else None
    rest = str(error).split("\n", 1)[1:]
    if op is None or location is None or location.file not in sources:
        text = str(Diagnostic(_first_line(error), location))
    else:
        text = render((Diagnostic(_first_line(error), location),), sources)
    if op is not None:
        shown = str(op).split("\n", 1)[0]
        rest.append(f"  in: {shown[:400]}{' ...' if len(shown) > 400 else ''}")
    return "\n".join([text, *rest])


def main(args: Sequence[str] | None = None) -> None:
    """Entry point. Always ends with ``SystemExit`` unless the exit code is 0."""
    sys.exit(run(args))


def run(args: Sequence[str] | None = None) -> int:
    """Runs the tool and returns its exit code."""
    if not open_streams():
        return _fail("starc-opt: error: standard output is closed", EXIT_INPUT)
    sources: dict[str, str] = {}
    show_traceback = "--traceback" in (args if args is not None else sys.argv)
    try:
        tool = StarcOpt(args)
        sources = tool.sources
        tool.run()
        sys.stdout.flush()
        return 0
    except UsageError as error:
        return _fail(f"starc-opt: error: {error}", EXIT_USAGE)
    except InputError as error:
        return _fail(render_error(error), EXIT_INPUT)
    except ParseError as error:
        return _fail(describe_parse_error(error), EXIT_INPUT)
    except DiagnosticException as error:
        return _fail(describe_verification(error, sources), EXIT_INPUT)
    except BrokenPipeError:
        # The reader of a pipe ended first. Python would complain when it flushes at exit.
        drop_output()
        return 0
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        reason = "no such file" if missing else error.strerror or str(error)
        return _fail(f"{error.filename or 'starc-opt'}: error: {reason}", EXIT_INPUT)
    except KeyboardInterrupt:
        return _fail("interrupted", EXIT_INTERRUPTED)
    except ValueError as error:
        if str(error).startswith("Unrecognized file extension"):
            return _fail(f"starc-opt: error: {error} (name the format with -f)", EXIT_USAGE)
        if show_traceback:
            raise
        return _fail(f"starc-opt: bug: {type(error).__name__}: {error}", EXIT_BUG)
    except PassBug as error:
        if show_traceback:
            raise
        return _fail(f"starc-opt: {error} (--traceback shows where)", EXIT_BUG)


def _fail(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    main()
