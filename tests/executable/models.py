"""The small models of the grid: every kind of attention, sizes that leave edges in every tile."""

from __future__ import annotations

from typing import Final

LAYER: Final = """
layer decoder(x) {
  h = rms_norm(x, name = "attn_norm")
  q = rope(linear(h, heads * head_dim, name = "q"), theta = 10000)
  k = rope(linear(h, kv_heads * head_dim, name = "k"), theta = 10000)
  v = linear(h, kv_heads * head_dim, name = "v")
  x = x + linear(attention(q, k, v, causal), hidden, name = "o")

  h = rms_norm(x, name = "mlp_norm")
  g = silu(linear(h, ffn, name = "gate")) * linear(h, ffn, name = "up")
  x = x + linear(g, hidden, name = "down")
  return x
}
"""

PHASES: Final = """
phase decode  { batch = 1, context = 37 }
phase prefill { batch = 1, prompt = 37 }
"""


def decoder(
    name: str, *, heads: int, kv_heads: int, head_dim: int, hidden: int, ffn: int, vocab: int
) -> str:
    """A decoder layer with its stack, as ``.sa`` text."""
    return f"""
model "{name}" {{
  dtype = bf16
  hidden = {hidden}
  heads = {heads}
  kv_heads = {kv_heads}
  head_dim = {head_dim}
  ffn = {ffn}
  vocab = {vocab}
  eps = 1e-5
}}
{LAYER}
stack {{ embedding, decoder * 2, rms_norm, lm_head }}
{PHASES}
"""


ATTENTION: Final = """
  h = rms_norm(x, name = "attn_norm")
  q = rope(linear(h, heads * head_dim, name = "q"), theta = 10000)
  k = rope(linear(h, kv_heads * head_dim, name = "k"), theta = 10000)
  v = linear(h, kv_heads * head_dim, name = "v")
  a = linear(attention(q, k, v, causal), hidden, name = "o")
"""


def unusual(name: str, layers: str, stack: str, more: str = "") -> str:
    """Layers that are not a Llama's."""
    return f"""
model "{name}" {{
  dtype = bf16, hidden = 96, heads = 8, kv_heads = 4, head_dim = 16, ffn = 160, vocab = 208
  eps = 1e-5{more}
}}
{layers}
stack {{ embedding, {stack}, rms_norm, lm_head }}
{PHASES}
"""


MODELS: Final[dict[str, str]] = {
    # Two query heads a KV head; no dimension is a multiple of a tile of 64.
    "gqa": decoder("gqa", heads=8, kv_heads=4, head_dim=16, hidden=96, ffn=160, vocab=208),
    # One KV head, on every device.
    "mqa": decoder("mqa", heads=8, kv_heads=1, head_dim=8, hidden=40, ffn=96, vocab=128),
    # As many KV heads as query heads: k, q and v have one shape, so that a swap would verify.
    "mha": decoder("mha", heads=8, kv_heads=8, head_dim=8, hidden=64, ffn=128, vocab=128),
    # Heads in threes, for a mesh of 3 x 2.
    "triple": decoder("triple", heads=12, kv_heads=3, head_dim=8, hidden=72, ffn=144, vocab=150),
    # Seven query heads a KV head.
    "groups": decoder("groups", heads=28, kv_heads=4, head_dim=4, hidden=56, ffn=100, vocab=130),
    # Three query heads a KV head.
    "fours": decoder("fours", heads=12, kv_heads=4, head_dim=4, hidden=48, ffn=96, vocab=96),
    # One query head a device on 64 devices, KV heads over the outer axis alone.
    "wide": decoder("wide", heads=64, kv_heads=8, head_dim=4, hidden=48, ffn=128, vocab=192),
    # KV heads for half of the outer axis of 8: the rest of it shares them with the inner axis.
    "shared": decoder("shared", heads=64, kv_heads=4, head_dim=4, hidden=48, ffn=128, vocab=192),
    # Heads that divide over one axis of a mesh of 2 x 2 and not over both.
    "six": decoder("six", heads=6, kv_heads=1, head_dim=8, hidden=40, ffn=96, vocab=128),
    # Enough steps of K and of keys that loops fill their stages and shares of one tile are merged.
    "deep": decoder("deep", heads=4, kv_heads=2, head_dim=32, hidden=328, ffn=648, vocab=304),
    # Attention beside the MLP: one all-reduce runs while the other branch computes.
    "parallel": unusual(
        "parallel",
        f"""layer decoder(x) {{{ATTENTION}
  return x + a + linear(gelu(linear(h, ffn, name = "up")), hidden, name = "down")
}}""",
        "decoder * 2",
    ),
    # Two kinds of layers in turn; caches of a narrower type.
    "alternating": unusual(
        "alternating",
        f"""layer attend(x) {{{ATTENTION}
  return x + a
}}

layer mlp(x) {{
  h = rms_norm(x, name = "norm")
  return x + linear(gelu(linear(h, ffn, name = "up")), hidden, name = "down")
}}""",
        "(attend, mlp) * 2",
        ", kv_dtype = fp8",
    ),
    # Layers that see a window, and the first positions beside it, and layers that see all take
    # turns; every query head has a sink.
    "windows": unusual(
        "windows",
        f"""layer local(x) {{{ATTENTION.replace("causal", "causal, window = 9, keep = 2, sink")}
  return x + a
}}

layer global(x) {{{ATTENTION.replace("causal", "causal, sink")}
  return x + a
}}""",
        "(local, global) * 2",
    ),
    # Attention alone, its inputs given.
    "attention": """
model "attention" { dtype = bf16, heads = 8, kv_heads = 2, head_dim = 16 }

layer attend(q, k, v) {
  return attention(rope(q, theta = 10000), rope(k, theta = 10000), v, causal)
}

phase decode  { batch = 2, context = 33 }
phase prefill { batch = 1, prompt = 33 }
""",
}
"""Sources by name."""
