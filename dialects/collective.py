"""The ``collective`` dialect: what devices exchange, on local types.

Every operation acts in each group of devices that differ along ``axes`` alone (the groups of
``Mesh.groups``), in the order of the axis list. It changes the encoding of its operands by exactly
its effect, which its verifier checks, and nothing else may: a lost all-reduce is a type error. The
order of elements in a result is that of its encoding; for contiguous shards a gather is a
concatenation.

The tables show a group of two devices. ``a0`` is the piece 0 of a dimension on the first device.

All operations are variadic. Operands of one operation are exchanged together; the three components
of an ``lse`` partial, ``m``, ``l`` and ``o``, must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, Final, cast

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Dialect, SSAValue
from xdsl.irdl import irdl_op_definition, prop_def
from xdsl.utils.exceptions import VerifyException

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.combiners import COMBINERS, ReductionKind
from starc.core.sharding.encoding import Encoding, same_shards
from starc.core.sharding.mesh import AxisRef, axes_text
from starc.dialects.collective_operation import CollectiveOp as CollectiveOp
from starc.dialects.sharding import AnyTensor, local_type


@irdl_op_definition
class AllReduceOp(CollectiveOp):
    """Every device gets the combination of what the devices of its group hold.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a | b |
    | after | a + b | a + b |

    ``collective.all_reduce %x on @node axes = ["gpu"] reduction = sum : tA -> tA'``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.ALL_REDUCE
    name = f"collective.{KIND}"
    reduction = prop_def(StringAttr)
    CLAUSES: ClassVar[tuple[str, ...]] = ("reduction",)

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        self._require_dims_kept(old, new)
        self._require_partial(new, self._without_partial(old))


@irdl_op_definition
class AllGatherOp(CollectiveOp):
    """Every device gets the shards of its group, joined along ``dim``.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a0 | a1 |
    | after | a0 a1 | a0 a1 |

    ``collective.all_gather %x on @node axes = ["xcd"] dim = 2 : tA -> tB``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.ALL_GATHER
    name = f"collective.{KIND}"
    dim = prop_def(IntegerAttr)
    CLAUSES: ClassVar[tuple[str, ...]] = ("dim",)

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        dim = self._dim("dim", old)
        self._require_dims_kept(old, new, dim)
        self._require_partial(new, old)
        self._require_split(dim, new, old, shape[dim])


@irdl_op_definition
class ReduceScatterOp(CollectiveOp):
    """Every device gets its piece, along ``dim``, of the combination of its group.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a0 a1 | b0 b1 |
    | after | a0 + b0 | a1 + b1 |

    ``collective.reduce_scatter %x on @node axes = ["xcd"] reduction = sum dim = 2 : tA -> tB``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.REDUCE_SCATTER
    name = f"collective.{KIND}"
    reduction = prop_def(StringAttr)
    dim = prop_def(IntegerAttr)
    CLAUSES: ClassVar[tuple[str, ...]] = ("reduction", "dim")

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        dim = self._dim("dim", old)
        self._require_dims_kept(old, new, dim)
        self._require_partial(new, self._without_partial(old))
        self._require_split(dim, old, new, shape[dim])

    def _verify_together(self, shapes: Sequence[tuple[int, ...]]) -> None:
        combiner = COMBINERS[self.reduction.data]
        dim = self.number("dim")
        if combiner.is_joint and dim not in combiner.shared_dims(shapes):
            names = ", ".join(combiner.components)
            raise VerifyException(f"{names} do not share dim {dim}, it cannot be scattered")


@irdl_op_definition
class AllToAllOp(CollectiveOp):
    """Moves axes from ``concat_dim`` to ``split_dim``: every device sends each of its group a
    piece along ``split_dim`` and joins what it gets along ``concat_dim``.

    | | device 0 | device 1 |
    |---|---|---|
    | before (split by column) | a00 a10 | a01 a11 |
    | after (split by row) | a00 a01 | a10 a11 |

    ``collective.all_to_all %x on @node axes = ["xcd"] split_dim = 0 concat_dim = 1 : tA -> tB``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.ALL_TO_ALL
    name = f"collective.{KIND}"
    split_dim = prop_def(IntegerAttr)
    concat_dim = prop_def(IntegerAttr)
    CLAUSES: ClassVar[tuple[str, ...]] = ("split_dim", "concat_dim")

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        split, concat = self._dim("split_dim", old), self._dim("concat_dim", old)
        if split == concat:
            raise VerifyException("split_dim and concat_dim are the same dimension")
        self._require_dims_kept(old, new, split, concat)
        self._require_partial(new, old)
        self._require_split(split, old, new, shape[split])
        self._require_split(concat, new, old, shape[concat])


@irdl_op_definition
class PermuteOp(CollectiveOp):
    """Exchanges whole shards inside groups: the same shards, on other devices.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a0 | a1 |
    | after | a1 | a0 |

    ``collective.permute %x on @node axes = ["gpu", "xcd"] : tA -> tB``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.PERMUTE
    name = f"collective.{KIND}"

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        self._require_partial(new, old)
        if not same_shards(old, new, shape, self.axes.data):
            raise VerifyException(
                f"groups along {{{axes_text(self.axes.data)}}} do not hold the shards of the "
                f"result: {old} to {new}"
            )


