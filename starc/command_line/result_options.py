"""Options of what is simulated, shown and written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from starc.command_line.numbers import parse_count, parse_devices
from starc.command_line.parser import Parser
from starc.passes.pipeline import LEVELS
from starc.report.formats import REPORT_FORMATS, OutputFormat


def add_format(group: Any, formats: Iterable[str] = tuple(OutputFormat)) -> None:
    """How what a command finds is printed."""
    group.add_argument(
        "--format",
        choices=tuple(str(name) for name in formats),
        default=str(OutputFormat.TEXT),
        help="how to print (default: text)",
    )


def add_simulation(group: Any) -> None:
    """What the simulator leaves out, or adds."""
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


def add_inspection(parser: Parser) -> None:
    """What the compiler shows of its work."""
    add_simulation(parser.add_argument_group("simulation"))
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


def add_output(parser: Parser) -> None:
    """The report and the program."""
    group = parser.add_argument_group("output")
    add_result(group)
    group.add_argument("-o", "--output", metavar="FILE", help="write the packed program")


def add_result(group: Any) -> None:
    """The report, and files beside it."""
    add_format(group, REPORT_FORMATS)
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
