"""Words of machines: what serves data and work, links, engines, and the sources of numbers."""

from __future__ import annotations

from typing import Final

MACHINE_TERMS: Final[dict[str, str]] = {
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
    "bubbles": (
        "Idle time of an engine between its first work and its last of a kernel (bubbles_us), and "
        "in how many pieces (bubbles)."
    ),
    "busy": (
        "Time that an engine works: the CPU while it issues commands, the DMA while anything is on "
        "its way."
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
    "calibrated": (
        "Of a machine's number: fitted, on the rows that fitted_on names. The other kinds are "
        "vendor_peak, measured, derived (arithmetic from others) and assumed."
    ),
    "commands": (
        "What the CPU of a device issued to its engines, each at a cost by class: composites, "
        "which the scheduler expands by itself, and single loads, stores, sends, receives, "
        "products and vector operations."
    ),
    "copy_engine": (
        "An engine that moves data from memory to memory beside the compute units (SDMA): a GPU "
        "has some, which compute nothing."
    ),
    "cu_port": (
        "The port between a compute unit and the L2 cache of its die: what all loads and stores "
        "of the unit pass, at most so many bytes a clock."
    ),
    "die": (
        "The port of a die to the rest of its package: everything that its L2 does not hold "
        "passes it, also on the way to another die or to memory."
    ),
    "dram_fraction": (
        "The sustained part of the memory's peak rate with which a machine was simulated: its "
        "own, or that of --dram-fraction."
    ),
    "eager": (
        "The host launches kernels one by one instead of as a graph: a launch starts no earlier "
        "than as many issue intervals of the host as there are launches before it. It shows only "
        "where kernels are shorter than that."
    ),
    "engines": (
        "Where a device executes a stream for each of its engines: a CPU that issues commands, a "
        "scheduler that expands composites, a DMA that moves data, a GEMM and a MATH engine. What "
        "each did in a kernel, the mean of all devices; counts are of all devices together."
    ),
    "governor": (
        "Finds the clock that the power cap leaves: energies of operations and bytes give the "
        "mean power of the model run again and again; above the cap the program is simulated once "
        "more, at the largest clock that by an estimate keeps it, so that power is about the cap. "
        "--no-governor keeps the largest clock."
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
    "held": (
        "Time that the stream of an engine waited for other streams of its device. 'waits' of the "
        "CPU is this and the time that it waited for counters (awaited_us)."
    ),
    "idle": "A kernel's time on a device less the time that the engine works.",
    "l2": "The L2 cache of a die, read and write sides apart.",
    "links": (
        "Bytes that crossed links of a class, counted once a link: a transfer over two links "
        "counts twice. The links of the class die are also crossed by every access that leaves an"
        " L2, so that they carry more than the payload between devices. 'payload' is "
        "logical_bytes."
    ),
    "mall": (
        "The memory-side cache (Infinity Cache) in front of each memory stack: what comes out of "
        "it, hit or miss, over its rate."
    ),
    "matrix": (
        "The matrix engines of the compute units, at the rate that is sustained at the core clock. "
        "A power cap may lower the clock under long matrix work (power_w)."
    ),
    "messages": (
        "Puts to other devices, by the nearest class of links between them; a signal that comes "
        "with one is not counted apart."
    ),
    "moves": "Instructions of DMAs by kind, and the requests to memory and links that they took.",
    "noc": (
        "Links between the routers of a chip's memory cubes, and between a PE and the router of "
        "its cube."
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
    "pe_mesh": "Links between the PEs of a memory cube.",
    "piece": (
        "A run of bytes of a tile that travels as one request: at most 4 KiB, or two granules of "
        "4 KiB on the two stacks of a carrier."
    ),
    "power_w": (
        "Mean power of a GPU while the whole model runs again and again, from the energies of "
        "operations and bytes in the machine's file. Where it would exceed power_cap_w the core "
        "clock is lowered to the largest at which an estimate stays under the cap, and the program "
        "is simulated once more; clock_mhz is that clock, and power_w what that run takes: about "
        "the cap, within 2.5 % of it where it was tried."
    ),
    "requests": (
        "Accesses that the simulation issued, one an operand of an instruction and piece of it; "
        "events are the steps that they take."
    ),
    "same_fraction": (
        "Whether a row of a comparison has the dram_fraction of the first machine of its product "
        "instead of its own: what still differs is not the fraction that was put in."
    ),
    "scratch": (
        "The scratch memory of a compute unit (LDS, shared memory): operands of matrix operations "
        "are stored there and read from there, at most so many bytes a clock."
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
    "ucie": "Links between chips of memory cubes (SIPs).",
    "usr": "Links between the carrier dies of a package.",
    "usr_bytes": "Bytes that crossed links between the dies of a package.",
    "utilization": (
        "Share of its time that the mean server of a kind works, bin by bin of bin_us over the "
        "whole run: --bins, and counter tracks of --trace."
    ),
    "vector": "The vector units of the compute units.",
    "xgmi": "Links between GPUs.",
    "xgmi_bytes": "Bytes that crossed links between GPUs.",
}
"""Of ``starc explain`` and the glossary page."""
