"""Words of the IR, of printed programs and of the passes."""

from __future__ import annotations

from typing import Final

IR_TERMS: Final[dict[str, str]] = {
    "axis": (
        "A named dimension of the mesh (gpu, xcd; sip, group, cube, pe). A value is split, copied "
        "or partial over axes; '\"xcd\":(1)2' is the first factor 2 of one."
    ),
    "blocked": (
        "A layout: the buffer lies block after block, as the tiles of its kernel are read, so that "
        "a tile is one run of bytes. 'row_major' is the plain order."
    ),
    "buffer": (
        "Memory with an address on every device (kernel.buffer): a weight, a cache, a value "
        "between launches, or space for an exchange; its role says which."
    ),
    "counter": (
        "Of IR and programs: a number in memory that signals of devices add to and waits look at. "
        "counter0, counter1 .. in a printed program are the variables of loops, outer ones first."
    ),
    "kernel": (
        "What one launch runs: instructions for one workgroup, the same on every device "
        "(isa.kernel). Programs call it a template."
    ),
    "launch": (
        "A kernel started on all workgroups of a device, on a queue (kernel.launch, isa.launch). "
        "Its body at the kernel level is the operations that it computes."
    ),
    "layout": "In which order the elements of a buffer lie in memory: row_major or blocked.",
    "parameter": "A weight: a symbol of the module with type and location (nn.parameter).",
    "private": "Of a buffer: only its own device reads and writes it.",
    "program": (
        "The packed form: templates, launches and buffers as rows of arrays, with the machine. It "
        "is what the simulator and 'starc disasm' read."
    ),
    "queue": (
        "Launches of one queue run one after the other, those of two beside each other: 0 "
        "(compute) and 1 (communication)."
    ),
    "record": "A row of a packed program: one instruction of a template.",
    "role": (
        "What a buffer is for: weight, kv_cache, input, output, activation or communication. The "
        "memory report sums by it."
    ),
    "shard_map": (
        "Which positions of a split dimension each rank holds: contiguous blocks, 'cyclic(b)', "
        "'zigzag', or 'offsets [..]'."
    ),
    "slot": (
        "One of several places of a tile in a loop, so that a load fills one while another is "
        "used; also a place in a queue between devices."
    ),
    "staging": "A symmetric buffer that peers write into before the owner combines what came.",
    "state": (
        "What a layer keeps from step to step: its KV caches (nn.state), read and written by "
        "operations of the layer."
    ),
    "symmetric": (
        "Of a buffer: at the same address on every device, so that peers can read and write it."
    ),
    "template": "A kernel in a packed program: one stream of records for all workgroups.",
    "tile": (
        "The part of a tensor that one instruction works on, in registers or scratch memory "
        "(isa.alloc)."
    ),
    "wave": "A group of lanes of a workgroup that run in step; 64 lanes on AMD's GPUs, 32 on "
    "NVIDIA's, where it is called a warp.",
    "wg": "The number of a workgroup of a launch, from 0: a variable of addresses.",
    "workgroup": (
        "What a compute unit runs of a launch: one stream of instructions. NVIDIA calls it a "
        "thread block."
    ),
}
"""Of ``starc explain`` and the glossary page."""
