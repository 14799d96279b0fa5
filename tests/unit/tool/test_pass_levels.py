"""A pass refuses a module that is not at its level, and names the pass that has to run first."""

from __future__ import annotations

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from starc.diagnostics import InputError
from starc.dialects.target import ATTRIBUTE, encode, set_target
from starc.frontend import load_model
from starc.passes.levels import level_of
from starc.passes.manager import Driver
from starc.passes.pipeline import LAST_PASS_OF_LEVEL, LEVELS, PASSES, load_pass
from starc.passes.selection import PassSpec
from starc.targets.loader import load_target
from starc.universe import parse_module
from tests.unit.frontend.models import TINY
from tests.unit.passes.sweeps import parse

NAMES = tuple(entry.name for entry in PASSES)


def through(last: str) -> ModuleOp:
    """The tiny model after a pass of the pipeline and those before it."""
    module = load_model(TINY, file="tiny.sa").module
    target = encode(load_target("mi300x-cpx", gpus=1))
    module.attributes[ATTRIBUTE] = target
    for name in NAMES[: NAMES.index(last) + 1]:
        options = {} if name != "assign-tensor-parallel" else {"tensor_parallel_size": 4}
        load_pass(name)(**options).apply(Context(), module)
    return module


@pytest.fixture(scope="module")
def modules() -> dict[str, ModuleOp]:
    """The tiny model at every level of the IR."""
    return {level: through(LAST_PASS_OF_LEVEL[level]) for level in LEVELS[:-1] if level != "nn"} | {
        "nn": load_model(TINY, file="tiny.sa").module
    }


@pytest.mark.parametrize("level", LEVELS[:-1])
def test_the_level_of_a_module(level: str, modules: dict[str, ModuleOp]) -> None:
    assert level_of(modules[level]) == level


@pytest.mark.parametrize(
    ("name", "level", "message"),
    [
        ("localize", "nn", "needs the sharding level: run propagate-shardings first"),
        ("tile-kernels", "nn", "needs the kernel level: run form-kernels first"),
        ("lower-to-isa", "nn", "needs the kernel level: run plan-memory first"),
        ("plan-memory", "sharding", "needs the kernel level: run map-workgroups first"),
        ("form-kernels", "sharding", "needs the collective level: run localize first"),
        ("verify-schedule", "kernel", "needs the isa level: run lower-to-isa first"),
        ("plan-memory", "kernel", "has nothing to do here: the module is at the kernel level"),
        ("localize", "kernel", "has nothing to do here: the module is at the kernel level"),
        ("tile-kernels", "isa", "has nothing to do here: the module is at the isa level"),
        ("lower-to-isa", "isa", "has nothing to do here: the module is at the isa level"),
    ],
)
def test_a_pass_on_the_wrong_level(
    name: str, level: str, message: str, modules: dict[str, ModuleOp]
) -> None:
    module = modules[level].clone()
    with pytest.raises(InputError, match=f"pass '{name}' {message}"):
        load_pass(name)().apply(Context(), module)
    with pytest.raises(InputError, match=f"pass '{name}' {message}"):
        Driver(load_target("mi300x-cpx", gpus=1)).run(module, [PassSpec(name)])
    assert module.is_structurally_equivalent(modules[level])


@pytest.mark.parametrize(
    ("last", "name", "needed"),
    [
        ("assign-tensor-parallel", "localize", "propagate-shardings"),
        ("form-kernels", "map-workgroups", "tile-kernels"),
        ("tile-kernels", "plan-memory", "map-workgroups"),
        ("map-workgroups", "lower-to-isa", "plan-memory"),
    ],
)
def test_a_pass_in_the_wrong_order(last: str, name: str, needed: str) -> None:
    with pytest.raises(InputError, match=f"'{name}' comes after {needed}: run {needed} first"):
        load_pass(name)().apply(Context(), through(last))


def test_streams_need_places_of_tiles() -> None:
    """On a machine with engines every tile has an offset before streams are made, also one that
    would be in registers."""
    text = """
    isa.kernel @sum coords(%device, %sip, %group, %cube, %pe, %wg)
        attributes {kernel_class = "norm"} {
      %s = isa.alloc register : !isa.tile<64x1xf32>
      isa.vector "zero"(%s) : !isa.tile<64x1xf32>
    }
    """
    module = parse(text)
    set_target(module, load_target("ahbm", gpus=1))
    message = "'assign-engines' comes after plan-scratch: run plan-scratch first"
    with pytest.raises(InputError, match=message):
        load_pass("assign-engines")().apply(Context(), module)
    load_pass("plan-scratch")().apply(Context(), module)
    load_pass("assign-engines")().apply(Context(), module)


def test_arguments_alone_say_the_level() -> None:
    local = "tensor<8xf32, #sharding.of<@node, [{}], global = [8]>>"
    mesh = 'sharding.mesh @node = ["gpu"=8 : outer xgmi]'
    module = parse_module(f"{mesh}\nfunc.func @f(%x : {local}) {{ func.return }}")
    assert level_of(module) == "collective"
