"""Products whose exchange over the inner level can change places, and the conditions of that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.ir import Operation, SSAValue

from starc.analysis.orthogonality import TwoLevels, outer_shards
from starc.analysis.product_exchanges import ProductForm, ProductGroup
from starc.analysis.reencoding import ParameterUses, encoding, shape_of
from starc.analysis.sharding_rules import has_rule, rule_of
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, is_refinement
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.dialects.kernel_buffers import element_bytes
from starc.dialects.nn import LinearOp, ReadOp
from starc.dialects.sharding import AnyTensor, ReshardOp, local_shape


@dataclass(frozen=True)
class Product:
    """A product of a group: its weight, the axes of the inner level that split it, and the
    shardings of K and N without and with them."""

    op: LinearOp
    name: str
    form: ProductForm
    inner: tuple[AxisRef, ...]
    k: DimSharding
    n: DimSharding
    k_cut: DimSharding
    n_cut: DimSharding


def product_of(
    op: LinearOp, mesh: Mesh, levels: TwoLevels, parameters: ParameterUses
) -> Product | None:
    """A product with the inner level on one of K and N; ``None`` for any other."""
    weight = encoding(op.weight, mesh)
    rows, columns = weight.dims
    on_rows, on_columns = (levels.inner_of(dim.axes) for dim in weight.dims)
    if bool(on_rows) == bool(on_columns):
        return None
    k, n = (
        outer_shards(mesh, levels, dim, extent) or DimSharding(levels.outer_of(dim.axes))
        for dim, extent in zip(weight.dims, shape_of(op.weight), strict=True)
    )
    name = next(
        (
            name
            for name, reads in parameters.reads.items()
            if any(op.weight is read.result for read in reads)
        ),
        "",
    )
    if on_rows:
        end = _scatter_of(op)
        found = encoding(end.results[0], mesh).dims[2] if end is not None else n
        return Product(op, name, ProductForm.SCATTER, on_rows, k, n, rows, found)
    source = gathered_from(op)
    found = encoding(source, mesh).dims[2] if source is not None else k
    return Product(op, name, ProductForm.GATHER, on_columns, k, n, found, columns)


def gathered_from(op: LinearOp) -> SSAValue | None:
    """What a product's input was gathered from."""
    gather = op.input.owner
    if isinstance(gather, ReshardOp) and len(gather.inputs) == 1:
        return gather.inputs[0]
    return None


def _scatter_of(op: LinearOp) -> ReshardOp | None:
    """The reshard that a product's partial sum leads to through linear operations."""
    value: SSAValue = op.result
    while (use := value.get_unique_use()) is not None:
        user = use.operation
        if isinstance(user, ReshardOp):
            return user if len(user.inputs) == 1 else None
        if not _passes_on(user, use.index):
            return None
        value = user.results[0]
    return None


def _passes_on(op: Operation, index: int) -> bool:
    """Whether an operation passes a partial sum on, its other operands being whole values."""
    if not has_rule(op) or isinstance(op, ReadOp) or len(op.results) != 1:
        return False
    rule = rule_of(op)
    alone = len(op.operands) == 1 and (rule.additive or rule.transparent)
    return alone or index in rule.linear


