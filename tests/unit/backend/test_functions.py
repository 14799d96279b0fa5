"""The vector functions against their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from starc.core.vector_functions.function import OPERAND_FIELDS, real_bits, real_value
from starc.core.vector_functions.table import FUNCTIONS, function

Array = npt.NDArray[Any]
rng = np.random.default_rng(7)


def apply(name: str, parameters: tuple[int | float, ...] = (), **tiles: Array) -> dict[str, Array]:
    return dict(function(name).meaning(tiles, parameters))


def normal(*shape: int) -> Array:
    return rng.normal(size=shape)


def test_table_is_indexed_by_id_and_names_fields_it_has():
    for i, entry in enumerate(FUNCTIONS):
        assert entry.id == i
        assert function(entry.name) is entry
        fields = OPERAND_FIELDS[: len(entry.operands)]
        assert set(entry.reads) | set(entry.writes) <= set(fields)
        assert "dst" in entry.writes
        assert len(entry.parameters) <= 8
        assert entry.summary


def test_unknown_function():
    with pytest.raises(KeyError):
        function("sigmoid")
    with pytest.raises(KeyError):
        function(len(FUNCTIONS))


@pytest.mark.parametrize("value", [0.0, 1e-5, -500000.0, 2.0**-1074])
def test_real_parameters_keep_every_bit(value: float):
    assert real_value(real_bits(value)) == value
    assert function("scale").decode([real_bits(value)]) == (value,)


def test_work_counts_the_largest_operand():
    assert function("add").work([64, 64, 1]) == 64
    assert function("softmax_step").work([64, 64, 8, 8, 8]) == 640
    assert function("rescale").work([1024, 8]) == 2048


def test_silu_and_gelu():
    x = np.array([[-800.0, -1.0, 0.0, 1.0, 800.0]])
    np.testing.assert_allclose(
        apply("silu", dst=x, a=x)["dst"], [[0, -1 / (1 + np.e), 0, np.e / (1 + np.e), 800]]
    )
    np.testing.assert_allclose(
        apply("gelu", dst=x, a=x)["dst"], [[0, -0.15880801, 0, 0.84119199, 800]], atol=1e-8
    )
    y = normal(3, 5)
    gated = apply("silu_mul", dst=y, a=y, b=2 * y)["dst"]
    np.testing.assert_allclose(gated, 2 * y * y / (1 + np.exp(-y)))


def test_rms_norm_in_two_steps():
    x, w = normal(3, 64), normal(1, 64)
    squares = np.zeros((3, 1))
    for part in (x[:, :32], x[:, 32:]):
        squares = apply("row_sum_squares_add", dst=squares, a=part)["dst"]
    y = apply("rms_apply", (64, 1e-5), dst=x, a=x, b=squares, c=w)["dst"]
    expected = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w
    np.testing.assert_allclose(y, expected)


def test_rope_rotates_halves_by_position():
    x = normal(4, 16)  # two heads of 8
    y = apply("rope", (8, 10000.0, 100, 2, 1), dst=x, a=x)["dst"]
    for row, position in enumerate([101, 100, 101, 100]):
        for head in range(2):
            for i in range(4):
                angle = position * 10000.0 ** (-2 * i / 8)
                low, high = x[row, head * 8 + i], x[row, head * 8 + i + 4]
                assert y[row, head * 8 + i] == pytest.approx(
                    low * np.cos(angle) - high * np.sin(angle)
                )
                assert y[row, head * 8 + i + 4] == pytest.approx(
                    high * np.cos(angle) + low * np.sin(angle)
                )


def attention(q: Array, k: Array, v: Array, visible: Array, scale: float) -> Array:
    s = np.where(visible, q @ k.T * scale, -np.inf)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ v / p.sum(axis=1, keepdims=True)


class Online:
    """Online softmax by the table's functions, over tiles of keys."""

    def __init__(self, rows: int, width: int, dtype: Any = np.float64) -> None:
        self.m: Array = np.full((rows, 1), -np.inf, dtype)
        self.total: Array = np.zeros((rows, 1), dtype)
        self.o: Array = np.zeros((rows, width), dtype)

    def step(self, scores: Array, v: Array, parameters: tuple[float, int, int, int, int]) -> None:
        out = apply(
            "softmax_step", parameters, dst=scores, a=scores, b=self.m, c=self.total, d=self.m
        )
        self.m, self.total = out["b"], out["c"]
        self.o = apply("rescale", dst=self.o, a=out["d"])["dst"] + out["dst"] @ v

    def packed(self) -> Array:
        width = self.o.shape[1] + 2
        dst = np.empty((len(self.o), width), self.o.dtype)
        return apply("lse_pack", dst=dst, a=self.m, b=self.total, c=self.o)["dst"]

    def merge(self, other: Online) -> None:
        out = apply("lse_merge", dst=self.o, a=self.m, b=self.total, c=other.packed())
        self.o, self.m, self.total = out["dst"], out["a"], out["b"]

    def finish(self) -> Array:
        return apply("lse_finish", dst=self.o, a=self.total, b=self.o)["dst"]


