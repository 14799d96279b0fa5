"""The meaning of the nn operations, against code that is as plain as the definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.sharding.combiners import COMBINERS
from starc.core.vector_functions.table import BY_NAME
from starc.dialects import nn
from starc.frontend import load_model
from starc.interpreter.element_types import Array, Indices, Mode, load, numpy_dtype, store
from starc.interpreter.global_semantics import (
    ELEMENTWISE,
    Visibility,
    append,
    attention,
    embedding,
    gelu,
    last_token,
    linear,
    lse_finish,
    mul,
    norm_scale,
    partial_attention,
    rms_norm,
    rope,
    run_layer,
    silu,
    sum_squares,
)
from starc.interpreter.seeded_tensors import (
    seeded_inputs,
    seeded_parameter,
    seeded_parameters,
    seeded_states,
    seeded_tensor,
)
from tests.unit.frontend.models import TINY


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


# -- operations ----------------------------------------------------------------------------------


def plain_rope(x: Array, head_dim: int, theta: float, positions: Array) -> Array:
    """Every pair is a complex number that is turned by its angle."""
    result = np.zeros_like(x)
    half = head_dim // 2
    for batch, token, feature in np.ndindex(*x.shape):
        head, i = divmod(feature, head_dim)
        if i >= half:
            continue
        other = head * head_dim + i + half
        angle = float(positions[token]) * theta ** (-2.0 * i / head_dim)
        turned = complex(x[batch, token, feature], x[batch, token, other]) * np.exp(1j * angle)
        result[batch, token, feature] = turned.real
        result[batch, token, other] = turned.imag
    return result


def plain_attention(
    q: Array,
    k: Array,
    v: Array,
    head_dim: int,
    start: int,
    scale: float,
    causal: bool,
    window: int | None = None,
    keep: int = 0,
    sink: Array | None = None,
) -> Array:
    """One query, one head, one key at a time."""
    batch, tokens, features = q.shape
    heads, kv_heads = features // head_dim, k.shape[1]
    result = np.zeros_like(q)

    def sees(query: int, key: int) -> bool:
        if causal and key > query:
            return False
        return window is None or query - key < window or key < keep

    for b in range(batch):
        for t in range(tokens):
            for h in range(heads):
                kv = h // (heads // kv_heads)
                columns = slice(h * head_dim, (h + 1) * head_dim)
                visible = [p for p in range(k.shape[2]) if sees(start + t, p)]
                scores = [scale * float(q[b, t, columns] @ k[b, kv, p]) for p in visible]
                sinks = [] if sink is None else [float(sink[h])]
                largest = max(scores + sinks)
                weights = [math.exp(score - largest) for score in scores]
                total = sum(weights) + sum(math.exp(logit - largest) for logit in sinks)
                for p, weight in zip(visible, weights, strict=True):
                    result[b, t, columns] += weight / total * v[b, kv, p]
    return result


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 2),
    tokens=st.integers(1, 3),
    heads=st.integers(1, 3),
    half=st.integers(1, 4),
    start=st.integers(0, 1000),
    theta=st.floats(1.5, 1e6),
)
def test_rope_turns_pairs_of_dimensions(
    batch: int, tokens: int, heads: int, half: int, start: int, theta: float
) -> None:
    x = values(batch, tokens, heads * 2 * half, seed=start)
    positions = np.arange(start, start + tokens)
    turned = rope(x, 2 * half, theta, positions)
    np.testing.assert_allclose(turned, plain_rope(x, 2 * half, theta, positions), atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(turned), np.linalg.norm(x))


@settings(max_examples=25, deadline=None)
@given(shift=st.integers(0, 10_000), distance=st.integers(0, 100))
def test_scores_of_rotated_vectors_depend_on_their_distance_alone(
    shift: int, distance: int
) -> None:
    q, k = values(1, 1, 8, seed=1), values(1, 1, 8, seed=2)

    def score(q_position: int, k_position: int) -> float:
        turned_q = rope(q, 8, 10_000.0, np.array([q_position]))
        turned_k = rope(k, 8, 10_000.0, np.array([k_position]))
        return float(np.sum(turned_q * turned_k))

    assert score(shift + distance, shift) == pytest.approx(score(distance, 0), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(
    batch=st.integers(1, 2),
    tokens=st.integers(1, 4),
    past=st.integers(0, 6),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 3),
    head_dim=st.integers(1, 5),
    causal=st.booleans(),
)
def test_attention_is_a_softmax_over_visible_keys(
    batch: int, tokens: int, past: int, kv_heads: int, group: int, head_dim: int, causal: bool
) -> None:
    q = values(batch, tokens, kv_heads * group * head_dim, seed=1)
    k = values(batch, kv_heads, past + tokens, head_dim, seed=2)
    v = values(batch, kv_heads, past + tokens, head_dim, seed=3)
    result = attention(
        q,
        k,
        v,
        head_dim,
        np.arange(past, past + tokens),
        np.arange(past + tokens),
        0.5,
        Visibility(causal),
    )
    expected = plain_attention(q, k, v, head_dim, past, 0.5, causal)
    np.testing.assert_allclose(result, expected, atol=1e-12)


@dataclass(frozen=True)
class Attended:
    """An attention with a window and a sink, or without."""

    q: Array
    k: Array
    v: Array
    head_dim: int
    past: int
    visibility: Visibility
    sink: Array | None

    @property
    def expected(self) -> Array:
        sees = self.visibility
        return plain_attention(
            self.q,
            self.k,
            self.v,
            self.head_dim,
            self.past,
            0.5,
            sees.causal,
            sees.window,
            sees.keep,
            self.sink,
        )

    @property
    def positions(self) -> tuple[Indices, Indices]:
        keys: Indices = np.arange(int(self.k.shape[2]), dtype=np.int64)
        return keys[self.past :], keys


@st.composite
def attentions(draw: st.DrawFn) -> Attended:
    batch, tokens, past = draw(st.integers(1, 3)), draw(st.integers(1, 4)), draw(st.integers(0, 9))
    kv_heads, group, head_dim = (draw(st.integers(1, 3)) for _ in range(3))
    heads = kv_heads * group
    window = draw(st.none() | st.integers(1, 6))
    keep = draw(st.integers(0, 3)) if window is not None else 0
    return Attended(
        values(batch, tokens, heads * head_dim, seed=1),
        values(batch, kv_heads, past + tokens, head_dim, seed=2),
        values(batch, kv_heads, past + tokens, head_dim, seed=3),
        head_dim,
        past,
        Visibility(True, window, keep),
        draw(st.none() | st.just(values(heads, seed=4))),
    )


@settings(max_examples=60, deadline=None)
@given(attentions())
def test_windows_kept_positions_and_sinks(case: Attended) -> None:
    result = attention(
        case.q,
        case.k,
        case.v,
        case.head_dim,
        *case.positions,
        0.5,
        case.visibility,
        sink=case.sink,
    )
    np.testing.assert_allclose(result, case.expected, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(case=attentions(), ranks=st.integers(1, 8), seed=st.integers(0, 1000))
def test_parts_of_any_split_of_a_sequence_merge_to_the_attention(
    case: Attended, ranks: int, seed: int
) -> None:
    """Every sequence is split in its own way; shards may be empty, slots absent and poisoned."""
    generator = np.random.default_rng(seed)
    batch, _, length, _ = case.k.shape
    owners = generator.integers(0, ranks, (batch, length))
    q_positions, _ = case.positions
    heads = case.q.shape[2] // case.head_dim
    rows = np.zeros((batch, case.q.shape[1], heads))
    merged: tuple[Array, Array, Array] = (rows - np.inf, rows, np.zeros_like(case.q))
    for rank in range(ranks):
        held = [np.flatnonzero(owners[row] == rank) for row in range(batch)]
        slots = max(len(positions) for positions in held)
        positions = np.full((batch, slots), -1)
        k = np.full((batch, case.k.shape[1], slots, case.head_dim), np.nan)
        v = k.copy()
        for row, own in enumerate(held):
            positions[row, : len(own)] = own
            k[row, :, : len(own)] = case.k[row][:, own]
            v[row, :, : len(own)] = case.v[row][:, own]
        part = partial_attention(
            case.q, k, v, case.head_dim, q_positions, positions, 0.5, case.visibility
        )
        m, l, o = COMBINERS["lse"].combine(merged, part)  # noqa: E741
        merged = m, l, o
    np.testing.assert_allclose(lse_finish(*merged, case.sink), case.expected, atol=1e-12)


def test_a_query_that_sees_nothing_is_the_identity_of_the_combiner() -> None:
    q, k = values(1, 2, 4), values(1, 1, 3, 4)
    m, l, o = partial_attention(  # noqa: E741
        q, k, k, 4, np.array([5, 6]), np.array([0, 1, 2]), 1.0, Visibility(True, 2)
    )
    assert np.all(np.isneginf(m))
    assert not l.any()
    assert not o.any()
    assert not lse_finish(m, l, o).any()
    assert not lse_finish(m, l, o, np.zeros(1)).any()


def test_a_norm_in_parts_is_the_norm() -> None:
    x, w = values(2, 3, 8), values(8, seed=1)
    scale = norm_scale(sum_squares(x), 1e-5, 8)
    np.testing.assert_allclose(mul(mul(x, w), scale), rms_norm(x, w, 1e-5), rtol=1e-14)


def test_attention_over_some_heads_with_their_kv_heads_named() -> None:
    q, k, v = values(1, 2, 6 * 4), values(1, 3, 5, 4), values(1, 3, 5, 4, seed=4)
    positions = (np.array([3, 4]), np.arange(5))
    whole = attention(q, k, v, 4, *positions, 0.5, Visibility())
    heads = np.array([1, 4])
    columns = (4 * heads[:, None] + np.arange(4)).ravel()
    part = attention(q[..., columns], k, v, 4, *positions, 0.5, Visibility(), kv_head_of=heads // 2)
    np.testing.assert_allclose(part, whole[..., columns], atol=1e-15)


def test_attention_over_keys_in_any_order_of_positions() -> None:
    q, k, v = values(1, 2, 4), values(1, 1, 5, 4), values(1, 1, 5, 4, seed=4)
    queries, keys = np.array([3, 4]), np.arange(5)
    order = np.array([4, 2, 0, 3, 1])
    expected = attention(q, k, v, 4, queries, keys, 0.5, Visibility())
    shuffled = attention(
        q, k[:, :, order], v[:, :, order], 4, queries, keys[order], 0.5, Visibility()
    )
    np.testing.assert_allclose(shuffled, expected, atol=1e-14)


def test_a_query_that_sees_no_key_gets_zeros() -> None:
    x = values(1, 1, 4)
    cache = values(1, 1, 2, 4)
    result = attention(x, cache, cache, 4, np.array([0]), np.array([5, 6]), 1.0, Visibility())
    np.testing.assert_array_equal(result, np.zeros((1, 1, 4)))
    empty = values(1, 1, 0, 4)
    result = attention(x, empty, empty, 4, np.array([0]), np.arange(0), 1.0, Visibility())
    np.testing.assert_array_equal(result, np.zeros((1, 1, 4)))


def test_attention_of_large_scores_does_not_overflow() -> None:
    q, k = np.full((1, 1, 2), 1e4), np.full((1, 1, 3, 2), 1e4)
    v = values(1, 1, 3, 2)
    result = attention(q, k, v, 2, np.array([2]), np.arange(3), 1.0, Visibility())
    np.testing.assert_allclose(result[0, 0], v[0, 0].mean(axis=0))


def test_append_puts_heads_at_their_positions() -> None:
    state, x = values(2, 3, 5, 4), values(2, 2, 12, seed=1)
    result = append(state, x, np.array([2, 4]))
    for batch, head, position, i in np.ndindex(2, 3, 5, 4):
        token = {2: 0, 4: 1}.get(position)
        expected = state[batch, head, position, i]
        if token is not None:
            expected = x[batch, token, head * 4 + i]
        assert result[batch, head, position, i] == expected


def test_rms_norm_divides_rows_by_their_root_mean_square() -> None:
    x, w = values(1, 2, 5), values(5, seed=1)
    for token in range(2):
        row = x[0, token]
        root = math.sqrt(sum(float(element) ** 2 for element in row) / 5 + 1e-3)
        np.testing.assert_allclose(rms_norm(x, w, 1e-3)[0, token], row / root * w)


def test_linear_sums_over_features() -> None:
    x, w = values(2, 3, 4), values(4, 5, seed=1)
    np.testing.assert_allclose(linear(x, w), np.einsum("btk,kn->btn", x, w))


def test_activations_of_known_arguments() -> None:
    x = np.array([-1e4, -1.0, 0.0, 1.0, 1e4])
    sigmoid = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(silu(x), [0, sigmoid - 1, 0, sigmoid, 1e4], atol=1e-15)
    # Published values of the tanh form.
    np.testing.assert_allclose(gelu(x), [0, -0.158808, 0, 0.841192, 1e4], atol=1e-6)


def test_embedding_reads_rows_and_gives_zeros_for_rows_held_elsewhere() -> None:
    table = values(6, 3)
    ids = np.array([[0, 5], [3, 3]])
    np.testing.assert_array_equal(embedding(ids, table), table[ids])
    parts = [embedding(ids, table[first : first + 2], first) for first in (0, 2, 4)]
    np.testing.assert_array_equal(sum(parts), table[ids])
    np.testing.assert_array_equal(embedding(ids, table[:0]), np.zeros((2, 2, 3)))


def test_last_token_keeps_the_dimension() -> None:
    x = values(2, 3, 4)
    np.testing.assert_array_equal(last_token(x), x[:, [2], :])


# -- element types -------------------------------------------------------------------------------


def test_exact_mode_keeps_float64_and_typed_mode_rounds_to_nearest_even() -> None:
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 / 3])
    assert store(x, "bf16", "exact").dtype == np.float64
    np.testing.assert_array_equal(store(x, "bf16", "exact"), x)
    rounded = store(x, "bf16", "typed")
    assert rounded.dtype == numpy_dtype("bf16")
    assert load(rounded).dtype == np.float32
    np.testing.assert_array_equal(load(rounded)[:2], [1, 1 + 2**-6])


def test_float8_saturates() -> None:
    rounded = store(np.array([1e6, -1e6, 1.0]), "f8E4M3FN", "typed")
    np.testing.assert_array_equal(load(rounded), [448, -448, 1])


# -- layers --------------------------------------------------------------------------------------


def run(layer: str, mode: Mode, phase: str = "decode") -> tuple[Array, dict[str, Array]]:
    module = load_model(TINY, phase=phase).module
    result = run_layer(
        module,
        layer,
        seeded_inputs(module, layer),
        seeded_parameters(module),
        seeded_states(module),
        mode,
    )
    return load(result.outputs[0]), result.states


@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_a_decoder_layer_is_what_its_source_says(phase: str) -> None:
    module = load_model(TINY, phase=phase).module
    (x,) = seeded_inputs(module, "decoder")
    w = {name.removeprefix("decoder."): w for name, w in seeded_parameters(module).items()}
    caches = seeded_states(module)
    tokens, context = x.shape[1], caches["decoder.k_cache"].shape[2]
    positions: Indices = np.arange(context - tokens, context, dtype=np.int64)

    def norm(x: Array, weight: Array) -> Array:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight

    def heads(x: Array) -> Array:
        return x.reshape(*x.shape[:2], -1, 16).transpose(0, 2, 1, 3)

    h = norm(x, w["attn_norm"])
    q = plain_rope(h @ w["q"], 16, 1e4, positions)
    k = plain_rope(h @ w["k"], 16, 1e4, positions)
    keys, old_values = caches["decoder.k_cache"].copy(), caches["decoder.v_cache"].copy()
    keys[:, :, positions] = heads(k)
    old_values[:, :, positions] = heads(h @ w["v"])
    a = plain_attention(q, keys, old_values, 16, context - tokens, 0.25, True)
    y = x + a @ w["o"]
    h = norm(y, w["mlp_norm"])
    gate = h @ w["gate"]
    y = y + (gate / (1 + np.exp(-gate)) * (h @ w["up"])) @ w["down"]

    output, states = run("decoder", "exact", phase)
    np.testing.assert_allclose(output, y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(states["decoder.k_cache"], keys, atol=1e-12)
    np.testing.assert_allclose(states["decoder.v_cache"], old_values, atol=1e-12)


@pytest.mark.parametrize("layer", ["embedding", "decoder", "head"])
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_typed_mode_is_near_exact_mode_and_values_are_of_order_one(layer: str, phase: str) -> None:
    exact, _ = run(layer, "exact", phase)
    typed, _ = run(layer, "typed", phase)
    assert 0.3 < exact.std() < 3
    np.testing.assert_allclose(typed, exact, atol=0.08)


def test_a_run_leaves_its_arguments_alone() -> None:
    module = load_model(TINY).module
    states = seeded_states(module)
    before = {name: state.copy() for name, state in states.items()}
    run_layer(
        module,
        "decoder",
        seeded_inputs(module, "decoder"),
        seeded_parameters(module),
        states,
        "exact",
    )
    for name, state in states.items():
        np.testing.assert_array_equal(state, before[name])


def test_arguments_of_a_wrong_shape_are_refused() -> None:
    module = load_model(TINY).module
    with pytest.raises(ValueError, match="has shape"):
        run_layer(module, "decoder", [np.zeros((1, 1, 64))], {}, {}, "exact")
    with pytest.raises(ValueError, match="no layer @decodr"):
        run_layer(module, "decodr", [], {}, {}, "exact")


# -- test data -----------------------------------------------------------------------------------


def test_seeded_values_depend_on_name_and_shape_alone() -> None:
    first = seeded_parameter("decoder.q", (64, 32), "bf16")
    np.testing.assert_array_equal(first, seeded_parameter("decoder.q", (64, 32), "bf16"))
    assert not np.array_equal(first, seeded_parameter("decoder.k", (64, 32), "bf16"))
    assert not np.array_equal(first[:32], seeded_parameter("decoder.q", (32, 32), "bf16"))
    np.testing.assert_array_equal(load(store(first, "bf16", "typed")), first)


def test_seeded_values_are_scaled_by_their_use() -> None:
    assert seeded_parameter("decoder.q", (1024, 64), "bf16").std() == pytest.approx(1 / 32, rel=0.1)
    assert seeded_parameter("decoder.norm", (4096,), "bf16").mean() == pytest.approx(1, rel=0.1)
    assert seeded_parameter("embedding.table", (512, 64), "bf16").std() == pytest.approx(1, rel=0.1)
    assert seeded_tensor("x", (64, 64), "f32").std() == pytest.approx(1, rel=0.1)


def test_seeded_ids_are_rows_of_the_table() -> None:
    (ids,) = seeded_inputs(load_model(TINY, batch=64).module, "embedding")
    assert ids.dtype == np.int32
    assert ids.min() >= 0
    assert ids.max() < 512
    assert len(np.unique(ids)) > 32


# -- elementwise operations ----------------------------------------------------------------------

ELEMENTWISE_OPS = [op for op in nn.Nn.operations if issubclass(op, nn.ElementwiseOp)]


@pytest.mark.parametrize("op", ELEMENTWISE_OPS, ids=lambda op: op.name)
def test_a_vector_function_computes_what_its_operation_means(op: type[nn.ElementwiseOp]) -> None:
    function = BY_NAME[op.FUNCTION]
    operands = [values(4, 8, seed=seed) for seed in range(len(function.reads))]
    tiles = {"dst": np.zeros((4, 8)), **dict(zip(function.reads, operands, strict=True))}
    found = function.meaning(tiles, ())["dst"]
    np.testing.assert_allclose(found, ELEMENTWISE[op](*operands), rtol=1e-12)


@pytest.mark.parametrize(
    "op", [op for op in ELEMENTWISE_OPS if op.GATE is not None], ids=lambda op: op.name
)
def test_a_gate_is_the_operation_times_another_tile(op: type[nn.ElementwiseOp]) -> None:
    x, y = values(4, 8), values(4, 8, seed=1)
    found = BY_NAME[op.GATE or ""].meaning({"dst": np.zeros((4, 8)), "a": x, "b": y}, ())["dst"]
    np.testing.assert_allclose(found, ELEMENTWISE[op](x) * y, rtol=1e-12)
