"""From parsed options to what the API takes, with the checks that need more than one option."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starc.api import CompileOptions
from starc.command_line.machines import machine, scaled_memory, target_name
from starc.diagnostics import UsageError
from starc.output_files import output_directory
from starc.passes.manager import Inspection
from starc.passes.pipeline import DEFAULT_STRATEGY, STRATEGIES
from starc.targets.default import DEFAULT_TARGET

if TYPE_CHECKING:
    from starc.simulator.options import SimulationOptions


BASELINE: Final = "mi300x-spx"
BASELINE_STRATEGIES: Final = ("hierarchical", "starscream")
"""What a comparison starts with: GPUs that are not partitioned, whose one level of devices
exchanges data by the algorithm that suits it, in launches of its own and in fused ones."""

COMMON_TRANSPORT: Final = "device_put"
"""The transport that all plans of a comparison share: what kernels of any plan can do by
themselves."""


def comparison(options: argparse.Namespace) -> list[CompileOptions]:
    """The compilations that ``starc compare`` runs: every strategy on every target, with the best
    transports of each (``auto``) and then all with the same one, or as ``--transport`` says.

    Without ``--target`` and ``--strategy``: every strategy on the default machine in its finest
    partitions, and before them the best that whole GPUs do (which have no other mesh).
    """
    transports = [options.transport] if options.transport else ["auto", COMMON_TRANSPORT]
    targets: list[str] = options.target or []
    strategies: list[str] = options.strategy or []
    options.target = options.strategy = None
    if not targets and not (options.system or strategies or options.mesh):
        plans = [
            *((BASELINE, name) for name in BASELINE_STRATEGIES),
            *((DEFAULT_TARGET, name) for name in STRATEGIES),
        ]
    else:
        machines = targets or [target_name(options)]
        chosen = strategies or list(STRATEGIES)
        plans = [(machine, strategy) for machine in machines for strategy in chosen]
    return [
        compile_options(options, target=target, strategy=strategy, transport=transport)
        for transport in transports
        for target, strategy in plans
    ]


def with_one_fraction(requests: Sequence[CompileOptions]) -> list[tuple[CompileOptions, bool]]:
    """The comparison once more with one sustained fraction of the memory's rate for all modes of a
    product, that of its first machine, so that what the modes' own fractions put in and what is
    found can be told apart. Empty where there is one fraction; with the first choice of transports.
    """
    again: list[tuple[CompileOptions, bool]] = []
    firsts: dict[str, float] = {}
    differ = False
    for request in requests:
        target = request.machine()
        if request.transport != requests[0].transport:
            continue
        own = target.hbm_rate / target.hbm_peak
        fraction = firsts.setdefault(target.product, own)
        if abs(own - fraction) > 1e-6:
            differ = True
            target = scaled_memory(target, fraction)
        again.append((replace(request, target=target), True))
    return again if differ else []


def compile_options(
    options: argparse.Namespace,
    *,
    target: str | None = None,
    strategy: str | None = None,
    transport: str | None = None,
) -> CompileOptions:
    """The compilation that the options describe; ``target``, ``strategy`` and ``transport`` replace
    theirs where a command takes several."""
    if not options.model:
        raise UsageError("MODEL needs the name of a file, or - for standard input")
    return CompileOptions(
        # A path, whatever characters are in it: text would be taken for a model.
        model=options.model if options.model == "-" else Path(options.model),
        target=machine(target_name(options) if target is None else target, options),
        tensor_parallel=options.tensor_parallel_size,
        strategy=_first(strategy, options.strategy, DEFAULT_STRATEGY),
        enable=tuple(options.enable),
        disable=_names(options.disable),
        uneven=options.uneven,
        unfuse=_names(options.unfuse),
        transport=options.transport if transport is None else transport,
        phase=options.phase,
        batch=options.batch,
        context=options.context,
        prompt=options.prompt,
        dtype=options.dtype,
        kv_cache_dtype=options.kv_cache_dtype,
        settings=dict(options.settings),
        gpu_memory_utilization=options.gpu_memory_utilization,
        compile_to=getattr(options, "compile_to", None) or "program",
        pipeline=getattr(options, "pass_pipeline", None),
        inspection=_inspection(options),
        given=_given(options),
    )


def _names(given: list[str]) -> tuple[str, ...]:
    """``--unfuse hbm,sync`` and ``--unfuse hbm --unfuse sync`` alike, in order and once each."""
    return tuple(dict.fromkeys(name.strip() for word in given for name in word.split(",")))


def _first(*names: str | None) -> str:
    """The first name that was given; an empty one is a name that does not exist."""
    return next(name for name in names if name is not None)


def simulation_options(options: argparse.Namespace) -> SimulationOptions:
    """How the simulation is run."""
    from starc.simulator.options import SimulationOptions

    return SimulationOptions(
        skew=not getattr(options, "no_skew", False),
        full_node=getattr(options, "full_node", False),
        eager=getattr(options, "eager", False),
        warm=getattr(options, "warm", False),
        page_walk=getattr(options, "page_walk", False),
        bins_ps=None if not getattr(options, "bins", None) else options.bins * 1_000_000,
        governor=not getattr(options, "no_governor", False),
    )


def _inspection(options: argparse.Namespace) -> Inspection:
    if not hasattr(options, "print_ir_tree_dir"):
        return Inspection()
    return Inspection(
        before=tuple(options.print_ir_before),
        after=tuple(options.print_ir_after),
        tree_dir=output_directory("--print-ir-tree-dir", options.print_ir_tree_dir),
        changed_only=options.print_ir_changed_only,
    )


def _given(options: argparse.Namespace) -> frozenset[str]:
    """The options that the user gave; the others are reported as defaults."""
    names = ("target", "system", "gpus", "sips", "mesh", "tensor_parallel_size", "strategy",
             "phase", "batch", "context", "prompt", "dtype", "kv_cache_dtype")  # fmt: skip
    return frozenset(name for name in names if getattr(options, name) is not None)
