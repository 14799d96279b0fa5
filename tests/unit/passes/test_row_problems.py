"""The vector work of launches of rows, as estimates count it."""

from __future__ import annotations

import pytest

from starc.core.kernel_schedules.row_schedules import RowProblem
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import problem_of
from tests.unit.interpreter.modules import parse

ROWS = "tensor<2x3x64xbf16>"
ELEMENTS = 2 * 3 * 64


@pytest.mark.parametrize(
    ("body", "lanes"),
    [
        ("%y = nn.add %a, %b", 1),
        ("%y = nn.mul %a, %b", 1),
        ("%y = nn.silu %a", 4),
        ("%y = nn.gelu %a", 8),
        (f"%s = nn.silu %a : {ROWS} -> {ROWS}\n%y = nn.mul %s, %b", 5),
    ],
)
def test_lane_operations_an_element(body: str, lanes: int):
    """Of silu and gelu fewer than their instructions execute: to first order."""
    binary = f" : {ROWS}, {ROWS} -> {ROWS}"
    types = binary if "," in body else f" : {ROWS} -> {ROWS}"
    module = parse(f"""
    builtin.module {{
      func.func @f(%x : {ROWS}, %z : {ROWS}) -> {ROWS} {{
        %r = kernel.launch @f.rows elementwise (%a = %x : {ROWS}, %b = %z : {ROWS})
            -> ({ROWS}) {{
          {body}{types}
          kernel.yield %y : {ROWS}
        }}
        func.return %r : {ROWS}
      }}
    }}""")
    (launch,) = [op for op in module.walk() if isinstance(op, LaunchOp)]
    problem = problem_of(launch)
    assert isinstance(problem, RowProblem)
    assert problem.lane_operations == lanes * ELEMENTS
