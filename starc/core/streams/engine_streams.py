"""One stream of instructions becomes a stream for each engine, joined by semaphores.

The input is a tree of statements in serial order: instructions with the engine that executes them
and the tiles that they read and write, loops, branches, and composites (a command that the
scheduler of the engines expands). The result is, for every engine, the same tree with what does
not concern it left out, and ``Acquire`` and ``Release`` of semaphores in between. An acquire waits
until its semaphore is positive and takes one; one stream releases it and one acquires it.

Two kinds of semaphores arise. *Queues*: whoever issues an instruction (the CPU, or inside of a
composite the scheduler) sleeps for what that costs and releases the queue of the engine, which
acquires it before the instruction. *Dependences*: where two instructions of different engines use a
tile, or scratch bytes that lie over each other, and one of them writes, the later one waits for the
earlier one. Their statements in the innermost block around both are ``a`` and ``b``:

- a before b: release behind a in the one stream, acquire before b in the other;
- carried by a loop, from a of an iteration to b of the d-th one after it (a tile with n slots is
  used again n iterations later): the same, with ``d`` as the initial value. The credits of a loop
  are kept over its entries: that is right where every entry uses the slots from the first to the
  last, its trips being a multiple of them; elsewhere the whole loop is one statement more of the
  loop around it.

A branch is taken or not: what stands in it is joined to the outside by the branch as a whole, so
that acquires and releases are as many on every path.

A queue may have a bound: where it can fill up, the issuer acquires its *room*, which starts at that
number, before it issues, and the engine releases it when it begins the command.
Signals and waits that the dma stream executes move no tile and take no entry.

The CPU itself waits for what an instruction reads that it issues alone, where that is on its way:
loaded, or computed inside of a composite (a *lazy* value is waited for at its first use). All other
waits are those of the engines. What follows from other semaphores is left out.

Nothing hangs: every acquire waits for an instruction that is earlier in the serial order, and every
stream keeps that order.
"""

from __future__ import annotations

from collections.abc import Sequence

from starc.core.streams.engine_body import Node, Streams, Tile
from starc.core.streams.engine_dependences import Dependences
from starc.core.streams.engine_semaphores import emit
from starc.core.streams.implied_edges import needed


def assign_streams(body: Sequence[Node], tiles: Sequence[Tile], entries: int = 0) -> Streams:
    """The streams of a body, where issuers wait while ``entries`` commands that they have given to
    an engine have not begun (0: they never do). Raises ``IllegalStages`` where slots are too few
    for stages."""
    dependences = Dependences(body, tiles)
    streams, semaphores, names = emit(dependences.top, needed(dependences.edges), entries)
    return Streams(streams, semaphores, names, len(dependences.edges), dependences.commands)
