"""Options of the commands that hold the simulator against measurements."""

from __future__ import annotations

from typing import Any

from starc.command_line.numbers import parse_constant, parse_count
from starc.command_line.parser import Parser
from starc.command_line.result_options import add_format


def add_validation(parser: Parser) -> None:
    """Options of ``starc validate``."""
    group = parser.add_argument_group("what to simulate")
    group.add_argument(
        "--target",
        metavar="T",
        help="machine (default: of each file, the one that it was measured on)",
    )
    group.add_argument(
        "--data", metavar="DIR", help="folder with CSV files of the known names and columns"
    )
    _add_only(group, "a file or a class")
    _add_jobs(group)
    output = parser.add_argument_group("output")
    add_format(output)
    output.add_argument(
        "--strict", action="store_true", help="end with 3 where a stated margin is broken"
    )
    _add_sensitivity(parser)


def _add_sensitivity(parser: Parser) -> None:
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


def add_calibration(parser: Parser) -> None:
    """Options of ``starc calibrate``."""
    parser.add_argument(
        "data", metavar="DIR", help="folder with CSV files of the names and columns of 'validate'"
    )
    group = parser.add_argument_group("what to fit")
    group.add_argument(
        "--target",
        metavar="T",
        help="the machine to start from (default: the one that the files were measured on)",
    )
    _add_only(group, "a file or a class to fit on")
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
    _add_jobs(group)
    output = parser.add_argument_group("output")
    output.add_argument(
        "-o", "--output", metavar="FILE", required=True, help="the machine file to write (.toml)"
    )
    add_format(output)


def _add_only(group: Any, what: str) -> None:
    group.add_argument(
        "--only", metavar="NAME", action="append", default=[], help=f"{what}; may be repeated"
    )


def _add_jobs(group: Any) -> None:
    group.add_argument(
        "--jobs", type=parse_count, metavar="N", help="processes (default: all processors)"
    )