@pytest.mark.parametrize("tiles", [(16,), (4, 12), (5, 5, 6)])
@pytest.mark.parametrize("splits", [1, 2, 3])
def test_online_softmax_is_attention(tiles: tuple[int, ...], splits: int):
    """Two query heads of four positions; causal from position 10; 14 of 16 keys exist."""
    q, k, v = normal(8, 8), normal(16, 8), normal(16, 8)
    position = 10 + np.arange(8) // 2
    visible = (np.arange(16)[None, :] <= position[:, None]) & (np.arange(16) < 14)[None, :]
    parts = [Online(8, 8) for _ in range(splits)]
    start = 0
    for i, size in enumerate(tiles):
        keys = slice(start, start + size)
        parts[i % splits].step(q @ k[keys].T, v[keys], (0.3, 10, 2, start, 14))
        start += size
    total = parts[0]
    for part in parts[1:]:
        total.merge(part)
    np.testing.assert_allclose(total.finish(), attention(q, k, v, visible, 0.3), rtol=1e-12)


def test_rows_without_visible_keys_are_the_identity_of_the_merge():
    empty = Online(2, 4)
    empty.step(normal(2, 3), normal(3, 4), (1.0, 5, 1, 10, 100))
    assert np.isneginf(empty.m).all()
    assert (empty.total == 0).all()
    assert (empty.finish() == 0).all()
    # At m = -800 a stored m of 0 instead of -inf would underflow every other partial.
    other = Online(2, 4)
    v = normal(3, 4)
    other.step(np.full((2, 3), -800.0), v, (1.0, 5, 1, 0, 3))
    before = other.finish()
    other.merge(empty)
    np.testing.assert_allclose(other.finish(), before)
    empty.merge(other)
    np.testing.assert_allclose(empty.finish(), before)
    nothing = Online(2, 4)
    nothing.merge(Online(2, 4))
    assert not np.isnan(nothing.finish()).any()


def test_single_precision_stays_single():
    x = normal(2, 8).astype(np.float32)
    for name, parameters in (("silu", ()), ("gelu", ()), ("scale", (0.5,))):
        assert apply(name, parameters, dst=x, a=x)["dst"].dtype == np.float32
    rope = apply("rope", (8, 1e4, 3, 1, 0), dst=x, a=x)["dst"]
    assert rope.dtype == np.float32
    online = Online(2, 8, np.float32)
    online.step(x @ x.T, x, (1.0, 5, 1, 0, 2))
    assert online.finish().dtype == np.float32


