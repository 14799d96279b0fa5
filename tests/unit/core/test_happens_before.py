"""Schedules that end, and the words for those that do not."""

from __future__ import annotations

from starc.core.quasi_affine.expressions import Const, Expression, Var
from starc.core.quasi_affine.parser import parse
from starc.core.streams.happens_before import check
from starc.core.streams.residency import resident_workgroups
from starc.core.streams.skeleton import Problem, Skeleton, SkeletonLaunch, pruned
from starc.core.streams.stream_template import (
    Acquire,
    Branch,
    Loop,
    Node,
    Release,
    Semaphore,
    Signal,
    Use,
    Wait,
)

MESH = (("gpu", 2), ("xcd", 2))
WG, DEVICE = Var("wg"), Var("device")
RIGHT = (DEVICE + 1) % 4
ONE, ZERO = Const(1), Const(0)


def launch(name: str, *body: Node, grid: int = 1, **options: int) -> SkeletonLaunch:
    return SkeletonLaunch(name, ((Skeleton(name, body), grid),), **options)


def problems(*launches: SkeletonLaunch, counters: dict[str, int] | None = None) -> list[Problem]:
    return check(launches, counters or {"a": 4, "b": 4}, MESH)


def engines(
    name: str, *semaphores: Semaphore, grid: int = 1, **bodies: tuple[Node, ...]
) -> SkeletonLaunch:
    """A launch of a template with a stream for each engine."""
    skeleton = Skeleton(name, (), tuple(bodies.items()), semaphores)
    return SkeletonLaunch(name, ((skeleton, grid),))


def ring(steps: int, wait: Expression, right: Expression = RIGHT) -> list[Node]:
    send = Signal("a", WG, ONE, right)
    step = Loop("counter0", ONE, Const(steps), (Wait("a", WG, wait), send))
    return [send, step, Wait("a", WG, Const(steps))]


def test_ring_ends():
    assert problems(launch("ring", *ring(4, Var("counter0")), grid=3)) == []


def test_wait_for_more_than_is_sent():
    (problem,) = problems(launch("ring", *ring(4, Var("counter0")), Wait("a", WG, Const(5))))
    assert problem.message == (
        "ring (device 0, workgroup 0) waits forever for @a[0] to reach 5 (it is at 4)"
    )
    assert problem.hint == "all signals to it add up to 4"


def test_removed_signal():
    """The last device does not signal its neighbour."""
    body = [
        Branch(Const(2) - DEVICE, (Signal("a", WG, ONE, RIGHT),)),
        Wait("a", WG, ONE),
    ]
    (problem,) = problems(launch("ring", *body))
    assert "(device 0, workgroup 0) waits forever" in problem.message
    assert problem.hint == "all signals to it add up to 0"


def test_wrong_peer():
    """Everybody signals the neighbour of device 0."""
    (problem,) = problems(launch("ring", Signal("a", WG, ONE, ONE), Wait("a", WG, ONE)))
    assert problem.hint == "all signals to it add up to 0"


def test_cyclic_waits_name_the_cycle():
    (problem,) = problems(launch("ring", *ring(4, Var("counter0") + 1)))
    assert problem.message.startswith("deadlock: ring (device 0, workgroup 0) waits for @a[0]")
    for device in range(4):
        assert f"device {device}" in problem.message
    assert problem.message.endswith("which closes the cycle")


def test_two_counters_in_opposite_order():
    first = launch("x", Wait("a", ZERO, ONE), Signal("b", ZERO, ONE), queue=0)
    second = launch("y", Wait("b", ZERO, ONE), Signal("a", ZERO, ONE), queue=1)
    (problem,) = problems(first, second)
    assert "x (device 0, workgroup 0) waits for @a[0]" in problem.message
    assert "y (device 0, workgroup 0) waits for @b[0]" in problem.message


def test_signal_of_a_launch_behind_the_one_that_waits():
    consume = launch("consume", Wait("a", ZERO, ONE))
    produce = launch("produce", Signal("a", ZERO, ONE))
    assert problems(produce, consume) == []
    (problem,) = problems(consume, produce)
    assert "produce (device 0, workgroup 0) cannot start before the launches ahead of it end" in (
        problem.message
    )


