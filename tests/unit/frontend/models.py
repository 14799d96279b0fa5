"""Model texts that the tests change one place at a time."""

from __future__ import annotations

from starc.diagnostics import Diagnostic, InputError
from starc.frontend import LoadedModel, load_model

TINY = """\
model "tiny" {
  dtype    = bf16
  hidden   = 64
  heads    = 8
  kv_heads = 4
  head_dim = 16
  ffn      = 128
  vocab    = 512
  eps      = 1e-5
  theta    = 10000
}

layer decoder(x) {
  h = rms_norm(x, name = "attn_norm")
  q = rope(linear(h, heads * head_dim, name = "q"))
  k = rope(linear(h, kv_heads * head_dim, name = "k"))
  v = linear(h, kv_heads * head_dim, name = "v")
  x = x + linear(attention(q, k, v, causal), hidden, name = "o")
  h = rms_norm(x, name = "mlp_norm")
  g = silu(linear(h, ffn, name = "gate")) * linear(h, ffn, name = "up")
  x = x + linear(g, hidden, name = "down")
  return x
}

stack { embedding, decoder * 2, rms_norm, lm_head }

phase decode  { batch = 2, context = 64 }
phase prefill { batch = 2, prompt = 32 }
"""


def changed(*replacements: tuple[str, str]) -> str:
    """``TINY`` with every first text replaced, once, by the second."""
    text = TINY
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def load(text: str = TINY, **arguments: int | str | dict[str, str]) -> LoadedModel:
    """Loads a text as the file ``tiny.sa``."""
    return load_model(text, file="tiny.sa", **arguments)  # pyright: ignore[reportArgumentType]


def errors(text: str = TINY, **arguments: int | str | dict[str, str]) -> tuple[Diagnostic, ...]:
    """The diagnostics with which a text is refused."""
    try:
        load(text, **arguments)
    except InputError as error:
        return error.diagnostics
    raise AssertionError("the model was accepted")


def messages(text: str = TINY, **arguments: int | str | dict[str, str]) -> list[str]:
    """The diagnostics as their first lines: ``tiny.sa:3:5: error: ...``."""
    return [str(diagnostic) for diagnostic in errors(text, **arguments)]
