"""What is watched where one GPU is run for all: accesses to buffers that turn with the GPU."""

from __future__ import annotations

from typing import Final

# Blocks that turn with the GPU in one set of a memory-side cache, at most.
VICTIMS: Final = 4

# What accesses to buffers that turn with the GPU have seen, per launch and watched instruction.
WATCHES: Final = 256
SEEN_L2_HIT: Final = 1
SEEN_L2_FILLED: Final = 2  # a line that is being filled
SEEN_L2_PART: Final = 4
SEEN_L2_MISS: Final = 8
SEEN_HIT: Final = 16  # in the memory-side cache
SEEN_LATE: Final = 32  # there, but not yet filled
SEEN_PART: Final = 64
SEEN_MISS: Final = 128
SEEN_L2: Final = 15
SEEN_MEMORY: Final = 240

# Numbers of watched instructions: those whose addresses turn, and others on the same buffers.
FIRST_STAY: Final = 128
