"""The options of every command, grouped by topic.

Nothing heavy is imported here: ``starc --help`` must answer at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final, NoReturn

from starc.command_line.numbers import (
    parse_constant,
    parse_count,
    parse_cycles,
    parse_devices,
    parse_fraction,
    parse_mesh,
    parse_override,
    parse_seed,
    parse_setting,
)
from starc.passes.pipeline import DEFAULT_STRATEGY, LEVELS

DEFAULT_TARGET: Final = "mi300x-cpx"
DTYPES: Final = ("auto", "bfloat16", "bf16", "float16", "half", "f16", "float", "float32", "f32")
KV_DTYPES: Final = ("auto", "bf16", "bfloat16", "fp8", "fp8_e4m3")

ROOT_EPILOG: Final = """\
start here:
  starc compile examples/llama3-70b.sa --target mi300x-cpx
  starc compile examples/llama3-70b.sa --batch 32 --context 32k --format json
  starc compile examples/tiny.sa --gpus 1 --compile-to sharding
  starc compare examples/llama3-70b.sa --target mi300x-cpx --target mi300x-spx
  starc check examples/tiny.sa
  starc explain kv_replication

'starc COMMAND --help' shows the options of a command.
"""

COMPILE_EPILOG: Final = """\
examples:
  a report:               starc compile examples/llama3-70b.sa --target mi300x-cpx
  another operating point: starc compile examples/llama3-70b.sa --batch 8 --context 16k
  a prompt:               starc compile examples/llama3-70b.sa --phase prefill --prompt 8k
  the IR of a level:      starc compile examples/tiny.sa --gpus 1 --compile-to kernel
  every pass in files:    starc compile examples/tiny.sa --gpus 1 --print-ir-tree-dir ir
  for a script:           starc compile examples/llama3-70b.sa --format json | jq .layer
  a timeline:             starc compile examples/llama3-70b.sa --trace trace.json
                          (open it at ui.perfetto.dev)

exit codes: 0 done, also when the model does not fit; 1 the input is wrong; 2 wrong usage;
3 a check failed; 70 a bug in starc
"""


class Parser(argparse.ArgumentParser):
    """argparse with suggestions for misspelt options and choices."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(*args, allow_abbrev=False, **kwargs)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n  '{self.prog} --help' shows the options\n")

    def refuse_unknown(self, unknown: list[str]) -> NoReturn:
        """Ends with the first unknown argument and the option that it resembles."""
        word = unknown[0]
        options = [option for option in self._option_string_actions if option.startswith("--")]
        close = get_close_matches(word.split("=")[0], options, n=1, cutoff=0.75)
        if word.startswith("-"):
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            self.error(f"unknown option '{word.split('=')[0]}'{hint}")
        self.error(f"unexpected argument '{word}'")

    def topics(self) -> Iterator[tuple[str, list[argparse.Action]]]:
        """(title, options) of each group that has options beside ``--help``."""
        for group in self._action_groups:
            actions = [action for action in group._group_actions if action.dest != "help"]
            if actions:
                title = group.title or ""
                yield "argument" if title == "positional arguments" else title, actions

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            close = get_close_matches(str(value), choices, n=1)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise argparse.ArgumentError(
                action, f"'{value}' does not exist{hint}\n  choose from: {', '.join(choices)}"
            )


