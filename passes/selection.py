"""Which passes run: a strategy, cut at a level, with passes left out, added and given options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from starc.diagnostics import UsageError
from starc.passes.pipeline import (
    LAST_PASS_OF_LEVEL,
    LEVELS,
    PASSES,
    STRATEGIES,
    OptionValue,
    entry_of,
    load_pass,
    unknown_name,
)

PACK_NEEDS: Final = ("lower-to-isa", "plan-scratch", "assign-engines")
"""What the packed program needs beside a legal module."""

COMMAND_OPTIONS: Final = {
    "tensor-parallel-size": "--tensor-parallel-size",
    "memory-utilization": "--gpu-memory-utilization",
}
"""Options of several passes and of the report that have to agree: those of the command set all."""


@dataclass(frozen=True)
class PassSpec:
    """A pass to run with its options, as ``name{key=value ...}`` denotes it."""

    name: str
    options: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])

    def __str__(self) -> str:
        if not self.options:
            return self.name
        options = " ".join(f"{key}={_spec_value(value)}" for key, value in self.options.items())
        return f"{self.name}{{{options}}}"


def _spec_value(value: OptionValue) -> str:
    match value:
        case tuple():
            return ",".join(_spec_value(item) for item in value)
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case _:
            return str(value)


def plan_passes(
    strategy: str,
    *,
    options: Mapping[str, Mapping[str, OptionValue]] | None = None,
    disable: Sequence[str] = (),
    enable: Sequence[str] = (),
    compile_to: str = "program",
) -> tuple[PassSpec, ...]:
    """The passes of a strategy up to a level, with the options of the caller added; passes of
    ``enable`` run too, at their places in ``PASSES``.

    Raises ``UsageError`` for an unknown strategy, pass or level, and for a disabled pass whose
    postcondition a later one needs.
    """
    if strategy not in STRATEGIES:
        raise unknown_name("strategy", strategy, tuple(STRATEGIES))
    if compile_to not in LEVELS:
        raise unknown_name("level", compile_to, LEVELS)
    for name in (*disable, *enable):
        entry_of(name)
    both = [name for name in enable if name in disable]
    if both:
        raise UsageError(f"pass '{both[0]}' is enabled and disabled")
    chosen = [
        PassSpec(name, {**defaults, **(options or {}).get(name, {})})
        for name, defaults in _through_level(
            _with_enabled(STRATEGIES[strategy].passes, enable), compile_to
        )
        if name not in disable
    ]
    check_needs(chosen, disable, packs=compile_to == "program")
    return tuple(chosen)


def parse_pipeline(text: str, option: str = "-p") -> tuple[PassSpec, ...]:
    """``a,b{key=value}`` as passes. Raises ``UsageError`` for bad syntax or an unknown pass."""
    from xdsl.utils import arg_spec
    from xdsl.utils.exceptions import ArgSpecParseError

    try:
        parsed = list(arg_spec.parse_pipeline(text))
    except (ArgSpecParseError, ValueError) as error:
        reason = str(error).strip().rsplit("\n", 1)[-1].strip()
        raise UsageError(f"{option} '{text}': {reason}") from error
    specs: list[PassSpec] = []
    for spec in parsed:
        entry_of(spec.name)
        specs.append(PassSpec(spec.name, spec.parameters))
    return tuple(specs)


def refuse_command_options(spec: PassSpec) -> None:
    """Raises ``UsageError`` for an option that other passes and the report have to know."""
    names = {option.name for option in fields(load_pass(spec.name))}
    for key in spec.options:
        name = key.replace("_", "-")
        if name in COMMAND_OPTIONS and name.replace("-", "_") in names:
            raise UsageError(
                f"--enable '{spec.name}': '{name}' is not for one pass alone: use "
                f"{COMMAND_OPTIONS[name]}"
            )


def allowing_uneven(spec: PassSpec) -> PassSpec:
    """The pass with its option ``uneven`` on, if it has one."""
    names = {option.name for option in fields(load_pass(spec.name))}
    return replace(spec, options={**spec.options, "uneven": True}) if "uneven" in names else spec


def _through_level(
    passes: Sequence[tuple[str, Mapping[str, OptionValue]]], level: str
) -> list[tuple[str, Mapping[str, OptionValue]]]:
    """The passes up to the last one of a level; of the sharding level a strategy may have more than
    ``LAST_PASS_OF_LEVEL``."""
    last = LAST_PASS_OF_LEVEL[level]
    through = [
        index
        for index, (name, _) in enumerate(passes)
        if name == last or (level == "sharding" and entry_of(name).level == level)
    ]
    return list(passes[: through[-1] + 1])


def _with_enabled(
    passes: Sequence[tuple[str, Mapping[str, OptionValue]]], enable: Sequence[str]
) -> list[tuple[str, Mapping[str, OptionValue]]]:
    """The passes with those of ``enable`` that are not among them, each before the first one that
    stands behind it in ``PASSES``."""
    order = [entry.name for entry in PASSES]
    merged = list(passes)
    for name in enable:
        if any(name == other for other, _ in merged):
            continue
        behind = [
            index
            for index, (other, _) in enumerate(merged)
            if order.index(other) > order.index(name)
        ]
        merged.insert(behind[0] if behind else len(merged), (name, {}))
    return merged


def check_needs(
    chosen: Sequence[PassSpec], disabled: Sequence[str] = (), *, packs: bool = False
) -> None:
    """Checks that no disabled pass is needed by a later one, which the error names."""
    for name in disabled:
        users = [spec.name for spec in chosen if name in entry_of(spec.name).needs]
        if packs and name in PACK_NEEDS:
            users.append("pack")
        if users:
            raise UsageError(
                f"pass '{name}' cannot be disabled: '{users[0]}' needs what it establishes"
            )
