"""The commands, each with its words and its options.

Nothing heavy is imported here: ``starc --help`` must answer at once.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starc.command_line.measurement_options import add_calibration, add_validation
from starc.command_line.numbers import parse_seed
from starc.command_line.parser import Parser
from starc.command_line.request_options import (
    add_capacity,
    add_machine,
    add_model,
    add_overrides,
    add_plan,
    add_work,
)
from starc.command_line.result_options import (
    add_format,
    add_inspection,
    add_output,
    add_result,
    add_simulation,
)
from starc.passes.pipeline import DEFAULT_STRATEGY

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


@dataclass(frozen=True)
class Command:
    """A command as its help shows it, and what adds its options."""

    name: str
    summary: str
    options: Callable[[Parser], None]
    description: str = ""
    epilog: str = ""


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
    for command in COMMANDS:
        summary = command.summary
        parser = commands.add_parser(
            command.name,
            help=summary,
            description=command.description or summary[0].upper() + summary[1:] + ".",
            epilog=command.epilog,
        )
        command.options(parser)
        parsers[command.name] = parser
    return root, parsers


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


def _compile_options(parser: Parser) -> None:
    add_model(parser)
    add_machine(parser, repeat=False)
    add_plan(parser, repeat=False)
    add_work(parser)
    add_inspection(parser)
    add_output(parser)


def _compare_options(parser: Parser) -> None:
    add_model(parser)
    add_machine(parser, repeat=True)
    add_plan(parser, repeat=True)
    add_work(parser)
    add_format(parser)


def _check_options(parser: Parser) -> None:
    add_model(parser)
    add_machine(parser, repeat=False)
    add_plan(parser, repeat=False)
    add_work(parser)
    parser.add_argument("--seed", type=parse_seed, default=0, metavar="N", help="seed of the data")


def _run_options(parser: Parser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="a file written by 'starc compile -o'")
    simulation = parser.add_argument_group("simulation")
    add_simulation(simulation)
    add_overrides(simulation)
    add_capacity(simulation)
    add_result(parser.add_argument_group("output"))


def _disasm_options(parser: Parser) -> None:
    parser.add_argument("program", metavar="PROGRAM", help="a file written by 'starc compile -o'")


def _targets_options(parser: Parser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("list", "show"), default="list", help="(default: list)"
    )
    parser.add_argument("name", nargs="?", metavar="TARGET", help="the machine to show")


def _passes_options(parser: Parser) -> None:
    parser.add_argument(
        "--strategy", default=DEFAULT_STRATEGY, metavar="NAME", help="(default: %(default)s)"
    )


def _explain_options(parser: Parser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="without it: what there is")


COMMANDS: Final = (
    Command(
        "compile",
        "compile a model, simulate it and print a report",
        _compile_options,
        "Compiles one layer of each kind of a model for a machine, simulates it, and reports\n"
        "time, memory and traffic of the layer and of the whole model.",
        COMPILE_EPILOG,
    ),
    Command(
        "compare",
        "compare targets and strategies side by side",
        _compare_options,
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
    ),
    Command(
        "check",
        "run every level on data and compare with the reference",
        _check_options,
        "Runs the model at every level and as a packed program on seeded data, and compares the\n"
        "results with a dense reference. A big model is checked through a shrunk twin: the same\n"
        "devices, heads and kinds of layers with smaller dimensions. Ends with 3 if a check fails.",
        "example:\n  starc check examples/tiny.sa\n",
    ),
    Command(
        "run",
        "simulate a program file",
        _run_options,
        "Simulates a program written by 'starc compile -o'. The file holds its machine.",
        "example:\n  starc compile examples/tiny.sa --gpus 1 -o tiny.program\n"
        "  starc run tiny.program\n",
    ),
    Command(
        "disasm",
        "print a program file as text",
        _disasm_options,
    ),
    Command(
        "targets",
        "list the machines, or show one with the source of each number",
        _targets_options,
        epilog="examples:\n  starc targets\n  starc targets show mi300x-cpx\n",
    ),
    Command(
        "validate",
        "hold the simulator against measurements",
        add_validation,
        "Simulates what was measured and prints measured, simulated and error of every row, and\n"
        "the errors of each class beside those of two rooflines that are refit on the same rows.\n"
        "Without --data the rows are those shipped with starc; with it all rows are tests.",
        "examples:\n"
        "  starc validate --target h200 --only h200_rms_norm.csv\n"
        "  starc validate --data results --format json\n",
    ),
    Command(
        "calibrate",
        "fit constants of a machine to measurements",
        add_calibration,
        "Fits numbers of a machine to the CSV files of a folder by least absolute error, by\n"
        "simulation, and writes a machine file that --target takes. A fifth of the rows, chosen\n"
        "by a hash of their parameters, is held out: errors are printed on both.",
        "examples:\n"
        "  starc calibrate measured -o mine.toml --only rms_norm --constant kernel.prologue_norm\n"
        "  starc compile examples/tiny.sa --gpus 1 --target mine.toml\n",
    ),
    Command(
        "passes",
        "list the passes in order, with their options",
        _passes_options,
    ),
    Command(
        "explain",
        "say what a pass, dialect, remark or line of the report means",
        _explain_options,
        epilog="examples:\n  starc explain tile-kernels\n  starc explain kv_replication\n",
    ),
)
