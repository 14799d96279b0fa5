"""Every pass's docstring has an example of the IR before and after it, and it is true.

The first ``mlir`` block is what the pass gets, the second what it leaves. A first line
``// options: {name=value}`` gives options, ``// gpus: N`` a smaller machine. A pass that refuses
its input shows the message in a block without a language instead of a second ``mlir`` block.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.parser import Parser
from xdsl.universe import Universe

from starc.diagnostics import InputError, render
from starc.dialects.target import has_target, target_of
from starc.passes.base import RemarkSink
from starc.passes.manager import instantiate, ir_text
from starc.passes.pipeline import PASSES, load_pass
from starc.passes.selection import parse_pipeline
from starc.targets.loader import load_target

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """What a docstring shows."""

    options: str
    gpus: int | None
    before: str
    after: str
    fails: bool


def example_of(name: str) -> Example:
    blocks = BLOCK.findall(inspect.cleandoc(load_pass(name).__doc__ or ""))
    assert blocks, f"{name} shows no example"
    assert blocks[0][0] == "mlir"
    assert len(blocks) == 2, f"{name} shows {len(blocks)} blocks instead of two"
    before, (language, after) = blocks[0][1], blocks[1]
    options = re.search(r"^// options: (\{.*\})$", before, re.MULTILINE)
    gpus = re.search(r"^// gpus: (\d+)$", before, re.MULTILINE)
    return Example(
        options[1] if options else "",
        int(gpus[1]) if gpus else None,
        before,
        after,
        language != "mlir",
    )


def parse(text: str) -> ModuleOp:
    context = Context()
    for name, factory in Universe.get_multiverse().all_dialects.items():
        context.register_dialect(name, factory)
    return Parser(context, text).parse_module()


@pytest.mark.parametrize("name", [entry.name for entry in PASSES])
def test_example(name: str) -> None:
    example = example_of(name)
    module = parse(example.before)
    (spec,) = parse_pipeline(name + example.options)
    if has_target(module):
        target = target_of(module)
    else:
        target = load_target("mi300x-cpx", example.gpus)
    if example.fails:
        with pytest.raises(InputError) as caught:
            instantiate(spec).run(module, target, RemarkSink())
        assert render(caught.value.diagnostics, {}).strip() == example.after.strip()
        return
    instantiate(spec).run(module, target, RemarkSink())
    module.verify()
    expected = parse(example.after)
    if not module.is_structurally_equivalent(expected):
        assert ir_text(module) == ir_text(expected)
