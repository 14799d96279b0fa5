"""Whether a module is at the level that a pass works on.

A pass that finds nothing to work on would return its input, and one that finds the wrong thing
would fail somewhere inside. Both are refused here, with the pass that has to run first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, cast

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, SSAValue

from starc.analysis.sharding_rules import has_rule
from starc.diagnostics import Diagnostic, InputError
from starc.dialects.isa import AllocOp, KernelOp
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.sharding import ReshardOp, is_local, mesh_op, spec_of
from starc.dialects.target import target_of
from starc.passes.pipeline import LEVELS, entry_of

Level = Literal["nn", "sharding", "collective", "kernel", "isa"]


def level_of(module: ModuleOp) -> Level:
    """The level of a module, by the latest kind of operation or type that it has."""
    dialects = {op.name.split(".", 1)[0] for op in module.walk()}
    if "isa" in dialects:
        return "isa"
    if "kernel" in dialects:
        return "kernel"
    if "collective" in dialects or any(is_local(type) for type in types_of(module)):
        return "collective"
    return "nn" if mesh_op(module) is None else "sharding"


def require_level(module: ModuleOp, name: str) -> None:
    """Checks that the passes that ``name`` needs have run, and none of a later level. Raises
    ``InputError``."""
    entry = entry_of(name)
    found = level_of(module)
    # A module without a mesh is the program of one device already.
    needs = () if name == "form-kernels" and found == "nn" else entry.needs
    for need in sorted(reversed(needs), key=_output, reverse=True):
        if LEVELS.index(found) < _output(need):
            level = LEVELS[_output(need)]
            raise InputError(Diagnostic(f"pass '{name}' needs the {level} level: run {need} first"))
        if LEVELS.index(found) == _output(need) and not _has_run(need, module):
            raise InputError(Diagnostic(f"pass '{name}' comes after {need}: run {need} first"))
    changes_level = max(map(_output, entry.needs), default=-1) < _output(name)
    is_done = name == "plan-memory" and _has_buffers(module)
    is_done |= entry.needs != () and changes_level and found == entry.level
    if is_done or LEVELS.index(found) > _output(name):
        raise InputError(
            Diagnostic(
                f"pass '{name}' has nothing to do here: the module is at the {found} level already"
            )
        )


def _output(name: str) -> int:
    """The index of the level that a pass leads to."""
    return LEVELS.index(entry_of(name).level)


def types_of(module: ModuleOp) -> Iterator[Attribute]:
    """The types of results, of arguments of blocks, and of what declares one."""
    for op in module.walk():
        yield from (result.type for result in op.results)
        for region in op.regions:
            for block in region.blocks:
                yield from (argument.type for argument in block.args)
        if (own := op.properties.get("type")) is not None:
            yield own


def _is_encoded(module: ModuleOp) -> bool:
    """Whether the values of every layer have encodings."""
    return all(
        spec_of(value.type) is not None
        for layer in module.body.ops
        if isinstance(layer, FuncOp)
        for op in layer.walk()
        if has_rule(op)
        for value in cast("Sequence[SSAValue]", op.results)
    )


def _has_collectives(module: ModuleOp) -> bool:
    return not any(isinstance(op, ReshardOp) for op in module.walk())


def _launches_have(attribute: str) -> Callable[[ModuleOp], bool]:
    def have(module: ModuleOp) -> bool:
        return all(
            getattr(op, attribute) is not None for op in module.walk() if isinstance(op, LaunchOp)
        )

    return have


def _has_buffers(module: ModuleOp) -> bool:
    return any(isinstance(op, BufferOp) for op in module.body.ops)


def _tiles_have_places(module: ModuleOp) -> bool:
    """Whether the tiles in scratch memory have offsets: on machines with engines, all tiles."""
    spaces = ("scratch", "register") if target_of(module).engines else ("scratch",)
    return all(
        op.offset is not None
        for kernel in module.ops
        if isinstance(kernel, KernelOp) and not kernel.streams
        for op in kernel.body.walk()
        if isinstance(op, AllocOp) and op.space.data in spaces
    )


_SIGNS: Final[Mapping[str, Callable[[ModuleOp], bool]]] = MappingProxyType(
    {
        "propagate-shardings": _is_encoded,
        "localize": _has_collectives,
        "tile-kernels": _launches_have("tile"),
        "map-workgroups": _launches_have("grid"),
        "plan-memory": _has_buffers,
        "plan-scratch": _tiles_have_places,
    }
)
"""What tells that a pass has run, where the level of the module does not."""


def _has_run(name: str, module: ModuleOp) -> bool:
    return name not in _SIGNS or _SIGNS[name](module)