def build_parser() -> tuple[Parser, dict[str, Parser]]:
    """The root parser, and each command's."""
    root = Parser(
        prog="starc",
        description="Compiles transformer layers for partitioned chiplet accelerators and "
        "simulates them,\ntile by tile at cycle resolution.",
        epilog=ROOT_EPILOG,
    )
    root.add_argument("--version", action="store_true", help="print the version and end")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    parsers: dict[str, Parser] = {}

    def command(name: str, summary: str, description: str = "", epilog: str = "") -> Parser:
        parser = commands.add_parser(
            name,
            help=summary,
            description=description or summary[0].upper() + summary[1:] + ".",
            epilog=epilog,
        )
        parsers[name] = parser
        return parser

    compile_parser = command(
        "compile",
        "compile a model, simulate it and print a report",
        "Compiles one layer of each kind of a model for a machine, simulates it, and reports\n"
        "time, memory and traffic of the layer and of the whole model.",
        COMPILE_EPILOG,
    )
    _add_model(compile_parser)
    _add_machine(compile_parser, repeat=False)
    _add_plan(compile_parser, repeat=False)
    _add_work(compile_parser)
    _add_inspection(compile_parser)
    _add_output(compile_parser)

    compare = command(
        "compare",
        "compare targets and strategies side by side",
        "Compiles and simulates a model once for every target and strategy, and prints tables of\n"
        "times by kind of kernel, memory and traffic: first with each plan's best transports,\n"
        "then with the same transport for all. Ratios are against the first row. Without --target\n"
        "and --strategy: all strategies on mi300x-cpx, after whole GPUs (mi300x-spx) whose data\n"
        "go by the best algorithms (hierarchical) and in fused kernels (starscream).",
        "examples:\n"
        "  starc compare examples/llama3-70b.sa\n"
        "  starc compare examples/llama3-70b.sa --target mi300x-spx --target mi300x-cpx\n"
        "  what a pass brings:\n"
        "    starc compare examples/llama3-70b.sa --disable interchange-collectives\n",
    )
    _add_model(compare)
    _add_machine(compare, repeat=True)
    _add_plan(compare, repeat=True)
    _add_work(compare)
    compare.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (default: text)"
    )

    check = command(
        "check",
        "run every level on data and compare with the reference",
        "Runs the model at every level and as a packed program on seeded data, and compares the\n"
        "results with a dense reference. A big model is checked through a shrunk twin: the same\n"
        "devices, heads and kinds of layers with smaller dimensions. Ends with 3 if a check fails.",
        "example:\n  starc check examples/tiny.sa\n",
    )
    _add_model(check)
    _add_machine(check, repeat=False)
    _add_plan(check, repeat=False)
    _add_work(check)
    check.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="seed of the data")

    run = command(
        "run",
        "simulate a program file",
        "Simulates a program written by 'starc compile -o'. The file holds its machine.",
        "example:\n  starc compile examples/tiny.sa --gpus 1 -o tiny.program\n"
        "  starc run tiny.program\n",
    )
    run.add_argument("program", metavar="PROGRAM", help="a file written by 'starc compile -o'")
    simulation = run.add_argument_group("simulation")
    _add_simulation(simulation)
    _add_overrides(simulation)
    _add_capacity(simulation)
    _add_result(run.add_argument_group("output"))

    disasm = command("disasm", "print a program file as text")
    disasm.add_argument("program", metavar="PROGRAM", help="a file written by 'starc compile -o'")

    targets = command(
        "targets",
        "list the machines, or show one with the source of each number",
        epilog="examples:\n  starc targets\n  starc targets show mi300x-cpx\n",
    )
    targets.add_argument(
        "action", nargs="?", choices=("list", "show"), default="list", help="(default: list)"
    )
    targets.add_argument("name", nargs="?", metavar="TARGET", help="the machine to show")

    validate = command(
        "validate",
        "hold the simulator against measurements",
        "Simulates what was measured and prints measured, simulated and error of every row, and\n"
        "the errors of each class beside those of two rooflines that are refit on the same rows.\n"
        "Without --data the rows are those shipped with starc; with it all rows are tests.",
        "examples:\n"
        "  starc validate --target h200 --only h200_rms_norm.csv\n"
        "  starc validate --data results --format json\n",
    )
    _add_validation(validate)

    calibrate = command(
        "calibrate",
        "fit constants of a machine to measurements",
        "Fits numbers of a machine to the CSV files of a folder by least absolute error, by\n"
        "simulation, and writes a machine file that --target takes. A fifth of the rows, chosen\n"
        "by a hash of their parameters, is held out: errors are printed on both.",
        "examples:\n"
        "  starc calibrate measured -o mine.toml --only rms_norm --constant kernel.prologue_norm\n"
        "  starc compile examples/tiny.sa --gpus 1 --target mine.toml\n",
    )
    _add_calibration(calibrate)

    passes = command("passes", "list the passes in order, with their options")
    passes.add_argument(
        "--strategy", default=DEFAULT_STRATEGY, metavar="NAME", help="(default: %(default)s)"
    )

    explain = command(
        "explain",
        "say what a pass, dialect, remark or line of the report means",
        epilog="examples:\n  starc explain tile-kernels\n  starc explain kv_replication\n",
    )
    explain.add_argument("name", nargs="?", metavar="NAME", help="without it: what there is")
    return root, parsers


