"""Sentences of remarks on small machines of cubes: no zeros for small memories, no empty sets of
axes, and what goes around a ring is counted as what it is."""

import re

import pytest

from starc.api import CompileOptions, compile_model


def remarks(cubes: int, pes: int) -> dict[str, str]:
    """The last remark of each identifier for a prompt of one KV head over one group."""
    options = CompileOptions(
        "examples/ahbm-attention-prefill.sa",
        target="ahbm",
        mesh={"sip": 1, "group": 1, "cube": cubes, "pe": pes},
        phase="prefill",
        prompt=256,
        settings={"kv_heads": "1", "heads": "8"},
    )
    found = compile_model(options).driver.sink.remarks
    return {remark.id: remark.message for _, remark in found}


@pytest.mark.parametrize(
    ("cubes", "pes", "ring"), [(2, 2, "4 PEs"), (1, 4, "4 PEs"), (2, 1, "2 cubes")]
)
def test_words(cubes: int, pes: int, ring: str) -> None:
    said = remarks(cubes, pes)
    assert not [text for text in said.values() if "{}" in text]
    assert "KV heads are not split, each is stored" in said["kv-placement"]
    assert "query rows are not split" in said["sequence-sharding"]
    assert f"they go around {ring}, in {cubes * pes - 1} rotation" in said["fused"]
    assert "the busiest PE of each step" in said["ring-balance"]
    assert "the ring waits for keys for" in said["ring-balance"]
    assert re.search(r"needs [1-9][\d.]* [kM]B of 4.05 GB usable", said["memory-planned"])
    assert "launches with waits inside: 1;" in said["schedule-verified"]
