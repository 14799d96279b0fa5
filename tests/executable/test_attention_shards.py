"""Attention with windows and sinks, and over sequence-sharded caches, at the lockstep levels.

Every case runs before and after ``shard-attention-sequence``, as reshards and as collectives, in
both arithmetics, against the reference. Then what is known to go wrong in sharded attention is done
wrong on purpose, and has to be found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import VerifyException

from starc.analysis import sharding_rules
from starc.checking.harness import check_module, run_module
from starc.core.sharding import combiners
from starc.core.sharding.shard_map import CONTIGUOUS
from starc.dialects import nn
from starc.dialects.sharding import (
    AnyTensor,
    ReshardOp,
    Sharding,
    encoding_of,
    global_type,
    mesh_of,
)
from starc.interpreter import global_semantics, local_semantics
from starc.interpreter.element_types import Array, Mode, store
from starc.interpreter.seeded_data import seeded_data
from starc.passes.base import RemarkSink
from starc.passes.collective.localize import LocalizePass
from starc.passes.sharding.shard_attention_sequence import ShardAttentionSequencePass
from starc.targets.loader import load_target
from tests.executable.cases import UNEVEN, Case, decode, load, prefill

WINDOWS = (
    decode("windows", (1, 1), batch=2),
    decode("windows", (2, 2), batch=3, context=37),
    decode("windows", (4, 2), batch=1, context=1),
    decode("windows", (2, 2), batch=4, tp=2),
    prefill("windows", (4, 2), batch=2, prompt=21),
    prefill("windows", (2, 2), prompt=7, context=40),
)


@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows_and_sinks_in_the_naive_plan(case: Case) -> None:
    loaded = load(case)
    module = loaded.module.clone()
    for instance in loaded.passes:
        if instance.name == "form-kernels":
            break
        instance.run(module, loaded.target, RemarkSink(pass_name=instance.name))
        check(case, module, instance.name)


# -- before and after the pass -------------------------------------------------------------------

SHARDS = (
    decode("gqa", (1, 1), batch=2),
    decode("gqa", (2, 2), batch=3),
    decode("gqa", (4, 2), batch=1, context=65),
    decode("gqa", (2, 2), batch=4, tp=2),
    decode("mqa", (2, 2), batch=2),
    decode("mqa", (4, 2), batch=3, context=5),
    decode("mqa", (4, 2), batch=1, context=1),
    decode("mqa", (3, 2), batch=6, context=16, tp=2),
    decode("mha", (4, 2), batch=2),
    decode("triple", (3, 2), batch=4),
    decode("triple", (3, 2), batch=1, context=4),
    replace(decode("six", (2, 2), batch=2, context=11), uneven=True),
    replace(decode("groups", (4, 2), batch=3, context=13), uneven=True),
    replace(decode("groups", (1, 8), batch=1, context=29), uneven=True),
    decode("alternating", (4, 2), batch=2, context=70),
    decode("attention", (2, 2), batch=2, context=33),
    decode("windows", (4, 2), batch=3),
    decode("windows", (1, 8), batch=2, context=3),
    prefill("gqa", (4, 2), batch=3, prompt=3, context=40),
    prefill("mqa", (2, 2), prompt=35),
    prefill("mqa", (4, 2), batch=2, prompt=3),
    prefill("triple", (3, 2), prompt=7),
    replace(prefill("groups", (4, 2), prompt=5, context=9), uneven=True),
    prefill("attention", (4, 2), batch=2, prompt=5, context=33),
    prefill("windows", (4, 2), batch=2, prompt=21, context=40),
    prefill("windows", (2, 2), prompt=13),
)
SOME = (SHARDS[1], SHARDS[5], SHARDS[7], SHARDS[11], SHARDS[12], SHARDS[16], SHARDS[18], SHARDS[24])
"""Cases for options that change little."""

LARGE = (
    decode("wide", (8, 8), batch=2, context=19),
    decode("shared", (8, 8), batch=2, context=21),
    prefill("wide", (8, 8), prompt=3, context=11),
)
OPTIONS: tuple[Mapping[str, Any], ...] = (
    {"mode": "queries"},
    {"mode": "keys"},
    {"mode": "queries", "map": "contiguous", "partial": "f32"},
    {"mode": "queries", "block": 3},
    {"mode": "keys", "block": 2},
)


def check(case: Case, module: ModuleOp, name: str) -> None:
    """The module gives the reference's numbers in both arithmetics and keeps every rule."""
    loaded = load(case)
    module.verify()
    assert sharding_rules.check(module) == []
    for mode in ("exact", "typed"):
        found = check_module(name, module, loaded.data, loaded.reference, mode)
        assert found.ok, (name, mode, found.error, found.message)


