"""What the remarks of the passes mean, by their identifiers, and which passes make them. ``starc
explain ID`` shows it."""

from __future__ import annotations

from typing import Final

REMARKS: Final[dict[str, str]] = {
    "keys-limited": (
        "A tile was asked for with more keys than an element has; a larger one would only compute "
        "what is masked, so that it takes no more keys than cover them."
    ),
    "algorithm-does-not-fit": (
        "The algorithm that was asked for has more workgroups that wait for each other than a "
        "device can hold at once, so that an exchange is done by another one that fits."
    ),
    "collective-algorithm": (
        "How an exchange is done: its bytes, the links it crosses, the chosen algorithm and "
        "transport with the estimated time and what bounds it, and the best others."
    ),
    "collective-exposed": (
        "Nothing is independent of an exchange, so that the device waits for it. The remedy is "
        "fusion with its neighbours, not another queue."
    ),
    "collective-overlapped": (
        "A launch that does not need an exchange runs beside it on another queue."
    ),
    "collectives-formed": (
        "How many exchanges of each kind a layer makes, after values that must change their "
        "distribution (reshards) became collective operations."
    ),
    "collectives-merged": (
        "Exchanges of the same kind side by side became one launch, which pays the fixed time "
        "of an exchange once; or why they stay apart."
    ),
    "collectives-pipelined": (
        "The phases of an exchange over several levels work on parts (chunks) of the data, so "
        "that a phase on slow links runs beside one on fast links; or why this does not pay."
    ),
    "commands-formed": (
        "On a machine with engines: loops that became one command for the scheduler of the "
        "engines (a product with its loads and what follows from it), and loops that load the "
        "tiles of the next iteration before they work on this one."
    ),
    "composed-reshards": (
        "Exchanges in a row became shorter ones, moved to where they carry less, or vanished. "
        "The bytes are what one device sends in a layer, by class of links, now and before."
    ),
    "engine-streams": (
        "What a kernel has become on a machine with engines: commands that the CPU issues (those "
        "of a loop counted once), records of the stream of each engine, and the semaphores that "
        "join them."
    ),
    "fused": (
        "One launch computes and exchanges: it reads slices of its input from peers, sends "
        "tiles of its result to their owners, or merges parts of attention. The times are "
        "estimates, fused and with separate launches."
    ),
    "hierarchical-collective": (
        "An exchange over several levels of the machine became phases of one level each, so "
        "that slow links carry each byte once; or why it stays one exchange."
    ),
    "interchange": (
        "A product and the exchange beside it may change places: the result is reduced and "
        "scattered behind the product, or the input is gathered in front of it. Both are "
        "estimated, and the faster one is taken where the conditions of the pass allow it. "
        "'missed' means that the form stays as it was."
    ),
    "kernel-formed": "The operations that one launch computes.",
    "kernel-not-merged": (
        "An operation could have joined a launch, but would have made it wait for its own result."
    ),
    "kv-placement": (
        "Over which axes the heads of a KV cache are split, and how many devices store each of "
        "them. More than once is memory that buys nothing."
    ),
    "lowered": (
        "The instruction programs of a launch: workgroups of the same work share one, whose "
        "records are instructions with loops kept as loops."
    ),
    "memory-exceeded": (
        "The model does not fit the usable memory of a partition; the report says what would."
    ),
    "memory-planned": "Peak memory of the fullest partition, against what is usable.",
    "norm-scale": (
        "A root-mean-square norm of rows that are split over devices exchanges one sum of "
        "squares a token instead of the rows. Its factor is a number a row, so that it may be "
        "applied behind the products (sinks below them); or why the norm stays as it is."
    ),
    "not-fused": "Why a product, an attention and the exchange beside it stay separate launches.",
    "not-orthogonal": (
        "A product whose one loop is split by two levels of the machine, and why: a size that "
        "does not divide, or an exchange that is faster this way."
    ),
    "not-pipelined": "Why the iterations of a loop do not overlap.",
    "orthogonal-gemm": (
        "A product whose loops K (summed) and N (columns) are now split by different levels of "
        "the machine: the tile of a device has other proportions and shares more of its "
        "operands."
    ),
    "orthogonal-gemms": "Weights are split over one level of devices only: nothing to choose.",
    "owner-not-resident": (
        "Shares of a split product are combined by a launch of their own, for the workgroups "
        "that would wait for each other cannot all be on the device at once."
    ),
    "peers-awaited": "Where attention waits for caches that it reads from other devices.",
    "phases-cancelled": "Two exchanges in a row undo each other or make a shorter one.",
    "pipelined": (
        "The iterations of a loop overlap by modulo scheduling: one starts every so many "
        "cycles, the larger of what the busiest resource and what the longest cycle of "
        "dependences need."
    ),
    "plan-is-legal": "How many devices a layer and the batch are divided over.",
    "queues-planned": (
        "What the queues between devices take of the scratch memory that a machine keeps for them."
    ),
    "reshard": (
        "An operation needs its operand distributed otherwise than it is, so that devices "
        "exchange data there. Lists in braces are the axes that split each dimension; 'partial' "
        "names those over which summands must still be added."
    ),
    "residual-stream": (
        "The hidden state between layers is split over the inner level instead of being whole "
        "on every device; or why it stays whole."
    ),
    "rows-scaled": "A product multiplies its rows by the factor of a norm before it stores them.",
    "float-sums": "A kernel adds floats to memory of peers: their order may change the results.",
    "ring-balance": (
        "Keys go around the cubes of a group: how much more than the mean the busiest PE of each "
        "step computes, which is the balance of work by PE, and how long cubes wait for keys by "
        "the estimate, where a cube is as slow as its busiest PE: PEs with less to do end "
        "earlier, and devices may end apart by more than that."
    ),
    "schedule-not-checked": (
        "The launches, or the streams of a kernel, are too many to prove that all waits end."
    ),
    "schedule-verified": (
        "It is proved that every wait ends, and that workgroups which wait are on the device "
        "together with those that they wait for."
    ),
    "scratch": (
        "Scratch memory and registers that a workgroup of a kernel takes of a compute unit; on a "
        "machine of elements with engines, how far its tiles share the bytes of the scratch memory."
    ),
    "sequence-sharding": (
        "KV caches are split along the sequence over devices that would store the same heads: "
        "what this saves in memory and reading, what is exchanged for it (queries and parts of "
        "the result, or keys and values), and the estimates; or why caches are not split."
    ),
    "several-passes": (
        "A device has keys of several sequences or KV heads, and its attention goes through them "
        "one after the other."
    ),
    "shared-pieces": (
        "Which axes of a mesh with several axes a level divide a dimension of a weight, and how "
        "many devices keep the same piece of it."
    ),
    "sweep-not-scheduled": (
        "Why the commands of a sweep over tiles of keys are issued as they are written, and not "
        "the scores of the next tile before the softmax of this one."
    ),
    "sweep-schedule": (
        "How a sweep over tiles of keys overlaps on a machine with engines: 'blocking' as it is "
        "written, 'pipelined' with the scores of the next tile before the softmax of this one, "
        "'stateful' besides with one command for all behind the scores; and the commands that the "
        "CPU issues a tile."
    ),
    "tensor-parallel-plan": (
        "The axes of the mesh that split weights, and those that split the batch."
    ),
    "tile-chosen": (
        "The tile of a workgroup, with the estimated time of the launch, the terms of the "
        "estimate and the next best tiles."
    ),
    "uneven-shares": "Devices hold shares of different size, as --uneven allows.",
    "unused-dropped": "An operation whose result nobody reads was left out.",
    "workgroups-resident": (
        "Workgroups of a launch wait for each other, which is safe because all of them are on "
        "the device at once."
    ),
}