def test_other_queue_runs_beside():
    consume = launch("consume", Wait("a", ZERO, ONE))
    produce = launch("produce", Signal("a", ZERO, ONE), queue=1)
    assert problems(consume, produce) == []
    late = launch("produce", Signal("a", ZERO, ONE), queue=1, depends=0)
    assert len(problems(consume, late)) == 1


def test_counts_of_several_workgroups_add_up():
    wait = Branch(-WG, (Wait("a", ZERO, Const(4)),))
    assert problems(launch("reduce", Signal("a", ZERO, ONE), wait, grid=4)) == []
    (problem,) = problems(launch("reduce", Signal("a", ZERO, ONE), wait, grid=3))
    assert problem.hint == "all signals to it add up to 3"


def test_elements_and_devices_that_do_not_exist():
    (element,) = problems(launch("k", Signal("a", WG, ONE), grid=5))
    assert element.message == ("k (device 0, workgroup 4) signals @a[4], of 4 elements")
    (device,) = problems(launch("k", Signal("a", ZERO, ONE, DEVICE + 1)))
    assert "signals @a[0] of device 4" in device.message


def test_pipelined_loop_keeps_order_of_trips():
    """The wait at stage 1 of iteration i follows the signal of iteration i + 1."""
    body = (
        Signal("a", ZERO, ONE),
        Wait("a", ZERO, Var("counter0") + 2, stage=1),
    )
    good = launch("k", Loop("counter0", ZERO, Const(3), body), Signal("a", ZERO, ONE))
    (problem,) = problems(good)
    # In the last trip only the wait is left: the signal it needs comes after the loop.
    assert "to reach 4 (it is at 3)" in problem.message


def test_uneven_loops_by_device():
    loop = Loop("counter0", ZERO, DEVICE, (Signal("a", ZERO, ONE, ZERO),))
    wait = Branch(-DEVICE, (Wait("a", ZERO, Const(6)),))
    assert problems(launch("k", loop, wait)) == []


def test_tables_choose_peers():
    peer = parse("table<2, 3, 1, 0>[device]")
    assert problems(launch("k", Signal("a", ZERO, ONE, peer), Wait("a", ZERO, ONE))) == []


def test_what_does_not_synchronise_is_left_out():
    quiet = Loop("counter0", ZERO, Const(1 << 40), (Loop("counter1", ZERO, ONE, ()),))
    assert pruned((quiet, Wait("a", ZERO, ONE))) == (Wait("a", ZERO, ONE),)
    assert problems(launch("k", quiet)) == []


# Streams of engines


def queue_ring(blocks: int, credits: int, grid: int = 1) -> SkeletonLaunch:
    """Everybody sends blocks to the next device before it receives as many: the CPU waits for
    credits and arrivals, the DMA engine sends, and gives a credit back for what it has read."""
    i = Var("counter0")
    back = (DEVICE + 3) % 4
    cpu = (
        Loop(
            "counter0",
            ZERO,
            Const(blocks),
            (Branch(i - credits, (Wait("a", WG, i - (credits - 1)),)), Release(0)),
        ),
        Loop("counter0", ZERO, Const(blocks), (Wait("b", WG, i + 1), Release(1))),
    )
    dma = (
        Loop("counter0", ZERO, Const(blocks), (Acquire(0), Signal("b", WG, ONE, RIGHT))),
        Loop("counter0", ZERO, Const(blocks), (Acquire(1), Signal("a", WG, ONE, back))),
    )
    semaphores = (Semaphore("send"), Semaphore("receive"))
    return engines("ring", *semaphores, grid=grid, cpu=cpu, dma=dma)


def test_credits_of_queues():
    assert problems(queue_ring(3, 3, grid=3)) == []
    (problem,) = problems(queue_ring(4, 3))
    assert problem.message.startswith(
        "deadlock: ring (device 0, workgroup 0, cpu) waits for @a[0] to reach 1 (it is at 0); "
        "ring (device 1, workgroup 0, dma) waits for %send, released 3 times; "
        "ring (device 1, workgroup 0, cpu) waits for @a[0]"
    )
    assert problem.message.endswith("which closes the cycle")