def propagated(case: Case) -> ModuleOp:
    """The case's module before localisation. Plans that are not even are not refused."""
    loaded = load(case)
    module = loaded.module.clone()
    for instance in loaded.passes:
        if instance.name == "localize":
            return module
        if instance.name != "verify-model":
            instance.run(module, loaded.target, RemarkSink(pass_name=instance.name))
    raise AssertionError("no pass localizes")


def sharded(case: Case, options: Mapping[str, Any]) -> ModuleOp:
    """The case's module with its caches split along the sequence."""
    module = propagated(case)
    instance = ShardAttentionSequencePass(**options)
    instance.run(module, load(case).target, RemarkSink(pass_name=instance.name))
    return module


def localize(case: Case, module: ModuleOp) -> None:
    loaded = load(case)
    instance = next(found for found in loaded.passes if found.name == "localize")
    instance.run(module, loaded.target, RemarkSink(pass_name=instance.name))


@pytest.mark.parametrize(
    ("case", "options"),
    [
        *((case, options) for case in (*SHARDS, *UNEVEN) for options in OPTIONS[:2]),
        *((case, options) for case in SOME for options in OPTIONS[2:]),
    ],
    ids=lambda value: str(value) if isinstance(value, Case) else "-".join(map(str, value.values())),
)
def test_sharded_attention_computes_what_attention_does(
    case: Case, options: Mapping[str, Any]
) -> None:
    module = sharded(case, options)
    check(case, module, "shard-attention-sequence")
    localize(case, module)
    check(case, module, "localize")


@pytest.mark.parametrize("options", OPTIONS[:2], ids=["queries", "keys"])
@pytest.mark.parametrize("case", LARGE, ids=str)
def test_sharded_attention_on_64_devices(case: Case, options: Mapping[str, Any]) -> None:
    module = sharded(case, options)
    localize(case, module)
    check(case, module, "localize")


@pytest.mark.parametrize("case", SHARDS, ids=str)
def test_no_cache_is_stored_twice(case: Case) -> None:
    module = sharded(case, {"mode": "queries"})
    mesh = mesh_of(module)
    for op in module.walk():
        if isinstance(op, nn.StateOp):
            encoding = encoding_of(op.type, mesh)
            assert encoding is not None
            assert encoding.replication == 1


def grouped(heads: int, kv_heads: int, head_axes: str, kv_axes: str, batch: int = 3) -> ModuleOp:
    """Attention on 2 x 2 devices whose heads lie as given, over 11 positions, the last 2 new."""
    query = f"tensor<{batch}x2x{4 * heads}xbf16, #sharding.of<@node, [{{}}, {{}}, {head_axes}]>>"
    new = f"tensor<{batch}x2x{4 * kv_heads}xbf16, #sharding.of<@node, [{{}}, {{}}, {kv_axes}]>>"
    dims = f"[{{}}, {kv_axes}, {{}}, {{}}]"
    cache = f"tensor<{batch}x{kv_heads}x11x4xbf16, #sharding.of<@node, {dims}>>"
    logits = head_axes.replace("[0, 8, 16, 24, 28]", "[0, 2, 4, 6, 7]")
    sink = f"tensor<{heads}xbf16, #sharding.of<@node, [{logits}]>>"
    text = f"""
    sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
    nn.parameter @l.sink : {sink}
    nn.state @l.k : {cache}
    nn.state @l.v : {cache}
    func.func @l(%q : {query}, %k : {new}, %v : {new}) -> {query} {{
      %s = nn.read @l.sink : {sink}
      %0 = nn.append @l.k, %k {{start = 9 : i64}} : {new} -> {cache}
      %1 = nn.append @l.v, %v {{start = 9 : i64}} : {new} -> {cache}
      %2 = nn.attention %q, %0, %1 sink %s : {sink}
        {{head_dim = 4 : i64, start = 9 : i64, scale = 0.5 : f64, causal}}
        : {query}, {cache}, {cache} -> {query}
      func.return %2 : {query}
    }}
    """
    context = Context()
    for dialect in (Builtin, Func, nn.Nn, Sharding):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


