"""Options that say what is compiled: the model, the machine, the plan, and the work of a step."""

from __future__ import annotations

from typing import Any, Final

from starc.command_line.numbers import (
    parse_count,
    parse_cycles,
    parse_fraction,
    parse_mesh,
    parse_override,
    parse_setting,
)
from starc.command_line.parser import Parser
from starc.core.element_types import FORMATS
from starc.passes.pipeline import DEFAULT_STRATEGY
from starc.targets.default import DEFAULT_TARGET, MEMORY_UTILIZATION

DTYPES: Final = (
    "auto",
    *(name for row in FORMATS if row.is_model_option for name in row.spellings),
)
KV_DTYPES: Final = (
    "auto",
    *(name for row in FORMATS if row.is_cache_option for name in row.spellings),
)


def add_model(parser: Parser) -> None:
    """The file of the model."""
    parser.add_argument("model", metavar="MODEL", help="a .sa file, or - for standard input")


def add_machine(parser: Parser, *, repeat: bool) -> None:
    """What is compiled for; ``repeat``: several machines."""
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
    add_overrides(group)


def add_overrides(group: Any) -> None:
    """Other numbers of the machine."""
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


def add_plan(parser: Parser, *, repeat: bool) -> None:
    """How the layer is split and run; ``repeat``: several strategies."""
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


def add_work(parser: Parser) -> None:
    """What a step has to do, and in which types."""
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
        default=MEMORY_UTILIZATION,
        metavar="F",
        help=f"usable part of the memory (default: {MEMORY_UTILIZATION})",
    )
    add_capacity(group)
    group.add_argument(
        "--set",
        dest="settings",
        action="append",
        type=parse_setting,
        default=[],
        metavar="NAME=VALUE",
        help="change a parameter of the model",
    )


def add_capacity(group: Any) -> None:
    """Whether a model that does not fit is simulated."""
    group.add_argument(
        "--ignore-capacity", action="store_true", help="simulate a model that does not fit"
    )
