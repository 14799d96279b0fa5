"""Tags of the L2 of a die and of the memory-side cache in front of a stack.

Both are tracked by granule of 4 KiB with one bit per 128 B line: 16 ways of granules instead of
lines. A way's word is ``granule << 5 | dirty << 4 | way``; the words of a set stand in order of
recency, so a miss reads one cache line of the host. Lines of an L2 are valid from the moment they
are asked for; ``filler`` is the request that brings them. A set is looked up with vectors of the
host, and bits are counted by an instruction of it; plain Python has functions of the same meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from starc.simulator.core.compiled import in_plain_python, inlined
from starc.simulator.core.extension import ir, make_array
from starc.simulator.state.arrays import Array, Int, State
from starc.simulator.state.numbers import (
    L2_MASK,
    L2_SETS,
    L2_SHIFT,
    MALL_MASK,
    MALL_SETS,
    MALL_SHIFT,
)

ALL_LINES = (1 << 32) - 1  # of a granule
WAYS = 16
WAY_BITS = 4
TAG_SHIFT = 5
DIRTY = 16
EMPTY = (1 << 27) - 1  # no granule has this number


def _population(context: Any, mask: Any) -> Any:

    def lower(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), lower


def _count_bits(mask: Int) -> Int:
    return np.int64(int(mask).bit_count())


population: Any = in_plain_python(intrinsic(_population), _count_bits)
"""``population(mask)``: bits set in a mask that is not negative."""


@inlined
def lines_of(offset: Int, size: Int) -> Int:
    """The lines of a granule that ``size`` bytes from ``offset`` touch."""
    first = offset >> 7
    last = (offset + size - 1) >> 7
    return (1 << (last + 1)) - (1 << first)


@inlined
def l2_set(s: State, block: Int) -> Int:
    """First word of the set of a granule in an L2."""
    shift = s.cfg[L2_SHIFT]
    mixed = block ^ (block >> shift) ^ (block >> (2 * shift))
    if s.cfg[L2_MASK] == 0:
        return (mixed % s.cfg[L2_SETS]) << WAY_BITS
    return (mixed & s.cfg[L2_MASK]) << WAY_BITS


@inlined
def mall_set(s: State, block: Int) -> Int:
    """First word of the set of a granule in the cache of its stack."""
    shift = s.cfg[MALL_SHIFT]
    mixed = block ^ (block >> shift) ^ (block >> (2 * shift))
    if s.cfg[MALL_MASK] == 0:
        return (mixed % s.cfg[MALL_SETS]) << WAY_BITS
    return (mixed & s.cfg[MALL_MASK]) << WAY_BITS


def _touch(context: Any, words: Any, first: Any, block: Any, ways: Any) -> Any:

    def lower(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        lanes = ir.VectorType(word, WAYS)

        def constant(values: Any) -> Any:
            return ir.Constant(lanes, [int(value) for value in values])

        zeros = constant([0] * WAYS)

        def everywhere(value: Any) -> Any:
            return builder.shuffle_vector(
                builder.insert_element(zeros, value, word(0)), zeros, zeros
            )

        array = make_array(signature.args[0])(target, builder, arguments[0])
        pointer = builder.gep(builder.bitcast(array.data, word.as_pointer()), [arguments[1]])
        place = builder.bitcast(pointer, lanes.as_pointer())
        old = builder.load(place, align=4)
        tags = builder.lshr(old, constant([TAG_SHIFT] * WAYS))
        found = builder.icmp_unsigned("==", tags, everywhere(builder.trunc(arguments[2], word)))
        bits = builder.zext(builder.bitcast(found, ir.IntType(WAYS)), word)
        # Where no word is the granule's, the last one leaves its place.
        last = builder.sub(builder.trunc(arguments[3], word), word(1))
        bits = builder.or_(bits, builder.shl(word(1), last))
        at = builder.cttz(bits, ir.Constant(ir.IntType(1), 1))
        left = builder.load(builder.gep(pointer, [at]))
        moved = builder.shuffle_vector(old, old, constant([0, *range(WAYS - 1)]))
        behind = builder.icmp_unsigned(">", constant(range(WAYS)), everywhere(at))
        builder.store(builder.select(behind, old, moved), place, align=4)
        return builder.zext(left, ir.IntType(64))

    return types.int64(words, types.int64, types.int64, types.int64), lower


def _one_by_one(words: Array, first: Int, block: Int, ways: Int) -> Int:
    word = np.int64(words[first])
    i = 1
    while word >> TAG_SHIFT != block and i < ways:
        word, words[first + i] = np.int64(words[first + i]), word
        i += 1
    return word


touch: Any = in_plain_python(intrinsic(_touch), _one_by_one)
"""``touch(words, first, block, ways)`` makes room for a granule in front of its set, where the
caller puts its word, and returns the word that left its place for that: the granule's own, or the
least recent one."""
