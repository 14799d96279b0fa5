"""Words of plans: shardings, collectives, transports, and what kernels are made of."""

from __future__ import annotations

from typing import Final

PLAN_TERMS: Final[dict[str, str]] = {
    "algorithm": (
        "How a collective is decomposed into steps (ring, bidirectional_ring, one_shot, "
        "two_shot, tree, direct), and its transport."
    ),
    "bidirectional_ring": (
        "A ring whose halves travel in both directions. Over the dies of a package, the two "
        "dies of a carrier exchange first, so that each link between carriers is crossed by the "
        "least bytes."
    ),
    "bulk": (
        "A transport: data of a step, then a flag, as RCCL's protocol 'Simple' does; launched "
        "by the host, so that starting it takes long."
    ),
    "channel_ll": (
        "A transport: the encoding of ll (a flag beside every 4 bytes of data) on the channels "
        "that bulk has, and started as bulk is: steps cost less, the wire carries twice the bytes."
    ),
    "chunk": (
        "A part of the data of an exchange of several phases: while one part is in one phase, "
        "the next is in the phase before."
    ),
    "cyclic": (
        "A shard map: positions are dealt out to the devices in turn, one by one or by blocks, "
        "as cards are. A cache that grows stays balanced."
    ),
    "data_parallel": (
        "Groups of devices that serve different sequences: the devices over the tensor-parallel "
        "size."
    ),
    "device_put": (
        "A transport: the kernel itself stores into the memory of its peers and sets flags "
        "there, without the host."
    ),
    "direct": (
        "An algorithm of exchanges without a sum over many steps: every device sends to, or "
        "reads from, every other one itself."
    ),
    "dma": (
        "A transport: copy engines read and put the data, and compute units are left to kernels. "
        "For exchanges that only move data."
    ),
    "element_type": (
        "The type that weights and activations (dtype), or the KV cache (kv_cache_dtype), are "
        "stored in."
    ),
    "encoding": (
        "How a tensor lies on the mesh, written in its type: for every dimension the axes that "
        "split it, and the axes over which its value is still a partial result."
    ),
    "exchange": (
        "Communication between devices: the collectives of a layer. A fused launch that also "
        "exchanges counts as what it computes."
    ),
    "fused": (
        "One launch does what several did: it computes, and sends or reads the data of its "
        "peers meanwhile."
    ),
    "group": "Kind of a kernel's computation, whether it exchanges data too or not.",
    "interchange": (
        "Whether the exchange beside a product goes in front of it (all-gather of the input) or "
        "behind it (reduce-scatter of the result): the product then splits another loop, and "
        "other bytes move."
    ),
    "keep": "Of windowed attention: the first positions, which stay visible beside the window.",
    "kv_replication": (
        "How many times the KV cache is stored: bytes on all devices over bytes needed. It is "
        "above 1 where tensor parallelism has more ranks than the model has KV heads, so that "
        "several devices hold the same head. 'shard-attention-sequence' leaves one copy, unless "
        "so few tokens make that slower; to keep one layout for all steps of a server, give it "
        "a mode: --enable 'shard-attention-sequence{mode=queries}'."
    ),
    "ll": (
        "A transport: every 4 bytes of data carry a flag of 4 bytes, as RCCL's protocol 'LL' "
        "does; few steps to wait for, twice the bytes."
    ),
    "logical_bytes": (
        "Payload that crossed a class of links, each transfer counted once; 'links' counts it "
        "once a link on its way. A read of a peer that the reader's own L2 answers is no transfer."
    ),
    "logical_extents": (
        "The part of a buffer that holds data on a device: where shards have different sizes, "
        "buffers have that of the largest, and accesses end where the data end."
    ),
    "lse_partial": (
        "The state of an attention of which every device has seen some of the keys: the largest "
        "score m, the sum l of the weights exp(s - m), and the weighted sum o of the values. "
        "Two of them combine exactly, by bringing both to the larger m (log-sum-exp); o / l at "
        "the end is the attention."
    ),
    "mesh": "The devices as a grid of named axes, outer (slow links) to inner (fast links).",
    "one_shot": (
        "An algorithm: every device sends all of its data to every other one, which then "
        "combines. One step: for small messages."
    ),
    "orthogonal": (
        "Of a matrix product y = x w: one level of the machine splits the summed loop (K), the "
        "other the columns (N), so that no loop is cut by both. A device's tile is then less "
        "skinny, and an exchange crosses one level only."
    ),
    "owner": (
        "The device that holds something alone. Of a token: the one whose share of the KV cache "
        "has its position. Of a head, or of columns: the one that combines what the others have "
        "of it."
    ),
    "partial": (
        "State of a value of which every device along some axes holds a summand (sum), a "
        "candidate (max) or a piece of a softmax (lse). A reduction must follow."
    ),
    "pipelined": (
        "Of loops: iterations overlap, loads of later ones run while earlier ones compute. Of "
        "exchanges: phases work on different chunks at the same time."
    ),
    "pull": (
        "A fused product reads the slices of its input from the devices that hold them, instead "
        "of a gather in front of it. How: cached, uncached or staged."
    ),
    "push": (
        "A fused product sends tiles of its result to the devices that own them, which add what "
        "arrives, instead of a reduce-scatter behind it."
    ),
    "replicated": "Stored or computed whole by every device along some axes.",
    "reshard": (
        "A place where a value must lie on the devices otherwise than it does: they exchange "
        "data there, by one or more collectives."
    ),
    "ring": (
        "An algorithm: every device passes pieces on to its neighbour, in n-1 steps a "
        "direction. All links are busy, each step waits for the one before. In attention of a "
        "prompt on machines of cubes: keys and values go around the cubes of a group while each "
        "computes with the block that it holds."
    ),
    "rotated_map": (
        "A cyclic shard map whose start depends on the request: position p of request b lies on "
        "device (p + b) mod n. The new tokens of a step, all at one position, then have "
        "different owners."
    ),
    "sharded": "Cut into shards, each on a device of its own.",
    "share": "The kernel's part of the layer's time.",
    "sink": (
        "Of attention: a learned logit of each head that takes part in the softmax without a "
        "value, so that weights may sum to less than one."
    ),
    "strategy": "A named list of passes with options: the plan of how a layer is distributed.",
    "tax": (
        "What separate kernels cost and a fused one saves: results that go through memory "
        "(hbm), waiting until all of an exchange is there (sync), and a launch each (launch). "
        "--unfuse puts one back, to see what it costs."
    ),
    "transport": (
        "How a collective moves data (bulk, ll, channel_ll, device_put, dma): its fixed time "
        "before the first put and a step, workgroups, and bytes in flight."
    ),
    "tree": "An algorithm: sums go up a tree of devices and results come down it.",
    "two_shot": (
        "An algorithm: every device reduces its own part of all data, then sends it to the "
        "others. Two steps, the bytes of a ring."
    ),
    "uneven": (
        "Shards of different size, empty ones too. Without --uneven a size that does not divide "
        "is refused."
    ),
    "window": (
        "Of attention: a token sees the last so many positions only. Of a compute unit: bytes "
        "that may be in flight."
    ),
    "workgroups": "Workgroups of a launch on one device.",
}
"""Of ``starc explain`` and the glossary page."""
