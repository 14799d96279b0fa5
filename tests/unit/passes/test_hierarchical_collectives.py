"""Phases of collectives compute what the one exchange did, and cross links as predicted."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from starc.analysis.sharding_rules import module_mesh
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.hierarchy import flat_ring_use, phase_use, split_levels
from starc.core.sharding.mesh import Axis, AxisRef, LinkPart, Mesh
from starc.dialects.collective import AllReduceOp, CollectiveOp
from starc.dialects.sharding import encoding_of, global_shape
from starc.interpreter.collectives import run_collective
from starc.interpreter.values import Distributed, Placement, placement_of
from starc.passes.base import RemarkSink
from starc.passes.collective.hierarchical_collectives import HierarchicalCollectivesPass
from starc.targets.loader import load_target
from tests.unit.test_pass_examples import parse

NODE = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr")))
GPU, XCD = AxisRef("gpu"), AxisRef("xcd")


def run(text: str, uneven: bool = False) -> tuple[ModuleOp, RemarkSink]:
    module, sink = parse(text), RemarkSink()
    HierarchicalCollectivesPass(uneven=uneven).run(module, load_target("mi300x-cpx"), sink)
    module.verify()
    return module, sink


def collectives(module: ModuleOp) -> list[CollectiveOp]:
    return [op for op in module.walk() if isinstance(op, CollectiveOp)]


def local(shape: tuple[int, ...], spec: str, whole: tuple[int, ...]) -> str:
    extents = "x".join(map(str, shape))
    return f"tensor<{extents}xf32, #sharding.of<@node, {spec}, global = {list(whole)}>>"


def tensor(mesh: Mesh, spec: Encoding, whole: tuple[int, ...]) -> str:
    return local(spec.local_shape(whole), str(spec), whole)


def exchange(
    sizes: tuple[int, int],
    operation: str,
    before: Encoding,
    after: Encoding,
    clauses: str,
    whole: tuple[int, ...],
) -> str:
    gpu, xcd = sizes
    mesh = before.mesh
    a, b = tensor(mesh, before, whole), tensor(mesh, after, whole)
    return f"""
