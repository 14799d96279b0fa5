"""Kernels on shards that are uneven, empty or differ by row: what a device does not hold is neither
read nor written, under adversarial interleavings and as packed rows."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, TensorType
from xdsl.ir import Attribute
from xdsl.parser import Parser

from starc.core.sharding.mesh import Axis, Mesh
from starc.dialects.kernel_buffers import BufferOp
from starc.dialects.sharding import Sharding, encoding_of, global_shape, localized, mesh_of
from starc.interpreter.program_runs import padded
from starc.interpreter.values import Distributed, Placement, assemble, distribute, placement_of
from tests.unit.passes.launches import Launch
from tests.unit.passes.test_lower_to_isa import attributes, random

Array = npt.NDArray[Any]

MESH = (3, 2)
SEEDS = (None, 0, 1, 2, 3)
Dims = tuple[str, ...]


def type_of(whole: tuple[int, ...], dims: Dims, element: str = "bf16", partial: str = "") -> str:
    """The local type of a tensor of global shape ``whole``, as the text of a buffer."""
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Sharding)
    combined = f", partial = sum{{{partial}}}" if partial else ""
    encoding = f"#sharding.of<@node, [{', '.join(dims)}]{combined}>"
    text = f"tensor<{'x'.join(map(str, whole))}x{element}, {encoding}>"
    found = Parser(context, text).parse_type()
    mesh = Mesh("node", (Axis("gpu", MESH[0]), Axis("xcd", MESH[1])))
    local = localized(cast("TensorType[Attribute]", found), mesh)
    return str(local).removeprefix("tensor<").removesuffix(">")


def extents_of(type_: str) -> tuple[int, ...]:
    return tuple(int(extent) for extent in type_.split(",")[0].split("x")[:-1])


def check(launch: Launch, given: dict[str, Array], expected: dict[str, Array]) -> None:
    """Cuts inputs by the types of their buffers, runs the launch with every seed and puts its
    results together."""
    module = launch.module()
    mesh = mesh_of(module)
    places: dict[str, tuple[Placement, tuple[int, ...]]] = {}
    for op in module.body.block.ops:
        if isinstance(op, BufferOp):
            encoding = encoding_of(op.type, mesh)
            assert encoding is not None
            whole = global_shape(op.type)
            places[op.sym_name.data] = (placement_of(encoding, whole), op.shape)
    inputs: dict[str, list[Array]] = {}
    for name, values in given.items():
        place, shape = places[name]
        inputs[name] = [padded(part, shape) for part in distribute(values, place).parts]
    for seed in SEEDS:
        found = launch.run(inputs, seed)
        for name, values in expected.items():
            place, _ = places[name]
            parts = tuple(
                found[device][name][tuple(slice(extent) for extent in shape)]
                for device, shape in enumerate(place.shapes)
            )
            result = assemble(Distributed(parts, place))
            np.testing.assert_allclose(
                result, values, rtol=1e-9, atol=1e-9, err_msg=f"@{name}, seed {seed}"
            )


ALL = '{"gpu", "xcd"}'
GPU, XCD, WHOLE = '{"gpu"}', '{"xcd"}', "{}"


@pytest.mark.parametrize(
    ("x_dims", "w_dims", "y_dims", "partial"),
    [
        ((WHOLE, WHOLE, WHOLE), (WHOLE, ALL), (WHOLE, WHOLE, ALL), ""),
        ((GPU, WHOLE, WHOLE), (WHOLE, XCD), (GPU, WHOLE, XCD), ""),
        ((ALL, WHOLE, WHOLE), (WHOLE, WHOLE), (ALL, WHOLE, WHOLE), ""),  # two devices are idle
        ((WHOLE, WHOLE, ALL), (ALL, WHOLE), (WHOLE, WHOLE, WHOLE), '"gpu", "xcd"'),
        ((WHOLE, WHOLE, GPU), (GPU, XCD), (WHOLE, WHOLE, XCD), '"gpu"'),
        (
            (WHOLE, WHOLE, GPU + " offsets [0, 3, 3, 40]"),
            (GPU + " offsets [0, 3, 3, 40]", WHOLE),
            (WHOLE, WHOLE, WHOLE),
            '"gpu"',
        ),
        (
            (WHOLE, WHOLE, GPU + " cyclic(3)"),
            (GPU + " cyclic(3)", XCD + " zigzag"),
            (WHOLE, WHOLE, XCD + " zigzag"),
            '"gpu"',
        ),
    ],
)
def test_products_of_uneven_shards(x_dims: Dims, w_dims: Dims, y_dims: Dims, partial: str):
    x_t, w_t = type_of((4, 1, 40), x_dims), type_of((40, 50), w_dims)
    y_t = type_of((4, 1, 50), y_dims, partial=partial)
    rows, _, columns = extents_of(y_t)
    grid = -(-rows // min(2, rows)) * -(-columns // 16)
    text = f"""
    kernel.launch @product gemm reads (%x = @x : tensor<{x_t}>, %w = @w : tensor<{w_t}>)
        writes (@y) {attributes(tile=[2, 16, 16], grid=[grid], stages=2, split=1)} {{
      %y = nn.linear %x, %w : tensor<{x_t}>, tensor<{w_t}> -> tensor<{y_t}>
      kernel.yield %y : tensor<{y_t}>
    }}"""
    x, w = random(4, 1, 40), random(40, 50)
    check(Launch(text, {"x": x_t, "w": w_t, "y": y_t}, MESH), {"x": x, "w": w}, {"y": x @ w})


@pytest.mark.parametrize("features", [XCD, ALL])
def test_sums_of_squares_of_uneven_features(features: str):
    t = type_of((3, 2, 45), (WHOLE, WHOLE, features))
    w_t = type_of((45,), (features,))
    s_t = type_of((3, 2, 1), (WHOLE,) * 3, "f32", features.strip("{}"))
    text = f"""
    kernel.launch @sums norm reads (%x = @x : tensor<{t}>, %w = @w : tensor<{w_t}>)
        writes (@s, @y) {attributes(tile=[2, 8], grid=[3])} {{
      %s = nn.sum_squares %x : tensor<{t}> -> tensor<{s_t}>
      %y = nn.scale_columns %x, %w : tensor<{t}>, tensor<{w_t}> -> tensor<{t}>
      kernel.yield %s, %y : tensor<{s_t}>, tensor<{t}>
    }}"""
    x, w = random(3, 2, 45), random(45)
    s = np.sum(x * x, axis=-1, keepdims=True)
    launch = Launch(text, {"x": t, "w": w_t, "s": s_t, "y": t}, MESH)
    check(launch, {"x": x, "w": w}, {"s": s, "y": x * w})


@pytest.mark.parametrize(
    ("whole", "dims", "tile"),
    [
        ((4, 1, 40), (ALL, WHOLE, WHOLE), [1, 32]),
        ((5, 3, 40), (GPU, XCD, WHOLE), [2, 32]),
        ((5, 3, 41), (WHOLE, GPU, XCD), [4, 16]),
        ((4, 3, 16), (WHOLE, XCD + " cyclic(1, offset = 1, by = 0)", WHOLE), [4, 16]),
        ((4, 1, 16), (WHOLE, ALL + " cyclic(1, offset = 4, by = 0)", WHOLE), [2, 16]),
        ((5, 4, 16), (GPU, XCD + " cyclic(1, by = 0)", WHOLE), [2, 16]),
    ],
)
def test_elementwise_work_on_uneven_rows(whole: tuple[int, ...], dims: Dims, tile: list[int]):
    t = type_of(whole, dims)
    batch, query, columns = extents_of(t)
    positions = min(query, tile[0])
    sequences = max(1, min(batch, tile[0] // positions)) if positions == query else 1
    grid = -(-batch // sequences) * -(-query // positions) * -(-columns // tile[1])
    text = f"""
    kernel.launch @add elementwise reads (%a = @a : tensor<{t}>, %b = @b : tensor<{t}>)
        writes (@y) {attributes(tile=tile, grid=[grid])} {{
      %s = nn.add %a, %b : tensor<{t}>, tensor<{t}> -> tensor<{t}>
      %y = nn.silu %s : tensor<{t}> -> tensor<{t}>
      kernel.yield %y : tensor<{t}>
    }}"""
    a, b = random(*whole), random(*whole, seed=1)
    y = (a + b) / (1 + np.exp(-(a + b)))
    check(Launch(text, {"a": t, "b": t, "y": t}, MESH), {"a": a, "b": b}, {"y": y})
