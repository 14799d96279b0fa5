"""What a KV cache of another element type than the activations costs."""

from __future__ import annotations

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import moved_bytes
from starc.frontend import load_model
from starc.passes.manager import Driver
from starc.passes.selection import plan_passes
from starc.targets.loader import load_target
from tests.unit.frontend.models import TINY


def moved(kv_dtype: str) -> dict[str, tuple[int, int]]:
    """Bytes read and written by the decoder's launches that use the cache, on one device."""
    module = load_model(TINY, file="tiny.sa", kv_dtype=kv_dtype).module
    target = load_target("mi300x-cpx", mesh={"gpu": 1, "xcd": 1})
    Driver(target).run(module, plan_passes("naive", compile_to="kernel"))
    return {
        op.kind.data: moved_bytes(op)
        for op in module.walk()
        if isinstance(op, LaunchOp) and op.kind.data in ("append", "attention")
    }


def test_an_8_bit_cache_is_half_the_bytes() -> None:
    whole, half = moved("bf16"), moved("fp8")
    queries = 2 * 8 * 16 * 2
    caches = 2 * 2 * 4 * 64 * 16
    assert whole["attention"] == (queries + 2 * caches, queries)
    assert half["attention"] == (queries + caches, queries)
    new = 2 * 2 * 4 * 16
    assert whole["append"][0] == half["append"][0]
    assert whole["append"][1] - half["append"][1] == new
