"""A group of products in its other form, written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from starc.analysis.product_exchanges import ProductForm
from starc.analysis.reencoding import (
    ParameterUses,
    encoding,
    layers_of,
    refit,
    reshard_after,
    reshard_before,
    set_encoding,
    update_signature,
)
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import DimSharding, Encoding
from starc.core.sharding.mesh import AxisRef, Mesh
from starc.dialects.nn import LinearOp
from starc.dialects.sharding import ReshardOp
from starc.passes.sharding.interchange.products import Product, gathered_from


def flip(layer: FuncOp, products: Sequence[Product], mesh: Mesh, parameters: ParameterUses) -> None:
    """Gives a group of a layer its other form."""
    if products[0].form is ProductForm.SCATTER:
        _gather_first(products, mesh, parameters)
    else:
        _scatter_last(products, mesh, parameters)
    refit(layer, mesh)
    update_signature(layer)


def flipped_copy(
    module: ModuleOp, layer: FuncOp, products: Sequence[Product], mesh: Mesh
) -> ModuleOp:
    """A copy of a module with the other form of a group of one of its layers."""
    order = {op: number for number, op in enumerate(layer.body.block.ops)}
    copy = module.clone()
    twin = next(found for found in layers_of(copy) if found.sym_name == layer.sym_name)
    ops = list(twin.body.block.ops)
    twins: list[Product] = []
    for product in products:
        op = ops[order[product.op]]
        assert isinstance(op, LinearOp)
        twins.append(replace(product, op=op))
    flip(twin, twins, mesh, ParameterUses.of(copy))
    return copy


def _gather_first(products: Sequence[Product], mesh: Mesh, parameters: ParameterUses) -> None:
    first = products[0].op
    k = products[0].k
    gathered = reshard_before(
        first, first.input, encoding(first.input, mesh).with_dim(2, k.axes, k.map)
    )
    for product in products:
        product.op.operands[0] = gathered
        parameters.set_encoding(product.name, Encoding(mesh, (product.k, product.n_cut)))
        _set_result(product.op, product.n_cut, product.k.axes, mesh)


def _scatter_last(products: Sequence[Product], mesh: Mesh, parameters: ParameterUses) -> None:
    for product in products:
        source = gathered_from(product.op)
        assert source is not None
        gather = product.op.input.owner
        product.op.operands[0] = source
        if isinstance(gather, ReshardOp) and not any(r.uses for r in gather.results):
            Rewriter.erase_op(gather)
        parameters.set_encoding(product.name, Encoding(mesh, (product.k_cut, product.n)))
        old = encoding(product.op.result, mesh)
        new = _set_result(product.op, product.n, product.k_cut.axes, mesh)
        reshard_after(new, old)


def _set_result(
    op: LinearOp, columns: DimSharding, summed: tuple[AxisRef, ...], mesh: Mesh
) -> SSAValue:
    found = encoding(op.result, mesh).with_dim(2, columns.axes, columns.map)
    return set_encoding(op.result, found.with_partial(ReductionKind.SUM, summed))
