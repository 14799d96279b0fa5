"""Causal self-attention over a prompt, by implementation: the back ends of PyTorch."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kinds.kind import Case, Extent, Kind, Row

if TYPE_CHECKING:
    from device import Device

BACK_ENDS: Final = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION",
                    "efficient": "EFFICIENT_ATTENTION"}  # fmt: skip


def _cases(extent: Extent) -> list[dict[str, Any]]:
    shapes, contexts = [(1, 8, 128), (8, 8, 128)], [1024, 4096, 16384]
    implementations = ["flash", "cudnn"]
    if extent == "quick":
        shapes, contexts = shapes[:1], contexts[:1]
    if extent == "wide":
        shapes = [(1, 16, 128), (2, 8, 128), (4, 8, 128), (8, 4, 64), (1, 8, 64)]
        contexts = [512, 2048, 8192, 12288]
        implementations = list(BACK_ENDS)
    return [
        {"HK": hk, "G": g, "D": d, "S": s, "impl": impl}
        for hk, g, d in shapes
        for s in contexts
        for impl in implementations
    ]


def _run(device: Device, case: Case) -> Iterator[Row]:
    attention = importlib.import_module("torch.nn.attention")
    function = device.torch.nn.functional.scaled_dot_product_attention
    hk, g, d, s = (case[key] for key in ("HK", "G", "D", "S"))
    backend = getattr(attention.SDPBackend, BACK_ENDS[case["impl"]])
    works: list[Any] = []
    # The efficient back end has no groups: it gets every key and value head as often as needed.
    copies = g if case["impl"] == "efficient" else 1
    for _ in range(device.sets((2 * hk * g + 2 * hk) * s * d * 2)):
        q = device.random(1, hk * g, s, d)
        k, v = (device.random(1, hk * copies, s, d) for _ in range(2))

        def work(q: Any = q, k: Any = k, v: Any = v) -> None:
            with attention.sdpa_kernel(backend):
                function(q, k, v, is_causal=True, enable_gqa=copies != g)

        works.append(work)
    try:
        works[0]()
    except RuntimeError as error:
        if "No available kernel" in str(error):
            return  # this implementation does not exist here
        raise
    yield "attn_prefill", dict(case) | {"us": device.time(works).us}


KINDS = [
    Kind(
        "attn_prefill",
        "causal self-attention, batch 1, HK*G heads, S tokens, by implementation",
        {"attn_prefill": ("HK", "G", "D", "S", "impl", "us")},
        _cases,
        _run,
        share=0.8,
    )
]