def group_of(products: Sequence[Product], mesh: Mesh) -> tuple[ProductGroup, tuple[AxisRef, ...]]:
    """Products of one input as costs see them, and the outer axes over which their results are
    partial sums."""
    first = products[0]
    input = cast(AnyTensor, first.op.input.type)
    batch, query, _ = local_shape(input, mesh)
    k, _ = shape_of(first.op.weight)
    group = ProductGroup(
        (batch, query),
        -(-k // mesh.refs_size(first.k.axes)),
        tuple(
            -(-shape_of(product.op.weight)[1] // mesh.refs_size(product.n.axes))
            for product in products
        ),
        str(input.element_type),
        element_bytes(input),
        element_bytes(cast(AnyTensor, first.op.result.type)),
    )
    result = encoding(first.op.result, mesh)
    partial = result.partial.axes if result.partial is not None else ()
    outer = tuple(ref for ref in partial if not any(mesh.overlap(ref, own) for own in first.inner))
    return group, outer


# ---------------------------------------------------------------------------------------------
# The conditions
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Conditions:
    """The nine conditions under which a product may change its form: ``exact`` forbids another
    order of sums, ``limit`` are the bytes that a buffer may have."""

    mesh: Mesh
    parameters: ParameterUses
    exact: bool
    limit: int

    def problem(self, product: Product, buffer_bytes: int) -> str | None:
        """The first condition that a product breaks, or ``None``."""
        return (
            self._input_problem(product)
            or self._result_problem(product)
            or self._other_problem(product, buffer_bytes)
        )

    def _input_problem(self, product: Product) -> str | None:
        op = product.op
        input = encoding(op.input, self.mesh)
        if product.form is ProductForm.GATHER:
            source = gathered_from(op)
            if source is None:
                return "1: its input was not gathered for it"
            before = encoding(source, self.mesh)
            if before.dims[:2] != input.dims[:2] or before.partial != input.partial:
                return "1: its input changes in more than its features on the way"
        k, _ = shape_of(op.weight)
        if not self._cuts(product.k, product.k_cut, product.inner, k):
            return (
                f"1: the input's features are split over {product.k_cut}, the weight's rows over "
                f"{product.k} without the inner level"
            )
        if input.partial is not None:
            return f"7: its input is partial {input.partial}"
        return None

    def _result_problem(self, product: Product) -> str | None:
        op = product.op
        if product.form is ProductForm.SCATTER:
            found = self._chain_problem(op) or self._scatter_problem(product)
            if found is not None:
                return found
        _, n = shape_of(op.weight)
        if not self._cuts(product.n, product.n_cut, product.inner, n):
            return (
                f"3: the result's columns are split over {product.n_cut}, the weight's over "
                f"{product.n} without the inner level"
            )
        return None

    def _other_problem(self, product: Product, buffer_bytes: int) -> str | None:
        if not product.name or len(self.parameters.users(product.name)) != 1:
            return "5: its weight is not a parameter of this product alone"
        if self.exact:
            return "8: the sums would be added in another order"
        if buffer_bytes > self.limit:
            return (
                f"9: {buffer_bytes} bytes do not fit the {self.limit} bytes of memory that are left"
            )
        return None

    def _cuts(
        self, coarse: DimSharding, fine: DimSharding, inner: tuple[AxisRef, ...], extent: int
    ) -> bool:
        """Whether ``fine`` is ``coarse`` cut further over the inner level."""
        axes = self.mesh.canonical((*coarse.axes, *inner))
        return fine.axes == axes and is_refinement(self.mesh, coarse, fine, extent)

    def _chain_problem(self, op: LinearOp) -> str | None:
        """What stands between a product and its reduce-scatter."""
        value: SSAValue = op.result
        while True:
            users = [(use.operation, use.index) for use in value.uses]
            if len(users) != 1:
                return f"6: its partial sum has {len(users)} uses"
            user, index = users[0]
            if isinstance(user, ReshardOp):
                return None if len(user.inputs) == 1 else "4: it is reduced with other values"
            if not _passes_on(user, index):
                return f"4: '{user.name}' stands between it and its reduction"
            value = user.results[0]

    def _scatter_problem(self, product: Product) -> str | None:
        end = _scatter_of(product.op)
        assert end is not None
        before = encoding(end.inputs[0], self.mesh)
        after = encoding(end.results[0], self.mesh)
        inner, partial = set(product.inner), before.partial
        is_sum = partial is not None and partial.kind is ReductionKind.SUM
        if partial is None or not is_sum or not inner <= set(partial.axes):
            return "7: it is no partial sum over the inner level"
        if before.dims[:2] != after.dims[:2]:
            return "2: its reduction cuts tokens, not columns"
        if not inner & set(after.dims[2].axes):
            return "2: its reduction does not cut the columns over the inner level"
        return None