def test_a_wait_in_one_stream_and_the_signal_in_another():
    """In one stream the signal would stand behind the wait."""
    wait, signal = Wait("a", ZERO, ONE), Signal("a", ZERO, ONE, RIGHT)
    assert problems(engines("k", cpu=(wait,), dma=(signal,))) == []
    done = Semaphore("done")
    (problem,) = problems(engines("k", done, cpu=(wait, Release(0)), dma=(Acquire(0), signal)))
    assert "cpu) waits for @a[0]" in problem.message
    assert "dma) waits for %done, released 0 times" in problem.message


def test_what_nobody_signals_is_named_before_who_waits_for_it():
    wait = Wait("a", ZERO, ONE)
    (problem,) = problems(engines("k", Semaphore("s"), dma=(Acquire(0),), cpu=(wait, Release(0))))
    assert problem.message == (
        "k (device 0, workgroup 0, cpu) waits forever for @a[0] to reach 1 (it is at 0)"
    )
    (problem,) = problems(engines("k", Semaphore("s"), cpu=(Signal("a", ZERO, ONE), Acquire(0))))
    assert problem.message == (
        "k (device 0, workgroup 0, cpu) waits forever for %s, released 0 times"
    )


def sweep(trips: Expression | int, initial: int, *, extra: int = 0) -> SkeletonLaunch:
    """A long loop between the wait for a peer and the signal to the next, with credits."""
    upper = Const(trips) if isinstance(trips, int) else trips
    full, free = 0, 1
    loop = ("counter0", ZERO, upper)
    cpu = (
        Branch(DEVICE - 1, (Wait("a", WG, ONE),)),
        Loop(*loop, (Acquire(free), Use("load"), Release(full))),
    )
    dma = (
        Loop(*loop, (Acquire(full), Release(free))),
        *(Acquire(full) for _ in range(extra)),
        Branch(Const(2) - DEVICE, (Signal("a", WG, ONE, DEVICE + 1),)),
    )
    return engines("sweep", Semaphore("full"), Semaphore("free", initial), cpu=cpu, dma=dma)


def test_long_loops_are_shortened():
    """Far more trips than could be expanded, more on some devices than on others."""
    assert problems(sweep(1 << 40, 2)) == []
    assert problems(sweep(DEVICE * 1000, 2)) == []
    (problem,) = problems(sweep(1 << 40, 0))
    assert "waits for %free, released 0 times" in problem.message
    (problem,) = problems(sweep(1 << 40, 2, extra=1))
    assert "waits forever for %full" in problem.message


def test_shortened_loops_keep_what_follows_behind_them():
    """The signal behind the loop of the DMA engine waits for the loop of the CPU, and that for a
    signal which comes from there."""
    body = (Release(0),)
    cpu = (Wait("a", WG, ONE), Loop("counter0", ZERO, Const(1000), body))
    dma = (Loop("counter0", ZERO, Const(1000), (Acquire(0),)), Signal("a", WG, ONE, RIGHT))
    (problem,) = problems(engines("k", Semaphore("s"), cpu=cpu, dma=dma))
    assert "dma) waits for %s, released 0 times" in problem.message


def test_loops_that_synchronise_are_whole():
    """All copies of a loop in which some stream signals run all their trips."""
    i = Var("counter0")
    cpu = (Loop("counter0", ZERO, Const(100), (Wait("a", WG, i + 1), Release(0))),)
    dma = (Loop("counter0", ZERO, Const(100), (Acquire(0), Release(1))),)
    math = (Loop("counter0", ZERO, Const(100), (Signal("a", WG, ONE), Acquire(1))),)
    semaphores = (Semaphore("s"), Semaphore("t"))
    assert problems(engines("k", *semaphores, cpu=cpu, dma=dma, math=math)) == []


def test_resident_workgroups():
    def fits(waves: int, scratch: int, registers: int) -> int:
        return resident_workgroups(
            compute_units=38,
            max_waves=32,
            scratch_bytes=65536,
            register_bytes=524288,
            kernel_waves=waves,
            kernel_scratch_bytes=scratch,
            kernel_register_bytes=registers,
        )

    assert fits(4, 0, 0) == 8 * 38
    assert fits(4, 20000, 0) == 3 * 38
    assert fits(4, 20000, 400000) == 38
    assert fits(4, 70000, 0) == 0
