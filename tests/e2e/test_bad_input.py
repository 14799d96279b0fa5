"""Bad input: exit code, form of the message, nothing written, never a traceback."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starc.api import CompileOptions, compile_model
from starc.diagnostics import UsageError
from tests.e2e.conftest import EXAMPLES, Command, Outcome

LOCATED = re.compile(r"^[^\n:]+\.sa:\d+:\d+: error: .+", re.MULTILINE)


def check(outcome: Outcome, code: int, directory: Path, *parts: str) -> None:
    """The rules that every failure obeys."""
    assert outcome.code == code, outcome.err
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert "error:" in outcome.err
    for part in parts:
        assert part in outcome.err, outcome.err
    assert not [path for path in directory.iterdir() if path.suffix != ".sa"]


def changed(tiny: Path, directory: Path, old: str, new: str) -> Path:
    """The tiny model with a change."""
    text = tiny.read_text()
    assert old in text
    path = directory / "changed.sa"
    path.write_text(text.replace(old, new, 1))
    return path


OUTPUT = ("-o", "out.program", "--trace", "trace.json", "--print-ir-tree-dir", "ir")


def test_missing_file(starc: Command, tmp_path: Path) -> None:
    check(starc("compile", "missing.sa", *OUTPUT), 1, tmp_path, "missing.sa", "no such file")


def test_empty_file(starc: Command, tmp_path: Path) -> None:
    (tmp_path / "empty.sa").write_text("\n")
    outcome = starc("compile", "empty.sa", *OUTPUT)
    check(outcome, 1, tmp_path, "empty.sa:1:1: error:", "empty")


def test_binary_file(starc: Command, tmp_path: Path) -> None:
    (tmp_path / "binary.sa").write_bytes(bytes(range(256)) * 16)
    check(starc("compile", "binary.sa", *OUTPUT), 1, tmp_path, "binary.sa:1:1: error:")


def test_directory(starc: Command, tmp_path: Path) -> None:
    (tmp_path / "folder.sa").mkdir()
    outcome = starc("compile", "folder.sa", *OUTPUT)
    check(outcome, 1, tmp_path, "folder.sa", "directory")


def test_mistyped_parameter(starc: Command, tiny: Path, tmp_path: Path) -> None:
    path = changed(tiny, tmp_path, "hidden", "hiden")
    outcome = starc("compile", path, *OUTPUT)
    check(outcome, 1, tmp_path, "hid", "^")
    assert LOCATED.search(outcome.err)


def test_several_errors_in_one_run(starc: Command, tmp_path: Path) -> None:
    (tmp_path / "two.sa").write_text(
        'model "m" { hidden = 64, heads = 4, kv_heads = 4, head_dim = 16, dtype = bf16 }\n'
        "layer decoder(x) {\n  a = linear(y, hidden)\n  b = linear(z, hidden)\n"
        "  return x + a + b\n}\n"
        "stack { decoder }\nphase decode { batch = 1, context = 16 }\n"
    )
    outcome = starc("compile", "two.sa", *OUTPUT)
    check(outcome, 1, tmp_path, "two.sa:3:", "two.sa:4:")


def test_name_used_twice(starc: Command, tmp_path: Path) -> None:
    (tmp_path / "twice.sa").write_text(
        'model "m" { hidden = 64, heads = 4, kv_heads = 4, head_dim = 16, dtype = bf16 }\n'
        'layer decoder(x) {\n  a = linear(x, hidden, name = "w")\n'
        '  b = linear(a, hidden, name = "w")\n  return x + b\n}\n'
        "stack { decoder }\nphase decode { batch = 1, context = 16 }\n"
    )
    outcome = starc("compile", "twice.sa", *OUTPUT)
    check(outcome, 1, tmp_path, "twice.sa:4:", "'w'")


def test_shape_that_does_not_divide(starc: Command, tmp_path: Path) -> None:
    """8B has 32 heads: 64 devices cannot share them, and the message says which sizes can."""
    outcome = starc("compile", EXAMPLES / "llama3-8b.sa", "--target", "mi300x-cpx", *OUTPUT)
    check(outcome, 1, tmp_path, "32", "64")
    assert re.search(r"\b1, 2, 4, 8, 16,? (and |or )?32\b", outcome.err), outcome.err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--target", "mi300y-cpx"), ("unknown target 'mi300y-cpx'", "mi300x-cpx")),
        (("--target", "mi300x-cpxx"), ("'mi300x-cpxx' is not a partition mode", "mi300x-cpx")),
        (("--target", "mi300x-dpx-nps9"), ("mi300x-dpx-nps9", "mi300x-spx")),
        (("--system", "mi300x", "--compute-partition", "XPX"),
         ("unknown compute partition 'XPX'", "SPX, CPX")),
        (("--unfuse", "disk"), ("unknown tax 'disk'", "taxes: hbm, sync, launch")),
        (("--unfuse", "hbm", "--strategy", "naive"), ("nothing to unfuse",)),
        (("--enable", "shard-attention-sequence{mod=keys}"),
         ("has no option 'mod' (did you mean 'mode'?)",)),
        (("--enable", "assign-tensor-parallel{tensor-parallel-size=4}"),
         ("'assign-tensor-parallel'", "use --tensor-parallel-size")),
        (("--enable", "plan-memory{memory-utilization=0.1}"),
         ("'plan-memory'", "use --gpu-memory-utilization")),
        (("--enable", "fuse-compute-collectives,bar"), ("unknown pass 'bar'",)),
        (("--enable", "localize{"), ("--enable 'localize{'",)),
        (("--enable", "compose-reshards", "--disable", "compose-reshards"),
         ("is enabled and disabled",)),
        (("--system", "mi300x", "--compute-partition", "SPX", "--memory-partition", "NPS4"),
         ("'mi300x-spx-nps4' is impossible", "mi300x-spx-nps1")),
        (("--target", "mi300x-cpx", "--system", "mi300x"), ("--target", "--system")),
        (("--gpus", "9"), ("1 to 8 GPUs, not 9",)),
        (("-tp", "3"), ("3 does not divide the 64 devices", "1, 2, 4, 8")),
        (("--transport", "bluk"), ("unknown transport 'bluk' (did you mean 'bulk'?)",)),
        (("--strategy", "starscreem"), ("did you mean 'starscream'?", "naive")),
        (("--print-ir-after", "localise"), ("unknown pass 'localise'", "localize")),
        (("--print-ir-before", "x"), ("unknown pass 'x'",)),
        (("--disable", "localize"), ("'localize' cannot be disabled", "hierarchical-collectives")),
        (("--compile-to", "tensor"), ("unknown level 'tensor'", "sharding")),
        (("-p", "form-kernelz"), ("unknown pass 'form-kernelz'", "form-kernels")),
        (("-p", "localize{"), ("-p",)),
        (("--phase", "decod"), ("decod", "decode")),
        (("--batch", "0"), ("--batch", "'0'")),
        (("--batch", "many"), ("--batch", "'many'", "128k")),
        (("--context", "1e99"), ("--context",)),
        (("--gpu-memory-utilization", "1.5"), ("--gpu-memory-utilization",)),
        (("--mesh", "gpu"), ("--mesh", "gpu=4,xcd=2")),
        (("--mesh", "foo=2"), ("unknown mesh axis 'foo'", "gpu, xcd")),
        (("--mesh", "xcd=9"), ("mesh axis 'xcd' can be 1 to 8, not 9",)),
        (("--mesh", "xcd=2,xcd=2"), ("different axes",)),
        (("--gpus", "-1"), ("'-1' is not a positive whole number",)),
        (("--target", "mi300"), ("did you mean 'mi300x-spx'?", "known: ", "mi300x-cpx-nps4")),
        (("--target", ""), ("unknown target ''", "mi300x-cpx")),
        (("--system", "mi300y"), ("unknown system 'mi300y' (did you mean 'mi300x'?)",)),
        (("--strategy", ""), ("unknown strategy ''", "naive")),
        (("--phase", "prefil"), ("did you mean 'prefill'?", "decode and prefill")),
        (("--set", "ffn=2*"), ("--set ffn: unexpected end of the value",)),
        (("-p", "localize{x=1}"), ("pass 'localize' has no option 'x'; it has none",)),
        (("-p", "assign-tensor-parallel{tensor-parallel-size=x}"),
         ("option 'tensor-parallel-size' is a whole number, not 'x'",)),
        (("--compile-to", "nn", "--print-ir-after", "plan-memory"),
         ("'plan-memory' cannot be printed: the pass is not run", "verify-model")),
        (("--set", "hidden"), ("--set", "hidden=4096")),
        (("--bacth", "4"), ("unknown option '--bacth'", "--batch")),
        (("--dtype", "int3"), ("int3", "bf16")),
        (("surplus",), ("unexpected argument 'surplus'",)),
    ],
)  # fmt: skip
def test_wrong_usage(
    starc: Command, tiny: Path, tmp_path: Path, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    check(starc("compile", tiny, *OUTPUT, *words), 2, tmp_path, *parts)


def test_options_without_an_effect(starc: Command, tiny: Path, tmp_path: Path) -> None:
    outcome = starc("compile", tiny, "--print-ir-changed-only")
    check(outcome, 2, tmp_path, "--print-ir-changed-only needs --print-ir-after")


@pytest.mark.parametrize("command", ["check", "compare"])
def test_options_of_another_command(
    starc: Command, tiny: Path, tmp_path: Path, command: str
) -> None:
    outcome = starc(command, tiny, "--trace", "x")
    check(outcome, 2, tmp_path, "unknown option '--trace'")
    assert "did you mean" not in outcome.err


def test_wrong_seed(starc: Command, tiny: Path, tmp_path: Path) -> None:
    check(starc("check", tiny, "--seed", "x"), 2, tmp_path, "'x' is not a whole number")


def test_neighbours_of_a_missing_file(starc: Command, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "latin.sa").write_text(tiny.read_text())
    (tmp_path / "tiny.sa").write_text(tiny.read_text())
    outcome = starc("compile", "attention.sa")
    check(outcome, 1, tmp_path, "no such file")
    assert "did you mean" not in outcome.err
    check(starc("compile", "tny.sa"), 1, tmp_path, "did you mean 'tiny.sa'?")


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"gpu_memory_utilization": -1.0}, "gpu_memory_utilization is -1.0"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization is 1.5"),
        ({"batch": 0}, "batch is 0"),
        ({"context": -4}, "context is -4"),
        ({"tensor_parallel": 0}, "tensor_parallel is 0"),
    ],
)
def test_options_of_the_library(tiny: Path, change: dict[str, Any], name: str) -> None:
    with pytest.raises(UsageError, match=re.escape(name)):
        compile_model(replace(CompileOptions(tiny, gpus=1), **change))


def test_unknown_command(starc: Command, tmp_path: Path) -> None:
    check(starc("complie"), 2, tmp_path, "'complie' does not exist (did you mean 'compile'?)")


def test_unknown_setting(starc: Command, tiny: Path, tmp_path: Path) -> None:
    check(starc("compile", tiny, "--set", "hiden=64", *OUTPUT), 2, tmp_path, "hiden", "hidden")


def test_output_directory_that_does_not_exist(starc: Command, tiny: Path, tmp_path: Path) -> None:
    outcome = starc("compile", tiny, "--gpus", "1", "-o", "no/such/place.program")
    assert outcome.code in (1, 2)
    assert "no/such" in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"not a program", b"\0" * 4096])
@pytest.mark.parametrize("command", ["run", "disasm"])
def test_file_that_is_no_program(
    starc: Command, tmp_path: Path, command: str, content: bytes
) -> None:
    (tmp_path / "bad.sa").write_bytes(content)
    check(starc(command, "bad.sa"), 1, tmp_path, "bad.sa")


def test_truncated_and_altered_program(starc: Command, tiny: Path, tmp_path: Path) -> None:
    assert starc("compile", tiny, "--gpus", "1", "-o", "good.program").code == 0
    data = (tmp_path / "good.program").read_bytes()
    (tmp_path / "cut.program").write_bytes(data[: len(data) // 2])
    altered = bytearray(data)
    altered[len(data) * 3 // 4] ^= 0xFF
    (tmp_path / "altered.program").write_bytes(bytes(altered))
    for name in ("cut.program", "altered.program", "missing.program"):
        outcome = starc("run", name)
        assert outcome.code == 1, outcome.err
        assert name in outcome.err
        assert "Traceback" not in outcome.err


def test_what_cannot_be_split_has_its_place(starc: Command, tiny: Path, tmp_path: Path) -> None:
    words = ("--gpus", "1", "--set", "heads=4", "--set", "kv_heads=4", "--disable", "verify-model")
    outcome = starc("compile", tiny, *words)
    parts = ("tiny.sa:27:12: error: 4 heads or columns cannot be split", "run verify-model")
    check(outcome, 1, tmp_path, *parts)
