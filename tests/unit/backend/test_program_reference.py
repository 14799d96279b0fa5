"""docs/program.md names every opcode, field and vector function as it is."""

from __future__ import annotations

from pathlib import Path

from starc.backend.program import RECORD, Opcode
from starc.core.vector_functions.table import FUNCTIONS

TEXT = (Path(__file__).parents[3] / "docs" / "program.md").read_text()


def test_every_opcode_and_field():
    for op in Opcode:
        assert f"`{op.name}`" in TEXT
    for name in RECORD.names or ():
        if name[-1].isdigit():
            continue  # e0 .. e7 and n0 .. n3 stand as ranges
        assert f"`{name}`" in TEXT


def test_every_vector_function():
    for function in FUNCTIONS:
        parameters = ", ".join(parameter.name for parameter in function.parameters)
        operands = ", ".join(function.operands)
        summary = function.summary.replace("|", "\\|")
        row = (
            f"| {function.id} | `{function.name}` | {operands} | {parameters} "
            f"| {function.lane_operations} | {summary} |"
        )
        assert row in TEXT
