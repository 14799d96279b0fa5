"""What programs of the language mean."""

from __future__ import annotations

from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, IntegerAttr
from xdsl.dialects.func import Func, FuncOp
from xdsl.ir import Operation
from xdsl.parser import Parser

from starc.diagnostics import UsageError
from starc.dialects import nn
from starc.dialects.locations import location_of
from starc.frontend import load_model
from starc.interpreter.element_types import tensor_type
from tests.unit.frontend.models import TINY, changed, load, messages

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.sa"))


def symbols(module: Operation) -> dict[str, tuple[int, ...]]:
    """Names and shapes of parameters and states."""
    return {
        op.sym_name.data: op.type.get_shape()
        for op in module.walk()
        if isinstance(op, nn.ParameterOp | nn.StateOp)
    }


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
def test_every_example_compiles_to_nn(path: Path, phase: str) -> None:
    model = load_model(path, phase=phase)
    model.module.verify()
    assert sum(1 for _ in model.module.walk()) < 150
    assert model.warnings == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_text_of_a_module_parses_back_to_itself(path: Path) -> None:
    context = Context()
    for dialect in (Builtin, Func, nn.Nn):
        context.load_dialect(dialect)
    text = str(load_model(path).module)
    assert str(Parser(context, text).parse_module()) == text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_operation_knows_its_place_in_the_file(path: Path) -> None:
    lines = path.read_text().splitlines()
    for op in load_model(path).module.walk():
        location = location_of(op)
        assert location is not None, op
        assert location.file == str(path)
        assert 1 <= location.line <= len(lines)


def test_an_operation_stands_where_it_is_called() -> None:
    module = load().module
    (attention,) = (op for op in module.walk() if isinstance(op, nn.AttentionOp))
    location = location_of(attention)
    assert location is not None
    line = TINY.splitlines()[location.line - 1]
    assert line[location.column - 1 :].startswith("attention(q, k, v, causal)")


def test_weights_have_the_shapes_in_by_out() -> None:
    shapes = symbols(load().module)
    assert shapes["embedding.table"] == (512, 64)
    assert shapes["decoder.q"] == (64, 128)
    assert shapes["decoder.k"] == (64, 64)
    assert shapes["decoder.o"] == (128, 64)
    assert shapes["decoder.down"] == (128, 64)
    assert shapes["head.lm_head"] == (64, 512)


def test_a_weight_takes_its_name_from_the_assignment() -> None:
    text = changed(('v = linear(h, kv_heads * head_dim, name = "v")', "v = linear(h, 64)"))
    assert symbols(load(text).module)["decoder.v"] == (64, 64)


def test_a_cache_holds_the_whole_context() -> None:
    assert symbols(load().module)["decoder.k_cache"] == (2, 4, 64, 16)
    assert symbols(load(phase="prefill").module)["decoder.v_cache"] == (2, 4, 32, 16)


def test_named_attention_names_its_caches() -> None:
    text = changed(("causal)", 'causal, name = "self")'))
    assert "decoder.self_k_cache" in symbols(load(text).module)


def test_decode_adds_one_token_at_the_end_of_the_context() -> None:
    model = load()
    (attention,) = (op for op in model.module.walk() if isinstance(op, nn.AttentionOp))
    assert attention.start.value.data == 63
    assert nn.ModelFacts.of(model.module) == nn.ModelFacts("tiny", "decode", 2, 1, 64)


def test_a_prompt_shorter_than_the_context_is_its_last_chunk() -> None:
    model = load(phase="prefill", prompt=8, context=32)
    (attention,) = (op for op in model.module.walk() if isinstance(op, nn.AttentionOp))
    assert attention.start.value.data == 24
    assert attention.result.type.get_shape() == (2, 8, 128)


def test_the_first_phase_of_the_file_is_the_default() -> None:
    assert load().summary.phase == "decode"
    text = changed(("phase decode  { batch = 2, context = 64 }\n", ""))
    assert load(text).summary.phase == "prefill"


def test_a_phase_that_the_file_lacks_can_be_given_in_full() -> None:
    text = changed(("phase decode  { batch = 2, context = 64 }\n", ""))
    summary = load(text, phase="decode", batch=3, context=1024).summary
    assert (summary.batch, summary.query, summary.context) == (3, 1, 1024)


def test_a_phase_that_does_not_exist_is_wrong_usage() -> None:
    with pytest.raises(UsageError, match="no phase 'train': there are decode and prefill"):
        load(phase="train")


def test_only_the_last_token_of_a_prompt_gets_logits() -> None:
    prefill, decode = load(phase="prefill").module, load().module
    assert [op.result.type.get_shape() for op in prefill.walk() if isinstance(op, nn.LastTokenOp)]
    assert not [op for op in decode.walk() if isinstance(op, nn.LastTokenOp)]


def test_the_stack_counts_layers() -> None:
    summary = load().summary
    assert summary.stack == (("embedding", 1), ("decoder", 2), ("head", 1))
    assert summary.layers == 2


