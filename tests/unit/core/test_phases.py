"""Phases of a collective over several levels: each is legal, and together they are the exchange."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.combiners import ReductionKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.hierarchy import split_levels
from starc.core.sharding.mesh import Axis, AxisRef, Mesh
from starc.core.sharding.phases import Exchange, Form, Phase, Piece, forms, partitions, phases
from starc.core.sharding.shard_map import Offsets

NODE = Mesh("node", (Axis("gpu", 2, "outer", "xgmi"), Axis("xcd", 4, "inner", "usr")))
CUBES = Mesh(
    "cubes",
    (
        Axis("sip", 2, "outer", "sip"),
        Axis("cube", 2, "inner", "noc"),
        Axis("pe", 2, "inner", "pe_mesh"),
    ),
)


def whole(mesh: Mesh, rank: int = 2) -> Encoding:
    return Encoding.replicated(mesh, rank)


def all_reduce(mesh: Mesh, shape: tuple[int, ...], uses: tuple[Piece | None, ...] = ()) -> Exchange:
    plain = whole(mesh, len(shape))
    return Exchange(
        CollectiveKind.ALL_REDUCE,
        mesh.all_axes(),
        (plain.with_partial(ReductionKind.SUM, mesh.all_axes()),),
        (plain,),
        (shape,),
        reduction=ReductionKind.SUM,
        uses=uses,
    )


def scatter_of(mesh: Mesh, shape: tuple[int, ...], dim: int) -> Exchange:
    plain = whole(mesh, len(shape))
    return Exchange(
        CollectiveKind.REDUCE_SCATTER,
        mesh.all_axes(),
        (plain.with_partial(ReductionKind.SUM, mesh.all_axes()),),
        (plain.with_dim(dim, mesh.all_axes()),),
        (shape,),
        dim,
        reduction=ReductionKind.SUM,
    )


def gather_of(mesh: Mesh, shape: tuple[int, ...], dim: int) -> Exchange:
    plain = whole(mesh, len(shape))
    split = plain.with_dim(dim, mesh.all_axes())
    return Exchange(CollectiveKind.ALL_GATHER, mesh.all_axes(), (split,), (plain,), (shape,), dim)


def two_levels(exchange: Exchange) -> Form:
    levels = split_levels(exchange.mesh, exchange.axes)
    return Form(levels, len(levels) - 1)


def texts(made: tuple[Phase, ...]) -> list[str]:
    return [str(phase) for phase in made]


@pytest.mark.parametrize("kind", list(CollectiveKind))
def test_what_is_known_of_a_kind_agrees(kind: CollectiveKind) -> None:
    assert kind.moves_data == (kind.rounds > 0)
    assert not (kind.combines and kind.payload_is_result)
    assert kind.moves_data or not (kind.combines or kind.shrinks_outwards)


def test_an_all_reduce_scatters_what_a_slice_behind_it_keeps() -> None:
    exchange = all_reduce(NODE, (8, 8), (Piece(0, (AxisRef("xcd"),)),))
    made = phases(exchange, two_levels(exchange))
    assert [phase.dim for phase in made] == [0, None, 0]
    assert exchange.is_only_cut(0, (AxisRef("xcd"),))
    assert not exchange.is_only_cut(1, (AxisRef("xcd"),))
    assert not all_reduce(NODE, (8, 8)).is_only_cut(0, (AxisRef("xcd"),))


def test_an_all_reduce_that_nothing_divides_goes_level_by_level_unless_uneven() -> None:
    exchange = all_reduce(NODE, (5, 7))
    form = two_levels(exchange)
    assert texts(phases(exchange, form)) == ['all_reduce over {"xcd"}', 'all_reduce over {"gpu"}']
    uneven = phases(exchange, form, uneven=True)
    assert [phase.kind for phase in uneven] == [
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
    ]


def test_components_of_a_partial_softmax_are_cut_at_the_same_heads() -> None:
    plain = whole(NODE, 3)
    partial = plain.with_partial(ReductionKind.LSE, NODE.all_axes())
    shapes = ((2, 1, 8), (2, 1, 8), (2, 1, 1024))
    exchange = Exchange(
        CollectiveKind.ALL_REDUCE,
        NODE.all_axes(),
        (partial,) * 3,
        (plain,) * 3,
        shapes,
        reduction=ReductionKind.LSE,
    )
    scatter, *_ = phases(exchange, two_levels(exchange))
    assert scatter.dim == 2
    local = [e.local_shape(s) for e, s in zip(scatter.results, shapes, strict=True)]
    assert local == [(2, 1, 2), (2, 1, 2), (2, 1, 256)]


def test_a_reduce_scatter_may_be_an_all_reduce_of_which_each_keeps_a_piece() -> None:
    exchange = scatter_of(NODE, (8, 8), 1)
    levels = split_levels(NODE, exchange.axes)
    made = phases(exchange, Form(levels, 1, sliced=True))
    assert made[-1] == Phase(CollectiveKind.ALL_SLICE, NODE.all_axes(), exchange.after, 1)


def test_pieces_that_no_map_names_have_no_phases() -> None:
    plain = whole(NODE, 1)
    split = plain.with_dim(0, NODE.all_axes(), Offsets.balanced(17, 8))
    exchange = Exchange(CollectiveKind.ALL_GATHER, NODE.all_axes(), (split,), (plain,), ((17,),), 0)
    assert phases(exchange, two_levels(exchange)) == ()


def test_a_permutation_stays_one_exchange() -> None:
    plain = whole(NODE, 1)
    exchange = Exchange(CollectiveKind.PERMUTE, NODE.all_axes(), (plain,), (plain,), ((16,),))
    assert phases(exchange, two_levels(exchange)) == ()
    assert str(exchange.whole) == 'permute over {"gpu", "xcd"}'


def test_forms_join_two_neighbouring_levels_at_most() -> None:
    levels = split_levels(CUBES, CUBES.all_axes())
    assert [len(parts) for parts in partitions(levels)] == [3, 2, 2]
    assert all(len(part) <= 2 for parts in partitions(levels) for part in parts)
    reduces = [form for _, form in forms(CollectiveKind.ALL_REDUCE, CUBES, levels)]
    assert [(len(form.levels), form.scattered) for form in reduces] == [
        *((3, n) for n in range(3)),
        *((2, n) for n in range(2)),
        *((2, n) for n in range(2)),
    ]
    gathers = [form for _, form in forms(CollectiveKind.ALL_GATHER, CUBES, levels)]
    assert len(gathers) == 3
    assert not any(form.sliced for form in gathers)


@settings(deadline=None)
@given(
    st.sampled_from([NODE, CUBES]),
    st.sampled_from(
        [CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_GATHER]
    ),
    st.tuples(st.integers(1, 24), st.integers(1, 24)),
    st.integers(0, 1),
    st.booleans(),
)
def test_phases_lead_from_what_is_held_to_what_is_wanted(
    mesh: Mesh, kind: CollectiveKind, shape: tuple[int, int], dim: int, uneven: bool
) -> None:
    made = {
        CollectiveKind.ALL_REDUCE: all_reduce(mesh, shape),
        CollectiveKind.REDUCE_SCATTER: scatter_of(mesh, shape, dim),
        CollectiveKind.ALL_GATHER: gather_of(mesh, shape, dim),
    }
    exchange = made[kind]
    levels = split_levels(mesh, exchange.axes)
    for _, form in forms(kind, mesh, levels):
        found = phases(exchange, form, uneven=uneven)
        if not found:
            continue
        assert found[-1].results == exchange.after
        for phase in found:
            for encoding in phase.results:
                assert encoding.problems(shape) == []
        crossed = [ref for phase in found for ref in phase.axes]
        assert set(crossed) <= {ref for refs in form.levels for ref in refs} | set(exchange.axes)