PASSES_OF_REMARKS: Final[dict[str, tuple[str, ...]]] = {
    "algorithm-does-not-fit": ("select-collective-algorithm",),
    "collective-algorithm": ("select-collective-algorithm",),
    "collective-exposed": ("assign-queues",),
    "collective-overlapped": ("assign-queues",),
    "collectives-formed": ("localize",),
    "collectives-merged": ("merge-collectives",),
    "collectives-pipelined": ("pipeline-collectives",),
    "commands-formed": ("schedule-commands",),
    "composed-reshards": ("compose-reshards",),
    "engine-streams": ("assign-engines",),
    "float-sums": ("verify-schedule",),
    "fused": ("fuse-compute-collectives",),
    "hierarchical-collective": ("hierarchical-collectives",),
    "interchange": ("interchange-collectives",),
    "kernel-formed": ("form-kernels",),
    "kernel-not-merged": ("form-kernels",),
    "keys-limited": ("tile-kernels",),
    "kv-placement": ("assign-tensor-parallel",),
    "lowered": ("lower-to-isa",),
    "memory-exceeded": ("plan-memory",),
    "memory-planned": ("plan-memory",),
    "norm-scale": ("sink-norm-scale",),
    "not-fused": ("fuse-compute-collectives",),
    "not-orthogonal": (
        "orthogonalize-gemms",
        "interchange-collectives",
    ),
    "not-pipelined": ("pipeline-loops",),
    "orthogonal-gemm": ("orthogonalize-gemms",),
    "orthogonal-gemms": ("orthogonalize-gemms",),
    "owner-not-resident": ("map-workgroups",),
    "peers-awaited": ("map-workgroups",),
    "phases-cancelled": ("hierarchical-collectives",),
    "pipelined": ("pipeline-loops",),
    "plan-is-legal": ("verify-model",),
    "queues-planned": ("plan-memory",),
    "reshard": ("propagate-shardings",),
    "residual-stream": ("orthogonalize-gemms",),
    "ring-balance": ("tile-kernels",),
    "rows-scaled": ("fuse-compute-collectives",),
    "schedule-not-checked": ("verify-schedule",),
    "schedule-verified": ("verify-schedule",),
    "scratch": ("plan-scratch",),
    "sequence-sharding": ("shard-attention-sequence",),
    "several-passes": ("tile-kernels",),
    "shared-pieces": ("assign-tensor-parallel",),
    "sweep-not-scheduled": ("schedule-commands",),
    "sweep-schedule": ("schedule-commands",),
    "tensor-parallel-plan": ("assign-tensor-parallel",),
    "tile-chosen": ("tile-kernels",),
    "uneven-shares": ("verify-model",),
    "unused-dropped": ("form-kernels",),
    "workgroups-resident": ("map-workgroups",),
}
"""The passes that make each remark, by name and in order."""