sharding.mesh @node = ["gpu"={gpu} : outer xgmi, "xcd"={xcd} : inner usr]
func.func @f(%x : {a}) -> {b} {{
  %0 = collective.{operation} %x on @node axes = ["gpu", "xcd"] {clauses} : {a} -> {b}
  func.return %0 : {b}
}}
"""


def placement(value: SSAValue, mesh: Mesh) -> Placement:
    type = cast("TensorType[Any]", value.type)
    encoding = encoding_of(type, mesh)
    assert encoding is not None
    return placement_of(encoding, global_shape(type))


def results(module: ModuleOp, seed: int) -> list[np.ndarray[Any, Any]]:
    """What every device returns, for random whole values on every device."""
    mesh = module_mesh(module)
    function = next(op for op in module.body.ops if isinstance(op, FuncOp))
    (argument,) = function.body.block.args
    where = placement(argument, mesh)
    random = np.random.default_rng(seed)
    shape = global_shape(cast("TensorType[Any]", argument.type))
    encoding = encoding_of(argument.type, mesh)
    assert encoding is not None
    is_partial = encoding.partial is not None
    shared = random.integers(-50, 50, shape).astype(np.float64)
    arrays: list[np.ndarray[Any, Any]] = []
    for device in range(mesh.size):
        own = random.integers(-50, 50, shape).astype(np.float64) if is_partial else shared
        arrays.append(own[np.ix_(*where.indices[device])])
    env: dict[SSAValue, Distributed] = {argument: Distributed(tuple(arrays), where)}
    for op in function.body.block.ops:
        if isinstance(op, CollectiveOp):
            targets = [placement(value, mesh) for value in op.outputs]
            made = run_collective(op, mesh, [env[value] for value in op.inputs], targets)
            for value, target, new in zip(op.outputs, targets, made, strict=True):
                env[value] = Distributed(tuple(new), target)
    last = function.body.block.last_op
    assert last is not None
    return list(env[last.operands[0]].parts)


def case(
    sizes: tuple[int, int], operation: str, whole: tuple[int, int], dim: int
) -> tuple[Encoding, Encoding, str]:
    mesh = Mesh("node", (Axis("gpu", sizes[0], "outer"), Axis("xcd", sizes[1], "inner")))
    plain = Encoding.replicated(mesh, 2)
    split = plain.with_dim(dim, (GPU, XCD))
    match operation:
        case "all_reduce":
            return plain.with_partial("sum", (GPU, XCD)), plain, "reduction = sum"
        case "reduce_scatter":
            return plain.with_partial("sum", (GPU, XCD)), split, f"reduction = sum dim = {dim}"
        case "all_gather":
            return split, plain, f"dim = {dim}"
        case _:
            other = plain.with_dim(1 - dim, (GPU, XCD))
            return split, other, f"split_dim = {1 - dim} concat_dim = {dim}"


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "all_to_all"])
@pytest.mark.parametrize("sizes", [(2, 2), (4, 2), (3, 2), (8, 8)], ids=str)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("factors", [(1, 2), (3, 1)], ids=str)
def test_phases_compute_what_the_exchange_did(
    operation: str, sizes: tuple[int, int], dim: int, factors: tuple[int, int]
) -> None:
    devices = sizes[0] * sizes[1]
    whole = (factors[0] * devices, factors[1] * devices)
    text = exchange(sizes, operation, *case(sizes, operation, whole, dim), whole)
    module, sink = run(text)
    made = collectives(module)
    assert len(made) == (3 if operation == "all_reduce" else 2)
    mesh = module_mesh(module)
    assert all(len(split_levels(mesh, op.axes.data)) == 1 for op in made)
    assert [remark.id for _, remark in sink.remarks] == ["hierarchical-collective"]
    before, after = results(parse(text), seed=3), results(module, seed=3)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("whole", [(9, 3), (3, 11), (1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("uneven", [False, True])
def test_a_reduction_of_a_shape_that_does_not_divide(whole: tuple[int, int], uneven: bool) -> None:
    sizes = (3, 2)
    text = exchange(sizes, "all_reduce", *case(sizes, "all_reduce", whole, 0), whole)
    module, _ = run(text, uneven)
    for old, new in zip(results(parse(text), 5), results(module, 5), strict=True):
        np.testing.assert_array_equal(old, new)
    scatters = uneven and max(whole) > 2
    expected = 3 if scatters or any(extent % 2 == 0 for extent in whole) else 2
    assert len(collectives(module)) == expected


def test_several_levels_inside_a_gpu() -> None:
    axes = (
        Axis("gpu", 2, "outer", "xgmi"),
        Axis("iod", 2, "middle", "usr"),
        Axis("xcd", 2, "inner", "die"),
    )
    mesh = Mesh("node", axes)
    text = exchange((1, 1), "all_reduce", *case((2, 4), "all_reduce", (8, 8), 0), (8, 8))
    rows = ", ".join(f'"{a.name}"={a.size} : {a.level} {a.link_class}' for a in axes)
    text = text.replace('"gpu", "xcd"', '"gpu", "iod", "xcd"')
    lines = [
        f"sharding.mesh @node = [{rows}]" if "sharding.mesh" in line else line
        for line in text.split("\n")
    ]
    module, _ = run("\n".join(lines))
    assert [(op.name.split(".")[1], str(op.axes.data[0].name)) for op in collectives(module)] == [
        ("reduce_scatter", "xcd"),
        ("reduce_scatter", "iod"),
        ("all_reduce", "gpu"),
        ("all_gather", "iod"),
        ("all_gather", "xcd"),
    ]
    assert module_mesh(module) == mesh
    for old, new in zip(results(parse("\n".join(lines)), 2), results(module, 2), strict=True):
        np.testing.assert_array_equal(old, new)


def test_an_axis_is_split_where_its_links_change() -> None:
    parts = (LinkPart("iod", 4, "usr"), LinkPart("slot", 2, "die"))
    mesh = Mesh("node", (Axis("gpu", 8, "outer", "xgmi"), Axis("xcd", 8, "inner", "usr", parts)))
    assert split_levels(mesh, mesh.all_axes()) == (
        (GPU,),
        (AxisRef("xcd", 1, 4),),
        (AxisRef("xcd", 4, 2),),
    )
    assert split_levels(mesh, (AxisRef("xcd", 2, 4),)) == (
        (AxisRef("xcd", 2, 2),),
        (AxisRef("xcd", 4, 2),),
    )


def test_bytes_on_links_are_those_of_the_paper() -> None:
    """An all-reduce of V: 1.97 V on one link as a ring of 64, 1.75 V a GPU on seven links with V/4
    on each by levels, half of it in either half of the exchange between GPUs."""
    volume = 1 << 20
    flat = flat_ring_use(NODE, CollectiveKind.ALL_REDUCE, (GPU, XCD), volume)["xgmi"]
    assert flat.sent == flat.busiest == 2 * 63 / 64 * volume
    between = phase_use(NODE, CollectiveKind.ALL_REDUCE, (GPU,), volume // 8, (GPU, XCD))
    assert between.sent == 1.75 * volume
    assert between.busiest == volume / 4
    half = phase_use(NODE, CollectiveKind.REDUCE_SCATTER, (GPU,), volume // 8, (GPU, XCD))
    assert half.busiest == volume / 8
    inside = phase_use(NODE, CollectiveKind.REDUCE_SCATTER, (XCD,), volume, (GPU, XCD))
    assert inside.sent / 8 == 7 / 8 * volume  # A(p) V of a die


def test_the_remark_has_the_numbers() -> None:
    text = exchange((8, 8), "all_reduce", *case((8, 8), "all_reduce", (64, 64), 0), (64, 64))
    _, sink = run(text)
    ((_, remark),) = sink.remarks
    volume = 64 * 64 * 4
    assert remark.numbers["payload_bytes"] == volume
    assert remark.numbers["xgmi_busiest_before_bytes"] == 2 * 63 * volume // 64
    assert remark.numbers["xgmi_after_bytes"] == 1.75 * volume
    assert remark.numbers["xgmi_busiest_after_bytes"] == volume // 4


def test_a_reduction_that_depends_on_the_order_is_declined() -> None:
    plain = Encoding.replicated(NODE, 1)
    before = plain.with_partial("root", (GPU, XCD))
    module, sink = run(exchange((8, 8), "all_reduce", before, plain, "reduction = root", (64,)))
    assert [type(op) for op in collectives(module)] == [AllReduceOp]
    ((_, remark),) = sink.remarks
    assert remark.declined
    assert "not commutative" in remark.message


def test_axes_against_the_levels_are_declined() -> None:
    plain = Encoding.replicated(NODE, 1)
    split = plain.with_dim(0, (XCD, GPU))
    text = exchange((8, 8), "all_gather", split, plain, "dim = 0", (64,))
    module, sink = run(text.replace('axes = ["gpu", "xcd"]', 'axes = ["xcd", "gpu"]'))
    assert len(collectives(module)) == 1
    assert sink.remarks[0][1].declined
