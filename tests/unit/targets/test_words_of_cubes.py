"""What users of a machine of cubes are told names SIPs, cubes and PEs, and its own axes."""

import argparse

import pytest

from starc.command_line.arguments import build_parser
from starc.command_line.machines import target_name
from starc.command_line.numbers import parse_mesh
from starc.diagnostics import InputError, UsageError, render_error
from starc.targets.loader import load_target
from starc.targets.names import has_partitions


@pytest.mark.parametrize(
    ("gpus", "mesh", "said"),
    [
        (9, None, "sips: a node has 1 to 4 SIPs, not 9"),
        (2, {"sip": 1, "cube": 2}, "--sips 2 contradicts the mesh, which has 1"),
        (None, {"group": 2, "cube": 16}, "with cube=16, group can be 1 alone"),
        (None, {"group": 4, "cube": 8}, "with cube=8, group can be 1 to 2"),
    ],
)
def test_sizes(gpus: int | None, mesh: dict[str, int] | None, said: str) -> None:
    with pytest.raises(InputError) as error:
        load_target("ahbm", gpus=gpus, mesh=mesh)
    text = render_error(error.value)
    assert said in text
    assert "gpu" not in text.lower()


def test_an_illegal_cube_has_no_hint_for_groups() -> None:
    with pytest.raises(InputError) as error:
        load_target("ahbm", mesh={"group": 2, "cube": 9})
    text = render_error(error.value)
    assert "mesh axis 'cube' can be 1, 2, 4, 8, 16, not 9" in text
    assert "group can be" not in text


def test_gpus_keep_their_words() -> None:
    with pytest.raises(InputError, match="a node has 1 to 8 GPUs, not 9"):
        load_target("mi300x-cpx", gpus=9)
    with pytest.raises(InputError, match="--gpus 2 contradicts the mesh, which has 1"):
        load_target("mi300x-cpx", gpus=2, mesh={"gpu": 1, "xcd": 2})


def test_axes_in_the_example_of_a_mesh() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="sip=1,group=2,cube=8,pe=8 of memory"):
        parse_mesh("sip")


@pytest.mark.parametrize("option", ["--memory-partition", "--compute-partition"])
def test_no_partitions(option: str) -> None:
    assert has_partitions("mi300x")
    assert not has_partitions("ahbm")
    arguments = ["compile", "x.sa", "--system", "ahbm", option, "NPS1"]
    with pytest.raises(UsageError, match=f"ahbm has no partitions: leave out {option}"):
        target_name(build_parser()[0].parse_args(arguments))