def _add_model(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a .sa file, or - for standard input")


def _add_machine(parser: Parser, *, repeat: bool) -> None:
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--target",
        metavar="T",
        action="append" if repeat else "store",
        help=f"machine, see 'starc targets' (default: {DEFAULT_TARGET})"
        + ("; may be repeated" if repeat else ""),
    )
    group.add_argument("--system", metavar="NAME", help="product instead of --target: mi300x")
    group.add_argument(
        "--compute-partition", metavar="MODE", type=str.upper, help="its mode: SPX, CPX, ..."
    )
    group.add_argument(
        "--memory-partition", metavar="MODE", type=str.upper, help="its mode: NPS1, NPS4, ..."
    )
    group.add_argument(
        "--gpus", type=parse_count, metavar="N", help="GPUs of the node (default: 8)"
    )
    group.add_argument(
        "--sips", type=parse_count, metavar="N", help="--gpus of a machine of cubes (default: 4)"
    )
    group.add_argument(
        "--mesh",
        type=parse_mesh,
        metavar="AXES",
        help="illustration mesh of other sizes: gpu=4,xcd=2; sip=1,group=2,cube=8,pe=8",
    )
    group.add_argument(
        "--issue-cost",
        type=parse_cycles,
        metavar="N",
        help="cycles that the CPU of a device takes to issue a command of any class (machines with "
        "engines; one class: --machine issue.load=N, the scheduler: issue.scheduler)",
    )
    _add_overrides(group)


def _add_overrides(group: Any) -> None:
    group.add_argument(
        "--machine",
        dest="overrides",
        metavar="KEY=VALUE",
        type=parse_override,
        action="append",
        default=[],
        help="another number of the machine, as 'starc targets show' calls it: "
        "fabric.usr_rate=1.0e12",
    )
    group.add_argument(
        "--dram-fraction",
        metavar="X",
        type=parse_fraction,
        help="sustained part of the memory's peak rate, in every memory mode alike",
    )


def _add_plan(parser: Parser, *, repeat: bool) -> None:
    group = parser.add_argument_group("plan")
    group.add_argument(
        "--tensor-parallel-size",
        "-tp",
        "--tp-size",
        type=parse_count,
        metavar="N",
        help="devices a layer is split over (default: all; the rest is data parallel)",
    )
    group.add_argument(
        "--strategy",
        metavar="S",
        action="append" if repeat else "store",
        help=f"plan of the whole layer (default: {DEFAULT_STRATEGY})"
        + ("; may be repeated" if repeat else ""),
    )
    group.add_argument(
        "--transport",
        metavar="NAME",
        help="how collectives move data; auto: by cost (default: the plan's)",
    )
    group.add_argument(
        "--enable",
        metavar="PASS",
        action="append",
        default=[],
        help="add a pass to the plan, or give it options: 'shard-attention-sequence{mode=keys}'",
    )
    group.add_argument(
        "--disable",
        metavar="PASS",
        action="append",
        default=[],
        help="leave out a pass, or several: a,b",
    )
    group.add_argument(
        "--uneven",
        action="store_true",
        help="allow shards of different sizes, empty ones too, where a shape does not divide",
    )
    group.add_argument(
        "--unfuse",
        metavar="TAX",
        action="append",
        default=[],
        help="put back a tax of unfused kernels: hbm (results through memory), sync (bulk "
        "synchronisation), launch (a launch each)",
    )