def test_a_group_of_layers_repeats_in_turn() -> None:
    text = changed(
        ("decoder * 2", "(decoder, mlp) * 2"),
        ("stack {", 'layer mlp(x) { return x + linear(silu(x), hidden, name = "w") }\nstack {'),
    )
    assert load(text).summary.stack[1:-1] == (
        ("decoder", 1),
        ("mlp", 1),
        ("decoder", 1),
        ("mlp", 1),
    )


def test_a_layer_alone_needs_no_stack() -> None:
    text = changed(("stack { embedding, decoder * 2, rms_norm, lm_head }\n", ""))
    assert load(text).summary.stack == (("decoder", 1),)


def test_a_layer_outside_of_the_stack_is_checked_left_out_and_warned_of() -> None:
    text = changed(("stack {", "layer other(x) { return silu(x) }\nstack {"))
    model = load(text)
    assert [str(warning) for warning in model.warnings] == [
        "tiny.sa:25:7: warning: the layer 'other' is not in the stack"
    ]
    assert "@other" not in str(model.module)
    wrong = changed(("stack {", "layer other(x) { return sulu(x) }\nstack {"))
    assert messages(wrong) == ["tiny.sa:25:25: error: unknown operation 'sulu'"]


def test_attention_alone_takes_queries_keys_and_values() -> None:
    text = """model {
      heads = 8
      kv_heads = 2
      head_dim = 16
    }
    layer attend(q, k, v) { return attention(q, k, v) }
    phase decode { batch = 3, context = 128 }
    """
    model = load(text)
    (function,) = (op for op in model.module.walk() if isinstance(op, FuncOp))
    types = [tensor_type(argument.type).get_shape() for argument in function.body.block.args]
    assert types == [(3, 1, 128), (3, 1, 32), (3, 1, 32)]
    (attention,) = (op for op in model.module.walk() if isinstance(op, nn.AttentionOp))
    assert attention.causal is None
    assert model.summary.name == "tiny"


def test_settings_come_from_the_call_then_the_layer_then_the_model() -> None:
    text = changed(
        ("h = rms_norm(x, name", "eps = 1e-3\n  h = rms_norm(x, name"),
        ('rms_norm(x, name = "mlp_norm")', 'rms_norm(x, name = "mlp_norm", eps = 0.5)'),
    )
    found = {
        op.eps.value.data: op for op in load(text).module.walk() if isinstance(op, nn.RmsNormOp)
    }
    assert set(found) == {1e-3, 0.5, 1e-5}


def test_overrides_take_the_place_of_model_parameters() -> None:
    model = load(changed(("ffn      = 128", "ffn = 2 * hidden")), overrides={"hidden": "2 * 64"})
    assert model.summary.parameters["ffn"] == 256
    assert symbols(model.module)["decoder.up"] == (128, 256)


def test_types_of_weights_and_of_the_cache() -> None:
    assert load(dtype="float16").summary.dtype == "f16"
    summary = load(kv_dtype="fp8").summary
    assert (summary.dtype, summary.kv_dtype) == ("bf16", "f8E4M3FN")
    assert load(dtype="auto", kv_dtype="auto").summary.kv_dtype == "bf16"


def test_parameters_are_counted() -> None:
    model = load_model(next(path for path in EXAMPLES if path.stem == "llama3-70b"))
    # 70,553,706,496 is what the published checkpoint has.
    assert model.summary.parameter_count == 70_553_706_496
    assert model.summary.layers == 80


def test_parentheses_let_an_expression_go_over_several_lines() -> None:
    text = changed(
        ("attention(q, k, v, causal)", "attention(\n    q,  # queries\n    k, v,\n    causal,\n  )")
    )
    assert str(load(text).module) == str(load().module)


def test_entries_are_separated_by_commas_or_new_lines() -> None:
    text = changed(
        (
            "{ embedding, decoder * 2, rms_norm, lm_head }",
            "\n{\n  embedding\n\n  decoder * 2,\n  rms_norm\n  lm_head\n}",
        ),
        ("{ batch = 2, context = 64 }", "{\n  batch = 2\n  context = 64,\n}"),
    )
    assert str(load(text).module) == str(load().module)


def test_line_ends_of_other_systems_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "tiny.sa"
    path.write_bytes(b"\xef\xbb\xbf" + TINY.replace("\n", "\r\n").encode())
    assert str(load_model(path).module) == str(load().module)


def test_a_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(TINY.encode())))
    model = load_model("-")
    assert str(model.module) == str(load().module)
    assert list(model.sources) == ["<stdin>"]


def test_a_text_needs_no_file() -> None:
    model = load_model(TINY)
    assert list(model.sources) == ["<text>"]


def test_module_attributes_are_whole_numbers_of_64_bits() -> None:
    assert load().module.attributes["nn.batch"] == IntegerAttr(2, 64)


def test_attention_with_a_window_kept_positions_and_a_sink() -> None:
    text = changed(("causal)", "causal, window = 2 * 8, keep = 4, sink)"))
    model = load(text)
    (attention,) = (op for op in model.module.walk() if isinstance(op, nn.AttentionOp))
    assert attention.window is not None
    assert attention.keep is not None
    assert (attention.window.value.data, attention.keep.value.data) == (16, 4)
    assert symbols(model.module)["decoder.sink"] == (8,)
    assert attention.sink is not None
    assert model.summary.parameter_count == load().summary.parameter_count + 2 * 8
