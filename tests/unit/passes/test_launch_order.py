"""Which launches wait for a launch of another queue."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from starc.dialects.kernel import LaunchOp
from starc.dialects.kernel_buffers import BufferOp
from starc.passes.isa.lowering.launch_order import cross_queue_waits
from tests.executable.cases import Case, decode, stages

PARALLEL = decode("parallel", (2, 2), batch=2)
LLAMA = decode("gqa", (2, 2), batch=1)


def planned(case: Case) -> ModuleOp:
    """A module after plan-memory."""
    stage = next(stage for stage in stages(case) if stage.pass_name == "plan-memory")
    return stage.module.clone()


def waits(module: ModuleOp) -> dict[str, str]:
    return {
        launch.sym_name.data: earlier.sym_name.data
        for launch, earlier in cross_queue_waits(module).items()
    }


def launches(module: ModuleOp) -> dict[str, LaunchOp]:
    return {op.sym_name.data: op for op in module.walk() if isinstance(op, LaunchOp)}


def test_on_one_queue_nothing_waits() -> None:
    assert waits(planned(LLAMA)) == {}


def test_an_overlapped_collective_waits_for_its_operand_and_is_waited_for() -> None:
    found = waits(planned(PARALLEL))
    assert found["decoder.o_all_reduce"] == "decoder.o"
    assert found["decoder.add"] == "decoder.o_all_reduce"


def test_a_launch_that_takes_over_memory_waits_for_its_last_user() -> None:
    module = planned(PARALLEL)
    down, reduced = (launches(module)[name] for name in ("decoder.down", "decoder.o_all_reduce"))
    names = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, BufferOp)}
    (result,), (operand,) = down.written_names, reduced.read_names
    names[result].properties["address"] = names[operand].properties["address"]
    assert waits(module)["decoder.down"] == "decoder.o_all_reduce"


def test_a_wait_that_the_queue_has_done_is_not_repeated() -> None:
    module = planned(PARALLEL)
    every = launches(module)
    for name, launch in every.items():
        late = name in ("decoder.add",)
        launch.properties["queue"] = IntegerAttr(1 if late else 0, i64)
    found = waits(module)
    assert list(found) == ["decoder.add"]
    assert found["decoder.add"] == "decoder.down_all_reduce"
