"""What ``verify-model`` refuses, what it says would be legal, and what it tells of a legal plan."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, ModuleOp
from xdsl.dialects.func import Func
from xdsl.parser import Parser

from starc.diagnostics import Diagnostic, InputError
from starc.passes.base import Remark, RemarkSink
from starc.passes.nn.verify_model import VerifyModelPass
from starc.targets.loader import load_target
from starc.universe import STARC_UNIVERSE

CPX = load_target("mi300x-cpx", gpus=1)
"""Eight devices."""


def parsed(text: str) -> ModuleOp:
    context = Context()
    for name, dialect in STARC_UNIVERSE.all_dialects.items():
        context.register_dialect(name, dialect)
    context.load_dialect(Builtin)
    context.load_dialect(Func)
    return Parser(context, text).parse_module()


def mlp(columns: int, *batches: int) -> ModuleOp:
    """Layers of a product each, for inputs of these batches; they share a weight."""
    text = f"nn.parameter @up : tensor<8x{columns}xbf16>\n"
    for index, batch in enumerate(batches):
        x, y = f"tensor<{batch}x1x8xbf16>", f"tensor<{batch}x1x{columns}xbf16>"
        text += f"""func.func @layer{index}(%x : {x}) -> {y} {{
          %w = nn.read @up : tensor<8x{columns}xbf16>
          %y = nn.linear %x, %w : {x}, tensor<8x{columns}xbf16> -> {y}
          func.return %y : {y}
        }}
        """
    return parsed(text)


def decoder(heads: int, kv_heads: int, columns: int, batch: int = 8) -> ModuleOp:
    """Attention with heads of four columns, and a product."""
    q, kv = 4 * heads, 4 * kv_heads
    cache = f"tensor<{batch}x{kv_heads}x32x4xbf16>"
    x, query = f"tensor<{batch}x1x48xbf16>", f"tensor<{batch}x1x{q}xbf16>"
    return parsed(f"""
nn.parameter @q : tensor<48x{q}xbf16>
nn.parameter @k : tensor<48x{kv}xbf16>
nn.parameter @o : tensor<{q}x48xbf16>
nn.parameter @up : tensor<48x{columns}xbf16>
nn.state @k_cache : {cache}
func.func @decoder(%x : {x}) -> tensor<{batch}x1x{columns}xbf16> {{
  %wq = nn.read @q : tensor<48x{q}xbf16>
  %q = nn.linear %x, %wq : {x}, tensor<48x{q}xbf16> -> {query}
  %wk = nn.read @k : tensor<48x{kv}xbf16>
  %k = nn.linear %x, %wk : {x}, tensor<48x{kv}xbf16> -> tensor<{batch}x1x{kv}xbf16>
  %c = nn.append @k_cache, %k {{start = 31 : i64}} : tensor<{batch}x1x{kv}xbf16> -> {cache}
  %a = nn.attention %q, %c, %c {{head_dim = 4 : i64, start = 31 : i64, scale = 0.5 : f64}} :
    {query}, {cache}, {cache} -> {query}
  %wo = nn.read @o : tensor<{q}x48xbf16>
  %o = nn.linear %a, %wo : {query}, tensor<{q}x48xbf16> -> {x}
  %wu = nn.read @up : tensor<48x{columns}xbf16>
  %u = nn.linear %o, %wu : {x}, tensor<48x{columns}xbf16> -> tensor<{batch}x1x{columns}xbf16>
  func.return %u : tensor<{batch}x1x{columns}xbf16>
}}
""")


def remarks(
    module: ModuleOp, size: int | None = None, *, uneven: bool = False, target: str = ""
) -> list[Remark]:
    before, sink = str(module), RemarkSink()
    machine = load_target(target) if target else CPX
    VerifyModelPass(tensor_parallel_size=size, uneven=uneven).run(module, machine, sink)
    assert str(module) == before
    return [remark for _, remark in sink.remarks]


def refusals(
    module: ModuleOp, size: int | None = None, *, uneven: bool = False
) -> list[tuple[str, str | None]]:
    """The messages and hints of the one error."""
    return [(found.message, found.hint) for found in diagnostics(module, size, uneven=uneven)]


def diagnostics(
    module: ModuleOp, size: int | None = None, *, uneven: bool = False
) -> tuple[Diagnostic, ...]:
    with pytest.raises(InputError) as raised:
        remarks(module, size, uneven=uneven)
    return raised.value.diagnostics


@pytest.mark.parametrize("size", [3, 16, 0, -1, -8, 5])
@pytest.mark.parametrize("uneven", [False, True])
def test_the_size_divides_the_devices(size: int, uneven: bool) -> None:
    (found,) = diagnostics(mlp(12, 8), size, uneven=uneven)
    assert (
        found.message == f"tensor-parallel size {size} does not divide the 8 devices of mi300x-cpx"
    )
    assert found.hint == "the model and machine allow --tensor-parallel-size 1, 2, 4"
    assert found.key == "--tensor-parallel-size"
    assert found.severity == "error"


def test_columns_are_divided_by_the_size() -> None:
    assert refusals(mlp(12, 8)) == [
        (
            "12 columns of @up cannot be split over 8 devices",
            "12 columns of @up allow --tensor-parallel-size 1, 2, 4, or any with --uneven",
        )
    ]
    assert remarks(mlp(16, 8))
    assert remarks(mlp(12, 8), 4)


def test_all_rules_are_told_at_once_and_what_they_allow_together() -> None:
    found = diagnostics(decoder(12, 6, 100))
    assert [(one.message, one.hint) for one in found] == [
        (
            "12 heads cannot be split over 8 devices",
            "12 heads allow --tensor-parallel-size 1, 2, 4, or any with --uneven",
        ),
        (
            "6 KV heads can neither be split over nor replicated evenly on 8 devices: neither is "
            "a multiple of the other",
            "6 KV heads allow --tensor-parallel-size 1, 2, or any with --uneven",
        ),
        (
            "100 columns of @up cannot be split over 8 devices",
            "100 columns of @up allow --tensor-parallel-size 1, 2, 4, or any with --uneven",
        ),
        ("all rules together allow --tensor-parallel-size 1, 2", None),
    ]
    assert [one.severity for one in found] == ["error", "error", "error", "note"]


def test_kv_heads_divide_the_size_or_are_divided_by_it() -> None:
    for kv_heads in (1, 2, 4, 8, 16):
        assert remarks(decoder(16, kv_heads, 64))[-1].id == "plan-is-legal"


def test_the_batch_is_divided_by_the_replicas() -> None:
    assert refusals(mlp(8, 6), 1) == [
        (
            "batch 6 cannot be divided over 8 data-parallel replicas (8 devices / tensor-parallel "
            "size 1)",
            "batch 6 allows --tensor-parallel-size 4, 8, or any with --uneven",
        )
    ]
    # A size is offered only if the model allows it as well.
    assert refusals(mlp(4, 3), 2) == [
        (
            "batch 3 cannot be divided over 4 data-parallel replicas (8 devices / tensor-parallel "
            "size 2)",
            "use a batch that is a multiple of 4, or fewer devices, or any with --uneven",
        )
    ]


def test_every_batch_of_a_layer_is_judged_once() -> None:
    messages = [message for message, _ in refusals(mlp(8, 6, 8, 3, 6), 1)]
    assert [message.split(" cannot")[0] for message in messages] == ["batch 6", "batch 3"]


def test_layers_without_tensors_have_no_batch() -> None:
    text = """
