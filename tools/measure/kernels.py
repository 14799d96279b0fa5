"""The Triton kernels that are measured. Each does one thing that a model of a machine needs.

A kernel reads what it is given and writes a result that depends on every byte read, so that no
load can be left out by the compiler.
"""

# pyright: basic, reportMissingImports=false, reportMissingTypeStubs=false

import triton
import triton.language as tl


@triton.jit
def empty(pointer):
    """Nothing: what a launch costs."""


@triton.jit
def read(source, out, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Reads ``n`` elements, a multiple of BLOCK times UNROLL; a program walks the buffer in strides
    of the whole grid.

    A thread loads WIDTH neighbouring elements at once (BLOCK is threads times WIDTH) and has
    UNROLL such loads in flight before it uses the first, where WIDTH elements are 16 B (narrower
    loads would be joined) and UNROLL is at most 4 (the compiler waits in between for 8).
    """
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK * UNROLL
    lane = tl.arange(0, BLOCK * UNROLL)
    total = tl.zeros((BLOCK * UNROLL,), dtype=tl.float32)
    for start in range(program * BLOCK * UNROLL, n, step):
        total += tl.load(source + start + lane).to(tl.float32)
    tl.store(out + program, tl.sum(total, axis=0))


@triton.jit
def copy(source, target, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Copies ``n`` elements, as ``read`` walks."""
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK * UNROLL
    lane = tl.arange(0, BLOCK * UNROLL)
    for start in range(program * BLOCK * UNROLL, n, step):
        tl.store(target + start + lane, tl.load(source + start + lane))


@triton.jit
def write(target, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr):
    """Writes ``n`` elements, as ``read`` walks."""
    program = tl.program_id(0).to(tl.int64)
    step = tl.num_programs(0).to(tl.int64) * BLOCK * UNROLL
    lane = tl.arange(0, BLOCK * UNROLL)
    for start in range(program * BLOCK * UNROLL, n, step):
        tl.store(target + start + lane, ((start + lane) & 63).to(target.dtype.element_ty))


@triton.jit
def chase(ring, state, loads, CACHE: tl.constexpr):
    """Follows ``loads`` links of a ring of element indices, from where the last run stopped."""
    at = tl.load(state)
    for _ in range(loads):
        at = tl.load(ring + at, cache_modifier=CACHE)
    tl.store(state, at)


@triton.jit
def strided(source, out, lines, STRIDE: tl.constexpr, FOOTPRINT: tl.constexpr, LINE: tl.constexpr,
            PER_PROGRAM: tl.constexpr):  # fmt: skip
    """Reads ``lines`` distinct lines of LINE elements, neighbours STRIDE elements apart.

    A walk that reaches the end of FOOTPRINT elements goes on one line further from its start, so
    that no line is read twice. All sizes are powers of two.
    """
    program = tl.program_id(0).to(tl.int64)
    total = tl.zeros((PER_PROGRAM, LINE), dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * PER_PROGRAM
    PER_ROUND: tl.constexpr = FOOTPRINT // STRIDE
    for first in range(program * PER_PROGRAM, lines, step):
        line = first + tl.arange(0, PER_PROGRAM)
        at = (line % PER_ROUND) * STRIDE + (line // PER_ROUND) * LINE
        total += tl.load(source + at[:, None] + tl.arange(0, LINE)[None, :])
    tl.store(out + program, tl.sum(total))


@triton.jit
def scattered(source, out, chunks, ALL: tl.constexpr, CHUNK: tl.constexpr,
              PER_PROGRAM: tl.constexpr):  # fmt: skip
    """Reads ``chunks`` distinct chunks of CHUNK elements in a scrambled order.

    Of ALL chunks (a power of two) number i is (i * odd constant) mod ALL.
    """
    program = tl.program_id(0).to(tl.int64)
    total = tl.zeros((PER_PROGRAM, CHUNK), dtype=tl.float32)
    step = tl.num_programs(0).to(tl.int64) * PER_PROGRAM
    for first in range(program * PER_PROGRAM, chunks, step):
        number = first + tl.arange(0, PER_PROGRAM)
        at = ((number * 2654435761) & (ALL - 1)) * CHUNK
        total += tl.load(source + at[:, None] + tl.arange(0, CHUNK)[None, :])
    tl.store(out + program, tl.sum(total))


@triton.jit
def rms_norm(source, weight, target, columns, BLOCK: tl.constexpr):
    """One row a program: x * rsqrt(mean(x^2) + 1e-5) * weight."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    mask = lane < columns
    x = tl.load(source + row * columns + lane, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + 1e-5)
    w = tl.load(weight + lane, mask=mask, other=0.0).to(tl.float32)
    tl.store(target + row * columns + lane, (x * scale * w).to(target.dtype.element_ty), mask=mask)


@triton.jit
def decode_split(q, k, v, partial, statistics, context, splits, scale, HEADS: tl.constexpr,
                 ROWS: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, VARIANT: tl.constexpr,
                 STAGES: tl.constexpr):  # fmt: skip
    """Decode attention of one KV head over one split of the context.

    q [pair, HEADS, DIM], k and v [pair, context, DIM] for every pair of sequence and KV head;
    partial [pair, split, HEADS, DIM] in f32 and statistics [pair, split, HEADS], log of the sum
    of exponentials. VARIANT 0 is the whole kernel, 1 only loads the tiles and adds them up, 2
    computes on the first tile of the split again and again (its data in the nearest cache).
    """
    pair = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1).to(tl.int64)
    tiles = (context + TILE - 1) // TILE
    first = split * tiles // splits * TILE
    last = tl.minimum((split + 1) * tiles // splits * TILE, context)
    row = tl.arange(0, ROWS)
    dim = tl.arange(0, DIM)
    lane = tl.arange(0, TILE)
    k += pair * context * DIM
    v += pair * context * DIM
    out = partial + ((pair * splits + split) * HEADS) * DIM
    rows = row[:, None] * DIM + dim[None, :]
    inside = row[:, None] < HEADS
    if VARIANT == 1:
        total = tl.zeros((TILE, DIM), dtype=tl.float32)
        for start in tl.range(first, last, TILE, num_stages=STAGES):
            at = (start + lane)[:, None] * DIM + dim[None, :]
            mask = (start + lane)[:, None] < last
            total += tl.load(k + at, mask=mask, other=0.0).to(tl.float32)
            total += tl.load(v + at, mask=mask, other=0.0).to(tl.float32)
        tl.store(out + dim, tl.sum(total, axis=0))
    else:
        queries = tl.load(q + pair * HEADS * DIM + rows, mask=inside, other=0.0)
        top = tl.full((ROWS,), float("-inf"), dtype=tl.float32)
        weight = tl.zeros((ROWS,), dtype=tl.float32)
        value = tl.zeros((ROWS, DIM), dtype=tl.float32)
        for start in tl.range(first, last, TILE, num_stages=STAGES):
            if VARIANT == 2:
                at = (first + lane)[:, None] * DIM + dim[None, :]
            else:
                at = (start + lane)[:, None] * DIM + dim[None, :]
            mask = (start + lane)[:, None] < last
            keys = tl.load(k + at, mask=mask, other=0.0)
            scores = tl.dot(queries, tl.trans(keys)) * scale
            scores = tl.where((start + lane)[None, :] < last, scores, float("-inf"))
            new = tl.maximum(top, tl.max(scores, axis=1))
            p = tl.exp2(scores - new[:, None])
            fade = tl.exp2(top - new)
            weight = weight * fade + tl.sum(p, axis=1)
            values = tl.load(v + at, mask=mask, other=0.0)
            value = tl.dot(p.to(values.dtype), values, value * fade[:, None])
            top = new
        tl.store(out + rows, value / weight[:, None], mask=inside)
        at = (pair * splits + split) * HEADS + row
        tl.store(statistics + at, top + tl.log2(weight), mask=row < HEADS)


@triton.jit
def decode_combine(partial, statistics, out, splits, HEADS: tl.constexpr, DIM: tl.constexpr,
                   SPLITS: tl.constexpr):  # fmt: skip
    """Weighs the partial results of one sequence and head: [pair, split, HEADS, DIM] to bf16."""
    pair = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64)
    split = tl.arange(0, SPLITS)
    dim = tl.arange(0, DIM)
    at = (pair * splits + split) * HEADS + head
    logs = tl.load(statistics + at, mask=split < splits, other=float("-inf"))
    p = tl.exp2(logs - tl.max(logs, axis=0))
    p = p / tl.sum(p, axis=0)
    mask = split[:, None] < splits
    values = tl.load(partial + at[:, None] * DIM + dim[None, :], mask=mask, other=0.0)
    result = tl.sum(values * p[:, None], axis=0)
    tl.store(out + (pair * HEADS + head) * DIM + dim, result.to(out.dtype.element_ty))