def _add_work(parser: Parser) -> None:
    group = parser.add_argument_group("work")
    group.add_argument(
        "--phase", metavar="NAME", help="decode or prefill (default: the file's first)"
    )
    group.add_argument(
        "--batch", "--batch-size", "--max-num-seqs", type=parse_count, metavar="N", help="sequences"
    )
    group.add_argument(
        "--context",
        "--max-model-len",
        type=parse_count,
        metavar="N",
        help="attended tokens, the new ones included (128k = 131072)",
    )
    group.add_argument(
        "--prompt",
        "--input-len",
        "--isl",
        type=parse_count,
        metavar="N",
        help="new tokens of a prefill",
    )
    group.add_argument("--dtype", choices=DTYPES, metavar="TYPE", help="of weights and activations")
    group.add_argument(
        "--kv-cache-dtype", choices=KV_DTYPES, metavar="TYPE", help="of the KV cache"
    )
    group.add_argument(
        "--gpu-memory-utilization",
        type=parse_fraction,
        default=0.9,
        metavar="F",
        help="usable part of the memory (default: 0.9)",
    )
    _add_capacity(group)
    group.add_argument(
        "--set",
        dest="settings",
        action="append",
        type=parse_setting,
        default=[],
        metavar="NAME=VALUE",
        help="change a parameter of the model",
    )


def _add_capacity(group: Any) -> None:
    group.add_argument(
        "--ignore-capacity", action="store_true", help="simulate a model that does not fit"
    )


def _add_simulation(group: Any) -> None:
    group.add_argument(
        "--no-skew", action="store_true", help="all workgroups start together (in lockstep)"
    )
    group.add_argument(
        "--full-node",
        action="store_true",
        help="simulate every GPU, also where one stands for all of them by symmetry",
    )
    group.add_argument(
        "--eager", action="store_true", help="the host launches kernels one by one, not as a graph"
    )
    group.add_argument(
        "--warm", action="store_true", help="report a second pass over the same addresses"
    )
    group.add_argument(
        "--no-governor",
        action="store_true",
        help="keep the largest core clock whatever the power (default: the cap lowers it)",
    )
    group.add_argument(
        "--page-walk",
        action="store_true",
        help="charge a walk of the page table for pages that a die does not know",
    )
    group.add_argument(
        "--bins",
        type=parse_count,
        metavar="US",
        help="utilization over time in the JSON report, in bins of at least so many microseconds",
    )


def _add_validation(parser: Parser) -> None:
    group = parser.add_argument_group("what to simulate")
    group.add_argument(
        "--target",
        metavar="T",
        help="machine (default: of each file, the one that it was measured on)",
    )
    group.add_argument(
        "--data", metavar="DIR", help="folder with CSV files of the known names and columns"
    )
    group.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="a file or a class; may be repeated",
    )
    group.add_argument(
        "--jobs", type=parse_count, metavar="N", help="processes (default: all processors)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (default: text)"
    )
    output.add_argument(
        "--strict", action="store_true", help="end with 3 where a stated margin is broken"
    )
    sensitivity = parser.add_argument_group("what results hang on")
    sensitivity.add_argument(
        "--sensitivity",
        action="store_true",
        help="instead of the rows: move every assumed number, and every one with a range, alone "
        "and say what changes, in a few rows of each class and in a layer on the largest and on "
        "the smallest devices",
    )
    sensitivity.add_argument(
        "--number",
        metavar="KEY",
        action="append",
        default=[],
        help="with --sensitivity: this number only; may be repeated",
    )
    sensitivity.add_argument(
        "--model",
        metavar="MODEL",
        help="with --sensitivity: the .sa file of the layer (default: one like Llama 3 8B)",
    )