@pytest.mark.parametrize(
    "layout",
    [
        # Seven heads of one KV head: all devices of a KV head merge all of them.
        (14, 2, '{"gpu"}', '{"gpu"}'),
        # Six heads: scattered over one axis, combined over the other.
        (6, 1, '{"gpu"}', "{}"),
        (6, 1, '{"xcd"}', "{}"),
        # Nothing is split, or not in the order of the mesh.
        (3, 3, "{}", "{}"),
        (8, 2, '{"xcd", "gpu"}', '{"xcd"}'),
        # Heads by offsets.
        (7, 1, '{"gpu", "xcd"} offsets [0, 8, 16, 24, 28]', "{}"),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["queries", "keys"])
def test_heads_that_do_not_divide_over_the_devices(
    layout: tuple[int, int, str, str], mode: str
) -> None:
    module = grouped(*layout)
    target = load_target("mi300x-cpx", mesh={"gpu": 2, "xcd": 2})
    data = seeded_data(module)
    reference = run_module(module, data)
    passes = (ShardAttentionSequencePass(mode=mode), LocalizePass())
    for instance in passes:
        instance.run(module, target, RemarkSink(pass_name=instance.name))
        module.verify()
        assert sharding_rules.check(module) == []
        found = check_module(instance.name, module, data, reference)
        assert found.ok, (instance.name, found.error, found.message)


# -- what goes wrong -----------------------------------------------------------------------------

TRAPS = decode("windows", (1, 8), batch=2, context=21)
EMPTY = decode("mqa", (4, 2), batch=3, context=5)
SINKS = prefill("windows", (2, 4), batch=2, prompt=5, context=21)


def is_found(case: Case, module: ModuleOp, mode: Mode = "exact") -> bool:
    """Whether the check refuses a module, or its meaning as it is now."""
    loaded = load(case)
    return not check_module("wrong", module, loaded.data, loaded.reference, mode).ok


PARTS = global_semantics.partial_attention
Parts = tuple[Array, Array, Array]


def large_scores(case: Case) -> ModuleOp:
    """The module of a case with scores of hundreds, so that exponentials underflow in f32."""
    module = sharded(case, {"mode": "queries", "partial": "f32"})
    for op in module.walk():
        if isinstance(op, nn.PartialAttentionOp):
            op.properties["scale"] = type(op.scale)(60.0, 64)
    return module


def test_a_masked_row_with_a_maximum_of_zero_hides_what_other_ranks_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(a) A rank that sees nothing publishes m = 0: ranks at m = -200 underflow beside it."""
    scores = np.full((1, 1, 1), -200.0, np.float32)
    seen = (scores, np.ones_like(scores), np.ones((1, 1, 4), np.float32))
    nothing = (
        np.full_like(scores, -np.inf),
        np.zeros_like(scores),
        np.zeros((1, 1, 4), np.float32),
    )
    merge = combiners.COMBINERS["lse"].combine
    right = global_semantics.lse_finish(*merge(seen, nothing))
    np.testing.assert_array_equal(right, np.ones((1, 1, 4)))
    wrong = global_semantics.lse_finish(*merge(seen, (np.zeros_like(scores), *nothing[1:])))
    assert not wrong.any()

    def publish_zero(*arguments: Any) -> Parts:
        m, l, o = PARTS(*arguments)  # noqa: E741
        masked: Array = np.isneginf(m)
        return np.where(masked, np.zeros((), m.dtype), m), l, o

    # In f32 the module loses whole rows, and says so.
    case = decode("mqa", (4, 2), batch=8, context=1)
    loaded = load(case)
    module = large_scores(case)
    right_run = check_module("right", module, loaded.data, loaded.reference, "typed")
    monkeypatch.setattr(global_semantics, "partial_attention", publish_zero)
    wrong_run = check_module("wrong", module, loaded.data, loaded.reference, "typed")
    assert right_run.ok
    assert not wrong_run.ok


def test_a_sink_on_every_rank_counts_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """(b) Sums that start with the sink's weight on every rank count it once a rank."""
    module = sharded(SINKS, {"mode": "queries"})
    assert not is_found(SINKS, module)

    def with_sink(*arguments: Any) -> Parts:
        m, l, o = PARTS(*arguments)  # noqa: E741
        return m, l + np.exp(1.0 - np.where(np.isneginf(m), 1.0, m)), o

    monkeypatch.setattr(global_semantics, "partial_attention", with_sink)
    assert is_found(SINKS, module)


def test_a_sink_before_the_merge_is_refused() -> None:
    """(b) as IR: the end of an attention takes no partial operand."""
    module = sharded(SINKS, {"mode": "queries"})
    finish = next(op for op in module.walk() if isinstance(op, nn.LseFinishOp))
    merge = cast(ReshardOp, finish.m.owner)
    for index, part in enumerate(merge.inputs):
        finish.operands[index] = part
    assert sharding_rules.check(module) != []


def test_a_window_on_local_positions_is_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """(c) A mask by the index in the shard in place of the position."""
    module = sharded(TRAPS, {"mode": "queries"})
    assert not is_found(TRAPS, module)

    def local_window(
        q: Array, k: Array, v: Array, head_dim: int, q_at: Array, k_at: Array, *more: Any
    ) -> Parts:
        local: Array = np.zeros_like(k_at) + np.arange(int(k_at.shape[-1]), dtype=np.int64)
        local[k_at < 0] = -1
        return PARTS(q, k, v, head_dim, q_at // 8, local, *more)

    monkeypatch.setattr(global_semantics, "partial_attention", local_window)
    assert is_found(TRAPS, module)


def test_two_empty_ranks_without_the_guard_are_not_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(d) exp(-inf - -inf) where neither of two ranks sees a key."""
    module = sharded(EMPTY, {"mode": "queries"})

    def unguarded(left: combiners.Parts, right: combiners.Parts) -> combiners.Parts:
        m = np.maximum(left[0], right[0])
        with np.errstate(invalid="ignore"):
            a, b = np.exp(left[0] - m), np.exp(right[0] - m)
        width = left[2].shape[-1] // max(m.shape[-1], 1)
        wide = (np.repeat(scale, width, axis=-1) for scale in (a, b))
        return m, left[1] * a + right[1] * b, left[2] * next(wide) + right[2] * next(wide)

    assert not is_found(EMPTY, module)
    broken = dict(combiners.COMBINERS)
    broken["lse"] = combiners.Combiner(
        "lse", ("m", "l", "o"), (-np.inf, 0.0, 0.0), unguarded, combiners.COMBINERS["lse"].finalise
    )
    monkeypatch.setattr("starc.interpreter.values.COMBINERS", broken)
    assert is_found(EMPTY, module)


def test_an_empty_rank_with_an_infinite_maximum_wins_every_merge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """(e) Kernels that return +inf for an empty rank, as some do."""
    module = sharded(EMPTY, {"mode": "queries"})

    def plus_infinity(*arguments: Any) -> Parts:
        m, l, o = PARTS(*arguments)  # noqa: E741
        return np.where(np.isneginf(m), np.array(np.inf), m), l, o

    monkeypatch.setattr(global_semantics, "partial_attention", plus_infinity)
    with np.errstate(invalid="ignore", over="ignore"):
        assert is_found(EMPTY, module)


def test_normalised_values_do_not_merge_as_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """(f) o / l in the place of o."""
    module = sharded(TRAPS, {"mode": "queries"})

    def normalised(*arguments: Any) -> Parts:
        m, l, o = PARTS(*arguments)  # noqa: E741
        return m, l, global_semantics.lse_finish(m, l, o)

    monkeypatch.setattr(global_semantics, "partial_attention", normalised)
    assert is_found(TRAPS, module)


def test_a_narrow_sum_loses_tokens() -> None:
    """(g) Sums of bf16 stop growing at 256; the verifier refuses anything but f32."""
    tokens = np.ones(300)
    sums: list[float] = []
    for name in ("bf16", "f32"):
        total = np.zeros(())
        for token in tokens:
            total = store(np.asarray(total + token), name, "typed").astype(np.float64)
        sums.append(float(total))
    assert sums == [256.0, 300.0]
    module = sharded(TRAPS, {"mode": "queries"})
    parts = next(op for op in module.walk() if isinstance(op, nn.PartialAttentionOp))
    mesh = mesh_of(module)
    for value in (parts.m, parts.l):
        encoding = encoding_of(value.type, mesh)
        assert encoding is not None
        values = cast(AnyTensor, parts.o.type)
        narrow_type = type(values)(values.element_type, cast(AnyTensor, value.type).get_shape())
        Rewriter.replace_value_with_new_type(value, global_type(narrow_type, encoding))
    with pytest.raises(VerifyException, match="results m and l must be f32"):
        parts.verify()


def test_tokens_that_are_sent_to_the_wrong_owner_are_missed() -> None:
    """The owner of a token is (sequence + position) modulo the devices: one place off is found by
    the rule, and by what the devices hold."""
    module = sharded(TRAPS, {"mode": "queries"})
    mesh = mesh_of(module)
    append = next(op for op in module.walk() if isinstance(op, nn.AppendOp))
    encoding = encoding_of(append.input.type, mesh)
    assert encoding is not None
    wrong = encoding.with_dim(1, encoding.dims[1].axes, CONTIGUOUS)
    reshard = cast(ReshardOp, append.input.owner)
    Rewriter.replace_value_with_new_type(
        reshard.results[0], global_type(cast(AnyTensor, append.input.type), wrong)
    )
    assert sharding_rules.check(module) != []
    assert is_found(TRAPS, module)


def test_heads_in_another_order_are_found() -> None:
    """A merge by owners that do not have the heads which the next product expects."""
    module = sharded(SINKS, {"mode": "queries"})
    finish = next(op for op in module.walk() if isinstance(op, nn.LseFinishOp))
    assert local_semantics.MEANINGS["nn.lse_finish"] is not None
    finish.operands[0], finish.operands[1] = finish.operands[1], finish.operands[0]
    assert is_found(SINKS, module)
