"""GQA decode attention: a split-KV Triton kernel and a kernel that combines the splits.

One query token; B sequences, HK KV heads, G query heads a KV head, D head dimension, S context.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device

TILE: Final = 64
WARPS: Final = 4
STAGES: Final = 3
VARIANTS: Final = {"full": 0, "loads": 1, "compute": 2}
SHAPE: Final = ("B", "HK", "G", "D", "S")


def launches(device: Device, case: Case, splits: int, *, tile: int = TILE, warps: int = WARPS,
             stages: int = STAGES, variant: str = "full", combine: bool = True,
             check: bool = False) -> list[Any]:  # fmt: skip
    """Launches of one decode attention, one for each set of buffers.

    With ``check`` the first result is compared with PyTorch's attention; ``ValueError`` when it is
    further off than bf16 explains.
    """
    kernels = importlib.import_module("kernels")
    b, heads, g, d, s = (case[key] for key in SHAPE)
    pairs = b * heads
    rows = max(16, 1 << (g - 1).bit_length())
    scale = math.log2(math.e) / math.sqrt(d)
    works: list[Any] = []
    for _ in range(device.sets(2 * pairs * s * d * 2)):
        q, out = device.random(pairs, g, d), device.empty(pairs, g, d)
        k, v = device.random(pairs, s, d), device.random(pairs, s, d)
        partial = device.empty(pairs, splits, g, d, dtype="float32")
        statistics = device.empty(pairs, splits, g, dtype="float32")

        def work(q: Any = q, k: Any = k, v: Any = v, partial: Any = partial,
                 statistics: Any = statistics, out: Any = out) -> None:  # fmt: skip
            kernels.decode_split[(pairs, splits)](
                q, k, v, partial, statistics, s, splits, scale, HEADS=g, ROWS=rows, DIM=d,
                TILE=tile, VARIANT=VARIANTS[variant], STAGES=stages, num_warps=warps,
                num_stages=stages,
            )  # fmt: skip
            if combine:
                kernels.decode_combine[(pairs, g)](
                    partial, statistics, out, splits, HEADS=g, DIM=d,
                    SPLITS=1 << (splits - 1).bit_length(), num_warps=4,
                )  # fmt: skip

        works.append(work)
        if check and len(works) == 1:
            work()
            _compare(device, q, k, v, out)
    return works


def _compare(device: Device, q: Any, k: Any, v: Any, out: Any) -> None:
    q, k, v = (each[:2].float() for each in (q, k, v))
    p = device.torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), dim=-1)
    want = p @ v
    error = float((out[:2].float() - want).norm() / want.norm())
    if not error < 2e-2:
        raise ValueError(f"decode attention is off by {error:.3g} of the reference's norm")


def _best(extent: Extent) -> list[dict[str, Any]]:
    shapes = [(1, 8), (8, 8), (1, 16)]
    batches, contexts = [1, 4, 16, 64, 256], [1024, 8192, 16384, 131072]
    if extent == "quick":
        shapes, batches, contexts = [(1, 8)], [1], [8192]
    if extent == "wide":
        shapes = [(1, 8), (8, 4), (2, 8), (4, 16)]
        batches, contexts = [1, 2, 8, 32, 128], [2048, 4096, 32768, 65536]
    return [
        {"B": b, "HK": hk, "G": g, "D": 128, "S": s}
        for hk, g in shapes
        for s in contexts
        for b in batches
        if b * hk * s <= 1 << 26
    ]


def split_counts(pairs: int, context: int, units: int) -> list[int]:
    """Split counts worth trying: powers of two and what fills the units once, twice and four
    times, each split at least a tile long."""
    most = max(1, context // TILE)
    fills = [max(1, round(units * k / pairs)) for k in (1, 2, 4)]
    powers = [1 << k for k in range(10)]
    near = [p for p in powers if units / 4 <= p * pairs <= 8 * units]
    return sorted(
        {
            min(most, count)
            for count in [*fills, *near, 1 if pairs >= units else 2, most if most <= 128 else 64]
        }
    )


def _run_best(device: Device, case: Case) -> Iterator[Row]:
    counts = split_counts(case["B"] * case["HK"], case["S"], device.units)
    times: dict[int, float] = {}
    for index, splits in enumerate(counts):
        times[splits] = device.time(launches(device, case, splits, check=index == 0)).us
        device.forget()
    best = min(times, key=lambda splits: times[splits])
    yield "attn_decode", dict(case) | {"splits": best, "us": times[best]}


def _fixed(extent: Extent) -> list[dict[str, Any]]:
    shapes = [(1, 1, 16, 131072), (16, 1, 16, 32768), (1, 8, 8, 16384)]
    splits = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    if extent == "quick":
        shapes, splits = shapes[2:], [8]
    if extent == "wide":
        shapes = [(1, 1, 8, 65536), (4, 8, 8, 8192), (2, 2, 16, 65536), (32, 1, 8, 16384)]
        splits = [1, 3, 6, 12, 24, 48, 96, 192]
    return [
        {"B": b, "HK": hk, "G": g, "D": 128, "S": s, "splits": count}
        for b, hk, g, s in shapes
        for count in splits
        if count <= s // TILE
    ]


def _run_fixed(device: Device, case: Case) -> Iterator[Row]:
    works = launches(device, case, case["splits"])
    yield "attn_decode_fixed_splits", dict(case) | {"us": device.time(works).us}


def _warps(extent: Extent) -> list[dict[str, Any]]:
    # Contexts are long enough that starting and ending a workgroup is small against its tiles.
    counts = [(65536, 8), (65536, 128)]
    tiles, warps, stages = [64, 128, 32], [4, 2, 8], [3, 2, 1, 4]
    if extent == "quick":
        counts, tiles, warps, stages = counts[:1], [64], [4], [3]
    if extent == "wide":
        counts = [(1 << 20, count) for count in (132, 264, 528, 66, 33)]
        counts += [(65536, count) for count in (1, 32, 64)]
        tiles, warps, stages = [64], [4, 8], [3, 2]
    return [
        {"B": 1, "HK": 1, "G": 8, "D": 128, "S": context, "splits": count}
        | {"tile": t, "warps": w, "stages": n, "variant": variant}
        for context, count in counts
        for t in tiles
        for w in warps
        for n in stages
        for variant in VARIANTS
    ]


def _run_warps(device: Device, case: Case) -> Iterator[Row]:
    works = launches(
        device, case, case["splits"], tile=case["tile"], warps=case["warps"],
        stages=case["stages"], variant=case["variant"], combine=False,
    )  # fmt: skip
    try:
        us = device.time(works).us
    except Exception as error:
        if type(error).__name__ != "OutOfResources":
            raise
        return  # the tiles of so many stages do not fit into a compute unit's memory
    yield "attn_decode_warps", dict(case) | {"us": us}


KINDS = [
    Kind(
        "attn_decode",
        "decode attention, split-KV kernel and combine, by the best split count",
        {"attn_decode": (*SHAPE, "splits", "us")},
        _best,
        _run_best,
        share=2.0,
    ),
    Kind(
        "attn_decode_fixed_splits",
        "the same at given split counts",
        {"attn_decode_fixed_splits": (*SHAPE, "splits", "us")},
        _fixed,
        _run_fixed,
        share=0.6,
    ),
    Kind(
        "attn_decode_warps",
        "the split kernel alone by tile, warps and stages; whole, its loads alone, its arithmetic "
        "on data in the nearest cache",
        {"attn_decode_warps": (*SHAPE, "splits", "tile", "warps", "stages", "variant", "us")},
        _warps,
        _run_warps,
        share=1.5,
    ),
]
