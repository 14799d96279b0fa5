"""What the lines and keys of a report mean. ``starc explain`` and the glossary page show it."""

from __future__ import annotations

import re
from typing import Final

from starc.report.glossary_cubes import CUBE_ALIASES, CUBE_TERMS

GLOSSARY: Final[dict[str, str]] = {
    **CUBE_TERMS,
    "activations": (
        "Activation buffers of one layer, inputs and outputs included: layers after each other "
        "use the same addresses."
    ),
    "algbw_gbps": (
        "Algorithm bandwidth of a collective as rccl-tests counts it: bytes of a rank's buffer "
        "over time, in 10^9 bytes a second."
    ),
    "algorithm": (
        "How a collective is decomposed into steps (ring, bidirectional_ring, one_shot, "
        "two_shot, tree, direct), and its transport."
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
    "bidirectional_ring": (
        "A ring whose halves travel in both directions. Over the dies of a package, the two "
        "dies of a carrier exchange first, so that each link between carriers is crossed by the "
        "least bytes."
    ),
    "bound_by": (
        "The server whose work bounds the time from below: hbm, mall, l2, cu_port, matrix, "
        "vector, scratch, copy_engine, die, usr or xgmi, each explained under its name; or "
        "latency where every server is busy for less than half of the time."
    ),
    "bulk": (
        "A transport: data of a step, then a flag, as RCCL's protocol 'Simple' does; launched "
        "by the host, so that starting it takes long."
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
    "cached": (
        "Of a pull: slices of peers are read through the L2 of the reading die, so that its "
        "workgroups share them. 'uncached': every workgroup reads them over the link itself. "
        "'staged': some workgroups copy them to local memory, from where the others read."
    ),
    "caches": (
        "Whether the layer starts with cold caches (its weights and KV cache lie in memory, as in"
        " a model with many layers) or warm ones (a second pass over the same addresses)."
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
    "chunk": (
        "A part of the data of an exchange of several phases: while one part is in one phase, "
        "the next is in the phase before."
    ),
    "communication": (
        "Symmetric buffers that collectives send to, at the same address on every device."
    ),
    "context": "Tokens that a new token attends to, the new ones included.",
    "count": "How many layers of a kind the model has.",
    "launch_us": (
        "What launching a kernel costs: the gap between it and the kernel before it on its queue, "
        "and its prologue. --eager adds what the host takes, where kernels are shorter than that."
    ),
    "scratch": (
        "The scratch memory of a compute unit (LDS, shared memory): operands of matrix operations "
        "are stored there and read from there, at most so many bytes a clock."
    ),
    "copy_engine": (
        "An engine that moves data from memory to memory beside the compute units (SDMA): a GPU "
        "has some, which compute nothing."
    ),
    "commands": (
        "What the CPU of a device issued to its engines, each at a cost by class: composites, "
        "which the scheduler expands by itself, and single loads, stores, sends, receives, "
        "products and vector operations."
    ),
    "cu_port": (
        "The port between a compute unit and the L2 cache of its die: what all loads and stores "
        "of the unit pass, at most so many bytes a clock."
    ),
    "busy": (
        "Time that an engine works: the CPU while it issues commands, the DMA while anything is on "
        "its way."
    ),
    "bubbles": (
        "Idle time of an engine between its first work and its last of a kernel (bubbles_us), and "
        "in how many pieces (bubbles)."
    ),
    "cycles": "Time at the core clock of the run. Times are integer picoseconds inside.",
    "cyclic": (
        "A shard map: positions are dealt out to the devices in turn, one by one or by blocks, "
        "as cards are. A cache that grows stays balanced."
    ),
    "data_parallel": (
        "Groups of devices that serve different sequences: the devices over the tensor-parallel "
        "size."
    ),
    "defaults_in_force": "Options that were not given, with the values that were chosen.",
    "device_put": (
        "A transport: the kernel itself stores into the memory of its peers and sets flags "
        "there, without the host."
    ),
    "dma": (
        "A transport: copy engines read and put the data, and compute units are left to kernels. "
        "For exchanges that only move data."
    ),
    "devices": (
        "What a framework sees as GPUs: in CPX mode every die of an MI300X is a device of its "
        "own, in SPX mode the whole package is one."
    ),
    "die": (
        "The port of a die to the rest of its package: everything that its L2 does not hold "
        "passes it, also on the way to another die or to memory."
    ),
    "direct": (
        "An algorithm of exchanges without a sum over many steps: every device sends to, or "
        "reads from, every other one itself."
    ),
    "element_type": (
        "The type that weights and activations (dtype), or the KV cache (kv_cache_dtype), are "
        "stored in."
    ),
    "encoding": (
        "How a tensor lies on the mesh, written in its type: for every dimension the axes that "
        "split it, and the axes over which its value is still a partial result."
    ),
    "engine": (
        "The work of the tool itself: instructions executed after loops are unrolled, requests, "
        "events, seconds of the event loop (wall_s) and from the source to the program "
        "(compile_s). One GPU is simulated for all of them where they do the same by rotation "
        "(simulated_gpus); else whole_node says what differs."
    ),
    "engines": (
        "Where a device executes a stream for each of its engines: a CPU that issues commands, a "
        "scheduler that expands composites, a DMA that moves data, a GEMM and a MATH engine. What "
        "each did in a kernel, the mean of all devices; counts are of all devices together."
    ),
    "exchange": (
        "Communication between devices: the collectives of a layer. A fused launch that also "
        "exchanges counts as what it computes."
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
    "held": (
        "Time that the stream of an engine waited for other streams of its device. 'waits' of the "
        "CPU is this and the time that it waited for counters (awaited_us)."
    ),
    "idle": "A kernel's time on a device less the time that the engine works.",
    "messages": (
        "Puts to other devices, by the nearest class of links between them; a signal that comes "
        "with one is not counted apart."
    ),
    "moves": "Instructions of DMAs by kind, and the requests to memory and links that they took.",
    "fused": (
        "One launch does what several did: it computes, and sends or reads the data of its "
        "peers meanwhile."
    ),
    "gaps": (
        "The layer's time less that of its kernels: what lies between launches, and waiting for "
        "other devices."
    ),
    "hbm": (
        "The memory stacks. 'HBM read' and 'written' are bytes of all devices, of which 'remote' "
        "ones lie at a stack of another carrier die than the reader's."
    ),
    "hbm_remote_bytes": (
        "Accesses of memory, or of the cache in front of it, at another carrier die (IOD) than "
        "that of the compute die. What the memory-side cache serves counts as well, so that it "
        "can exceed what was read and written."
    ),
    "intensity": "Arithmetic intensity: floating-point operations a compulsory byte.",
    "interchange": (
        "Whether the exchange beside a product goes in front of it (all-gather of the input) or "
        "behind it (reduce-scatter of the result): the product then splits another loop, and "
        "other bytes move."
    ),
    "keep": "Of windowed attention: the first positions, which stay visible beside the window.",
    "kernels": (
        "Launches of a layer in order. Times are those of the device that ends the layer last."
    ),
    "kernels_us": "Sum of the times of a layer's kernels.",
    "group": "Kind of a kernel's computation, whether it exchanges data too or not.",
    "kind": (
        "Of a kernel: gemm, attention, norm, elementwise, append, embedding, collective, or fused "
        "where it computes and exchanges. Of a layer: its name in the model."
    ),
    "kv_cache": (
        "Keys and values of all layers for the whole batch at the context, of the fullest "
        "partition."
    ),
    "kv_replication": (
        "How many times the KV cache is stored: bytes on all devices over bytes needed. It is "
        "above 1 where tensor parallelism has more ranks than the model has KV heads, so that "
        "several devices hold the same head. 'shard-attention-sequence' leaves one copy, unless "
        "so few tokens make that slower; to keep one layout for all steps of a server, give it "
        "a mode: --enable 'shard-attention-sequence{mode=queries}'."
    ),
    "kv_tokens": (
        "KV-cache tokens that a partition has room for beside weights, activations and "
        "communication buffers (the line 'GPU KV cache size' of vLLM, for a partition)."
    ),
    "l2": "The L2 cache of a die, read and write sides apart.",
    "latency": (
        "Not a server: every server is busy for less than half of the time, which goes into "
        "waiting for single accesses, launches and other devices."
    ),
    "layer": (
        "One layer of the most frequent kind, from when its first device starts to when its last "
        "one ends."
    ),
    "level": (
        "A step of the machine's hierarchy with links of its own speed: the dies of a GPU are "
        "an inner level, the GPUs of a node an outer one."
    ),
    "links": (
        "Bytes that crossed links of a class, counted once a link: a transfer over two links "
        "counts twice. The links of the class die are also crossed by every access that leaves an"
        " L2, so that they carry more than the payload between devices. 'payload' is "
        "logical_bytes."
    ),
    "channel_ll": (
        "A transport: the encoding of ll (a flag beside every 4 bytes of data) on the channels "
        "that bulk has, and started as bulk is: steps cost less, the wire carries twice the bytes."
    ),
    "dram_fraction": (
        "The sustained part of the memory's peak rate with which a machine was simulated: its "
        "own, or that of --dram-fraction."
    ),
    "same_fraction": (
        "Whether a row of a comparison has the dram_fraction of the first machine of its product "
        "instead of its own: what still differs is not the fraction that was put in."
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
    "lower_bound": (
        "The least time that this program needs on this machine: the work that it puts on each "
        "server over the server's sustained rate, and of these the largest. The simulated time is"
        " never below it."
    ),
    "lse_partial": (
        "The state of an attention of which every device has seen some of the keys: the largest "
        "score m, the sum l of the weights exp(s - m), and the weighted sum o of the values. "
        "Two of them combine exactly, by bringing both to the larger m (log-sum-exp); o / l at "
        "the end is the attention."
    ),
    "mall": (
        "The memory-side cache (Infinity Cache) in front of each memory stack: what comes out of "
        "it, hit or miss, over its rate."
    ),
    "matrix": (
        "The matrix engines of the compute units, at the rate that is sustained at the core clock. "
        "A power cap may lower the clock under long matrix work (power_w)."
    ),
    "max_batch": "The largest batch at this context that fits the usable memory; 0 if none does.",
    "mesh": "The devices as a grid of named axes, outer (slow links) to inner (fast links).",
    "one_shot": (
        "An algorithm: every device sends all of its data to every other one, which then "
        "combines. One step: for small messages."
    ),
    "op": "The collective operation, and the mesh axes and number of ranks that it runs over.",
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
    "operations": "What a fused kernel does, in order: its computations and exchanges.",
    "padding_bytes": "What blocked layouts add to weights and caches.",
    "parameters": (
        "Numbers of the model's weights, of the whole model and of one layer, each counted once "
        "however often it is stored."
    ),
    "partial": (
        "State of a value of which every device along some axes holds a summand (sum), a "
        "candidate (max) or a piece of a softmax (lse). A reduction must follow."
    ),
    "utilization": (
        "Share of its time that the mean server of a kind works, bin by bin of bin_us over the "
        "whole run: --bins, and counter tracks of --trace."
    ),
    "power_w": (
        "Mean power of a GPU while the whole model runs again and again, from the energies of "
        "operations and bytes in the machine's file. Where it would exceed power_cap_w the core "
        "clock is lowered to the largest at which an estimate stays under the cap, and the program "
        "is simulated once more; clock_mhz is that clock, and power_w what that run takes: about "
        "the cap, within 2.5 % of it where it was tried."
    ),
    "peak_bound": "algorithm_bound with the vendor's peak rates instead of sustained ones.",
    "peak_bytes": (
        "What the whole model needs of the fullest partition: weights, KV cache, activations and "
        "communication buffers."
    ),
    "phase": "decode: one new token for every sequence. prefill: all tokens of a prompt at once.",
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
    "ratio": "The layer's time of the first row over that of this row: above 1 is faster.",
    "remarks": "What passes did, or declined to do and why: --remarks prints them.",
    "replicated": "Stored or computed whole by every device along some axes.",
    "requests": (
        "Accesses that the simulation issued, one an operand of an instruction and piece of it; "
        "events are the steps that they take."
    ),
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
    "shape": (
        "Sizes of a kernel's work on one device: m, n, k of a matrix product; tasks, keys, "
        "head_dim and split of attention, and the passes over its keys on machines with engines."
    ),
    "sharded": "Cut into shards, each on a device of its own.",
    "share": "The kernel's part of the layer's time.",
    "sink": (
        "Of attention: a learned logit of each head that takes part in the softmax without a "
        "value, so that weights may sum to less than one."
    ),
    "size_bytes": "Bytes of one rank's buffer in a collective.",
    "spread_us": "How much earlier than the slowest device the fastest one ends the layer.",
    "start_us": "When a kernel starts after its layer.",
    "strategy": "A named list of passes with options: the plan of how a layer is distributed.",
    "tax": (
        "What separate kernels cost and a fused one saves: results that go through memory "
        "(hbm), waiting until all of an exchange is there (sync), and a launch each (launch). "
        "--unfuse puts one back, to see what it costs."
    ),
    "tokens_per_s": "New tokens a second of all sequences of the node together.",
    "tpot_ms": "Time per output token of each sequence in decode.",
    "transport": (
        "How a collective moves data (bulk, ll, channel_ll, device_put, dma): its fixed time "
        "before the first put and a step, workgroups, and bytes in flight."
    ),
    "tree": "An algorithm: sums go up a tree of devices and results come down it.",
    "ttft_ms": "Time to the first token: the whole prefill of one batch.",
    "two_shot": (
        "An algorithm: every device reduces its own part of all data, then sends it to the "
        "others. Two steps, the bytes of a ring."
    ),
    "uneven": (
        "Shards of different size, empty ones too. Without --uneven a size that does not divide "
        "is refused."
    ),
    "usable_bytes": "The part of the capacity that may be used: --gpu-memory-utilization of it.",
    "usr": "Links between the carrier dies of a package.",
    "pe_mesh": "Links between the PEs of a memory cube.",
    "noc": (
        "Links between the routers of a chip's memory cubes, and between a PE and the router of "
        "its cube."
    ),
    "ucie": "Links between chips of memory cubes (SIPs).",
    "usr_bytes": "Bytes that crossed links between the dies of a package.",
    "vector": "The vector units of the compute units.",
    "weights": "Weights of all layers, embedding and head that the fullest partition holds.",
    "whole_model": (
        "All layers of all kinds one after another, each at the time of its kind with cold caches."
    ),
    "window": (
        "Of attention: a token sees the last so many positions only. Of a compute unit: bytes "
        "that may be in flight."
    ),
    "workgroups": "Workgroups of a launch on one device.",
    "xgmi": "Links between GPUs.",
    "xgmi_bytes": "Bytes that crossed links between GPUs.",
    "anchor": (
        "Of a measured row: it fixes a constant by itself, so that its error says nothing. "
        "fitted: constants were fitted on it and others; test: no search for a constant used it, "
        "the rows that count; input: the machine file has the number as it is; shown: printed "
        "only."
    ),
    "assumed": (
        "Of a machine's number: no text states it. It has a range, over which 'starc validate "
        "--sensitivity' moves it."
    ),
    "calibrated": (
        "Of a machine's number: fitted, on the rows that fitted_on names. The other kinds are "
        "vendor_peak, measured, derived (arithmetic from others) and assumed."
    ),
    "eager": (
        "The host launches kernels one by one instead of as a graph: a launch starts no earlier "
        "than as many issue intervals of the host as there are launches before it. It shows only "
        "where kernels are shorter than that."
    ),
    "governor": (
        "Finds the clock that the power cap leaves: energies of operations and bytes give the "
        "mean power of the model run again and again; above the cap the program is simulated once "
        "more, at the largest clock that by an estimate keeps it, so that power is about the cap. "
        "--no-governor keeps the largest clock."
    ),
    "optimistic": (
        "Of a simplification of the simulator: the simulated time is shorter than the real one; "
        "pessimistic: it is longer. docs/simulator.md lists all with size and experiment."
    ),
    "page_walk": (
        "With --page-walk, an access to a page that its die does not know waits for a walk of the "
        "page table. Off by default: streams walk once a page, which the sustained fractions "
        "contain."
    ),
    "piece": (
        "A run of bytes of a tile that travels as one request: at most 4 KiB, or two granules of "
        "4 KiB on the two stacks of a carrier."
    ),
    "sensitivity": (
        "How far results move when a number of the machine moves over its range alone: 'starc "
        "validate --sensitivity'. A number that turns a conclusion round is named."
    ),
    "server": (
        "What serves one request at a time: an engine, a port, a cache's side, a memory slice, a "
        "stack or one direction of a link. Its work is bytes or operations over its sustained "
        "rate."
    ),
    "skew": (
        "Workgroups start up to 256 ns late, by a hash of die and number: in lockstep (--no-skew) "
        "they meet at the same stacks, which real ones do not."
    ),
    "split_aware": (
        "A formula beside the simulator in 'starc validate': a roofline that also knows the "
        "number of workgroups, refit on the rows that the simulator was fitted on."
    ),
    "sustained": (
        "The fraction of a peak rate that is reached where no mechanism of the model says why: "
        "calibrated or measured, by memory mode or type."
    ),
}

ALIASES: Final[dict[str, str]] = {
    **CUBE_ALIASES,
    "algbw": "algbw_gbps",
    "algbw_gb_s": "algbw_gbps",
    "attention": "kind",
    "awaited_us": "held",
    "axes": "op",
    "bidirectional": "bidirectional_ring",
    "bound": "lower_bound",
    "bound_at_peak_rates": "peak_bound",
    "bound_compulsory": "algorithm_bound",
    "bound_this_program": "lower_bound",
    "busbw": "busbw_gbps",
    "busbw_gb_s": "busbw_gbps",
    "chunks": "chunk",
    "clock_mhz": "cycles",
    "bin_us": "utilization",
    "power_cap_w": "power_w",
    "servers": "utilization",
    "power": "power_w",
    "collective": "op",
    "collectives": "op",
    "compile_s": "engine",
    "copies": "kv_replication",
    "cpu": "engines",
    "defaults": "defaults_in_force",
    "dtype": "element_type",
    "events": "requests",
    "flop_b": "intensity",
    "gb_s": "bytes",
    "gemm": "kind",
    "gpu_memory_utilization": "usable_bytes",
    "hbm_read": "hbm",
    "hbm_write": "hbm",
    "id": "remarks",
    "inner": "level",
    "instructions": "requests",
    "kernel": "kernels",
    "kinds": "kind",
    "kv": "kv_cache",
    "kv_cache_dtype": "element_type",
    "kv_copies": "kv_replication",
    "layers": "count",
    "levels": "level",
    "math": "engines",
    "puts": "messages",
    "sched": "engines",
    "scheduler": "engines",
    "waits": "held",
    "logical": "logical_extents",
    "lse": "lse_partial",
    "m_l_o": "lse_partial",
    "memory": "peak_bytes",
    "model": "whole_model",
    "name": "kernels",
    "once": "logical_bytes",
    "other": "kind",
    "outer": "level",
    "over": "op",
    "owner_of_a_token": "owner",
    "owners": "owner",
    "payload": "logical_bytes",
    "per_layer": "parameters",
    "plan": "strategy",
    "pushed": "push",
    "query": "phase",
    "ranks": "op",
    "remote": "hbm_remote_bytes",
    "replication": "kv_replication",
    "rotated": "rotated_map",
    "shard": "sharded",
    "simulated_gpus": "engine",
    "sinks": "sink",
    "size": "size_bytes",
    "spread": "spread_us",
    "staged": "cached",
    "target": "devices",
    "taxes": "tax",
    "tensor_parallel": "devices",
    "tflop_s": "flops",
    "throughput": "tokens_per_s",
    "time": "kernels",
    "tok_s": "tokens_per_s",
    "tokens_s": "tokens_per_s",
    "total": "parameters",
    "traffic": "links",
    "uncached": "cached",
    "unfuse": "tax",
    "usable": "usable_bytes",
    "wall_s": "engine",
    "whole_node": "engine",
    "warnings": "remarks",
    "windows": "window",
    "derived": "calibrated",
    "measured": "calibrated",
    "vendor_peak": "calibrated",
    "fitted": "anchor",
    "fitted_on": "calibrated",
    "input": "anchor",
    "shown": "anchor",
    "test": "anchor",
    "pessimistic": "optimistic",
    "roofline": "split_aware",
    "warm": "caches",
    "no_governor": "governor",
    "no_skew": "skew",
    "full_node": "engine",
}
"""Words of the text report, and keys of the JSON report, that are explained under another key."""


def entry_for(words: str) -> str | None:
    """The key that explains a line, a column or a key: ``bound, compulsory`` is explained by
    ``algorithm_bound``. None if nothing does."""
    key = re.sub(r"[^a-z0-9]+", "_", words.rsplit(".", 1)[-1].lower()).strip("_")
    units = ("_us", "_ms", "_bytes", "_gbps", "_s")
    bare = next((key.removesuffix(unit) for unit in units if key.endswith(unit)), key)
    for name in (key, bare, *(bare + unit for unit in units)):
        if name in GLOSSARY:
            return name
        if name in ALIASES:
            return ALIASES[name]
    return None