func.func private @declared(tensor<3x1x8xbf16>) -> tensor<3x1x8xbf16>
func.func @scalar(%x : i64, %y : tensor<bf16>) -> i64 {
  func.return %x : i64
}
"""
    assert [remark.id for remark in remarks(parsed(text), 1)] == ["plan-is-legal"]


def test_an_illegal_batch_does_not_need_the_note() -> None:
    found = diagnostics(mlp(6, 3), 4)
    assert [one.severity for one in found] == ["error", "error"]


# What a legal plan is told to be


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (8, "layers are split over 8 devices, the batch over 1 replica"),
        (4, "layers are split over 4 devices, the batch over 2 replicas"),
        (1, "layers are split over 1 device, the batch over 8 replicas"),
    ],
)
def test_a_legal_plan_is_told(size: int, text: str) -> None:
    (remark,) = remarks(mlp(16, 8), size)
    assert remark.id == "plan-is-legal"
    assert remark.message == text
    assert remark.numbers == {"tensor_parallel_size": size, "data_parallel_size": 8 // size}


def test_all_devices_share_a_layer_unless_a_size_is_given() -> None:
    assert remarks(mlp(16, 8)) == remarks(mlp(16, 8), 8)


def test_one_device_has_all() -> None:
    module, sink = mlp(7, 3), RemarkSink()
    VerifyModelPass().run(module, load_target("mi300x-spx", gpus=1), sink)
    ((_, remark),) = sink.remarks
    assert remark.message == "every device has a layer and a batch of its own"
    assert remark.numbers == {"tensor_parallel_size": 1, "data_parallel_size": 1}


def test_as_many_replicas_as_devices_of_a_layer_are_not_alone() -> None:
    module, sink = mlp(8, 4), RemarkSink()
    VerifyModelPass(tensor_parallel_size=2).run(module, load_target("mi300x-spx", gpus=4), sink)
    ((_, remark),) = sink.remarks
    assert remark.message == "layers are split over 2 devices, the batch over 2 replicas"


def test_uneven_shares_are_told_and_even_ones_are_not() -> None:
    columns, batch, legal = remarks(mlp(6, 3, 4), 4, uneven=True)
    assert columns.id == batch.id == "uneven-shares"
    assert columns.message == (
        "6 columns of @up over 4 ranks: 2 at most, 0 at least, 1 rank without any"
    )
    assert columns.numbers == {"largest": 2, "smallest": 0, "empty": 1}
    assert batch.message == "a batch of 3 over 2 ranks: 2 at most, 1 at least"
    assert batch.numbers == {"largest": 2, "smallest": 1, "empty": 0}
    assert legal.message == "layers are split over 4 devices, the batch over 2 replicas"


def test_several_ranks_may_be_without_any() -> None:
    batch, _ = remarks(mlp(8, 2), 1, uneven=True)
    assert batch.message == "a batch of 2 over 8 ranks: 1 at most, 0 at least, 6 ranks without any"


def test_uneven_changes_nothing_where_all_is_even() -> None:
    assert remarks(mlp(16, 8), 4, uneven=True) == remarks(mlp(16, 8), 4)


def test_heads_are_shared_along_several_axes_of_a_level() -> None:
    """On a nested mesh a dimension that the devices do not divide is split over the axes that do,
    and devices along the others keep the same piece."""
    found = remarks(decoder(16, 8, 64, batch=4), target="ahbm")
    assert [remark.id for remark in found] == ["plan-is-legal"]
