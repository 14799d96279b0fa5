"""Collectives that copy engines execute: the same data, no compute unit, refused where data are
combined."""

from __future__ import annotations

from dataclasses import replace

import pytest
from xdsl.utils.exceptions import VerifyException

from starc.backend.disassembler import disassemble
from starc.backend.files import from_bytes, to_bytes
from starc.backend.program import Program
from starc.backend.rows import engine_templates
from starc.backend.schedule import schedule_problems
from starc.backend.validation import problems
from starc.core.collectives.cost import choices, collective_time, transports_of
from starc.core.sharding.mesh import AxisRef
from starc.diagnostics import InputError
from starc.dialects import isa
from starc.dialects.collective import CollectiveOp
from starc.passes.base import RemarkSink
from starc.passes.collective.select_collective_algorithm import SelectCollectiveAlgorithmPass
from starc.simulator.options import SimulationOptions
from starc.simulator.run import simulate
from starc.targets.loader import load_target
from tests.unit.interpreter.modules import parse
from tests.unit.passes.exchanges import Exchange, Tensor

GPU, XCD = (AxisRef("gpu"),), (AxisRef("xcd"),)
NODE = GPU + XCD


def gather(
    algorithm: str,
    shape: tuple[int, ...] = (2, 4, 64),
    mesh: tuple[int, int] = (2, 2),
    axes: tuple[AxisRef, ...] = NODE,
    transport: str = "dma",
) -> Exchange:
    step = ("all_gather", "dim = 2", axes, algorithm)
    values = [[Tensor(shape, {2: axes})], [Tensor(shape)]]
    return Exchange(mesh, [step], values, transport=transport)


def to_all(mesh: tuple[int, int] = (2, 2), axes: tuple[AxisRef, ...] = NODE) -> Exchange:
    step = ("all_to_all", "split_dim = 2 concat_dim = 1", axes, "direct")
    values = [[Tensor((2, 8, 64), {1: axes})], [Tensor((2, 8, 64), {2: axes})]]
    return Exchange(mesh, [step], values, transport="dma")


@pytest.mark.parametrize("algorithm", ["ring", "direct", "bidirectional_ring"])
@pytest.mark.parametrize("shape", [(2, 4, 64), (1, 3, 40)])
def test_gathers_give_the_same_data(algorithm: str, shape: tuple[int, ...]) -> None:
    exchange = gather(algorithm, shape)
    exchange.check(seeds=(None, 1, 2))
    assert (exchange.program.launches["engines"] == 1).all()


@pytest.mark.parametrize("mesh", [((2, 2), NODE), ((1, 4), XCD), ((4, 1), GPU)])
def test_other_moves_give_the_same_data(
    mesh: tuple[tuple[int, int], tuple[AxisRef, ...]],
) -> None:
    to_all(*mesh).check(seeds=(None, 1, 2))


def test_a_permutation_gives_the_same_data() -> None:
    before, after = Tensor((2, 4, 64), {2: (*GPU, *XCD)}), Tensor((2, 4, 64), {2: (*XCD, *GPU)})
    step = ("permute", "", NODE, "direct")
    Exchange((2, 2), [step], [[before], [after]], transport="dma").check(seeds=(None, 1))


def test_every_engine_gives_the_same_times() -> None:
    program = gather("direct").program
    first = simulate(program)
    assert first.key() == simulate(program, options=SimulationOptions(engine="heap")).key()
    assert first.key() == simulate(program, options=SimulationOptions(jit=False)).key()


@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_one_gpu_stands_for_the_node(algorithm: str) -> None:
    shape = (1, 1024, 512)
    step = ("all_gather", "dim = 1", GPU, algorithm)
    values = [[Tensor(shape, {1: GPU})], [Tensor(shape)]]
    program = Exchange((8, 1), [step], values, transport="dma").program
    one, whole = (
        simulate(program, options=SimulationOptions(full_node=full)) for full in (False, True)
    )
    assert (one.simulated_gpus, whole.simulated_gpus) == (1, 8)
    assert one.time_ps == whole.time_ps
    assert one.ends.tolist() == whole.ends.tolist()
    assert one.traffic.xgmi_bytes == whole.traffic.xgmi_bytes


def test_programs_say_so() -> None:
    program = gather("direct").program
    assert " on copy engines" in disassemble(program)
    assert from_bytes(to_bytes(program)).launches["engines"].tolist() == [1]
    assert engine_templates(program) == {0}
    streams = int(program.launches["workgroups"][0])
    assert 1 <= streams <= load_target("mi300x-cpx").copy_engines


def with_launches(program: Program, **fields: int) -> Program:
    launches = program.launches.copy()
    for name, value in fields.items():
        launches[name] = value
    return replace(program, launches=launches)