@pytest.mark.parametrize(
    ("window", "keep", "block", "ranks"),
    [
        *((0, 0, *dealt) for dealt in ((1, 1), (1, 3), (2, 3), (1, 16))),
        *((5, keep, 1, ranks) for keep in (0, 3) for ranks in (1, 3, 16)),
    ],
)
def test_shards_of_keys_are_masked_by_position(window: int, keep: int, block: int, ranks: int):
    """Sixteen keys dealt to ranks, two heads of four positions from position 12."""
    q, k, v = normal(8, 8), normal(16, 8), normal(16, 8)
    positions = np.arange(16)
    query = (12 + np.arange(8) // 2)[:, None]
    visible = positions[None, :] <= query
    if window:
        visible &= (query - positions < window) | (positions < keep)[None, :]
    total = Online(8, 8)
    for rank in range(ranks):
        held = positions[positions // block % ranks == rank]
        part, count = Online(8, 8), len(held)
        for start in range(0, count, 3):
            keys = held[start : start + 3]
            scores, values = np.full((8, 3), np.nan), np.zeros((3, 8))
            scores[:, : len(keys)], values[: len(keys)] = q @ k[keys].T, v[keys]
            name, parameters = "softmax_step_sharded", (block, ranks, rank)
            first = 12
            if window:
                # Positions less the rank: the query's and those that are kept move along.
                name, parameters = "softmax_step_window", (ranks, window, keep - rank)
                first -= rank
            out = apply(
                name,
                (0.3, first, 2, start, count, *parameters),
                dst=scores,
                a=scores,
                b=part.m,
                c=part.total,
                d=part.m,
            )
            part.m, part.total = out["b"], out["c"]
            part.o = apply("rescale", dst=part.o, a=out["d"])["dst"] + out["dst"] @ values
        total.merge(part)
    np.testing.assert_allclose(total.finish(), attention(q, k, v, visible, 0.3), rtol=1e-12)


def test_a_sink_counts_once_in_the_sum():
    """Rows are two positions of three heads; a row that sees nothing stays zero."""
    m, total, o = normal(6, 1), np.abs(normal(6, 1)) + 1, normal(6, 4)
    m[4], total[4], o[4] = -np.inf, 0, 0
    sink = normal(3, 1)
    logits = np.tile(sink, (2, 1))
    expected = o / (total + np.exp(logits - m))
    expected[4] = 0
    got = apply("lse_finish_sink", dst=o, a=total, b=o, c=m, d=sink)["dst"]
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    # The heads of a row side by side, and no key and no logit at all.
    wide = apply(
        "lse_finish_sink",
        dst=o.reshape(2, 12),
        a=total.reshape(2, 3),
        b=o.reshape(2, 12),
        c=m.reshape(2, 3),
        d=sink.reshape(1, 3),
    )["dst"]
    np.testing.assert_array_equal(wide, got.reshape(2, 12))
    none = apply("lse_finish_sink", dst=o, a=0 * total, b=0 * o, c=m - np.inf, d=sink - np.inf)
    assert (none["dst"] == 0).all()
    plain = apply("lse_finish", dst=o.reshape(2, 12), a=total.reshape(2, 3), b=o.reshape(2, 12))
    np.testing.assert_allclose(
        plain["dst"], np.where(total > 0, o / np.maximum(total, 1e-9), 0).reshape(2, 12)
    )


@pytest.mark.parametrize(
    ("suffix", "more"), [("", ()), ("_sharded", (2, 3, 1)), ("_window", (3, 6, 2))]
)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_softmax_in_operations_is_the_fused_step(
    suffix: str, more: tuple[int, ...], dtype: Any
) -> None:
    """Step by step over tiles, the first of which no query sees, and others some do not see."""
    rows, keys = 4, 6
    m, total = np.full((rows, 1), -np.inf, dtype), np.zeros((rows, 1), dtype)
    fused = m.copy(), total.copy()
    for start, limit in ((60, 80), (0, 5), (6, 20), (12, 13), (18, 18)):
        scores = normal(rows, keys).astype(dtype)
        positions = (9, 2, start, limit, *more)
        step = apply(
            f"softmax_step{suffix}", (0.3, *positions), dst=scores, a=scores, b=fused[0],
            c=fused[1], d=fused[0],
        )  # fmt: skip
        fused = step["b"], step["c"]
        s = apply("scale", (0.3,), dst=scores, a=scores)["dst"]
        s = apply(f"mask{suffix}", positions, dst=s, a=s)["dst"]
        n = apply("row_max", dst=m, a=s)["dst"]
        n = apply("maximum", dst=n, a=m, b=n)["dst"]
        p = apply("exp_difference", dst=s, a=s, b=n)["dst"]
        correction = apply("exp_difference", dst=m, a=m, b=n)["dst"]
        m = n
        total = apply("mul", dst=total, a=total, b=correction)["dst"]
        total = apply("add", dst=n, a=total, b=apply("row_sum", dst=n, a=p)["dst"])["dst"]
        for name, found in (("dst", p), ("b", m), ("c", total), ("d", correction)):
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, step[name])


@pytest.mark.parametrize("suffix", ["", "_sharded", "_window"])
def test_softmax_in_operations_is_as_much_work(suffix: str) -> None:
    """Scaling, mask, maximum, exponential and sum of an element are the fused step's."""
    names = ("scale", f"mask{suffix}", "row_max", "exp_difference", "row_sum")
    step = function(f"softmax_step{suffix}")
    assert sum(function(name).lane_operations for name in names) == step.lane_operations
    assert sum(function(name).specials for name in names) == step.specials
