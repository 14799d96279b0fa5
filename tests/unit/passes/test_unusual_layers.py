"""Layers that no example has: the plan and the reshards follow from the rules, and the collectives
compute what the whole tensors do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import (
    FileLineColLoc,
    FunctionType,
    IntAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    bf16,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region

from starc.checking.harness import check_module, check_pass, run_module
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.shard_map import Contiguous, Cyclic, ShardMap, Zigzag
from starc.dialects.collective import CollectiveOp
from starc.dialects.sharding import AnyTensor, MeshOp, ReshardOp, global_type
from starc.frontend.loading import load_model
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.collective.localize import LocalizePass
from starc.passes.nn.verify_model import VerifyModelPass
from starc.passes.sharding.assign_tensor_parallel import AssignTensorParallelPass
from starc.passes.sharding.propagate_shardings import PropagateShardingsPass
from starc.passes.verification import verify
from starc.targets.loader import load_target

HEAD = """
model "unusual" {
  dtype = bf16
  hidden = 48
  heads = 12
  kv_heads = 6
  head_dim = 4
  ffn = 96
  vocab = 144
  eps = 1e-5
}
"""
TAIL = """
stack { embedding, decoder * 2, rms_norm, lm_head }
phase decode { batch = 4, context = 9 }
"""

LAYERS = {
    # A split product meets a whole residual: gathered, for the layer returns what it takes.
    "residual": (
        """
        x = x + linear(x, hidden, name = "a")
        return x
        """,
        ["all_gather"],
    ),
    # A norm needs whole rows.
    "norm of columns": (
        """
        h = rms_norm(linear(x, ffn, name = "a"), name = "n")
        return x + linear(gelu(h), hidden, name = "b")
        """,
        ["all_gather", "all_gather"],
    ),
    # Two partial sums are added before they are combined, once.
    "sum of partial sums": (
        """
        a = gelu(linear(x, ffn, name = "a"))
        return x + (linear(a, hidden, name = "b") + linear(a, hidden, name = "c"))
        """,
        ["all_reduce"],
    ),
    # Row parallel after column parallel; what is not linear needs the sum.
    "chain": (
        """
        a = linear(linear(x, ffn, name = "a"), ffn, name = "b")
        return x + linear(silu(a), hidden, name = "c")
        """,
        ["all_reduce", "all_gather"],
    ),
    # Rope is linear: the partial queries are combined behind it, scattered by heads.
    "partial queries": (
        """
        q = rope(linear(linear(x, ffn, name = "a"), heads * head_dim, name = "q"), theta = 10000)
        k = rope(linear(x, kv_heads * head_dim, name = "k"), theta = 10000)
        v = linear(x, kv_heads * head_dim, name = "v")
        return x + linear(attention(q, k, v, causal), hidden, name = "o")
        """,
        ["reduce_scatter", "all_gather", "all_gather"],
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("mesh", [(3, 2), (2, 3), (1, 2)])
def test_unusual_layers_are_planned_and_computed(name: str, mesh: tuple[int, int]) -> None:
    body, collectives = LAYERS[name]
    text = f"{HEAD}layer decoder(x) {{{body}}}{TAIL}"
    module = load_model(text, file="unusual.sa").module
    target = load_target("mi300x-cpx", mesh={"gpu": mesh[0], "xcd": mesh[1]})
    data = seeded_data(module)
    reference = run_module(module, data)
    for step in (
        VerifyModelPass(),
        AssignTensorParallelPass(),
        PropagateShardingsPass(),
        LocalizePass(),
    ):
        step.run(module, target, RemarkSink())
        verify(module)
        found = check_module(step.name, module, data, reference)
        assert found.ok, (step.name, found.error, found.message)
    layer = next(
        op for op in module.body.ops if isinstance(op, FuncOp) and op.sym_name.data == "decoder"
    )
    names = [op.name for op in layer.walk() if isinstance(op, CollectiveOp)]
    assert [name.removeprefix("collective.") for name in names] == collectives


NODE = Mesh("node", (Axis("gpu", 2, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
REFS = (AxisRef("gpu"), AxisRef("xcd", 1, 2), AxisRef("xcd", 2, 2))


@st.composite
def encodings(draw: st.DrawFn) -> Encoding:
    refs = list(draw(st.permutations(REFS)))[: draw(st.integers(0, 3))]
    axes: dict[int, list[AxisRef]] = {}
    for ref in refs:
        axes.setdefault(draw(st.integers(0, 2)), []).append(ref)
    maps: list[ShardMap] = [Contiguous(), Contiguous(), Cyclic(1), Cyclic(2), Zigzag()]
    encoding = Encoding.replicated(NODE, 3)
    for dim, found in axes.items():
        encoding = encoding.with_dim(dim, found, draw(st.sampled_from(maps)))
    return encoding


@given(encodings(), encodings(), st.sampled_from([(4, 2, 16), (3, 1, 7), (1, 1, 1)]))
@settings(deadline=None, max_examples=60)
def test_reshards_move_the_right_elements(
    source: Encoding, target: Encoding, shape: tuple[int, ...]
) -> None:
    whole: AnyTensor = TensorType(bf16, shape)
    before, after = global_type(whole, source), global_type(whole, target)
    block = Block(arg_types=[before])
    reshard = ReshardOp([block.args[0]], [after])
    block.add_ops([reshard, ReturnOp(reshard.results[0])])
    layer = FuncOp("f", FunctionType.from_lists([before], [after]), Region(block))
    module = ModuleOp([MeshOp(NODE), layer])
    place = FileLineColLoc(StringAttr("test"), IntAttr(1), IntAttr(1))
    for op in module.walk():
        op.location = place
    _, found = check_pass(module, LocalizePass(), load_target("mi300x-cpx"))
    assert found.ok, (found.error, found.message)