def test_engines_compute_nothing() -> None:
    step = ("all_reduce", "reduction = sum", NODE, "two_shot")
    values = [[Tensor((2, 4, 64), partial=("sum", NODE))], [Tensor((2, 4, 64))]]
    exchange = Exchange((2, 2), [step], values)
    found = problems(with_launches(exchange.program, engines=1))
    assert any("a copy engine moves data and computes nothing" in text for text in found)
    module = exchange.lowered()
    launch = next(op for op in module.walk() if isinstance(op, isa.LaunchOp))
    launch.properties["engines"] = isa.LaunchOp("x", [], engines=True).properties["engines"]
    with pytest.raises(VerifyException, match=r"isa\.vector"):
        launch.verify_()


def test_waiting_streams_need_an_engine_each() -> None:
    program = gather("direct").program
    assert schedule_problems(program) == []
    few = replace(program, target={**program.target, "copy_engines": 0})
    (found,) = schedule_problems(few)
    assert "must have a copy engine; a device has 0" in found.message


def select(exchange: Exchange, **options: str) -> list[CollectiveOp]:
    module = parse(str(exchange.source()))
    selection = SelectCollectiveAlgorithmPass(**options)
    selection.run(module, exchange.target, RemarkSink())
    return [op for op in module.walk() if isinstance(op, CollectiveOp)]


def test_reductions_are_refused_with_what_is_legal() -> None:
    step = ("all_reduce", "reduction = sum", NODE, "ring")
    values = [[Tensor((2, 4, 64), partial=("sum", NODE))], [Tensor((2, 4, 64))]]
    with pytest.raises(InputError) as caught:
        select(Exchange((2, 2), [step], values), transport="dma")
    (problem,) = caught.value.diagnostics
    assert "all_reduce combines data" in problem.message
    assert problem.hint == "transports: bulk, channel_ll, device_put, ll, auto"


def test_gathers_take_the_engines_that_they_are_told() -> None:
    (op,) = select(gather("direct"), transport="dma")
    assert op.transport is not None
    assert op.transport.data == "dma"


def test_the_choice_knows_what_engines_can_do() -> None:
    exchange = gather("direct")
    target, mesh = exchange.target, exchange.mesh
    assert "dma" in transports_of("all_gather", target)
    assert "dma" not in transports_of("reduce_scatter", target)
    for operation in ("all_reduce", "reduce_scatter"):
        found = choices(operation, 1 << 20, mesh, NODE, target)
        assert all(choice.transport != "dma" for choice in found)
    # A few bytes are not worth a command to an engine.
    assert choices("all_gather", 1024, mesh, NODE, target)[0].transport != "dma"


@pytest.mark.parametrize(("mesh", "axes"), [((8, 1), GPU), ((1, 8), XCD)])
def test_an_estimate_of_a_gather_by_engines_holds(
    mesh: tuple[int, int], axes: tuple[AxisRef, ...]
) -> None:
    exchange = gather("direct", (1, 512, 4096), mesh, axes)
    payload = 512 * 4096 * 2
    estimate = collective_time(
        "all_gather", "direct", "dma", payload, exchange.mesh, axes, exchange.target
    )
    assert estimate.bound_by == "copy_engine"
    assert estimate.seconds * 1e12 == pytest.approx(simulate(exchange.program).time_ps, rel=0.15)


def chosen(beside: str) -> str:
    """The transport of a gather of 1 MiB between the partitions of eight GPUs, with a product that
    needs it, or one that does not in between."""
    whole = "#sharding.of<@node, [{}, {}, {}], global = [1, 128, 4096]>"
    parts = '#sharding.of<@node, [{}, {}, {"gpu"}], global = [1, 128, 4096]>'
    weight = "#sharding.of<@node, [{}, {}], global = [4096, 4096]>"
    module = parse(f"""builtin.module {{
      sharding.mesh @node = ["gpu"=8 : outer xgmi, "xcd"=8 : inner usr]
      func.func @f(%x : tensor<1x128x512xbf16, {parts}>, %z : tensor<1x128x4096xbf16, {whole}>,
                   %w : tensor<4096x4096xbf16, {weight}>)
          -> (tensor<1x128x4096xbf16, {whole}>, tensor<1x128x4096xbf16, {whole}>) {{
        %y = collective.all_gather %x on @node axes = ["gpu"] dim = 2
          : tensor<1x128x512xbf16, {parts}> -> tensor<1x128x4096xbf16, {whole}>
        %a = nn.linear {beside}, %w : tensor<1x128x4096xbf16, {whole}>,
          tensor<4096x4096xbf16, {weight}> -> tensor<1x128x4096xbf16, {whole}>
        func.return %a, %y : tensor<1x128x4096xbf16, {whole}>, tensor<1x128x4096xbf16, {whole}>
      }}
    }}""")
    selection = SelectCollectiveAlgorithmPass(algorithm="auto", transport="auto")
    selection.run(module, load_target("mi300x-cpx"), RemarkSink())
    (op,) = [op for op in module.walk() if isinstance(op, CollectiveOp)]
    assert op.transport is not None
    return op.transport.data


def test_engines_are_chosen_where_compute_units_have_other_work() -> None:
    assert chosen("%y") == "device_put"
    assert chosen("%z") == "dma"


def test_a_launch_is_read_as_it_is_printed() -> None:
    module = gather("direct").lowered()
    text = str(module)
    assert "engines" in text
    assert str(parse(text)) == text
