"""From the numbers of a machine file to the caches and memory stacks of a target."""

from __future__ import annotations

from starc.targets.machine_numbers import MachineNumbers
from starc.targets.parts import Caches, Stacks
from starc.targets.shape import Shape


def caches(numbers: MachineNumbers, shape: Shape) -> Caches:
    """The caches of a die and of a memory stack; without an L2 the ports of a die are those of its
    compute unit."""
    l2_bytes = numbers.count("caches.l2_bytes")
    has_l2 = l2_bytes > 0
    beyond = None if has_l2 else numbers.count("caches.cu_port")
    # Without a memory-side cache nothing but the stack itself limits its rate.
    stack_rate = _stack_peak(numbers, shape) * shape.channels
    mall_bytes = numbers.count("caches.mall_bytes_per_stack", default=0) // shape.channels
    mall_peak = numbers.count("caches.mall_rate_per_stack", default=stack_rate) // shape.channels
    return Caches(
        has_l2=has_l2,
        l2_bytes_per_die=l2_bytes,
        l2_ways=numbers.count("caches.l2_ways", default=None if has_l2 else 1),
        l2_line=numbers.count("caches.l2_line", default=None if has_l2 else 128),
        l2_bytes_per_clock=numbers.count("caches.l2_read", default=beyond),
        l2_write_bytes_per_clock=numbers.count("caches.l2_write", default=beyond),
        die_port_bytes_per_clock=numbers.count("caches.die_port", default=beyond),
        mall_bytes=int(mall_bytes * shape.stack_share),
        mall_bytes_per_stack=mall_bytes,
        mall_ways=numbers.count("caches.mall_ways", default=16),
        mall_stack_rate=round(mall_peak * numbers.real("caches.mall_sustained", default=1.0)),
        mall_stack_peak=mall_peak,
    )


def stacks(numbers: MachineNumbers, shape: Shape, memory_mode: str) -> Stacks:
    """The memory stacks. What is sustained of their rate may differ by memory mode."""
    peak = _stack_peak(numbers, shape)
    own = (f"memory.sustained_{memory_mode}",) if memory_mode else ()
    rate = round(peak * numbers.real(*own, "memory.sustained"))
    return Stacks(
        hbm_rate=int(rate * shape.stack_share),
        hbm_peak=int(peak * shape.stack_share),
        hbm_stack_rate=rate,
        hbm_stack_peak=peak,
        hbm_access_bytes=numbers.count("memory.access_bytes"),
        channels=1,
        channel_granule=0,
        hbm_read_share=float(numbers.real("memory.read_share")),
        hbm_write_share=float(numbers.real("memory.write_share")),
        hbm_turnaround_ps=numbers.count("memory.turnaround"),
        hbm_write_batch_bytes=numbers.count("memory.write_batch"),
        coherent=shape.dies_per_device == 1
        or numbers.word("caches", "coherence", "software") == "hardware",
    )


def _stack_peak(numbers: MachineNumbers, shape: Shape) -> int:
    return numbers.count("memory.stack_rate") // shape.channels
