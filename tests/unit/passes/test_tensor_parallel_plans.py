"""The naive plan on the example models: what is split over what, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from starc.analysis.sharding_rules import check
from starc.analysis.tensor_parallel import Split
from starc.core.sharding.mesh import Axis, Mesh, axes_text
from starc.diagnostics import InputError
from starc.dialects.collective import CollectiveOp
from starc.dialects.nn import ParameterOp, StateOp
from starc.dialects.sharding import encoding_of, global_shape, mesh_of
from starc.frontend.loading import load_model
from starc.passes.base import RemarkSink
from starc.passes.collective.localize import LocalizePass
from starc.passes.collective.select_collective_algorithm import SelectCollectiveAlgorithmPass
from starc.passes.nn.verify_model import VerifyModelPass
from starc.passes.sharding.assign_tensor_parallel import AssignTensorParallelPass
from starc.passes.sharding.propagate_shardings import PropagateShardingsPass
from starc.passes.verification import verify
from starc.targets.loader import load_target

EXAMPLES = Path(__file__).parents[3] / "examples"


def planned(
    model: str, machine: str, gpus: int, batch: int = 8, size: int | None = None
) -> ModuleOp:
    """The model after ``select-collective-algorithm``, verified after every pass."""
    module = load_model(EXAMPLES / f"{model}.sa", batch=batch).module
    target = load_target(machine, gpus=gpus)
    sink = RemarkSink()
    for step in (
        VerifyModelPass(tensor_parallel_size=size),
        AssignTensorParallelPass(tensor_parallel_size=size),
        PropagateShardingsPass(),
        LocalizePass(),
        SelectCollectiveAlgorithmPass(),
    ):
        step.run(module, target, sink)
        verify(module)
        assert check(module) == []
    return module


def shown(module: ModuleOp, name: str) -> str:
    for op in module.body.ops:
        if isinstance(op, ParameterOp | StateOp) and op.sym_name.data == name:
            return str(encoding_of(op.type, module))
    raise LookupError(name)


def kv_replication(module: ModuleOp) -> float:
    """KV bytes of all devices over those of the cache, per data-parallel replica."""
    mesh = mesh_of(module)
    held = whole = 0
    for op in module.body.ops:
        if isinstance(op, StateOp):
            encoding = encoding_of(op.type, mesh)
            assert encoding is not None
            shape = global_shape(op.type)
            whole += math.prod(shape)
            held += sum(math.prod(encoding.device_shape(shape, at)) for at in mesh.devices())
    return held / whole


@pytest.mark.parametrize(
    ("model", "machine", "gpus", "replication"),
    [
        ("llama3-8b", "mi300x-cpx", 4, 4.0),
        ("llama3-8b", "mi300x-cpx", 1, 1.0),
        ("llama3-8b", "mi300x-spx", 8, 1.0),
        ("llama3-70b", "mi300x-cpx", 8, 8.0),
        ("llama3-70b", "mi300x-spx", 8, 1.0),
        ("llama3-70b", "mi300x-cpx", 2, 2.0),
        ("llama3-405b", "mi300x-cpx", 8, 8.0),
        ("llama3-405b", "mi300x-spx", 8, 1.0),
    ],
)
def test_kv_replication(model: str, machine: str, gpus: int, replication: float) -> None:
    assert kv_replication(planned(model, machine, gpus)) == replication


def test_the_70b_plan_on_64_partitions() -> None:
    module = planned("llama3-70b", "mi300x-cpx", 8)
    assert shown(module, "decoder.q") == '[{}, {"gpu", "xcd"}]'
    assert shown(module, "decoder.k") == '[{}, {"gpu"}]'
    assert shown(module, "decoder.o") == '[{"gpu", "xcd"}, {}]'
    assert shown(module, "decoder.gate") == '[{}, {"gpu", "xcd"}]'
    assert shown(module, "decoder.down") == '[{"gpu", "xcd"}, {}]'
    assert shown(module, "decoder.attn_norm") == "[{}]"
    assert shown(module, "decoder.k_cache") == '[{}, {"gpu"}, {}, {}]'
    assert shown(module, "embedding.table") == '[{"gpu", "xcd"}, {}]'
    assert shown(module, "head.lm_head") == '[{}, {"gpu", "xcd"}]'


def test_kv_heads_take_leading_sub_axes() -> None:
    module = planned("llama3-8b", "mi300x-cpx", 4)
    assert shown(module, "decoder.k_cache") == '[{}, {"gpu", "xcd":(1)2}, {}, {}]'


def test_query_heads_follow_kv_heads_where_outer_axes_do_not_divide_them() -> None:
    # 2 KV heads on 3 x 2 devices: only the inner axis can split them, so it comes first.
    overrides = {"heads": "12", "kv_heads": "2", "ffn": "144", "vocab": "576"}
    module = load_model(EXAMPLES / "tiny.sa", batch=2, overrides=overrides).module
    target = load_target("mi300x-cpx", mesh={"gpu": 3, "xcd": 2})
    VerifyModelPass().run(module, target, RemarkSink())
    AssignTensorParallelPass().run(module, target, RemarkSink())
    PropagateShardingsPass().run(module, target, RemarkSink())
    assert check(module) == []
    assert shown(module, "decoder.k_cache") == '[{}, {"xcd"}, {}, {}]'
    assert shown(module, "decoder.q") == '[{}, {"xcd", "gpu"}]'
    assert shown(module, "decoder.o") == '[{"xcd", "gpu"}, {}]'
    assert shown(module, "decoder.gate") == '[{}, {"gpu", "xcd"}]'


def test_attention_alone_splits_its_arguments_by_heads() -> None:
    module = planned("attention", "mi300x-cpx", 1)
    (layer,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    types = (*layer.function_type.inputs, *layer.function_type.outputs)
    shapes = [str(encoding_of(type, module)) for type in types]
    assert shapes[0] == shapes[-1] == '[{}, {}, {"xcd"}]'
    assert not any(isinstance(op, CollectiveOp) for op in module.walk())


def test_a_layer_has_an_all_reduce_after_attention_and_after_the_mlp() -> None:
    module = planned("llama3-70b", "mi300x-cpx", 8)
    found = [op for op in module.walk() if isinstance(op, CollectiveOp)]
    assert [op.name for op in found] == ["collective.all_reduce"] * 3
    assert {op.algorithm.data for op in found if op.algorithm} == {"ring"}
    assert {op.transport.data for op in found if op.transport} == {"bulk"}


def test_the_rest_of_the_devices_divides_the_batch() -> None:
    module = planned("llama3-8b", "mi300x-cpx", 8, batch=8, size=16)
    assert shown(module, "decoder.k_cache") == ('[{"gpu":(1)4}, {"gpu":(4)2, "xcd":(1)4}, {}, {}]')
    assert shown(module, "decoder.q") == '[{}, {"gpu":(4)2, "xcd"}]'


def test_fully_connected_gpus_get_several_rings() -> None:
    module = planned("llama3-70b", "mi300x-spx", 8)
    rings = {str(op.rings) for op in module.walk() if isinstance(op, CollectiveOp)}
    assert rings == {"array<i64: 1, 3, 5, 7>"}
    flat = planned("llama3-70b", "mi300x-cpx", 8)
    assert {str(op.rings) for op in flat.walk() if isinstance(op, CollectiveOp)} == {
        "array<i64: 1>"
    }


@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b", "llama3-405b"])
def test_layers_are_small_programs(model: str) -> None:
    gpus = 4 if model == "llama3-8b" else 8
    assert sum(1 for _ in planned(model, "mi300x-cpx", gpus).walk()) < 200


def refusal(model: str, gpus: int, batch: int = 8, size: int | None = None) -> InputError:
    module = load_model(EXAMPLES / f"{model}.sa", batch=batch).module
    target = load_target("mi300x-cpx", gpus=gpus)
    with pytest.raises(InputError) as caught:
        VerifyModelPass(tensor_parallel_size=size).run(module, target, RemarkSink())
    return caught.value


def test_8b_on_64_devices_names_the_sizes_that_work() -> None:
    (found,) = refusal("llama3-8b", 8).diagnostics
    assert found.message == "32 heads cannot be split over 64 devices"
    assert (
        found.hint
        == "32 heads allow --tensor-parallel-size 1, 2, 4, 8, 16, 32, or any with --uneven"
    )
    assert found.location is not None


def test_a_size_that_does_not_divide_the_devices() -> None:
    (found,) = refusal("llama3-8b", 8, size=24).diagnostics
    assert found.message == "tensor-parallel size 24 does not divide the 64 devices of mi300x-cpx"
    assert found.hint is not None
    assert found.hint.endswith("1, 2, 4, 8, 16, 32")


def test_a_batch_that_the_replicas_cannot_share() -> None:
    (found,) = refusal("llama3-8b", 8, batch=3, size=32).diagnostics
    assert found.message == (
        "batch 3 cannot be divided over 2 data-parallel replicas "
        "(64 devices / tensor-parallel size 32)"
    )


def test_uneven_plans_tell_their_shares() -> None:
    overrides = {"heads": "28", "kv_heads": "4", "ffn": "6"}
    module = load_model(EXAMPLES / "tiny.sa", batch=3, overrides=overrides).module
    target = load_target("mi300x-cpx", gpus=2)
    sink = RemarkSink()
    VerifyModelPass(tensor_parallel_size=8, uneven=True).run(module, target, sink)
    told = [remark.message for _, remark in sink.remarks if remark.id == "uneven-shares"]
    assert "28 heads over 8 ranks: 4 at most, 3 at least" in told
    assert any("columns of @decoder" in text and "2 ranks without any" in text for text in told)
    assert "a batch of 3 over 2 ranks: 2 at most, 1 at least" in told
    AssignTensorParallelPass(tensor_parallel_size=8, uneven=True).run(module, target, sink)
    PropagateShardingsPass().run(module, target, sink)
    assert check(module) == []


@pytest.mark.parametrize(
    ("heads", "kv_heads", "mesh", "query", "kv"),
    [
        # KV heads on neither a divisor nor a multiple of devices: whole groups.
        (32, 8, (3, 2), (8, 8, 4, 4, 4, 4), (2, 2, 1, 1, 1, 1)),
        # Query heads that would divide go with their KV heads all the same.
        (12, 4, (3, 2), (3, 3, 3, 3, 0, 0), (1, 1, 1, 1, 0, 0)),
        (12, 3, (4, 2), (4, 4, 4, 0, 0, 0, 0, 0), (1, 1, 1, 0, 0, 0, 0, 0)),
        # Devices that share a KV head share its query heads.
        (28, 4, (1, 8), (4, 3) * 4, (1,) * 4),
        (4, 4, (2, 4), (1, 0) * 4, (1,) * 4),
        (7, 1, (3, 2), (2, 1, 1, 1, 1, 1), (1,)),
    ],
)
def test_shares_of_heads(
    heads: int, kv_heads: int, mesh: tuple[int, int], query: tuple[int, ...], kv: tuple[int, ...]
) -> None:
    devices = Mesh("node", (Axis("gpu", mesh[0]), Axis("xcd", mesh[1])))
    axes = devices.all_axes()
    assert Split(heads, kv_heads).shares(devices, axes) == query
    assert Split(kv_heads, kv_heads, replicable=True).shares(devices, axes) == kv


# Meshes with several axes a level

CUBES = Mesh(
    "node",
    (
        Axis("sip", 4, "outer"),
        Axis("group", 2, "outer"),
        Axis("cube", 8, "inner"),
        Axis("pe", 8, "inner"),
    ),
)


@pytest.mark.parametrize(
    ("split", "axes"),
    [
        (Split(8, 8, replicable=True), '"sip", "group"'),
        (Split(64, 8), '"sip", "group", "cube"'),
        (Split(28672), '"sip", "group", "cube", "pe"'),
        (Split(128256), '"sip", "group", "cube", "pe":(1)4'),
        (Split(2, 2, replicable=True), '"sip":(1)2'),
    ],
)
@pytest.mark.parametrize("uneven", [False, True])
def test_axes_that_divide_split_and_others_share(split: Split, axes: str, uneven: bool) -> None:
    found = split.sharding(CUBES, CUBES.all_axes()).axes if uneven else None
    if uneven and split.kv_heads is None:
        assert axes_text(found or ()) == axes_text(CUBES.all_axes())  # blocks, one a device
        return
    assert axes_text(found or split.axes(CUBES, CUBES.all_axes())) == axes


def test_pieces_are_shared_by_devices_of_a_nested_mesh_alone() -> None:
    assert CUBES.is_nested
    assert Split(64, 8).allows(512, shared=CUBES.is_nested)
    flat = Mesh("node", (Axis("gpu", 8, "outer"), Axis("xcd", 8, "inner")))
    assert not flat.is_nested
    assert not Split(32, 8).allows(64, shared=flat.is_nested)


def test_a_plan_says_how_often_a_weight_is_stored() -> None:
    node = load_target("mi300x-cpx", mesh={"gpu": 8, "xcd": 8})
    rows = (("a", 8, "outer", "xgmi"), ("b", 2, "inner", "usr"), ("c", 4, "inner", "usr"))
    target = replace(node, mesh=rows)
    module = load_model(EXAMPLES / "llama3-8b.sa", batch=8).module
    sink = RemarkSink()
    VerifyModelPass().run(module, target, sink)
    AssignTensorParallelPass().run(module, target, sink)
    shared = {
        str(remark.message).split(" ", 1)[0]: remark.numbers["replication"]
        for _, remark in sink.remarks
        if remark.id == "shared-pieces"
    }
    assert shared == {"@decoder.q": 2, "@decoder.k": 8, "@decoder.v": 8, "@decoder.o": 2}
    assert shown(module, "decoder.q") == '[{}, {"a", "b", "c":(1)2}]'
