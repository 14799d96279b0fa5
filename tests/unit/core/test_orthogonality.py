"""Which loops of products are split by two levels, and how many bytes reshards move."""

from __future__ import annotations

import pytest

from starc.analysis.communication import moving_steps
from starc.analysis.orthogonality import TwoLevels, unexplained, violations
from starc.core.sharding.collective_kind import CollectiveKind
from starc.core.sharding.encoding import Encoding
from starc.core.sharding.link_bytes import (
    add_bytes,
    bytes_text,
    is_no_more,
    reshard_bytes,
    sent_bytes,
)
from starc.core.sharding.mesh import Axis, AxisRef, LinkPart, Mesh
from tests.unit.test_pass_examples import parse

GPU, XCD = AxisRef("gpu"), AxisRef("xcd")


def mesh(*sizes: int) -> Mesh:
    levels = (("gpu", "outer", "xgmi"), ("xcd", "inner", "usr"), ("core", "core", "wire"))
    return Mesh(
        "node",
        tuple(
            Axis(name, size, level, link)
            for size, (name, level, link) in zip(sizes, levels, strict=False)
        ),
    )


def test_levels_of_one_device_do_not_count() -> None:
    assert TwoLevels.of(mesh(1, 8)) is None
    assert TwoLevels.of(mesh(8, 1)) is None
    assert TwoLevels.of(mesh(8, 2)) == TwoLevels((GPU,), (XCD,))
    assert TwoLevels.of(mesh(8, 2, 1)) == TwoLevels((GPU,), (XCD,))
    assert TwoLevels.of(mesh(2, 1, 4)) == TwoLevels((GPU,), (AxisRef("core"),))
    assert TwoLevels.of(mesh(2, 3, 4)) == TwoLevels((GPU, XCD), (AxisRef("core"),))


def test_parts_of_axes_have_the_level_of_their_axis() -> None:
    levels = TwoLevels.of(mesh(4, 8))
    assert levels is not None
    part = AxisRef("xcd", 2, 4)
    assert levels.splits_twice((GPU, part))
    assert not levels.splits_twice((AxisRef("xcd", 1, 2), part))
    assert levels.outer_of((GPU, part)) == (GPU,)
    assert levels.inner_of((GPU, part)) == (part,)


def products(x: str, w: str, y: str) -> str:
    return f"""sharding.mesh @node = ["gpu"=2 : outer xgmi, "xcd"=2 : inner usr]
nn.parameter @m.w : tensor<64x32xbf16, #sharding.of<@node, {w}>>
func.func @m(%x : tensor<4x4x64xbf16, #sharding.of<@node, {x}>>) {{
  %w = nn.read @m.w : tensor<64x32xbf16, #sharding.of<@node, {w}>>
  %y = nn.linear %x, %w : tensor<4x4x64xbf16, #sharding.of<@node, {x}>>,
    tensor<64x32xbf16, #sharding.of<@node, {w}>>
    -> tensor<4x4x32xbf16, #sharding.of<@node, {y}>>
  func.return
}}
"""


@pytest.mark.parametrize(
    ("x", "w", "y", "loops"),
    [
        (
            '[{}, {}, {"gpu", "xcd"}]',
            '[{"gpu", "xcd"}, {}]',
            '[{}, {}, {}], partial = sum{"gpu", "xcd"}',
            ["K"],
        ),
        ("[{}, {}, {}]", '[{}, {"gpu", "xcd"}]', '[{}, {}, {"gpu", "xcd"}]', ["N"]),
        ('[{"gpu"}, {"xcd"}, {}]', "[{}, {}]", '[{"gpu"}, {"xcd"}, {}]', ["M"]),
        (
            '[{}, {}, {"gpu"}]',
            '[{"gpu"}, {"xcd"}]',
            '[{}, {}, {"xcd"}], partial = sum{"gpu"}',
            [],
        ),
        ('[{"gpu"}, {}, {}]', '[{}, {"xcd"}]', '[{"gpu"}, {}, {"xcd"}]', []),
    ],
)
def test_loops_that_two_levels_split(x: str, w: str, y: str, loops: list[str]) -> None:
    module = parse(products(x, w, y))
    module.verify()
    found = violations(module)
    assert [violation.loop for violation in found] == loops
    assert unexplained(module, [violation.op for violation in found]) == []
    assert unexplained(module, []) == found
    if found:
        assert str(found[0]) == f'{loops[0]} is split by two levels: {{"gpu", "xcd"}}'


def test_modules_without_a_mesh_have_no_violation() -> None:
    assert violations(parse("func.func @f() { func.return }")) == []


# Bytes


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("all_reduce", {"usr": 2 * 7 * 1024, "xgmi": 2 * 3 * 256}),
        ("reduce_scatter", {"usr": 7 * 1024, "xgmi": 3 * 256}),
        ("all_gather", {"usr": 7 * 1024, "xgmi": 3 * 256}),
        ("all_to_all", {"usr": 7 * 1024, "xgmi": 3 * 2048}),
        ("all_slice", {}),
    ],
)
def test_bytes_of_two_levels(operation: str, expected: dict[str, int]) -> None:
    node = mesh(4, 8)
    assert sent_bytes(node, CollectiveKind(operation), (GPU, XCD), 8192) == expected
    assert sent_bytes(node, CollectiveKind(operation), (XCD, GPU), 8192) == expected


def test_bytes_of_parts_of_an_axis() -> None:
    parts = (LinkPart("iod", 4, "usr"), LinkPart("slot", 2, "die"))
    node = Mesh("node", (Axis("xcd", 8, "inner", "usr", parts),))
    assert sent_bytes(node, CollectiveKind.ALL_GATHER, (AxisRef("xcd", 4, 2),), 64) == {"die": 32}
    assert sent_bytes(node, CollectiveKind.ALL_GATHER, (AxisRef("xcd", 1, 4),), 64) == {"usr": 48}


def test_bytes_of_a_reshard_are_those_of_its_collectives() -> None:
    node = mesh(2, 4)
    whole = Encoding.replicated(node, 2)
    partial = whole.with_partial("sum", (GPU, XCD))
    split = whole.with_dim(1, (XCD,))
    assert reshard_bytes(partial, split, (3, 16), 2) == {"usr": 72, "xgmi": 24}
    assert moving_steps(partial, split, (3, 16)) == 2
    assert reshard_bytes(whole, split, (3, 16), 2) == {}
    assert moving_steps(whole, split, (3, 16)) == 0
    assert reshard_bytes(split, whole, (3, 16), 2) == {"usr": 72}


def test_counts_are_added_and_compared() -> None:
    assert add_bytes([{"usr": 1}, {"xgmi": 2, "usr": 3}]) == {"usr": 4, "xgmi": 2}
    assert is_no_more({"usr": 1}, {"usr": 1, "xgmi": 4})
    assert not is_no_more({"usr": 1, "xgmi": 5}, {"usr": 9, "xgmi": 4})
    assert not is_no_more({"usr": 1}, {})
    assert bytes_text({}) == "nothing"
    assert bytes_text({"usr": 3, "xgmi": 4}) == "3 bytes on usr, 4 bytes on xgmi"
