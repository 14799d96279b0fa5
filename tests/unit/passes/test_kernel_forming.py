"""Which operations become one launch, and how launches are scheduled."""

from __future__ import annotations

import pytest
from xdsl.dialects.func import FuncOp, ReturnOp

from starc.analysis.cost import compulsory
from starc.dialects import nn
from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_problems import problem_of
from starc.passes.verification import verify
from tests.unit.passes.kernel_level import KernelLevel, compile_to_kernels


def launches(level: KernelLevel, layer: str = "decoder") -> dict[str, LaunchOp]:
    return {
        op.sym_name.data: op
        for op in level.module.walk()
        if isinstance(op, LaunchOp) and op.sym_name.data.startswith(f"{layer}.")
    }


@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("target", ["mi300x-cpx", "mi300x-spx"])
def test_a_decoder_layer_is_thirteen_launches(target: str, phase: str) -> None:
    level = compile_to_kernels("llama3-70b.sa", target, phase=phase, last="form-kernels")
    verify(level.module)
    assert list(launches(level)) == [
        f"decoder.{name}"
        for name in (
            "attn_norm",
            "q_k_v",
            "rope_append",
            "attention",
            "o",
            "o_all_reduce",
            "add",
            "mlp_norm",
            "gate_up",
            "silu_mul",
            "down",
            "down_all_reduce",
            "add_2",
        )
    ]


def test_nothing_but_reads_launches_and_a_return_remains() -> None:
    level = compile_to_kernels("tiny.sa", gpus=1, last="form-kernels")
    for function in level.module.body.ops:
        if isinstance(function, FuncOp):
            for op in function.body.block.ops:
                assert isinstance(op, LaunchOp | nn.ReadOp | ReturnOp)


def test_dependent_collectives_stay_on_the_compute_queue() -> None:
    level = compile_to_kernels("llama3-70b.sa", last="assign-queues")
    assert {op.integer("queue", -1) for op in launches(level).values()} == {0}


def test_every_launch_is_scheduled() -> None:
    for phase in ("decode", "prefill"):
        level = compile_to_kernels("llama3-70b.sa", phase=phase, last="map-workgroups")
        for launch in launches(level).values():
            assert launch.integers("tile")
            assert launch.workgroups > 0
            for key in ("waves", "window_bytes", "kernel_class", "piece_bytes"):
                assert key in launch.properties
            if launch.kind.data == "gemm":
                assert len(launch.integers("swizzle")) == 2
            assert (launch.waits is not None) == (
                launch.kind.data == "collective"
                or (launch.combine is not None and launch.combine.data == "owner")
            )


def test_schedules_come_with_their_numbers() -> None:
    level = compile_to_kernels("llama3-70b.sa", last="tile-kernels")
    chosen = [remark for _, remark in level.remarks if remark.id == "tile-chosen"]
    assert len(chosen) == len([op for op in level.module.walk() if isinstance(op, LaunchOp)])
    gemm = next(remark for remark in chosen if "gate_up" in remark.message)
    assert gemm.numbers["flops"] == 2 * 16 * 2 * (28672 // 64) * 8192
    assert "next:" in gemm.message
    assert gemm.location is not None


def test_compulsory_work_is_closed_form() -> None:
    level = compile_to_kernels("llama3-70b.sa", batch=8, context=16384, last="form-kernels")
    found = {name: compulsory(op) for name, op in launches(level).items()}
    gemm = found["decoder.q_k_v"]
    assert gemm.flops == 2 * 8 * 8192 * 3 * 128
    assert gemm.hbm_bytes == 2 * (8 * 8192 + 8192 * 384 + 8 * 384)
    attention = found["decoder.attention"]
    assert attention.flops == 4 * 8 * 16384 * 128
    assert attention.hbm_bytes == 2 * 8 * (2 * 16384 * 128 + 2 * 128)
    append = found["decoder.rope_append"]
    assert append.hbm_bytes == 2 * 8 * 2 * 3 * 128
    reduction = found["decoder.o_all_reduce"]
    payload = 8 * 8192 * 2
    assert reduction.hbm_bytes == 2 * payload
    assert reduction.link_bytes == {
        "usr": 2 * payload * 7 // 8,
        "xgmi": 2 * (payload // 8) * 7 // 8,
    }


def test_problems_survive_bufferisation() -> None:
    values = compile_to_kernels("llama3-70b.sa", last="map-workgroups")
    stored = compile_to_kernels("llama3-70b.sa")
    before = {name: problem_of(op) for name, op in launches(values).items()}
    after = {name: problem_of(op) for name, op in launches(stored).items()}
    assert before == after
