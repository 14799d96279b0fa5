"""The xDSL plugin: starc's dialects and passes for ``xdsl-opt`` and for ``starc-opt``.

Everything is loaded when it is first used, so that tools which never meet starc's IR pay nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Final

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.ir import Dialect
from xdsl.passes import ModulePass
from xdsl.universe import Universe

from starc.frontend.located_parser import LocatedParser
from starc.passes.pipeline import PASSES, load_pass

DIALECT_NAMES: Final = ("nn", "sharding", "collective", "kernel", "isa")


def load_dialect(name: str) -> Dialect:
    """The dialect object of ``starc.dialects.<name>``, imported now."""
    module = importlib.import_module(f"starc.dialects.{name}")
    for value in vars(module).values():
        if isinstance(value, Dialect) and value.name == name:
            return value
    raise LookupError(f"{module.__name__} defines no dialect named {name}")


def _dialect_factory(name: str) -> Callable[[], Dialect]:
    return lambda: load_dialect(name)


def _pass_factory(name: str) -> Callable[[], type[ModulePass]]:
    return lambda: load_pass(name)


STARC_UNIVERSE: Final = Universe(
    all_dialects={name: _dialect_factory(name) for name in DIALECT_NAMES},
    all_passes={entry.name: _pass_factory(entry.name) for entry in PASSES},
)


def parse_module(text: str, file: str = "<text>") -> ModuleOp:
    """The module that IR as text stands for, at any level; ``file`` names it in locations. Raises
    xDSL's ``ParseError`` for text that is none."""
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    for name, factory in STARC_UNIVERSE.all_dialects.items():
        context.register_dialect(name, factory)
    return LocatedParser(context, text, file).parse_module()
