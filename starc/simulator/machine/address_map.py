"""Where the memory of devices lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starc.simulator.core.compiled import interpreted
from starc.simulator.core.memory.addresses import turned
from starc.simulator.state.numbers import GRANULE
from starc.targets.target import Target

BLOCK: Final = GRANULE
"""Bytes that one tag of a cache stands for."""

_plain_turned = interpreted(turned)


@dataclass(frozen=True)
class AddressMap:
    """Where the memory of devices lies: granule by granule over the stacks of a domain. Domains
    and devices are counted in blocks of 4 KiB."""

    granule: int
    domain_stacks: int
    domain_blocks: int
    device_blocks: int
    devices_per_domain: int
    hashed: bool = False

    @classmethod
    def of(cls, target: Target) -> AddressMap:
        """The map of a target."""
        stacks = target.stacks // target.memory_domains
        devices = -(-target.devices_per_gpu // target.memory_domains)
        # Devices begin with a whole granule.
        step = max(BLOCK, target.interleave_granule)
        blocks = target.device_memory_bytes // step * step // BLOCK
        return cls(
            target.interleave_granule,
            stacks,
            blocks * devices,
            blocks,
            devices,
            target.interleave_hashed,
        )

    def place(self, device: int, address: int) -> tuple[int, int]:
        """The block of the GPU and the stack that hold a byte of a device's memory; the device
        is counted within its GPU."""
        domain, k = divmod(device, self.devices_per_domain)
        inside = k * self.device_blocks * BLOCK + address
        return (
            domain * self.domain_blocks + inside // BLOCK,
            domain * self.domain_stacks + self._turn(inside // self.granule) % self.domain_stacks,
        )

    def _turn(self, unit: int) -> int:
        if not self.hashed:
            return unit
        return int(_plain_turned(unit, self.domain_stacks))
