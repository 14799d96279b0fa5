"""What each command does. Every function takes the parsed options and returns the exit code."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starc.command_line.console import Progress, emit, warn
from starc.command_line.logs import log_path, logged, write_files
from starc.diagnostics import InputError, UsageError
from starc.output_files import check_distinct, output_path
from starc.report.formats import REPORT_FORMATS, OutputFormat

if TYPE_CHECKING:
    from starc.api import Compilation, CompileOptions
    from starc.report.model import RemarkReport, Report
    from starc.simulator.results.result import SimulationResult

EXIT_CHECK_FAILED: Final = 3


def compile_command(options: argparse.Namespace) -> int:
    """``starc compile``: a report, or the IR of a level."""
    from starc.api import check_options, compile_model, report_of
    from starc.command_line.requests import compile_options

    output, trace = output_path("-o", options.output), output_path("--trace", options.trace)
    log = log_path(options)
    check_distinct({"the model": options.model}, {"-o": output, "--trace": trace, "--log": log})
    check_bins(options)
    request = compile_options(options)
    check_options(request)
    shows_level = _shows_level(request, options)
    failed, checks, result = False, list[str](), None
    dumps = bool(options.print_ir_before or options.print_ir_after)
    with Progress(verbose=options.verbose, quiet=dumps) as progress:
        compilation = compile_model(request, progress=progress.step, repeat=_repeat())
        if not shows_level:
            if options.check:
                from starc.checking.check import check_model

                found = check_model(request, progress=progress.step)
                failed, checks = not found.ok, found.lines()
            result = _simulated(compilation, options, progress)
    _print_notes(compilation, result, options)
    if output is not None:
        from starc.backend.files import write_program

        write_program(compilation.packed, output)
    if shows_level:
        emit(_level_text(compilation))
        return 0
    if result is not None:
        write_files(compilation.packed, result, options, log, trace)
    else:
        _warn_of_files(log, trace)
    _print_report(report_of(compilation, result, checks=checks), options)
    return EXIT_CHECK_FAILED if failed else 0


def _shows_level(request: CompileOptions, options: argparse.Namespace) -> bool:
    """Whether a level is shown, one that was asked for by name, instead of being simulated. Raises
    ``UsageError`` for options that belong to the other."""
    shows_level = options.compile_to is not None or request.pipeline is not None
    packs = request.compile_to == "program" and request.pipeline is None
    is_report = options.trace or log_path(options) or options.check
    if shows_level and (is_report or options.format == OutputFormat.JSON):
        raise UsageError("--trace, --log, --check and --format json belong to the report: drop "
                         "--compile-to and -p")  # fmt: skip
    if options.output is not None and not packs:
        raise UsageError("-o needs the program: drop --compile-to and -p")
    return shows_level


def _simulated(
    compilation: Compilation, options: argparse.Namespace, progress: Progress
) -> SimulationResult | None:
    """What the simulator says of a model that fits, or that is to be simulated anyway."""
    from starc.api import simulate
    from starc.command_line.core_cache import with_notice
    from starc.command_line.requests import simulation_options

    if not compilation.fits and not options.ignore_capacity:
        return None
    progress.step(with_notice("simulate"))
    simulation = logged(compilation.packed, options, simulation_options(options))
    return simulate(compilation.packed, simulation, repeat=_repeat())


def _print_notes(
    compilation: Compilation, result: SimulationResult | None, options: argparse.Namespace
) -> None:
    """What stands beside the report: warnings, seconds and remarks."""
    for warning in compilation.warnings:
        warn(warning)
    if options.timing:
        _to_stderr(timing_lines(compilation, result))
    if options.remarks:
        from starc.report.build import remark_reports

        _to_stderr(remark_lines(remark_reports(compilation.driver.sink.remarks)))


def _warn_of_files(*files: Path | None) -> None:
    for file in files:
        if file is not None:
            warn(f"{file} is not written: the model does not fit and was not simulated")


def check_bins(options: argparse.Namespace) -> None:
    """Raises ``UsageError`` where nothing that is printed or written would have the bins."""
    if options.bins and options.format != OutputFormat.JSON and not options.trace:
        raise UsageError("--bins shows in --format json and in --trace FILE: give one of them")


def _level_text(compilation: Compilation) -> str:
    """The IR, or the program, that a compilation ended with."""
    if compilation.program is None:
        return compilation.ir_text()
    from starc.backend.disassembler import disassemble

    return disassemble(compilation.program)


def compare_command(options: argparse.Namespace) -> int:
    """``starc compare``: the same model on several machines by several plans."""
    from starc.api import compile_model, report_of, simulate
    from starc.command_line.core_cache import with_notice
    from starc.command_line.requests import comparison, simulation_options, with_one_fraction
    from starc.report.comparison import BEST, COMPARISON_FORMATS, Refused, Row

    rows: list[Row] = []
    errors: list[InputError] = []
    refused: dict[tuple[str, str], Refused] = {}
    requests = comparison(options)
    done: dict[tuple[str, str, str, float], Report] = {}
    with Progress() as progress:
        for request, same in (*((r, False) for r in requests), *with_one_fraction(requests)):
            machine, transport = request.machine().name, request.transport or ""
            target = request.machine()
            fraction = round(target.hbm_rate / target.hbm_peak, 4)
            step = f"{machine}, {request.strategy}, {transport}"
            if same:
                step += f", DRAM at {fraction:g}"
            if (machine, request.strategy) in refused:
                continue
            choice = BEST if transport == "auto" else transport
            key = (machine, request.strategy, transport, fraction)
            if key in done:
                rows.append(Row(choice, done[key], fraction, same))
                continue
            progress.step(with_notice(step))
            try:
                compilation = compile_model(request, repeat=_repeat())
            except InputError as error:
                errors.append(error)
                reasons = tuple(diagnostic.message for diagnostic in error.diagnostics)
                refused[machine, request.strategy] = Refused(machine, request.strategy, reasons)
                continue
            result = None
            if compilation.fits or options.ignore_capacity:
                result = simulate(compilation.packed, simulation_options(options), repeat=_repeat())
            else:
                warn(f"{step}: {compilation.warnings[-1]}")
            done[key] = report_of(compilation, result)
            rows.append(Row(choice, done[key], fraction, same))
    if not rows:
        raise errors[0]
    failures = tuple(refused.values())
    emit(COMPARISON_FORMATS[OutputFormat(options.format)](rows, failures, sys.stdout.isatty()))
    return 0


def check_command(options: argparse.Namespace) -> int:
    """``starc check``: every level on data."""
    from starc.checking.check import check_model
    from starc.command_line.requests import compile_options

    with Progress() as progress:
        found = check_model(compile_options(options), seed=options.seed, progress=progress.step)
    emit("\n".join(found.lines()))
    return 0 if found.ok else EXIT_CHECK_FAILED


def run_command(options: argparse.Namespace) -> int:
    """``starc run``: simulates a program file."""
    from starc.api import program_report, simulate
    from starc.backend.files import read_program
    from starc.command_line.core_cache import with_notice
    from starc.command_line.machines import changed_machine
    from starc.command_line.requests import simulation_options
    from starc.report.memory import memory_plan, misfit
    from starc.targets.target import Target

    trace, log = output_path("--trace", options.trace), log_path(options)
    check_bins(options)
    check_distinct({"the program": options.program}, {"--trace": trace, "--log": log})
    program = read_program(options.program)
    changed = changed_machine(Target.from_dict(program.target), options)
    plan = memory_plan(program)
    warnings = [] if plan.fits else [misfit(plan)]
    warnings += changed.warnings if changed is not None else ()
    result = None
    if plan.fits or options.ignore_capacity:
        with Progress() as progress:
            progress.step(with_notice("simulate"))
            simulation = replace(simulation_options(options), target=changed)
            simulation = logged(program, options, simulation)
            result = simulate(program, simulation, repeat=_repeat())
    for warning in warnings:
        warn(warning)
    if result is not None:
        write_files(program, result, options, log, trace)
    else:
        _warn_of_files(log, trace)
    _print_report(program_report(program, result, warnings=warnings), options)
    return 0


def disasm_command(options: argparse.Namespace) -> int:
    """``starc disasm``: a program file as text."""
    from starc.backend.disassembler import disassemble
    from starc.backend.files import read_program

    emit(disassemble(read_program(options.program)))
    return 0


def targets_command(options: argparse.Namespace) -> int:
    """``starc targets``: the machines."""
    from starc.command_line.machines import list_text, show_text

    if options.action == "show":
        if options.name is None:
            raise UsageError("'targets show' needs a machine: starc targets show mi300x-cpx")
        emit(show_text(options.name))
    elif options.name is not None:
        raise UsageError(f"unexpected '{options.name}': starc targets show {options.name}")
    else:
        emit(list_text())
    return 0


def passes_command(options: argparse.Namespace) -> int:
    """``starc passes``: the pipeline."""
    from starc.command_line.explain import passes_text

    emit(passes_text(options.strategy))
    return 0


def explain_command(options: argparse.Namespace) -> int:
    """``starc explain``: what a name means."""
    from starc.command_line.explain import explain, topics_text

    emit(topics_text() if options.name is None else explain(options.name))
    return 0


def validate_command(options: argparse.Namespace) -> int:
    """``starc validate``: simulated against measured."""
    from starc.command_line import validation

    return validation.validate_command(options)


def calibrate_command(options: argparse.Namespace) -> int:
    """``starc calibrate``: constants of a machine fitted to measurements."""
    from starc.command_line import calibration

    return calibration.calibrate_command(options)


COMMANDS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "compile": compile_command,
    "compare": compare_command,
    "check": check_command,
    "run": run_command,
    "disasm": disasm_command,
    "targets": targets_command,
    "validate": validate_command,
    "calibrate": calibrate_command,
    "passes": passes_command,
    "explain": explain_command,
}


def _repeat() -> str:
    return "starc " + shlex.join(sys.argv[1:])


def _to_stderr(lines: Iterable[str]) -> None:
    for line in lines:
        print(line, file=sys.stderr)


def _print_report(report: Report, options: argparse.Namespace) -> None:
    render = REPORT_FORMATS[OutputFormat(options.format)]
    emit(render(report, sys.stdout.isatty()))


def remark_lines(remarks: Iterable[RemarkReport]) -> Iterable[str]:
    """Remarks as compilers print them."""
    for remark in remarks:
        place = f"{remark.location}: " if remark.location is not None else ""
        kind = "missed" if remark.declined else "remark"
        yield f"{place}{kind}: {remark.message} [{remark.pass_name}: {remark.id}]"


def timing_lines(compilation: Compilation, result: SimulationResult | None) -> Iterable[str]:
    """Seconds of every step."""
    yield f"{'seconds':>9s} {'checks':>9s} {'operations':>11s}  pass"
    for timing in compilation.driver.timings:
        yield (
            f"{timing.seconds:9.4f} {timing.verify_seconds:9.4f} {timing.operations:11,d}  "
            f"{timing.name}"
        )
    steps = compilation.steps
    for name, seconds in steps.items():
        yield f"{seconds:9.4f} {'':9s} {'':11s}  {name}"
    passes = sum(item.seconds + item.verify_seconds for item in compilation.driver.timings)
    rest = compilation.compile_s - passes - sum(steps.values())
    yield f"{rest:9.4f} {'':9s} {'':11s}  everything else"
    yield f"{compilation.compile_s:9.4f} {'':9s} {'':11s}  total, from source to program"
    if result is not None:
        yield f"{result.wall_s:9.4f} {'':9s} {'':11s}  simulation"
