"""Memory of a whole model from the buffers of one layer of each kind."""

from starc.backend.assembly import ProgramAssembler
from starc.backend.program import Program, Role, Space
from starc.core.element_types import ElementType
from starc.report.memory import memory_plan, memory_report, parameters_report
from starc.report.metadata import Metadata
from starc.targets.loader import load_target

KIB = 1024


def model() -> Program:
    """Four devices; a decoder of three layers whose KV head two devices hold."""
    assembler = ProgramAssembler("m", load_target("mi300x-cpx").to_dict(), (("gpu", 2), ("xcd", 2)))
    bf16 = ElementType.BF16
    weight = "tensor<64x16xbf16, #sharding.of<@n, [..], global = [64, 64]>>"
    assembler.buffer("decoder.w", (64, 16), bf16, role=Role.WEIGHT, type_text=weight)
    assembler.buffer("head.w", (64, 32), bf16, role=Role.WEIGHT)
    for name in ("k", "v"):
        assembler.buffer(
            f"decoder.{name}_cache", (2, 1, 16, 8), bf16, role=Role.STATE,
            type_text="tensor<2x1x16x8xbf16, #sharding.of<@n, [..], global = [2, 2, 16, 8]>>",
        )  # fmt: skip
    # Two activations of different lifetimes share addresses.
    assembler.buffer("a", (512,), bf16, address=1 << 20)
    assembler.buffer("b", (1024,), bf16, address=(1 << 20) + 512)
    assembler.buffer("c", (256,), bf16, role=Role.COMMUNICATION, space=Space.SYMMETRIC)
    for name, count in (("decoder", 3), ("head", 1)):
        assembler.layer(name, count)
    about = Metadata("m", batch=2, context=16, tensor_parallel=4, gpu_memory_utilization=0.5)
    program = assembler.finish()
    program.metadata.update(about.to_dict())
    return program


def test_whole_model() -> None:
    plan = memory_plan(model())
    assert plan.weights_bytes == 3 * 64 * 16 * 2 + 64 * 32 * 2
    assert plan.kv_bytes == 3 * 2 * 2 * 16 * 8 * 2
    assert plan.activations_bytes == 512 + 1024 * 2
    assert plan.communication_bytes == 512
    assert plan.kv_replication == 2.0
    assert plan.capacity_bytes == 24_000_000_000
    assert plan.usable_bytes == 12_000_000_000
    assert memory_report(plan).fits


def test_parameters_count_once() -> None:
    report = parameters_report(model(), "decoder")
    assert report.per_layer == 64 * 64
    assert report.total == 3 * 64 * 64 + 64 * 32


def test_metadata_survives_the_program_file() -> None:
    program = model()
    assert Metadata.of(program).data_parallel(8) == 2
    assert Metadata.of(program).context == 16
