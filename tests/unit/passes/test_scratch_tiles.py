"""Tiles of elements with engines: how much scratch memory they take, and how errors name them."""

from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.diagnostics import InputError
from starc.dialects import isa
from starc.passes.base import RemarkSink
from starc.passes.isa.plan_scratch import PlanScratch
from starc.targets.loader import load_target
from tests.unit.interpreter.isa_modules import buffer
from tests.unit.interpreter.modules import parse
from tests.unit.passes.test_stream_mutations import HEAD, MESH, attention

TARGET = load_target("ahbm", mesh={"sip": 1, "group": 1, "cube": 1, "pe": 1})


def kernel(module: ModuleOp) -> isa.KernelOp:
    return next(op for op in module.ops if isinstance(op, isa.KernelOp))


def planned(text: str) -> tuple[isa.KernelOp, RemarkSink]:
    sink, module = RemarkSink(), parse(text)
    PlanScratch().run(module, TARGET, sink)
    module.verify()
    return kernel(module), sink


def number(text: str) -> int:
    found = planned(text)[0].scratch_bytes
    assert found is not None
    return found.value.data


@pytest.mark.parametrize("pipelined", [False, True])
def test_the_mark_does_not_depend_on_trips(pipelined: bool):
    text = attention(pipelined=pipelined)
    assert "[0] to [5]" in text
    marks = {number(text.replace("[0] to [5]", f"[0] to [{n}]")) for n in (1, 5, 4096, 1 << 30)}
    assert len(marks) == 1


def test_nothing_lies_in_registers():
    found, sink = planned(attention())
    allocs = [op for op in found.body.walk() if isinstance(op, isa.AllocOp)]
    assert {op.space.data for op in allocs} == {"scratch"}
    assert found.register_bytes is not None
    assert found.register_bytes.value.data == 0
    (remark,) = [remark for _, remark in sink.remarks if remark.id == "scratch"]
    assert "bytes of scratch memory, every tile on its own: " in remark.message
    assert remark.message.endswith("262,144 bytes above are left to queues")
    assert remark.numbers["scratch_bytes"] == remark.numbers["tiles_bytes"]


def wide(rows: int, *, scopes: bool, late: str = "") -> str:
    """Two tiles of so many rows that are used one behind the other."""
    begin, end = ("isa.scope {", "}") if scopes else ("", "")
    type_ = f"!isa.tile<{rows}x256xbf16>"
    parts = "".join(
        f"""{begin}
    %w{i} = isa.alloc scratch : {type_}
    isa.load %w{i}, @x[0, 0] : {type_}
    isa.store %w{i}, @x[0, 0] : {type_}
    {end}
    """
        for i in range(2)
    )
    return (
        MESH
        + buffer("x", f"{rows}x256xbf16", 0, rows * 512, role="activation")
        + f"isa.kernel @wide {HEAD} {{\n{parts}{late}\n}}\n"
    )


@pytest.mark.parametrize("scopes", [False, True])
def test_sharing_where_there_is_no_room(scopes: bool):
    """The second tile takes the place of the first if both do not fit."""
    assert number(wide(768, scopes=scopes)) == 2 * 768 * 512
    assert number(wide(769, scopes=scopes)) == 769 * 512
    _, sink = planned(wide(769, scopes=scopes))
    (remark,) = [remark for _, remark in sink.remarks if remark.id == "scratch"]
    shared = "tiles of different scopes share" if scopes else "tiles of one slot share"
    assert shared in remark.message


def test_tiles_that_are_alive_together_do_not_fit():
    """The first tile is used again behind the second: both are named, with what would fit."""
    late = "isa.store %w0, @x[0, 0] : !isa.tile<1000x256xbf16>"
    with pytest.raises(InputError) as caught:
        planned(wide(1000, scopes=False, late=late))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.message.startswith(
        "template @wide needs 1,024,000 bytes of scratch memory for tiles that are alive at the "
        "same time, an element has 786,432 (1,048,576 less 262,144 for queues): "
        "%w0 1000x256xbf16 512,000 B"
    )
    assert "%w1 1000x256xbf16 512,000 B" in diagnostic.message
    assert diagnostic.hint is not None
    assert diagnostic.hint.startswith("%w0 fits with at most 536 rows; options of the tile: ")
    smaller = wide(1000, scopes=False, late=late)
    for before, after in (
        ("%w0 = isa.alloc scratch : !isa.tile<1000x", "%w0 = isa.alloc scratch : !isa.tile<536x"),
        ("%w0, @x[0, 0] : !isa.tile<1000x", "%w0, @x[0, 0] : !isa.tile<536x"),
    ):
        smaller = smaller.replace(before, after)
    assert number(smaller) == 786_432


def test_all_templates_are_named_at_once():
    late = "isa.store %w0, @x[0, 0] : !isa.tile<1000x256xbf16>"
    first = wide(1000, scopes=False, late=late)
    second = first[first.index("isa.kernel") :].replace("@wide", "@other")
    with pytest.raises(InputError) as caught:
        planned(first + second)
    assert len(caught.value.diagnostics) == 2