def _add_calibration(parser: Parser) -> None:
    parser.add_argument(
        "data", metavar="DIR", help="folder with CSV files of the names and columns of 'validate'"
    )
    group = parser.add_argument_group("what to fit")
    group.add_argument(
        "--target",
        metavar="T",
        help="the machine to start from (default: the one that the files were measured on)",
    )
    group.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        default=[],
        help="a file or a class to fit on; may be repeated",
    )
    group.add_argument(
        "--constant",
        metavar="KEY[=LOW:HIGH]",
        type=parse_constant,
        action="append",
        default=[],
        help="a number to fit, as 'starc targets show' calls it; may be repeated (default: the "
        "calibrated ones with a range that belong to the files)",
    )
    group.add_argument(
        "--budget",
        type=parse_count,
        default=400,
        metavar="N",
        help="simulations that the search may take (default: %(default)s)",
    )
    group.add_argument(
        "--rows",
        type=parse_count,
        default=16,
        metavar="N",
        help="rows of each class that the search looks at (default: %(default)s)",
    )
    group.add_argument(
        "--jobs", type=parse_count, metavar="N", help="processes (default: all processors)"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the machine file to write (.toml)"
    )
    output.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (default: text)"
    )


def _add_inspection(parser: Parser) -> None:
    _add_simulation(parser.add_argument_group("simulation"))
    group = parser.add_argument_group("looking inside (on standard error or in files)")
    group.add_argument(
        "--compile-to",
        metavar="LEVEL",
        help="stop at a level and print it instead of a report: " + ", ".join(LEVELS),
    )
    group.add_argument(
        "-p", "--pass-pipeline", metavar="PASSES", help="run exactly these passes, print the IR"
    )
    for when in ("before", "after"):
        group.add_argument(
            f"--print-ir-{when}",
            metavar="PASS",
            action="append",
            default=[],
            help=f"IR {when} a pass, or 'all'",
        )
    group.add_argument("--print-ir-tree-dir", metavar="DIR", help="IR after each pass in files")
    group.add_argument(
        "--print-ir-changed-only", action="store_true", help="skip passes that change nothing"
    )
    group.add_argument("--remarks", action="store_true", help="what passes did and declined")
    group.add_argument("--timing", action="store_true", help="seconds of each pass")
    group.add_argument(
        "--check", action="store_true", help="check the program on data (shrunk twin), or exit 3"
    )
    group.add_argument("--verbose", action="store_true", help="more about what happens")


def _add_output(parser: Parser) -> None:
    group = parser.add_argument_group("output")
    _add_result(group)
    group.add_argument("-o", "--output", metavar="FILE", help="write the packed program")


def _add_result(group: Any) -> None:
    group.add_argument(
        "--format", choices=("text", "json"), default="text", help="how to print (default: text)"
    )
    group.add_argument("--trace", metavar="FILE", help="timeline of kernels for Perfetto (JSON)")
    group.add_argument(
        "--log",
        metavar="FILE",
        help="every instruction that a device executed, with its times: .csv, or JSON lines",
    )
    group.add_argument(
        "--log-devices",
        metavar="LIST",
        type=parse_devices,
        help="the devices of --log, and whose instructions --trace shows: 0,8,16-23 (default: all; "
        "in --trace the first one of each group where engines have streams)",
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parses the command line; wrong usage ends the process with code 2."""
    root, parsers = build_parser()
    words = sys.argv[1:] if arguments is None else arguments
    namespace, unknown = root.parse_known_args(words)
    if unknown:
        parsers.get(namespace.command or "", root).refuse_unknown(unknown)
    if namespace.command is None and not namespace.version:
        root.print_help()
        raise SystemExit(0 if not words else 2)
    return namespace
