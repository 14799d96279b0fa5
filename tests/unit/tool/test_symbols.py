"""What a symbol names, seen from inside of the module."""

import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolRefAttr
from xdsl.dialects.test import TestOp

from starc.core.sharding.mesh import Axis, Mesh
from starc.dialects.nn import StackOp
from starc.dialects.sharding import MeshOp
from starc.dialects.symbols import named


def test_a_symbol_is_found_by_its_name_from_anywhere_in_the_module() -> None:
    first, second = (MeshOp(Mesh(name, (Axis("gpu", 2),))) for name in ("a", "b"))
    stack = StackOp([])
    ModuleOp([first, second, stack])
    assert named(stack, "b") is second
    assert named(stack, SymbolRefAttr("a")) is first
    assert named(stack, "c") is None


def test_what_is_no_symbol_names_nothing() -> None:
    op = TestOp(properties={"sym_name": StringAttr("a")})
    ModuleOp([op])
    assert named(op, "a") is None


def test_outside_of_a_module_there_are_no_symbols() -> None:
    with pytest.raises(ValueError, match="stands in no module"):
        named(StackOp([]), "a")
