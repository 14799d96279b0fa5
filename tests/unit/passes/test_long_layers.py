"""Layers of many operations, steps of any size, and layers that return what they take."""

from __future__ import annotations

from typing import Any, Final

import pytest
from xdsl.context import Context
from xdsl.dialects.func import FuncOp
from xdsl.parser import Parser
from xdsl.universe import Universe

from starc.diagnostics import InputError
from starc.dialects.kernel import LaunchOp
from starc.frontend import load_model
from starc.passes.kernel.forming.grouping_rules import MOST_JOINED
from starc.passes.manager import Driver
from starc.passes.selection import PassSpec, plan_passes
from starc.passes.verification import verify_operations
from starc.targets.loader import load_target
from tests.unit.frontend.models import TINY

TP: Final = {
    name: {"tensor_parallel_size": 8} for name in ("verify-model", "assign-tensor-parallel")
}

TEXT = """
model "long" {{ hidden = 64, dtype = bf16 }}
layer sum(x) {{ return {} }}
phase decode {{ batch = 2, context = 64 }}
"""


@pytest.mark.parametrize("terms", [MOST_JOINED, 100, 1200])
def test_a_sum_of_many_terms_becomes_kernels_that_fit_their_limit(terms: int) -> None:
    module = load_model(TEXT.format(" + ".join(["x"] * terms)), file="long.sa").module
    driver = Driver(load_target("mi300x-cpx", gpus=1))
    kernels = plan_passes("naive", compile_to="kernel")
    driver.run(module, kernels)
    sizes = [len(op.body.block.ops) - 1 for op in module.walk() if isinstance(op, LaunchOp)]
    assert sum(sizes) == terms - 1
    assert max(sizes) <= MOST_JOINED
    driver.run(module, plan_passes("naive", compile_to="isa")[len(kernels) :])


def test_a_function_may_return_its_argument() -> None:
    context = Context()
    for name, factory in Universe.get_multiverse().all_dialects.items():
        context.register_dialect(name, factory)
    text = """
        func.func @f(%x : tensor<8x1x64xbf16>) -> tensor<8x1x64xbf16> {
          func.return %x : tensor<8x1x64xbf16> loc("f.sa":1:20)
        } loc("f.sa":1:1)
    """
    module = Parser(context, text).parse_module()
    target = load_target("mi300x-cpx", gpus=1)
    for name in ("assign-tensor-parallel", "propagate-shardings", "localize"):
        driver = Driver(target)
        driver.run(module, [PassSpec(name)])
        verify_operations(module)
    (function,) = (op for op in module.body.ops if isinstance(op, FuncOp))
    assert list(function.function_type.inputs) == list(function.function_type.outputs)


@pytest.mark.parametrize(
    "sizes", [{"batch": 2**40}, {"phase": "prefill", "prompt": 999_999_937}], ids=str
)
def test_a_step_that_no_number_can_count_is_refused_at_once(sizes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="at most 4,194,304 are compiled"):
        load_model(TINY, file="tiny.sa", **sizes)


def test_work_that_no_number_can_count_is_refused_at_once() -> None:
    sizes: dict[str, Any] = {"phase": "prefill", "prompt": 2**20, "context": 10**14}
    module = load_model(TINY, file="tiny.sa", **sizes).module
    driver = Driver(load_target("mi300x-cpx", gpus=1))
    with pytest.raises(InputError, match=r"do not fit in 63 bits|more than"):
        driver.run(module, plan_passes("naive", compile_to="isa", options=TP))


def test_a_model_that_is_far_too_large_is_compiled_at_once() -> None:
    loaded = load_model(TINY, file="tiny.sa", overrides={"vocab": "8000000000"}, context=10**12)
    module = loaded.module
    driver = Driver(load_target("mi300x-cpx", gpus=1))
    driver.run(module, plan_passes("naive", compile_to="isa", options=TP))
