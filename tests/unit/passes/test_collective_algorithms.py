"""Every collective in every algorithm, executed: the lockstep meaning, the functional execution of
packed rows and adversarial interleavings over poisoned memory agree, whatever is uneven."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.core.collectives.table import ALGORITHMS, profile
from starc.core.sharding.mesh import AxisRef
from starc.core.sharding.shard_map import CONTIGUOUS, Cyclic, Offsets, ShardMap, Zigzag
from starc.dialects import isa
from starc.interpreter.concurrent import ConcurrentMachine
from starc.interpreter.shared_memory import ScheduleError
from starc.simulator.run import simulate
from tests.unit.passes.exchanges import Exchange, Tensor

GPU, XCD = (AxisRef("gpu"),), (AxisRef("xcd"),)
NODE = GPU + XCD
MESHES = [((2, 2), NODE), ((1, 8), XCD), ((8, 1), GPU), ((3, 2), NODE), ((4, 2), GPU)]
SEEDS = (None, 1)


def ranks(mesh: tuple[int, int], axes: tuple[AxisRef, ...]) -> int:
    extents = {"gpu": mesh[0], "xcd": mesh[1]}
    return int(np.prod([extents[axis.name] for axis in axes]))


def all_reduce(
    mesh: tuple[int, int],
    axes: tuple[AxisRef, ...],
    algorithm: str,
    shape: tuple[int, ...],
    kind: str = "sum",
    element: str = "bf16",
) -> Exchange:
    before = Tensor(shape, partial=(kind, axes), element=element)
    step = ("all_reduce", f"reduction = {kind}", axes, algorithm)
    return Exchange(mesh, [step], [[before], [Tensor(shape, element=element)]])


def reduce_scatter(
    mesh: tuple[int, int],
    axes: tuple[AxisRef, ...],
    algorithm: str,
    shape: tuple[int, ...],
    dim: int,
    dealt: ShardMap = CONTIGUOUS,
) -> Exchange:
    before, after = Tensor(shape, partial=("sum", axes)), Tensor(shape, {dim: axes}, {dim: dealt})
    step = ("reduce_scatter", f"reduction = sum dim = {dim}", axes, algorithm)
    return Exchange(mesh, [step], [[before], [after]])


def all_gather(
    mesh: tuple[int, int],
    axes: tuple[AxisRef, ...],
    algorithm: str,
    shape: tuple[int, ...],
    dim: int,
    dealt: ShardMap = CONTIGUOUS,
) -> Exchange:
    step = ("all_gather", f"dim = {dim}", axes, algorithm)
    return Exchange(mesh, [step], [[Tensor(shape, {dim: axes}, {dim: dealt})], [Tensor(shape)]])


def hierarchical(
    mesh: tuple[int, int], shape: tuple[int, ...], algorithms: tuple[str, str, str], chunks: int
) -> Exchange:
    inside, between, back = algorithms
    return Exchange(
        mesh,
        [
            ("reduce_scatter", "reduction = sum dim = 2", XCD, inside),
            ("all_reduce", "reduction = sum", GPU, between),
            ("all_gather", "dim = 2", XCD, back),
        ],
        [
            [Tensor(shape, partial=("sum", NODE))],
            [Tensor(shape, {2: XCD}, partial=("sum", GPU))],
            [Tensor(shape, {2: XCD})],
            [Tensor(shape)],
        ],
        chunks,
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
@pytest.mark.parametrize(("mesh", "axes"), MESHES)
def test_all_reduce(mesh: tuple[int, int], axes: tuple[AxisRef, ...], algorithm: str) -> None:
    all_reduce(mesh, axes, algorithm, (2, 3, 32)).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_all_reduce_of_odd_extents_by_maximum(algorithm: str) -> None:
    all_reduce((3, 2), NODE, algorithm, (1, 5, 7), "max", "f32").check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce_scatter"])
@pytest.mark.parametrize(("mesh", "axes"), MESHES)
def test_reduce_scatter(mesh: tuple[int, int], axes: tuple[AxisRef, ...], algorithm: str) -> None:
    count = ranks(mesh, axes)
    reduce_scatter(mesh, axes, algorithm, (2, 3, 8 * count), 2).check(SEEDS)
    reduce_scatter(mesh, axes, algorithm, (1, 2 * count + 1, 8), 1).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce_scatter"])
@pytest.mark.parametrize("dim", [0, 1])
def test_reduce_scatter_of_every_dimension(algorithm: str, dim: int) -> None:
    shape = (8, 3, 16) if dim == 0 else (3, 8, 16)
    reduce_scatter((2, 2), NODE, algorithm, shape, dim).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce_scatter"])
@pytest.mark.parametrize(
    ("shape", "dealt"),
    [
        ((1, 9, 8), Cyclic(1)),
        ((5, 3, 8), Cyclic(1, 3, 0)),
        ((3, 1, 8), Cyclic(1, 2, 0)),
        ((1, 1, 8), Cyclic(1, 1, 0)),  # most owners hold nothing
    ],
    ids=str,
)
def test_rows_go_to_their_owners(
    shape: tuple[int, int, int], dealt: ShardMap, algorithm: str
) -> None:
    reduce_scatter((2, 2), NODE, algorithm, shape, 1, dealt).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_gather"])
@pytest.mark.parametrize(("mesh", "axes"), MESHES)
def test_all_gather(mesh: tuple[int, int], axes: tuple[AxisRef, ...], algorithm: str) -> None:
    count = ranks(mesh, axes)
    all_gather(mesh, axes, algorithm, (2, 3, 8 * count), 2).check(SEEDS)
    all_gather(mesh, axes, algorithm, (3, 2, 2 * count + 1, 8), 2, Cyclic(1, 0, 0)).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_gather"])
@pytest.mark.parametrize(
    ("shape", "dim", "dealt"),
    [
        ((8, 3, 16), 0, CONTIGUOUS),
        ((2, 9, 16), 1, CONTIGUOUS),
        ((2, 5, 16), 1, Cyclic(2)),
        ((1, 2, 32), 2, Offsets((0, 12, 20, 20, 32))),
        ((1, 16, 8), 1, Zigzag()),
    ],
    ids=str,
)
def test_gathered_rows_go_to_their_places(
    shape: tuple[int, ...], dim: int, dealt: ShardMap, algorithm: str
) -> None:
    all_gather((2, 2), NODE, algorithm, shape, dim, dealt).check(SEEDS)


@pytest.mark.parametrize(
    ("shape", "dim", "dealt"),
    [
        ((2, 9, 16), 1, CONTIGUOUS),
        ((5, 3, 8), 1, Cyclic(1, 3, 0)),
        ((3, 2, 9, 8), 2, Cyclic(1, 0, 0)),
        ((1, 2, 32), 2, Offsets((0, 12, 20, 20, 32))),
        ((32,), 0, CONTIGUOUS),
        ((12, 16), 0, CONTIGUOUS),
        ((3, 32), 1, CONTIGUOUS),
        ((3, 2, 8, 4), 2, CONTIGUOUS),
        ((2, 9), 1, CONTIGUOUS),
    ],
    ids=str,
)
def test_slices_of_values_of_any_rank(shape: tuple[int, ...], dim: int, dealt: ShardMap) -> None:
    step = ("all_slice", f"dim = {dim}", NODE, "direct")
    after = Tensor(shape, {dim: NODE}, {dim: dealt})
    Exchange((2, 2), [step], [[Tensor(shape)], [after]]).check(SEEDS)


@pytest.mark.parametrize(("mesh", "axes"), MESHES)
def test_all_to_all(mesh: tuple[int, int], axes: tuple[AxisRef, ...]) -> None:
    count = ranks(mesh, axes)
    shape = (2, 2 * count, 8 * count)
    step = ("all_to_all", "split_dim = 1 concat_dim = 2", axes, "direct")
    Exchange(mesh, [step], [[Tensor(shape, {2: axes})], [Tensor(shape, {1: axes})]]).check(SEEDS)
    uneven = (2 * count, 2 * count + 1, 8)
    step = ("all_to_all", "split_dim = 1 concat_dim = 0", axes, "direct")
    after = Tensor(uneven, {1: axes}, {1: Cyclic(1)})
    Exchange(mesh, [step], [[Tensor(uneven, {0: axes})], [after]]).check(SEEDS)


@pytest.mark.parametrize("mesh", [(2, 2), (2, 4), (4, 2)])
def test_permute(mesh: tuple[int, int]) -> None:
    shape = (2, 3, 8 * mesh[0] * mesh[1])
    before, after = Tensor(shape, {2: NODE}), Tensor(shape, {2: XCD + GPU})
    Exchange(mesh, [("permute", "", NODE, "direct")], [[before], [after]]).check(SEEDS)


@pytest.mark.parametrize("algorithm", ["tree", "direct"])
@pytest.mark.parametrize("mesh", [(2, 2), (3, 2), (1, 7)])
def test_to_a_root_and_back(mesh: tuple[int, int], algorithm: str) -> None:
    axes = XCD if mesh[0] == 1 else NODE
    whole, root = Tensor((2, 3, 8)), Tensor((2, 3, 8), partial=("root", axes))
    partial = Tensor((2, 3, 8), partial=("sum", axes))
    step = ("reduce_to_root", "reduction = sum", axes, algorithm)
    Exchange(mesh, [step], [[partial], [root]]).check(SEEDS)
    Exchange(mesh, [("broadcast", "", axes, algorithm)], [[root], [whole]]).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["reduce_scatter"])
@pytest.mark.parametrize("mesh", [(2, 2), (3, 2), (1, 8)])
@pytest.mark.parametrize("element", ["bf16", "f32"])
def test_softmax_partials_are_merged_by_the_owners_of_heads(
    mesh: tuple[int, int], algorithm: str, element: str
) -> None:
    axes = XCD if mesh[0] == 1 else NODE
    heads = 2 * ranks(mesh, axes)
    kind = ("lse", axes)
    small, large = (2, 1, heads), (2, 1, 4 * heads)
    before = [Tensor(small, partial=kind, element="f32")] * 2
    after = [Tensor(small, {2: axes}, element="f32")] * 2
    step = ("reduce_scatter", "reduction = lse dim = 2", axes, algorithm)
    Exchange(
        mesh,
        [step],
        [
            [*before, Tensor(large, partial=kind, element=element)],
            [*after, Tensor(large, {2: axes}, element=element)],
        ],
    ).check(SEEDS)


def test_softmax_partials_are_merged_everywhere() -> None:
    kind, small, large = ("lse", NODE), (2, 3, 4), (2, 3, 32)
    before = [Tensor(small, partial=kind, element="f32")] * 2 + [Tensor(large, partial=kind)]
    after = [Tensor(small, element="f32")] * 2 + [Tensor(large)]
    for algorithm in ALGORITHMS["all_reduce"]:
        step = ("all_reduce", "reduction = lse", NODE, algorithm)
        Exchange((2, 2), [step], [before, after]).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_several_values_are_exchanged_together(algorithm: str) -> None:
    kind = ("sum", NODE)
    before = [Tensor((2, 1, 8), partial=kind, element="f32"), Tensor((2, 3, 16), partial=kind)]
    after = [Tensor((2, 1, 8), element="f32"), Tensor((2, 3, 16))]
    step = ("all_reduce", "reduction = sum", NODE, algorithm)
    Exchange((2, 2), [step], [before, after]).check(SEEDS)


@pytest.mark.parametrize("chunks", [1, 2, 4, 5])
@pytest.mark.parametrize(
    "algorithms",
    [
        ("direct", "two_shot", "direct"),
        ("bidirectional_ring", "two_shot", "bidirectional_ring"),
        ("ring", "one_shot", "ring"),
        ("one_shot", "ring", "direct"),
    ],
)
def test_phases_hand_on_parts_of_the_data(algorithms: tuple[str, str, str], chunks: int) -> None:
    hierarchical((2, 2), (2, 8, 128), algorithms, chunks).check((None, 1, 2))


def test_phases_on_carriers() -> None:
    hierarchical((2, 8), (1, 4, 128), ("bidirectional_ring", "two_shot", "direct"), 2).check(SEEDS)


@pytest.mark.parametrize("algorithm", ALGORITHMS["all_reduce"])
def test_all_ranks_hold_the_same_bits_in_typed_mode(algorithm: str) -> None:
    exchange = all_reduce((1, 8), XCD, algorithm, (2, 3, 32))
    (result,) = exchange.run(exchange.contributions(), None, "typed")
    assert all(np.array_equal(own, result[0]) for own in result)


# Traffic


def logical(exchange: Exchange) -> dict[str, int]:
    return {k: v for k, v in simulate(exchange.program).traffic.logical.items() if v}


@pytest.mark.parametrize(
    ("operation", "algorithm"),
    [
        (operation, algorithm)
        for operation in ("all_reduce", "reduce_scatter", "all_gather")
        for algorithm in ALGORITHMS[operation]
    ],
)
def test_simulated_bytes_are_those_of_the_schedule(operation: str, algorithm: str) -> None:
    shape, payload = (1, 32, 1024), 32 * 1024 * 2
    if operation == "all_reduce":
        exchange = all_reduce((8, 1), GPU, algorithm, shape)
    elif operation == "reduce_scatter":
        exchange = reduce_scatter((8, 1), GPU, algorithm, shape, 2)
    else:
        exchange = all_gather((8, 1), GPU, algorithm, shape, 2)
    found = profile(operation, algorithm, exchange.mesh, GPU)
    sent = logical(exchange).get("xgmi", 0)
    if algorithm == "tree":
        assert sent == 2 * 7 * payload
    else:
        assert sent == 8 * found.volumes["xgmi"] * payload


def test_a_reduce_scatter_loads_every_carrier_link_with_three_eighths() -> None:
    shape = (1, 512, 1024)
    payload = 512 * 1024 * 2
    exchange = reduce_scatter((1, 8), XCD, "bidirectional_ring", shape, 2)
    result = simulate(exchange.program)
    # Eight directed links between neighbours carry the payload, once each, and signals besides.
    assert result.traffic.logical["usr"] == 8 * 3 * payload // 8
    assert result.traffic.links["usr"] >= result.traffic.logical["usr"]
    loads = carrier_link_bytes(exchange)
    assert len(loads) == 8
    signals = loads.max() - 3 * payload // 8
    assert 0 <= signals < payload // 100
    assert loads.min() >= 3 * payload // 8


def carrier_link_bytes(exchange: Exchange) -> np.ndarray:
    """Bytes over each directed link between carriers, from the work of their servers."""
    from starc.simulator.machine.services import server_kinds

    result = simulate(exchange.program)
    kinds = np.array(server_kinds(exchange.target))
    work = result.work.sum(axis=0)[0][kinds == "usr"]
    return work[work > 0] * exchange.target.link_rate["usr"] / 1e12


def test_only_owned_rows_travel() -> None:
    """One new token of every request: each row goes to its owner, and to nobody else."""
    exchange = reduce_scatter((1, 8), XCD, "one_shot", (16, 1, 256), 1, Cyclic(1, 3, 0))
    found = logical(exchange)
    assert found["usr"] + found.get("die", 0) >= 8 * 7 * (16 * 256 * 2) // 8
    within = 8 * (16 * 256 * 2) // 8  # between mates on a carrier
    assert found["usr"] == 8 * 6 * (16 * 256 * 2) // 8
    assert found["die"] - within in (0, within)  # a device's own rows, staged like the others


def test_a_hierarchical_all_reduce_crosses_gpus_with_seven_quarters() -> None:
    exchange = hierarchical((8, 2), (1, 32, 1024), ("direct", "two_shot", "direct"), 2)
    payload = 32 * 1024 * 2
    assert logical(exchange)["xgmi"] == 8 * 7 * payload // 4


@pytest.mark.parametrize("algorithm", ["ring", "two_shot", "tree"])
def test_flags_beside_the_data_double_what_is_sent(algorithm: str) -> None:
    exchange = all_reduce((4, 1), GPU, algorithm, (1, 8, 256))
    flagged = replace(exchange, transport="ll")
    flagged.check(SEEDS)
    assert logical(flagged)["xgmi"] == 2 * logical(exchange)["xgmi"]


# What is broken is found


def broken(exchange: Exchange, change: str, seeds: int = 6) -> int:
    """In how many interleavings a schedule without its waits, or without credit, is caught."""
    caught = 0
    given = exchange.contributions()
    names, _ = exchange._names  # pyright: ignore[reportPrivateUsage]
    for seed in range(seeds):
        module: ModuleOp = exchange.lowered()
        for op in [op for op in module.walk() if isinstance(op, isa.WaitOp)]:
            if change in op.counter.string_value():
                op.detach()
        buffers = {
            (device, name): parts[device]
            for name, parts in zip(names, given, strict=True)
            for device in range(exchange.mesh.size)
        }
        try:
            ConcurrentMachine(module, buffers, seed=seed).run()
        except ScheduleError:
            caught += 1
    return caught


@pytest.mark.parametrize("algorithm", ["one_shot", "two_shot", "tree", "bidirectional_ring"])
def test_an_all_reduce_without_its_waits_is_caught(algorithm: str) -> None:
    assert broken(all_reduce((2, 2), NODE, algorithm, (1, 2, 32)), "arrived") == 6


def test_phases_that_do_not_wait_are_caught() -> None:
    exchange = hierarchical((2, 2), (2, 8, 128), ("ring", "two_shot", "ring"), 4)
    assert broken(exchange, "done") == 6
    assert broken(exchange, "read") > 0  # slots written again before they have been read


def test_too_many_values_are_refused() -> None:
    from starc.diagnostics import InputError

    kind = ("sum", NODE)
    before, after = Tensor((1, 1, 8), partial=kind), Tensor((1, 1, 8))
    step = ("all_reduce", "reduction = sum", NODE, "two_shot")
    with pytest.raises(InputError, match="more records than a template has"):
        Exchange((2, 2), [step], [[before] * 12, [after] * 12]).planned()
