"""Dominance and locations: what xDSL does not check."""

import pytest
from xdsl.context import Context
from xdsl.dialects.arith import Arith
from xdsl.dialects.builtin import Builtin, FileLineColLoc, IntAttr, ModuleOp, StringAttr
from xdsl.dialects.func import Func
from xdsl.dialects.scf import Scf
from xdsl.parser import Parser

from starc.dialects.invalid_ir import InvalidIR
from starc.passes.verification import verify, verify_dominance, verify_locations

LOCATION = FileLineColLoc(StringAttr("a.sa"), IntAttr(3), IntAttr(7))


def parse(text: str) -> ModuleOp:
    context = Context()
    for dialect in (Builtin, Arith, Func, Scf):
        context.load_dialect(dialect)
    return Parser(context, text).parse_module()


NESTED = """
func.func @f(%c : i1, %a : i32) {
  scf.if %c {
    %inner = arith.addi %a, %a : i32
    scf.yield
  }
  %outer = arith.addi %a, %a : i32
  func.return
}
"""


def test_values_of_enclosing_blocks_are_visible() -> None:
    verify_dominance(parse(NESTED))


def test_value_of_a_region_is_not_visible_after_it() -> None:
    module = parse(NESTED)
    adds = [op for op in module.walk() if op.name == "arith.addi"]
    adds[1].operands[0] = adds[0].results[0]
    with pytest.raises(InvalidIR, match="uses %inner before it is defined") as caught:
        verify_dominance(module)
    assert caught.value.op is adds[1]


def test_operation_inside_a_region_cannot_use_the_result_of_its_own_parent() -> None:
    module = parse(
        """
        func.func @f(%c : i1, %a : i32) {
          %r = scf.if %c -> (i32) {
            %b = arith.addi %a, %a : i32
            scf.yield %b : i32
          } else {
            scf.yield %a : i32
          }
          func.return
        }
        """
    )
    conditional = next(op for op in module.walk() if op.name == "scf.if")
    inner = next(op for op in module.walk() if op.name == "arith.addi")
    inner.operands[0] = conditional.results[0]
    with pytest.raises(InvalidIR, match="uses %r before"):
        verify_dominance(module)


def test_every_operation_needs_a_location() -> None:
    module = parse(NESTED)
    with pytest.raises(InvalidIR, match=r"'func.func' has no location"):
        verify_locations(module)
    for op in module.walk():
        op.location = LOCATION
    verify(module)


def test_the_failing_operation_is_named() -> None:
    module = parse(NESTED)
    function = next(op for op in module.walk() if op.name == "func.func")
    for op in module.walk():
        op.location = LOCATION
    function.regions[0].block.last_op.detach()  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(InvalidIR) as caught:
        verify(module)
    assert caught.value.op is not None
