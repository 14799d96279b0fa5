"""Words of machines of memory cubes and of their attention kernels, for ``starc explain`` and the
glossary page."""

from __future__ import annotations

from typing import Final

CUBE_TERMS: Final[dict[str, str]] = {
    "composite": (
        "One command for the scheduler of a PE: a product with its loads, the setting of its "
        "accumulator and what is done to each element of its result. The CPU issues it once; the "
        "scheduler hands its parts to the DMA, GEMM and MATH engines. schedule-commands forms "
        "composites of loops (its option composites=none leaves them as commands of their own)."
    ),
    "contiguous": (
        "Positions of a KV cache or rows of queries that lie together on a device: device r has "
        "the r-th stretch. The other map, cyclic (the default of caches), deals them out one "
        "after another, or blocks of them. Of query rows there is zigzag, too: a chunk from the "
        "front and one from the back, which evens out causal attention."
    ),
    "cube": (
        "A stack of memory with eight PEs on its base die, on the target ahbm and other machines "
        "of memory cubes; also the axis of the mesh over the cubes that share a KV head (C, a "
        "group). A SIP has 4 x 4 of them, linked as a mesh of routers. 'starc explain ahbm' has "
        "the sizes."
    ),
    "ipcq": (
        "Queues between PEs: the sender puts a tile into a slot of the receiver's scratch with a "
        "signal that counts arrivals, and waits for a credit, which the receiver returns, before "
        "it uses the slot again. Numbers structure.queue_bytes and structure.queue_depth."
    ),
    "opt1": (
        "The schedule 'blocking' of attention on machines of cubes: the CPU waits for every "
        "product before it issues what uses it, so that the engines work one after another. "
        "Option attention-schedule of schedule-commands."
    ),
    "opt2": (
        "The schedule 'stateful': everything behind Q K^T of a tile of keys is one composite that "
        "carries the running maximum, sum and result from tile to tile; two commands a tile. "
        "Needs a machine with compute.stateful_composites."
    ),
    "opt3": (
        "The schedule 'pipelined', the default: Q K^T of the next tile of keys runs while the "
        "softmax and P V of this one do; scores have two slots. Nothing is needed of the machine."
    ),
    "pe": (
        "Processing element, the device of machines of memory cubes: a CPU that issues commands, "
        "a scheduler, a DMA engine, a matrix engine (GEMM) and a vector engine (MATH), with a "
        "scratch memory and eight channels of its cube's memory. Eight PEs are a cube, 2 x 4."
    ),
    "root": (
        "One of who finishes the heads of attention that is split along the keys: one device of "
        "a group, at the center of its cubes, merges all heads and divides (output=root of "
        "shard-attention-sequence)."
    ),
    "scatter": (
        "One of who finishes the heads of attention that is split along the keys: every head has "
        "an owner that merges its parts and divides, spread over cubes and PEs (output=scatter of "
        "shard-attention-sequence, the default on machines of cubes). Also a form of a group in "
        "interchange-collectives: a sum is scattered before what follows it."
    ),
    "semaphore": (
        "A number that the streams of one PE order their work with: a stream acquires it (waits "
        "until it is above zero, and subtracts one) and another releases it. assign-engines makes "
        "one for each dependence between two engines that no other implies."
    ),
    "sip": (
        "A package of 4 x 4 memory cubes of the target ahbm, and the outer axis of its mesh: a "
        "node has one to four (--sips). It is what a GPU is on other machines."
    ),
}

CUBE_ALIASES: Final[dict[str, str]] = {
    "blocking": "opt1",
    "composites": "composite",
    "cubes": "cube",
    "gemm_engine": "pe",
    "math_engine": "pe",
    "output": "scatter",
    "pes": "pe",
    "semaphores": "semaphore",
    "sips": "sip",
    "stateful": "opt2",
    "zigzag": "contiguous",
}
