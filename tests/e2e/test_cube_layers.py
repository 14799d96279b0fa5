"""Whole layers of a model on machines of memory cubes, from the file to the report."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.api import Compilation, CompileOptions, compile_and_simulate, compile_model
from starc.backend.files import to_bytes
from starc.report.text import render_text

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama3-70b.sa"

SMALL = """
model "small" {
  dtype = bf16, hidden = 512, heads = 16, kv_heads = 4, head_dim = 32, ffn = 1024, layers = 4
  vocab = 2000, eps = 1e-5, theta = 500000
}

layer decoder(x) {
  h = rms_norm(x, name = "attn_norm")
  q = rope(linear(h, heads * head_dim, name = "q"))
  k = rope(linear(h, kv_heads * head_dim, name = "k"))
  v = linear(h, kv_heads * head_dim, name = "v")
  x = x + linear(attention(q, k, v, causal), hidden, name = "o")
  h = rms_norm(x, name = "mlp_norm")
  x = x + linear(silu(linear(h, ffn, name = "gate")) * linear(h, ffn, name = "up"), hidden,
                 name = "down")
  return x
}

stack { embedding, decoder * layers, rms_norm, lm_head }

phase decode  { batch = 4, context = 256 }
phase prefill { batch = 1, prompt = 64 }
"""


@pytest.fixture(scope="module")
def whole() -> Compilation:
    """Llama-3-70B on all 512 elements."""
    return compile_model(CompileOptions(EXAMPLE, "ahbm", phase="decode"))


def test_a_decode_step_of_the_whole_model_on_512_elements(whole: Compilation) -> None:
    program = whole.packed
    assert [size for _, size in program.mesh] == [4, 2, 8, 8]
    assert whole.fits
    memory = whole.memory
    assert memory is not None
    assert memory.kv_replication == 1.0
    layer = next(info for info in program.layers if info.name == "decoder")
    rows = range(layer.first_launch, layer.first_launch + layer.launches)
    attributes = [program.launch_attributes[row] for row in rows]
    kinds = [str(each.get("operation", "")) for each in attributes]
    # No exchange over more than two neighbouring axes; those of a token's sums over one each.
    axes = {str(each["axes"]) for each in attributes if "axes" in each}
    assert all(len(each.split(",")) <= 2 for each in axes)
    assert kinds.count("all_reduce") >= 6
    assert "partial_attention" in " ".join(program.launch_names[row] for row in rows)
    # A workgroup has all of an element, and its engines are streams.
    assert all(template.streams for template in program.templates)


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("strategy", ["naive", "starscream"])
def test_a_small_model_gives_a_full_report_twice_the_same(
    phase: str, strategy: str, tmp_path: Path
) -> None:
    file = tmp_path / "small.sa"
    file.write_text(SMALL)
    options = CompileOptions(
        file,
        "ahbm",
        phase=phase,
        strategy=strategy,
        mesh={"sip": 2, "group": 2, "cube": 2, "pe": 2},
    )
    first, second = (compile_model(options).packed for _ in range(2))
    assert to_bytes(first) == to_bytes(second)
    report = compile_and_simulate(options)
    assert report.layer.time_us
    traffic = report.traffic
    assert traffic is not None
    assert set(traffic.links) == {"pe_mesh", "noc", "ucie"}
    text = render_text(report)
    assert "Engines of a device in those kernels" in text
    assert "all_slice" not in text.partition("Collectives of that layer")[2]
    for word in ("GPU", "xgmi", "power"):
        assert word not in text


def test_two_kv_heads_of_a_group_are_two_passes_and_the_report_says_so(tmp_path: Path) -> None:
    file = tmp_path / "attention.sa"
    file.write_text(
        """
model "attention" { dtype = bf16, heads = 16, kv_heads = 4, head_dim = 128 }
layer attention_only(q, k, v) { return attention(q, k, v, causal) }
phase decode { batch = 1, context = 1k }
"""
    )
    mesh = {"sip": 2, "group": 1, "cube": 2, "pe": 2}
    options = CompileOptions(file, "ahbm", phase="decode", mesh=mesh)
    text = " ".join(render_text(compile_and_simulate(options)).split())
    assert "partial_attention: two passes over its keys" in text
    options = CompileOptions(file, "ahbm", phase="decode", mesh=mesh | {"group": 2})
    assert " passes over its keys" not in render_text(compile_and_simulate(options))
