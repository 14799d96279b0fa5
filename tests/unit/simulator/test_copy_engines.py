"""Copy engines: streams that move data and take no compute unit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Role, Space, TileSpace
from starc.backend.template import DEVICE, WORKGROUP
from starc.core.quasi_affine.expressions import Expression
from starc.diagnostics import InputError
from starc.simulator.errors import DecodeError
from starc.targets.loader import load_target
from starc.targets.target import Target
from tests.unit.simulator.programs import BF16, KIB, assembler, machine, run

TILE = 4 * KIB
OTHER = DEVICE * -1 + 1


def add_copy(
    p: ProgramAssembler,
    *,
    streams: int,
    tiles: int,
    peer: Expression | int = DEVICE,
    slots: int = 16,
    engines: bool = True,
    waves: int = 1,
    queue: int = 0,
) -> None:
    """A launch whose streams copy tiles of 4 KiB each to a peer."""
    shape = (streams * tiles * 16, 128)
    x = p.buffer(f"from{queue}", shape, BF16, block=(16, 128), role=Role.INPUT)
    y = p.buffer(f"to{queue}", shape, BF16, block=(16, 128), space=Space.SYMMETRIC)
    t = p.template(f"copy{queue}")
    tile = t.tile(16, 128, BF16, slots=slots, depth=1)
    with t.loop(0, tiles) as i:
        start = ((WORKGROUP * tiles + i) * 16, 0)
        t.load(tile, x, start)
        t.put(tile, y, start, peer, stage=slots - 1)
    template = p.add(t, waves=waves, window_bytes=0)
    p.launch(
        f"copy{queue}",
        [(template, streams)],
        kind="collective",
        engines=engines,
        queue=queue,
    )


def copy(target: Target, *, streams: int = 1, tiles: int = 1, **how: Expression | int) -> Program:
    p = assembler("copy", target)
    p.layer("copy")
    add_copy(p, streams=streams, tiles=tiles, **how)  # pyright: ignore[reportArgumentType]
    return p.finish()


def one_way(target: Target) -> int:
    """Picoseconds of one tile that an engine copies within its device, by hand: up to the slice,
    from the stack, down, through the engine's two ports, up again, into the stack, and back."""
    first = -(-128 * target.cycle_ps // target.cu_port_bytes_per_clock)
    through = TILE * 10**12 // target.copy_engine_rate
    read = target.mall_latency_ps - first + target.hbm_extra_ps
    stored = -(-TILE * 10**12 // target.hbm_stack_rate)
    back = target.port_to_cu_ps - first
    return int(read + 2 * through + target.request_up_ps + stored + back)


def test_a_tile_takes_what_it_takes_by_hand() -> None:
    target = machine(gpu=1, xcd=1)
    assert run(copy(target), target).time_ps == pytest.approx(one_way(target), abs=3000)


def test_a_long_copy_runs_at_the_rate_of_its_engine() -> None:
    target = machine(gpu=1, xcd=1)
    short, long = (run(copy(target, tiles=n), target).time_ps for n in (64, 320))
    tile = TILE * 10**12 / target.copy_engine_rate
    assert (long - short) / 256 == pytest.approx(tile, rel=0.01)
    # Two engines, twice the rate; a third stream waits for one of them.
    two, three = (run(copy(target, streams=n, tiles=64), target).time_ps for n in (2, 3))
    assert two == pytest.approx(short, rel=0.03)
    assert three == pytest.approx(2 * short, rel=0.03)


def test_bytes_in_flight_bound_a_copy_to_another_gpu() -> None:
    target = machine(gpu=2, xcd=1)
    narrow = replace(target, copy_engine_window_bytes=2 * TILE)
    program = copy(target, tiles=64, peer=OTHER)
    wide, few = run(program, target).time_ps, run(program, narrow).time_ps
    # A tile is in flight from its read to its acknowledgement: two tiles per such a time.
    assert few > 2.5 * wide
    assert few > 32 * 2 * target.link_latency_ps["xgmi"]


def test_no_die_has_a_part_in_it() -> None:
    target = machine(gpu=1, xcd=2)
    result = run(copy(target, tiles=16), target)
    traffic = result.traffic
    assert (traffic.l2_hit_bytes, traffic.l2_miss_bytes) == (0, 0)
    assert traffic.links["die"] == 0
    assert traffic.hbm_read_bytes == traffic.hbm_write_bytes == 2 * 16 * TILE


@pytest.mark.parametrize("name", ["mi300x-cpx", "mi300x-spx", "h200"])
def test_engines_are_exact_in_every_core(name: str) -> None:
    target = load_target(name, gpus=2)
    half = target.devices // 2
    program = copy(target, streams=3, tiles=6, peer=(DEVICE + half) % target.devices)
    first = run(program, target)
    assert first.key() == run(program, target, engine="heap").key()
    assert first.key() == run(program, target, jit=False).key()


def beside(target: Target, *, exchange: str | None, memory: bool = False) -> int:
    """Picoseconds of a kernel of one workgroup a compute unit, beside an exchange of 2 MiB between
    two GPUs by engines, by workgroups with a compute unit each, or without one."""
    p = assembler("beside", target)
    p.layer("beside")
    units = target.cus_per_die
    x = p.buffer("x", (units * 64 * (16 if memory else 1), 128), BF16, block=(16, 128))
    t = p.template("work")
    slots = 4 if memory else 1
    a = t.tile(64, 128, BF16, slots=slots, depth=1, space=TileSpace.REGISTER)
    if memory:
        with t.loop(0, 16) as i:
            t.load(a, x, ((WORKGROUP * 16 + i) * 64, 0))
            t.vector("zero", [a], stage=3)
    else:
        t.load(a, x, (WORKGROUP * 64, 0))
        with t.loop(0, 1000):
            t.vector("zero", [a])
    work = p.add(t, waves=target.max_waves_per_cu)
    if exchange is not None:
        engines = exchange == "engines"
        streams = 2 if engines else 16
        add_copy(
            p,
            streams=streams,
            tiles=512 // streams,
            peer=OTHER,
            engines=engines,
            waves=target.max_waves_per_cu,
            queue=1,
        )
    p.launch("work", [(work, units)], kind="gemm", gap_ps=1_000_000)
    result = run(p.finish(), target)
    return int((result.ends[-1] - result.starts[-1]).max())


def test_a_kernel_keeps_its_compute_units_beside_engines() -> None:
    target = machine(gpu=2, xcd=1)
    alone, engines, units = (
        beside(target, exchange=kind) for kind in (None, "engines", "compute units")
    )
    # Its loads at the start meet those of the engines; then it computes as if it were alone.
    assert alone <= engines <= 1.01 * alone
    # 16 of 38 units are taken: 16 of its workgroups wait for the exchange to end.
    assert units > 1.2 * alone


def test_engines_contend_for_memory() -> None:
    target = machine(gpu=2, xcd=1)
    alone, engines = (beside(target, exchange=kind, memory=True) for kind in (None, "engines"))
    assert alone < engines < 1.3 * alone


def test_launches_of_both_queues_share_the_engines() -> None:
    target = machine(gpu=1, xcd=1)
    p = assembler("both", target)
    p.layer("both")
    for queue in range(2):
        add_copy(p, streams=2, tiles=64, queue=queue)
    both = run(p.finish(), target).time_ps
    one = run(copy(target, streams=2, tiles=64), target).time_ps
    assert both == pytest.approx(2 * one, rel=0.03)


def test_a_machine_without_engines_says_so() -> None:
    target = replace(machine(gpu=1, xcd=1), copy_engines=0)
    with pytest.raises(DecodeError, match="has none"):
        run(copy(target), target)


def test_machine_files_say_what_engines_can_do() -> None:
    for key in ("copy_engines.rate", "copy_engines.window"):
        with pytest.raises(InputError, match="must be at least 1 where a device has copy engines"):
            load_target("mi300x-cpx", overrides={key: 0})
    with pytest.raises(InputError, match="leaves a device without copy engines"):
        load_target("mi300x-cpx", overrides={"copy_engines.count": 4})
    modes = {"mi300x-spx": 16, "mi300x-cpx": 2, "mi300x-qpx-nps4": 4, "h200": 3}
    for name, engines in modes.items():
        target = load_target(name)
        assert target.copy_engines == target.transports["dma"].workgroups == engines
