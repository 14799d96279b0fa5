"""The examples in the docstrings of the sharding passes: before, run, compare with after."""

from __future__ import annotations

import inspect
import io
import re

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.printer import Printer

from starc.passes.base import RemarkSink
from starc.passes.pipeline import load_pass
from starc.passes.verification import verify
from starc.targets.loader import load_target
from starc.universe import DIALECT_NAMES, load_dialect

PASSES = (
    "verify-model",
    "assign-tensor-parallel",
    "propagate-shardings",
    "localize",
    "select-collective-algorithm",
)


def parsed(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Func, *(load_dialect(name) for name in DIALECT_NAMES)):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


def printed(module: ModuleOp) -> str:
    """The text without the names of values, which no pass promises."""
    stream = io.StringIO()
    Printer(stream=stream, print_generic_format=False).print_op(module)
    names: dict[str, str] = {}
    return re.sub(
        r"%\w+", lambda found: names.setdefault(found[0], f"%{len(names)}"), stream.getvalue()
    )


@pytest.mark.parametrize("name", PASSES)
def test_the_example_is_what_the_pass_does(name: str) -> None:
    cls = load_pass(name)
    before, after = re.findall(r"```mlir\n(.*?)```", inspect.getdoc(cls) or "", flags=re.DOTALL)
    module, expected = parsed(before), parsed(after)
    for whole in (module, expected):
        verify(whole, locations=False)
    cls().run(module, load_target("mi300x-cpx"), RemarkSink(pass_name=name))
    verify(module, locations=False)
    assert printed(module) == printed(expected)