@irdl_op_definition
class ReduceToRootOp(CollectiveOp):
    """The first device of a group gets the combination; what the others hold means nothing.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a | b |
    | after | a + b | - |

    The result is partial over the same axes with the kind ``root``, which ``collective.broadcast``
    alone takes.

    ``collective.reduce_to_root %x on @node axes = ["gpu"] reduction = sum : tA -> tA'``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.REDUCE_TO_ROOT
    name = f"collective.{KIND}"
    reduction = prop_def(StringAttr)
    CLAUSES: ClassVar[tuple[str, ...]] = ("reduction",)

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        self._require_dims_kept(old, new)
        rest = self._without_partial(old)
        if rest.partial is not None:
            raise VerifyException(
                f"reduces {{{axes_text(self.axes.data)}}} of partial {old.partial}, not all of it"
            )
        self._require_partial(new, old.with_partial(ReductionKind.ROOT, self.axes.data))


@irdl_op_definition
class BroadcastOp(CollectiveOp):
    """Every device gets what the first device of its group holds.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a | - |
    | after | a | a |

    ``collective.broadcast %x on @node axes = ["gpu"] : tA -> tA'``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.BROADCAST
    name = f"collective.{KIND}"

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        self._require_dims_kept(old, new)
        expected = old.with_partial(ReductionKind.ROOT, self.axes.data).partial
        if old.partial != expected:
            raise VerifyException(f"operand is partial {old.partial}, expected partial {expected}")
        self._require_partial(new, old.with_partial(None))


@irdl_op_definition
class AllSliceOp(CollectiveOp):
    """Every device keeps its piece along ``dim`` of what its whole group holds. Nothing moves.

    | | device 0 | device 1 |
    |---|---|---|
    | before | a0 a1 | a0 a1 |
    | after | a0 | a1 |

    ``collective.all_slice %x on @node axes = ["xcd"] dim = 2 : tA -> tB``
    """

    KIND: ClassVar[CollectiveKind] = CollectiveKind.ALL_SLICE
    name = f"collective.{KIND}"
    dim = prop_def(IntegerAttr)
    CLAUSES: ClassVar[tuple[str, ...]] = ("dim",)

    def verify_effect(self, old: Encoding, new: Encoding, shape: tuple[int, ...]) -> None:
        dim = self._dim("dim", old)
        self._require_dims_kept(old, new, dim)
        self._require_partial(new, old)
        self._require_split(dim, old, new, shape[dim])


COLLECTIVES: Final[Mapping[CollectiveKind, type[CollectiveOp]]] = MappingProxyType(
    {
        op.KIND: op
        for op in (
            AllReduceOp,
            AllGatherOp,
            ReduceScatterOp,
            AllToAllOp,
            PermuteOp,
            ReduceToRootOp,
            BroadcastOp,
            AllSliceOp,
        )
    }
)
"""The operation of every kind of collective."""


def make_collective(
    kind: CollectiveKind,
    inputs: Sequence[SSAValue],
    results: Sequence[Encoding],
    axes: Sequence[AxisRef],
    *,
    dim: int | None = None,
    concat_dim: int | None = None,
    reduction: ReductionKind | None = None,
) -> CollectiveOp:
    """A collective that leaves ``results``; its clauses are those of ``Phase`` and ``ReshardStep``:
    where there is a ``concat_dim``, ``dim`` is split."""
    clauses: dict[str, str | int] = {}
    if reduction is not None:
        clauses["reduction"] = reduction
    if dim is not None and concat_dim is not None:
        clauses |= {"split_dim": dim, "concat_dim": concat_dim}
    elif dim is not None:
        clauses["dim"] = dim
    types = [
        local_type(cast(AnyTensor, value.type), encoding)
        for value, encoding in zip(inputs, results, strict=True)
    ]
    return COLLECTIVES[kind](inputs, types, results[0].mesh.name, axes, **clauses)


Collective = Dialect("collective", list(COLLECTIVES.values()), [])
