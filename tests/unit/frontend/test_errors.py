"""One test a kind of error: the place, the words, the hint."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.diagnostics import InputError, render_error
from starc.frontend import load_model
from tests.unit.frontend.models import TINY, changed, errors, load, messages


def refused(path: Path) -> str:
    """The rendered error with which a file is refused."""
    with pytest.raises(InputError) as caught:
        load_model(path)
    return render_error(caught.value)


# -- files ---------------------------------------------------------------------------------------


def test_a_missing_file_suggests_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "llama.sa").write_text(TINY)
    assert refused(tmp_path / "lama.sa") == (
        f"error: no such file: {tmp_path}/lama.sa\n  hint: did you mean 'llama.sa'?"
    )


def test_a_directory(tmp_path: Path) -> None:
    assert refused(tmp_path) == f"error: {tmp_path} is a directory, not a model file"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "1:1: error: the file is empty"),
        (b" \n\t\n", "1:1: error: the file is empty"),
        (b"# only a comment\n", "1:1: error: the file has no model"),
        (b"model\n\x00\x01", "1:1: error: not a text file: byte 6 is zero"),
        (b"model\n  \xff\xfe", "2:3: error: not a text file in UTF-8: byte 8 is 0xff"),
        (b"#" * (16 * 2**20 + 1), "1:1: error: the file is larger than 16 MiB"),
    ],
    ids=["empty", "blank", "comment", "binary", "not UTF-8", "large"],
)
def test_a_file_that_holds_no_program(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "model.sa"
    path.write_bytes(data)
    assert refused(path).splitlines()[0] == f"{path}:{message}"


# -- syntax --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            "hidden   = 64",
            "hidden   =",
            "3:13: error: unexpected end of the line; expected an expression",
            "an expression goes on in the next line only inside parentheses",
        ),
        (
            "hidden   = 64",
            "hidden   = 64 65",
            "3:17: error: unexpected '65'; expected a new line, '}', ',' or an operator",
            None,
        ),
        (
            "hidden   = 64",
            "hidden   = 6 % 4",
            "3:16: error: unexpected '%'; expected a new line, '}', ',' or an operator",
            None,
        ),
        (
            '"attn_norm"',
            '"attn_norm)',
            "14:26: error: the string is not closed: it has to end on its line",
            None,
        ),
        (
            "layer decoder",
            "layr decoder",
            "13:1: error: unexpected 'layr'; expected 'model', 'layer', 'stack' or 'phase'",
            "did you mean 'layer'?",
        ),
        (
            "return x",
            "retrun x",
            "22:10: error: unexpected 'x'; expected '='",
            None,
        ),
        (
            "return x\n}",
            "return x\n",
            "25:1: error: unexpected 'stack'; expected a name, '}' or 'return'",
            "the '{' in line 13 is not closed",
        ),
        (
            "prompt = 32 }",
            "prompt = 32",
            "29:1: error: unexpected end of the file; expected a new line, '}', ',' or an operator",
            "the '{' in line 28 is not closed",
        ),
        (
            '"v")',
            '"v"',
            "18:3: error: unexpected 'x'; expected ')', ',' or an operator",
            "the '(' in line 17 is not closed",
        ),
    ],
)
def test_a_syntax_error(old: str, new: str, message: str, hint: str | None) -> None:
    (found,) = errors(changed((old, new)))
    assert str(found) == f"tiny.sa:{message}"
    assert found.hint == hint


@pytest.mark.parametrize(
    ("old", "new", "place", "keyword"),
    [
        ("ffn      = 128", "layer = 2", "7:3", "layer"),
        ("ffn      = 128", "ffn = 2 * layer", "7:13", "layer"),
        ("ffn      = 128", "return = 2", "7:3", "return"),
        ("layer decoder(x)", "layer stack(x)", "13:7", "stack"),
        ("layer decoder(x)", "layer decoder(phase)", "13:15", "phase"),
        ("decoder * 2", "layer * 2", "25:20", "layer"),
        ('h = rms_norm(x, name = "mlp', 'model = rms_norm(x, name = "mlp', "19:3", "model"),
    ],
)
def test_a_keyword_in_the_place_of_a_name(old: str, new: str, place: str, keyword: str) -> None:
    assert messages(changed((old, new))) == [
        f"tiny.sa:{place}: error: '{keyword}' is a keyword and cannot be a name"
    ]


def test_several_syntax_errors_are_reported_in_one_run() -> None:
    text = changed(
        ("hidden   = 64", "hidden   = = 64"),
        ("heads    = 8", "heads    8"),
        ("x + linear(g,", "x + linear(g"),
        ("decoder * 2", "decoder ** 2"),
        ("context = 64", "context 64"),
    )
    assert [found.split(": ")[0] for found in messages(text)] == [
        "tiny.sa:3:14",
        "tiny.sa:4:12",
        "tiny.sa:21:20",
        "tiny.sa:25:29",
        "tiny.sa:27:36",
    ]


def test_an_error_is_shown_with_its_line_and_a_caret() -> None:
    with pytest.raises(InputError) as caught:
        load(changed(("silu(", "sulu(")))
    assert render_error(caught.value) == (
        "tiny.sa:20:7: error: unknown operation 'sulu'\n"
        '    g = sulu(linear(h, ffn, name = "gate")) * linear(h, ffn, name = "up")\n'
        "        ^\n"
        "  hint: did you mean 'silu'?"
    )


def test_parentheses_nest_at_most_64_deep() -> None:
    text = changed(("hidden   = 64", "hidden = " + "(" * 100 + "64" + ")" * 100))
    assert messages(text) == ["tiny.sa:3:76: error: parentheses are nested more than 64 deep"]


def test_long_chains_of_operators_are_no_problem() -> None:
    text = changed(("hidden   = 64", "hidden = " + "1 + " * 20000 + "-" * 2001 + "19936"))
    assert load(text).summary.parameters["hidden"] == 64


# -- the model -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            "hidden   = 64",
            'hidden = "64"',
            'hidden must be a whole number, got the string "64"',
            None,
        ),
        ("heads    = 8", "heads = 0", "heads must be a whole number, at least 1, got 0", None),
        ("heads    = 8", "heads = -8", "heads must be a whole number, at least 1, got -8", None),
        ("heads    = 8", "heads = 7.5", "heads must be a whole number, at least 1, got 7.5", None),
        ("eps      = 1e-5", "eps = 0", "eps must be a positive number, got 0", None),
        (
            "eps      = 1e-5",
            "eps = bf16",
            "eps must be a positive number, got the element type bf16",
            None,
        ),
        (
            "dtype    = bf16",
            "dtype = int4",
            "dtype must be one of bf16, f16, f32, got 'int4'",
            None,
        ),
        (
            "dtype    = bf16",
            "dtype = 16",
            "dtype must be one of bf16, f16, f32, got the number 16",
            None,
        ),
        ("ffn      = 128", "ffn = 2 * hiden", "unknown name 'hiden'", "did you mean 'hidden'?"),
        (
            "ffn      = 128",
            "ffn = 2 * vocab",
            "unknown name 'vocab'",
            "known: dtype, head_dim, heads, hidden, kv_heads",
        ),
        (
            "ffn      = 128",
            "ffn = silu(3)",
            "the operation 'silu' cannot stand here: operations belong in layers",
            None,
        ),
        ("ffn      = 128", "ffn = causal", "'causal' is a flag of an operation, not a value", None),
        ("ffn      = 128", "causal = 1", "'causal' is a reserved word", None),
        ("ffn      = 128", "bf16 = 1", "'bf16' is a reserved word", None),
        (
            "ffn      = 128",
            "ffn = 12q",
            "unknown unit 'q': a number may end in k, KiB, MiB, GiB",
            None,
        ),
        (
            "ffn      = 128",
            "ffn = 99999999999999999999",
            "the number does not fit in 63 bits",
            None,
        ),
        ("ffn      = 128", "ffn = 1e999", "the number is too large", None),
        ("ffn      = 128", "ffn = " + "9" * 5000, "a number has at most 40 characters", None),
        (
            "ffn      = 128",
            "heads = 9",
            "the parameter 'heads' is given twice; first in line 4",
            None,
        ),
    ],
)
def test_a_wrong_entry_of_the_model(old: str, new: str, message: str, hint: str | None) -> None:
    found = errors(changed((old, new)))[0]
    assert found.message == message
    assert found.hint == hint


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("hidden / 7", "64 is not a multiple of 7"),
        ("hidden / 0", "division by zero"),
        ("hidden + bf16", "'+' needs numbers, got the element type bf16"),
        ("-bf16", "'-' needs a number, got the element type bf16"),
        ("4611686018427387904 * 2", "the number does not fit in 63 bits"),
    ],
)
def test_arithmetic_that_has_no_result(expression: str, message: str) -> None:
    (found,) = errors(changed(("ffn      = 128", f"ffn = 128\n  other = {expression}")))
    assert found.message == message


def test_a_misspelt_parameter_is_missed_where_it_is_needed() -> None:
    (found,) = errors(changed(("vocab    = 512", "vocb = 512")))[:1]
    assert (
        str(found) == "tiny.sa:25:9: error: embedding needs 'vocab', which the model does not give"
    )
    assert found.hint == "did you mean 'vocb'?"


def test_a_file_has_one_model_and_one_stack() -> None:
    text = TINY + "model { hidden = 3 }\nstack { decoder }\n"
    assert messages(text) == [
        "tiny.sa:29:1: error: a file has one model; the first is in line 1",
        "tiny.sa:30:1: error: a file has one stack; the first is in line 25",
    ]


# -- layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message", "hint"),
    [
        (
            "causal)",
            "causal, softcap = 128)",
            "attention has no 'softcap'; its keywords are: window, keep, heads, kv_heads, "
            "head_dim, scale, name",
            "it takes attention(q, k, v [, causal, sink, window =, keep =, heads =, kv_heads =, "
            "head_dim =, scale =, name =])",
        ),
        (
            "causal)",
            "causal, scal = 1)",
            "attention has no 'scal'; its keywords are: window, keep, heads, kv_heads, head_dim, "
            "scale, name",
            "did you mean 'scale'?",
        ),
        ("silu(", "silu(causal, ", "silu has no flag 'causal'; it has none", None),
        (
            "causal)",
            "casual)",
            "attention has no flag 'casual'; its flags are: causal, sink",
            "did you mean 'causal'?",
        ),
        (
            "causal)",
            "flash)",
            "attention has no flag 'flash'; its flags are: causal, sink",
            "it takes attention(q, k, v [, causal, sink, window =, keep =, heads =, kv_heads =, "
            "head_dim =, scale =, name =])",
        ),
        (
            "causal)",
            "window = 8)",
            "a window needs causal: it is the nearest positions up to the query's own",
            "attention(q, k, v, causal, window = ...)",
        ),
        (
            "causal)",
            "causal, keep = 8)",
            "keep needs a window: without one no position is left out",
            "attention(q, k, v, causal, window = ..., keep = ...)",
        ),
        (
            "causal)",
            "causal, window = 0)",
            "window must be a whole number, at least 1, got 0",
            None,
        ),
        (
            "causal)",
            "causal, window = 2.5)",
            "window must be a whole number, at least 1, got 2.5",
            None,
        ),
        (
            "causal)",
            "causal, window = 8, keep = bf16)",
            "keep must be a whole number, got the element type bf16",
            None,
        ),
        (
            "causal)",
            "causal, sink = 3)",
            "'sink' is a flag of attention: it takes no value",
            "write it alone: attention(..., sink)",
        ),
        ("g = silu(", "g = silu(x, ", "silu takes one argument", "it takes silu(x)"),
        (
            "q, k, v, causal",
            "q, causal",
            "attention lacks 'k' and 'v'",
            "it takes attention(q, k, v [, causal, sink, window =, keep =, heads =, kv_heads =, "
            "head_dim =, scale =, name =])",
        ),
        (
            'h, ffn, name = "up"',
            'h, name = "up", ffn',
            "an argument without a name stands after one with a name",
            None,
        ),
        ('h, ffn, name = "up"', 'h, ffn, name = "up", name = "u"', "'name' is given twice", None),
        ('name = "up"', "name = up", "linear needs a string as 'name': name = \"...\"", None),
        (
            'name = "up"',
            'name = "a b"',
            "'a b' cannot be the name of a weight: it has to be at most 64 letters, digits and '_'",
            None,
        ),
        (
            'name = "up"',
            'name = "gate"',
            "the layer 'decoder' has two weights named 'gate'; the first is in line 20",
            'give this one a name of its own: name = "..."',
        ),
        (
            '"attn_norm"',
            '"k_cache"',
            "the layer 'decoder' has a weight and a cache named 'k_cache'; the first is in line 14",
            'give this one a name of its own: name = "..."',
        ),
        (
            '  h = rms_norm(x, name = "mlp_norm")',
            '  x = x + linear(attention(q, k, v), hidden, name = "again")\n'
            '  h = rms_norm(x, name = "mlp_norm")',
            "the layer 'decoder' has two attentions without a name; the first is in line 18",
            'give this one a name of its own, for its KV cache: name = "..."',
        ),
        (
            "return x",
            "return linear(x, hidden)",
            "the weight of this linear has no name",
            'outside of an assignment it needs one: name = "..."',
        ),
        (
            "linear(g, hidden",
            "linear(g, ffn",
            "'+' needs tensors of one shape, got [2, 1, 64] and [2, 1, 128]",
            None,
        ),
        ("x + linear(g,", "x - linear(g,", "'-' is not defined for tensors", None),
        (
            "x + linear(g,",
            "2 + linear(g,",
            "'+' needs two tensors or two numbers, got the number 2 and a tensor [2, 1, 64]",
            None,
        ),
        (
            "linear(g, hidden",
            "linear(3, hidden",
            "linear needs a tensor as 'x', got the number 3",
            None,
        ),
        (
            "linear(g, hidden",
            "linear(g, x",
            "width must be a whole number, got a tensor [2, 1, 64]",
            None,
        ),
        ("linear(g, hidden", "linear(gg, hidden", "unknown name 'gg'", "did you mean 'g'?"),
        (
            'heads * head_dim, name = "q"',
            'hidden, name = "q"',
            "q has 64 features, but heads * head_dim = 8 * 16 = 128",
            None,
        ),
        ("kv_heads = 4", "kv_heads = 3", "heads = 8 is not a multiple of kv_heads = 3", None),
        ("head_dim = 16", "head_dim = 15", "rope needs an even head_dim, got 15", None),
        (
            'linear(h, heads * head_dim, name = "q")',
            'linear(h, 72, name = "q")',
            "rope needs heads of head_dim = 16, but x has 72 features",
            None,
        ),
        (
            "  theta    = 10000\n",
            "",
            "rope needs 'theta', which the model does not give",
            "add theta = ... to the model",
        ),
        (
            "decoder(x)",
            "decoder(x, y)",
            "a layer takes one input, the hidden state, or q, k and v",
            None,
        ),
        (
            "decoder(x)",
            "decoder()",
            "a layer takes one input, the hidden state, or q, k and v",
            None,
        ),
        ("decoder(x)", "decoder(x, x)", "the input 'x' is given twice", None),
        ("decoder(x)", "decoder(causal)", "'causal' is a reserved word", None),
        ("g = silu", "f32 = silu", "'f32' is a reserved word", None),
        ("  return x\n", "", "the layer 'decoder' returns nothing", "end it with: return x"),
        ("return x", "return x\n  x = silu(x)", "this stands after the 'return' in line 22", None),
        (
            "stack {",
            "layer other(x) { return x }\nstack {",
            "the layer 'other' returns its input as it is",
            "return a value that the layer computes",
        ),
        (
            "stack {",
            "layer other(q, k, v) { y = attention(q, k, v)\n return q }\nstack {",
            "the layer 'other' returns its input as it is",
            "return a value that the layer computes",
        ),
        ("return x", "return 5", "a layer returns a tensor, not the number 5", None),
        (
            "stack {",
            "layer decoder(x) { return x }\nstack {",
            "the layer 'decoder' is given twice; first in line 13",
            None,
        ),
        (
            "stack {",
            "layer head(x) { return x }\nstack {",
            "the name 'head' is reserved for a layer that every model may have",
            None,
        ),
    ],
)
def test_a_wrong_layer(old: str, new: str, message: str, hint: str | None) -> None:
    found = errors(changed((old, new)))[0]
    assert found.message == message
    assert found.hint == hint


def test_errors_of_all_statements_are_reported_without_those_that_follow_from_them() -> None:
    text = changed(("silu(", "sulu("), ("causal)", "causal, cap = 1)"))
    assert [found.split(": ")[2].split(";")[0] for found in messages(text)] == [
        "attention has no 'cap'",
        "unknown operation 'sulu'",
    ]


def test_all_that_is_wrong_with_a_window_is_said_at_once() -> None:
    assert messages(changed(("v, causal)", "v, window = 0, keep = -1)"))) == [
        "tiny.sa:18:46: error: window must be a whole number, at least 1, got 0",
        "tiny.sa:18:46: error: a window needs causal: it is the nearest positions up to the "
        "query's own",
        "tiny.sa:18:56: error: keep must be a whole number, at least 1, got -1",
    ]


def test_a_sink_is_a_weight_and_has_a_name_of_its_own() -> None:
    (found,) = errors(changed(('name = "q"', 'name = "sink"'), ("causal)", "causal, sink)")))
    assert found.message == (
        "the layer 'decoder' has two weights named 'sink'; the first is in line 15"
    )
    named = changed(('name = "q"', 'name = "sink"'), ("causal)", 'causal, sink, name = "self")'))
    assert "decoder.self_sink" in str(load(named).module)


def test_a_value_that_nothing_uses_is_a_warning() -> None:
    loaded = load(changed(("  return x", "  y = linear(x, 32)\n  return x")))
    (warning,) = loaded.warnings
    assert str(warning) == "tiny.sa:22:7: warning: nothing uses 'y'"
    assert warning.hint == "it is not computed, but weights and caches in it count"
    assert load().warnings == ()


# -- the stack -----------------------------------------------------------------------------------

STACK = "{ embedding, decoder * 2, rms_norm, lm_head }"


@pytest.mark.parametrize(
    ("stack", "message", "hint"),
    [
        ("{ }", "the stack is empty", None),
        ("{ embedding, lm_head }", "the stack has no layer of the file", None),
        ("{ decodr * 2 }", "unknown layer 'decodr'", "did you mean 'decoder'?"),
        ("{ decoder * 0 }", "a count must be a whole number, at least 1, got 0", None),
        (
            "{ decoder * n }",
            "unknown name 'n'",
            "known: dtype, eps, ffn, head_dim, heads, hidden, kv_heads, theta, vocab",
        ),
        ("{ decoder, embedding }", "'embedding' stands at the beginning of the stack", None),
        ("{ rms_norm, decoder }", "'rms_norm' stands after the last layer of the stack", None),
        ("{ lm_head, decoder }", "'lm_head' stands at the end of the stack", None),
        ("{ embedding * 2, decoder }", "'embedding' stands once in a stack", None),
        ("{ (decoder, decoder) * 100000 }", "the stack has more than 100000 entries", None),
        (
            "{ decoder * 9223372036854775807 }",
            "the weights and caches of the model have more bytes than fit in 63 bits",
            None,
        ),
    ],
)
def test_a_wrong_stack(stack: str, message: str, hint: str | None) -> None:
    found = errors(changed((STACK, stack)))[0]
    assert found.message == message
    assert found.hint == hint


def test_layers_of_a_stack_keep_the_hidden_state() -> None:
    text = changed(("return x", 'return linear(x, 32, name = "w")'))
    assert messages(text) == [
        "tiny.sa:25:20: error: in a stack the input and the output of 'decoder' have to be the "
        "hidden state, of the same shape"
    ]


def test_several_layers_need_a_stack() -> None:
    text = changed((f"stack {STACK}\n", "layer other(x) { return silu(x) }\n"))
    assert messages(text) == ["tiny.sa:25:7: error: a file with several layers needs a stack"]


def test_a_file_without_layers() -> None:
    assert messages("model { hidden = 3 }\nphase decode { batch = 1, context = 1 }\n") == [
        "tiny.sa:1:1: error: the file has no layer"
    ]


def test_a_tensor_whose_bytes_do_not_fit_in_63_bits() -> None:
    text = changed(("vocab    = 512", "vocab = 4611686018427387904"))
    assert messages(text)[0] == (
        "tiny.sa:25:9: error: a tensor [4611686018427387904, 64] of bf16 has more bytes than fit "
        "in 63 bits"
    )


# -- phases --------------------------------------------------------------------------------------

DECODE = "phase decode  { batch = 2, context = 64 }"


@pytest.mark.parametrize(
    ("phase", "message", "hint"),
    [
        ("phase decod { batch = 2 }", "unknown phase 'decod'", "did you mean 'decode'?"),
        ("phase decode { batch = 2 }", "the phase 'decode' needs 'context'", None),
        (
            "phase decode { batch = 2, prompt = 4, context = 4 }",
            "the phase 'decode' has no 'prompt'",
            "it has batch, context",
        ),
        (
            "phase decode { bacth = 2, context = 4 }",
            "the phase 'decode' has no 'bacth'",
            "did you mean 'batch'?",
        ),
        ("phase decode { batch = 2, context = 4, batch = 2 }", "'batch' is given twice", None),
        (
            "phase decode { batch = 0, context = 4 }",
            "batch must be a whole number, at least 1, got 0",
            None,
        ),
        (
            "phase decode { batch = 1, context = -4 }",
            "context must be a whole number, at least 1, got -4",
            None,
        ),
        (
            "phase decode { batch = bf16, context = 4 }",
            "batch must be a whole number, got the element type bf16",
            None,
        ),
        (
            "phase prefill { batch = 1, prompt = 8, context = 4 }",
            "the context of 4 tokens is smaller than the prompt of 8: it counts the "
            "prompt's tokens too",
            None,
        ),
    ],
)
def test_a_wrong_phase(phase: str, message: str, hint: str | None) -> None:
    text = changed((DECODE, phase), ("phase prefill { batch = 2, prompt = 32 }\n", ""))
    found = errors(text)[0]
    assert found.message == message
    assert found.hint == hint


def test_a_misspelt_entry_of_a_phase_is_one_error() -> None:
    text = changed((DECODE, "phase decode { bacth = 2, contxt = 4 }"))
    assert [found.hint for found in errors(text)] == [
        "did you mean 'batch'?",
        "did you mean 'context'?",
    ]


def test_a_phase_given_twice() -> None:
    assert messages(TINY + DECODE + "\n") == [
        "tiny.sa:29:7: error: the phase 'decode' is given twice; first in line 27"
    ]


def test_a_file_without_phases_says_how_to_give_one() -> None:
    text = TINY[: TINY.index("phase")]
    (found,) = errors(text)
    assert found.message == "the file has no phase"
    assert found.hint == "a phase is: phase decode { batch = 16, context = 16k }"
    missing = errors(text, phase="decode", batch=1)
    assert [diagnostic.message for diagnostic in missing] == ["the phase 'decode' needs 'context'"]
    assert missing[0].hint == "the file has no phase 'decode': give --batch and --context"


# -- values of the caller ------------------------------------------------------------------------


def test_values_of_the_command_line_are_named_by_their_option() -> None:
    assert messages(batch=0) == ["error: --batch: batch must be a whole number, at least 1, got 0"]
    assert messages(prompt=3) == ["error: --prompt: the phase 'decode' has no 'prompt'"]
    assert messages(phase="prefill", context=16) == [
        "error: --context: the context of 16 tokens is smaller than the prompt of 32: it counts "
        "the prompt's tokens too"
    ]
    assert messages(dtype="int4") == [
        "error: --dtype: dtype must be one of bf16, f16, f32, got 'int4'"
    ]
    assert messages(kv_dtype="int4") == [
        "error: --kv-cache-dtype: kv_dtype must be one of bf16, f16, f32, fp8, got 'int4'"
    ]


def test_steps_have_a_size_that_can_be_compiled() -> None:
    assert messages(batch=2**22 + 1) == [
        "error: --batch: 4,194,305 sequences of 1 new tokens are 4,194,305 tokens a step, at most "
        "4,194,304 are compiled"
    ]
    (found,) = messages(phase="prefill", batch=10**6, prompt=2**20)
    assert found.startswith("error: --batch --prompt: 1,000,000 sequences of 1,048,576 new tokens")


def test_wrong_overrides() -> None:
    found = errors(overrides={"heds": "3", "heads": "8 +", "ffn": "0", "vocab": "2 * vocb"})
    assert [(str(error), error.hint) for error in found] == [
        ("error: --set heads: unexpected end of the value; expected an expression", None),
        ("error: --set ffn: ffn must be a whole number, at least 1, got 0", None),
        (
            "error: --set vocab: unknown name 'vocb'",
            "known: dtype, ffn, head_dim, heads, hidden, kv_heads",
        ),
        ("error: --set heds: the model has no parameter 'heds'", "did you mean 'heads'?"),
    ]


def test_a_path_with_a_new_line_is_a_path() -> None:
    with pytest.raises(InputError, match="no such file"):
        load_model(Path("a\nb.sa"))
