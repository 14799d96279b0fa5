"""What the lines and keys of a report mean. ``starc explain`` and the glossary page show it."""

from __future__ import annotations

from typing import Final

GLOSSARY: Final[dict[str, str]] = {
    "algorithm_bound": (
        "The least time that the operations need on this machine whatever the program: for every "
        "class of servers (matrix engines, memory, links) the compulsory work over the sustained "
        "rate, and of these the largest. Memory must hand out the weights and the KV cache of the "
        "steps before, once; what the operations hand to each other may stay in caches and does "
        "not count. No latency and no launch is in it, and the simulated time is never below it."
    ),
    "algbw_gbps": (
        "Algorithm bandwidth of a collective as rccl-tests counts it: bytes of a rank's buffer "
        "over time, in 10^9 bytes a second."
    ),
    "batch": "Sequences that are in flight at once on the whole node.",
    "bound_by": (
        "The server whose work bounds the time from below: hbm (memory stacks), matrix, vector, "
        "usr (links between the dies of a package), xgmi (links between GPUs), die (a die's own "
        "ports), or latency where every server is busy for less than half of the time."
    ),
    "busbw_gbps": (
        "Bus bandwidth of a collective as rccl-tests counts it: algorithm bandwidth times the "
        "factor that makes it comparable with link rates, 2 (n-1)/n for an all-reduce over n ranks "
        "and (n-1)/n for gathers and scatters."
    ),
    "caches": (
        "Whether the layer starts with cold caches (its weights and KV cache lie in memory, as in "
        "a model with many layers) or warm ones (a second pass over the same addresses)."
    ),
    "context": "Tokens that a new token attends to, the new ones included.",
    "cycles": "Time at the core clock of the run. Times are integer picoseconds inside.",
    "devices": (
        "What a framework sees as GPUs: in CPX mode every die of an MI300X is a device of its own, "
        "in SPX mode the whole package is one."
    ),
    "encoding": (
        "How a tensor lies on the mesh, written in its type: for every dimension the axes that "
        "split it, and the axes over which its value is still a partial result."
    ),
    "exposed_comm_us": "Time of communication during which nothing else runs on the device.",
    "fits": (
        "Whether the peak memory of the fullest partition is within the usable memory: the "
        "capacity times --gpu-memory-utilization."
    ),
    "intensity": "Arithmetic intensity: floating-point operations a compulsory byte.",
    "kv_replication": (
        "How many times the KV cache is stored: bytes on all devices over bytes needed. It is "
        "above 1 where tensor parallelism has more ranks than the model has KV heads, so that "
        "several devices hold the same head."
    ),
    "kv_tokens": (
        "KV-cache tokens that a partition has room for beside weights, activations and "
        "communication buffers (the line 'GPU KV cache size' of vLLM, for a partition)."
    ),
    "logical_bytes": (
        "Payload that crossed a class of links, each transfer counted once; 'links' counts it once "
        "a link on its way."
    ),
    "lower_bound": (
        "The least time that this program needs on this machine: the work that it puts on each "
        "server over the server's sustained rate, and of these the largest. The simulated time is "
        "never below it."
    ),
    "max_batch": "The largest batch at this context that fits the usable memory; 0 if none does.",
    "mesh": "The devices as a grid of named axes, outer (slow links) to inner (fast links).",
    "partial": (
        "State of a value of which every device along some axes holds a summand (sum), a candidate "
        "(max) or a piece of a softmax (lse). A reduction must follow."
    ),
    "peak_bound": "algorithm_bound with the vendor's peak rates instead of sustained ones.",
    "spread_us": "How much earlier than the slowest device the fastest one ends the layer.",
    "strategy": "A named list of passes with options: the plan of how a layer is distributed.",
    "tokens_per_s": "New tokens a second of all sequences of the node together.",
    "tpot_ms": "Time per output token of each sequence in decode.",
    "transport": (
        "How a collective moves data: its fixed time before the first put and a step, workgroups, "
        "and bytes in flight."
    ),
    "ttft_ms": "Time to the first token: the whole prefill of one batch.",
    "usr_bytes": "Bytes that crossed links between the dies of a package.",
    "xgmi_bytes": "Bytes that crossed links between GPUs.",
}
