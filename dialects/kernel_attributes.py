"""The attributes of a ``kernel.launch``, its body and what it yields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias, cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    IntegerAttr,
    IntegerType,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i64,
)
from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import IsTerminator

from starc.dialects.kernel_kinds import Tax

WHAT_IT_IS: Final = ("sym_name", "kind", "reads", "writes")
"""Attributes of a launch that stand in front of its schedule."""

Integers: TypeAlias = DenseArrayBase[IntegerType]


def integers(values: Iterable[int]) -> Integers:
    """An ``array<i64: ...>`` attribute."""
    return DenseArrayBase.from_list(i64, list(values))


def symbols(names: Iterable[str]) -> ArrayAttr[SymbolRefAttr]:
    """An array of symbol references."""
    return ArrayAttr([SymbolRefAttr(name) for name in names])


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """Ends the body of a launch with the values that it produces."""

    name = "kernel.yield"

    traits = traits_def(IsTerminator())


class LaunchAttributes(IRDLOperation):
    """What ``kernel.launch`` has; its meaning stands there."""

    inputs = var_operand_def()
    results_ = var_result_def()
    body = region_def("single_block")

    sym_name = prop_def(StringAttr)
    kind = prop_def(StringAttr)
    reads = opt_prop_def(ArrayAttr[SymbolRefAttr])
    writes = opt_prop_def(ArrayAttr[SymbolRefAttr])
    queue = opt_prop_def(IntegerAttr)
    tile = opt_prop_def(DenseArrayBase)
    group = opt_prop_def(IntegerAttr)
    split = opt_prop_def(IntegerAttr)
    combine = opt_prop_def(StringAttr)
    combine_rows = opt_prop_def(IntegerAttr)
    combine_stages = opt_prop_def(IntegerAttr)
    stages = opt_prop_def(IntegerAttr)
    chain = opt_prop_def(IntegerAttr)
    rows_first = opt_prop_def(UnitAttr)
    streams = opt_prop_def(IntegerAttr)
    whole_rounds = opt_prop_def(IntegerAttr)
    multicast = opt_prop_def(IntegerAttr)
    grid = opt_prop_def(DenseArrayBase)
    swizzle = opt_prop_def(DenseArrayBase)
    bands = opt_prop_def(IntegerAttr)
    order = opt_prop_def(DenseArrayBase)
    waves = opt_prop_def(IntegerAttr)
    waits = opt_prop_def(UnitAttr)
    window_bytes = opt_prop_def(IntegerAttr)
    kernel_class = opt_prop_def(StringAttr)
    piece_bytes = opt_prop_def(IntegerAttr)
    workspace = opt_prop_def(ArrayAttr[SymbolRefAttr])
    staging = opt_prop_def(ArrayAttr[SymbolRefAttr])
    chunks = opt_prop_def(IntegerAttr)
    pull = opt_prop_def(StringAttr)
    ring = opt_prop_def(DenseArrayBase)
    ring_slots = opt_prop_def(IntegerAttr)
    unfuse = opt_prop_def(ArrayAttr[StringAttr])
    sub_tile = opt_prop_def(IntegerAttr)
    softmax = opt_prop_def(StringAttr)
    reduce_inside = opt_prop_def(StringAttr)
    reduce_across = opt_prop_def(StringAttr)

    @property
    def block(self) -> Block:
        """The body's block."""
        return self.body.block

    @property
    def yielded(self) -> tuple[SSAValue, ...]:
        """The values that the body yields, one per part."""
        terminator = self.block.last_op
        return tuple(terminator.operands) if isinstance(terminator, YieldOp) else ()

    @property
    def uses_buffers(self) -> bool:
        """Whether the launch reads and writes buffers (after ``plan-memory``)."""
        return self.reads is not None

    @property
    def read_names(self) -> tuple[str, ...]:
        return _names(self.reads)

    @property
    def written_names(self) -> tuple[str, ...]:
        return _names(self.writes)

    @property
    def workspace_names(self) -> tuple[str, ...]:
        return _names(self.workspace)

    @property
    def taxes(self) -> tuple[Tax, ...]:
        """The costs of unfused kernels that a fused one pays again (``unfuse``)."""
        if self.unfuse is None:
            return ()
        named = [entry.data for entry in self.unfuse.data]
        return tuple(tax for tax in Tax if tax in named)

    @property
    def staging_names(self) -> tuple[str, ...]:
        return _names(self.staging)

    def integer(self, key: str, default: int = 1) -> int:
        """An integer attribute (``split``, ``stages``, ``group``, ``queue``, ``waves``,
        ``window_bytes``, ``piece_bytes``), ``default`` where it is absent."""
        value = self.properties.get(key)
        return cast(IntegerAttr[IntegerType], value).value.data if value is not None else default

    def integers(self, key: str) -> tuple[int, ...]:
        """An integer list (``tile``, ``grid``, ``swizzle``), empty where it is absent."""
        value = self.properties.get(key)
        return tuple(cast(Integers, value).get_values()) if value is not None else ()

    @property
    def workgroups(self) -> int:
        """Workgroups of all parts."""
        return sum(self.integers("grid"))

    @classmethod
    def scheduled(cls) -> tuple[str, ...]:
        """The attributes that say how a launch is executed, in the order in which they are
        printed."""
        names = cls.get_irdl_definition().properties
        return tuple(name for name in names if name not in WHAT_IT_IS)


def _names(references: ArrayAttr[SymbolRefAttr] | None) -> tuple[str, ...]:
    if references is None:
        return ()
    return tuple(reference.root_reference.data for reference in references)
