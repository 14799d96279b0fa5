"""Lines and keys of a report: times, bounds, memory, and what the model is."""

from __future__ import annotations

from typing import Final

MEASURE_TERMS: Final[dict[str, str]] = {
    "activations": (
        "Activation buffers of one layer, inputs and outputs included: layers after each other "
        "use the same addresses."
    ),
    "algbw_gbps": (
        "Algorithm bandwidth of a collective as rccl-tests counts it: bytes of a rank's buffer "
        "over time, in 10^9 bytes a second."
    ),
    "algorithm_bound": (
        "The least time that the operations need on this machine whatever the program: for every "
        "class of servers (matrix engines, memory, links) the compulsory work over the sustained "
        "rate, and of these the largest. Memory must hand out the weights and the KV cache of the"
        " steps before, once; what the operations hand to each other may stay in caches and does "
        "not count. No latency and no launch is in it, and the simulated time is never below it."
    ),
    "batch": "Sequences that are in flight at once on the whole node.",
    "between_kernels": (
        "The layer's time less that of its kernels on the slowest device: gaps between launches, "
        "and waiting for other devices. It is what is left, not measured by itself; kernels that "
        "overlap make it smaller."
    ),
    "bound_by": (
        "The server whose work bounds the time from below: hbm, mall, l2, cu_port, matrix, "
        "vector, scratch, copy_engine, die, usr or xgmi, each explained under its name; or "
        "latency where every server is busy for less than half of the time."
    ),
    "busbw_gbps": (
        "Bus bandwidth of a collective as rccl-tests counts it: algorithm bandwidth times the "
        "factor that makes it comparable with link rates, 2 (n-1)/n for an all-reduce over n "
        "ranks and (n-1)/n for gathers and scatters."
    ),
    "busiest": (
        "The server with the most work of the layer over its rate, whose work is lower_bound."
    ),
    "bytes": (
        "Compulsory bytes of a kernel on one device: every operand read once, every result "
        "written once. GB/s is these over the kernel's time: caches serve some of them, and it "
        "can exceed the rate of memory; a kernel that reads operands twice moves more."
    ),
    "capacity_bytes": "Memory of one partition.",
    "changes": (
        "Options that changed the strategy's plan: passes that were added or left out, uneven "
        "shards, taxes of unfused kernels, the transport of all collectives."
    ),
    "checks": (
        "What --check found: the program, or its shrunk twin, run on data and compared with the "
        "reference."
    ),
    "communication": (
        "Symmetric buffers that collectives send to, at the same address on every device."
    ),
    "context": "Tokens that a new token attends to, the new ones included.",
    "count": "How many layers of a kind the model has.",
    "cycles": "Time at the core clock of the run. Times are integer picoseconds inside.",
    "defaults_in_force": "Options that were not given, with the values that were chosen.",
    "devices": (
        "What a framework sees as GPUs: in CPX mode every die of an MI300X is a device of its "
        "own, in SPX mode the whole package is one."
    ),
    "engine": (
        "The work of the tool itself: instructions executed after loops are unrolled, requests, "
        "events, seconds of the event loop (wall_s) and from the source to the program "
        "(compile_s). One GPU is simulated for all of them where they do the same by rotation "
        "(simulated_gpus); else whole_node says what differs."
    ),
    "exposed_comm_us": "Time of communication during which nothing else runs on the device.",
    "fits": (
        "Whether the peak memory of the fullest partition is within the usable memory: the "
        "capacity times --gpu-memory-utilization."
    ),
    "flops": (
        "Floating-point operations of a kernel on one device, a multiply-add counted as two. "
        "TFLOP/s is these over the kernel's time."
    ),
    "gaps": (
        "The layer's time less that of its kernels: what lies between launches, and waiting for "
        "other devices."
    ),
    "intensity": "Arithmetic intensity: floating-point operations a compulsory byte.",
    "kernels": (
        "Launches of a layer in order. Times are those of the device that ends the layer last."
    ),
    "kernels_us": "Sum of the times of a layer's kernels.",
    "kind": (
        "Of a kernel: gemm, attention, norm, elementwise, append, embedding, collective, or fused "
        "where it computes and exchanges. Of a layer: its name in the model."
    ),
    "kv_cache": (
        "Keys and values of all layers for the whole batch at the context, of the fullest "
        "partition."
    ),
    "kv_tokens": (
        "KV-cache tokens that a partition has room for beside weights, activations and "
        "communication buffers (the line 'GPU KV cache size' of vLLM, for a partition)."
    ),
    "latency": (
        "Not a server: every server is busy for less than half of the time, which goes into "
        "waiting for single accesses, launches and other devices."
    ),
    "launch_us": (
        "What launching a kernel costs: the gap between it and the kernel before it on its queue, "
        "and its prologue. --eager adds what the host takes, where kernels are shorter than that."
    ),
    "layer": (
        "One layer of the most frequent kind, from when its first device starts to when its last "
        "one ends."
    ),
    "level": (
        "A step of the machine's hierarchy with links of its own speed: the dies of a GPU are "
        "an inner level, the GPUs of a node an outer one."
    ),
    "lower_bound": (
        "The least time that this program needs on this machine: the work that it puts on each "
        "server over the server's sustained rate, and of these the largest. The simulated time is"
        " never below it."
    ),
    "max_batch": "The largest batch at this context that fits the usable memory; 0 if none does.",
    "op": "The collective operation, and the mesh axes and number of ranks that it runs over.",
    "operations": "What a fused kernel does, in order: its computations and exchanges.",
    "padding_bytes": "What blocked layouts add to weights and caches.",
    "parameters": (
        "Numbers of the model's weights, of the whole model and of one layer, each counted once "
        "however often it is stored."
    ),
    "peak_bound": "algorithm_bound with the vendor's peak rates instead of sustained ones.",
    "peak_bytes": (
        "What the whole model needs of the fullest partition: weights, KV cache, activations and "
        "communication buffers."
    ),
    "phase": "decode: one new token for every sequence. prefill: all tokens of a prompt at once.",
    "ratio": "The layer's time of the first row over that of this row: above 1 is faster.",
    "remarks": "What passes did, or declined to do and why: --remarks prints them.",
    "shape": (
        "Sizes of a kernel's work on one device: m, n, k of a matrix product; tasks, keys, "
        "head_dim and split of attention, and the passes over its keys on machines with engines."
    ),
    "size_bytes": "Bytes of one rank's buffer in a collective.",
    "spread_us": "How much earlier than the slowest device the fastest one ends the layer.",
    "start_us": "When a kernel starts after its layer.",
    "tokens_per_s": "New tokens a second of all sequences of the node together.",
    "tpot_ms": "Time per output token of each sequence in decode.",
    "ttft_ms": "Time to the first token: the whole prefill of one batch.",
    "usable_bytes": "The part of the capacity that may be used: --gpu-memory-utilization of it.",
    "weights": "Weights of all layers, embedding and head that the fullest partition holds.",
    "whole_model": (
        "All layers of all kinds one after another, each at the time of its kind with cold caches."
    ),
}
"""Of ``starc explain`` and the glossary page."""
