"""The machine of memory cubes: meshes, files, numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.command_line.arguments import build_parser
from starc.command_line.machines import machine, target_name
from starc.core.collectives.rectangles import cube_shape
from starc.core.streams.engine_times import matrix_ps
from starc.diagnostics import InputError, UsageError
from starc.simulator.machine.configuration import configuration
from starc.targets.cube_rules import ISSUE_CLASSES
from starc.targets.cubes import CLASSES, GRID, group_shape
from starc.targets.loader import load_target
from starc.targets.machine_file import Number
from starc.targets.names import numbers
from starc.targets.target import Target


def test_the_whole_machine() -> None:
    target = load_target("ahbm")
    assert target.mesh == (
        ("sip", 4, "outer", "ucie"),
        ("group", 2, "outer", "noc"),
        ("cube", 8, "inner", "noc"),
        ("pe", 8, "inner", "pe_mesh"),
    )
    assert (target.gpus, target.devices, target.stacks) == (4, 512, 128)
    assert (target.hbm_peak, target.hbm_rate) == (256_000_000_000, 204_800_000_000)
    assert (target.has_l2, target.channels, target.channel_granule) == (False, 8, 256)
    assert tuple(target.link_rate) == CLASSES
    assert tuple(target.issue_ps) == ISSUE_CLASSES
    assert min(target.issue_ps.values()) > 0
    assert target.engines == ("cpu", "scheduler", "dma", "gemm", "math")


def test_gpus_have_none_of_it() -> None:
    target = load_target("mi300x-cpx")
    assert target.has_l2
    assert (target.engines, target.issue_ps, target.grid, target.matrix_tile) == ((), {}, (), ())
    assert (target.gpu_link, target.carrier_links_by_class) == ("xgmi", ("usr",))


@pytest.mark.parametrize("sips", [1, 2, 3, 4])
def test_sips_are_what_gpus_are_elsewhere(sips: int) -> None:
    target = load_target("ahbm", gpus=sips)
    assert [size for _, size, _, _ in target.mesh] == [sips, 2, 8, 8]
    assert target.devices == 128 * sips


@pytest.mark.parametrize("cube", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("pe", [1, 2, 4, 8])
def test_legal_meshes(cube: int, pe: int) -> None:
    for group in {1, 16 // cube}:
        target = load_target("ahbm", mesh={"sip": 2, "group": group, "cube": cube, "pe": pe})
        assert target.devices == 2 * group * cube * pe
        assert target.carriers == group * cube * pe + 16
        assert target.device_memory_bytes == 4_500_000_000
        assert Target.from_dict(target.to_dict()) == target


def test_a_mesh_that_is_wrong_in_every_way_says_all_of_it() -> None:
    mesh = {"sip": 9, "group": 8, "cube": 3, "pe": 5, "xcd": 2}
    with pytest.raises(InputError) as error:
        load_target("ahbm", mesh=mesh)
    text = [diagnostic.message for diagnostic in error.value.diagnostics]
    assert text == [
        "unknown mesh axis 'xcd'",
        "mesh axis 'sip' can be 1 to 4, not 9",
        "mesh axis 'cube' can be 1, 2, 4, 8, 16, not 3",
        "mesh axis 'pe' can be 1, 2, 4, 8, not 5",
        "mesh axes 'group' and 'cube' make 8 x 3 cubes, and a SIP has 16",
    ]


@pytest.mark.parametrize("cube", [1, 2, 4, 8, 16])
def test_trees_and_machine_have_the_same_rectangles(cube: int) -> None:
    assert cube_shape(cube) == group_shape(GRID, cube)


def test_products_are_padded_to_the_tile() -> None:
    target = load_target("ahbm")
    assert target.matrix_tile == (32, 32, 64)
    # One tile of m 32, n 32, k 64 in 64 cycles, for as little as one product.
    assert matrix_ps(target, "bf16", 32, 32, 64) == 64_000
    assert matrix_ps(target, "bf16", 1, 1, 1) == 64_000
    assert matrix_ps(target, "bf16", 8, 128, 128) == 8 * 64_000
    assert matrix_ps(target, "bf16", 33, 32, 65) == 4 * 64_000
    assert matrix_ps(target, "f32", 32, 32, 64) == 256_000
    fast = load_target("ahbm", overrides={"compute.tile_cycles": 16})
    assert matrix_ps(fast, "bf16", 32, 32, 64) == 16_000


def test_issue_costs_are_cycles() -> None:
    target = load_target("ahbm", overrides={"issue.load": 0, "issue.math": 3})
    assert (target.issue_ps["load"], target.issue_ps["math"]) == (0, 3000)
    slow = load_target("ahbm", overrides={"clock.core_mhz": 500})
    assert slow.issue_ps["load"] == 20_000


def test_queues_of_commands_may_have_no_bound() -> None:
    assert load_target("ahbm").queue_commands == 16
    assert load_target("ahbm", overrides={"structure.queue_commands": 0}).queue_commands == 0
    assert load_target("mi300x-cpx").queue_commands == 0


@pytest.mark.parametrize("number", numbers("ahbm"), ids=lambda number: number.key)
def test_both_ends_of_every_range_are_machines(number: Number) -> None:
    for end in (number.low, number.high):
        if end is not None:
            target = load_target("ahbm", gpus=2, overrides={number.key: end})
            configuration(target, slots=1, tile_slots=1, counters=1, launches=1, skew=True)


def test_what_has_no_source_is_swept() -> None:
    """Numbers that findings hang on range from a quarter to four times their value at least."""
    for number in numbers("ahbm"):
        if number.key.startswith(("compute.tile_cycles", "fabric.", "memory.stack_rate")):
            low, high = number.low or number.value, number.high or number.value
            assert 4 * low <= number.value <= high / 4, number.key
        if number.key.startswith("issue."):
            assert (number.low, number.high) == (0, 100), number.key


def test_a_file_may_have_other_cubes(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    target = load_target(str(file))
    assert target.grid == (2, 4, 2, 2)
    assert [size for _, size, _, _ in target.mesh] == [4, 2, 4, 4]
    assert (target.stacks, target.carriers) == (32, 40)


def test_every_rule_of_a_file_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    text = SMALL.replace("value = 32,", "value = 48,").replace("value = 5,", "value = 9,")
    file.write_text(
        text
        + """
[compute]
tile_cycles = { value = 60, unit = "clk", kind = "assumed", source = "me" }

[memory]
channel_granule = { value = 300, unit = "B", kind = "assumed", source = "me" }

[latency]
ucie = { value = 100, unit = "ps", kind = "assumed", source = "me" }
"""
    )
    with pytest.raises(InputError) as error:
        load_target(str(file))
    shown = {(d.key or "").partition(": ")[2]: d.message for d in error.value.diagnostics}
    assert shown == {
        "structure.dies": "is 48: the cubes have 32 PEs",
        "memory.channel_granule": "channels and their granule are powers of two, from 128 B on",
        "compute.tile_cycles": "is 60: 131072 FLOP of a tile do not divide by it",
        "latency.ucie": "a port takes at least 512 ps",
        "structure.port_cube_1": "is 9: cubes are 0 to 7",
    }


def test_what_follows_from_the_meshes_is_reported_together(tmp_path: Path) -> None:
    file = tmp_path / "fewer.toml"
    file.write_text(
        'name = "fewer"\nbase = "ahbm"\n[sources]\nme = "made up"\n[structure]\n'
        'cube_rows = { value = 2, unit = "count", kind = "assumed", source = "me" }\n'
        'cube_columns = { value = 2, unit = "count", kind = "assumed", source = "me" }\n'
        'queue_depth = { value = 0, unit = "count", kind = "assumed", source = "me" }\n'
    )
    with pytest.raises(InputError) as error:
        load_target(str(file))
    shown = {(d.key or "").partition(": ")[2]: d.message for d in error.value.diagnostics}
    assert shown == {
        "structure.queue_depth": "must be at least 1, not 0",
        "structure.dies": "is 128: the cubes have 32 PEs",
        "structure.port_cube_1": "is 7: cubes are 0 to 3",
        "structure.port_cube_2": "is 13: cubes are 0 to 3",
        "structure.port_cube_3": "is 4: cubes are 0 to 3",
        "modes.cube": "a device of a machine of cubes is a PE, with memory of its own: "
        "dies_per_device is 1 and memory_domains 32",
        "modes.cube.memory_domains": "128 domains of 32 carriers and 32 devices",
    }


def test_the_page_has_a_machine_of_fewer_cubes(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "targets.md").read_text()
    (text,) = (part for part in page.split("```")[1::2] if 'name = "fewer"' in part)
    file = tmp_path / "fewer.toml"
    file.write_text(text)
    target = load_target(str(file))
    assert (target.grid, target.devices_per_gpu) == ((2, 2, 2, 4), 32)
    assert target.device_memory_bytes == load_target("ahbm").device_memory_bytes


def test_machines_without_cubes_cannot_have_their_numbers(tmp_path: Path) -> None:
    file = tmp_path / "mixed.toml"
    file.write_text(
        'name = "mixed"\nbase = "mi300x"\n[sources]\nme = "made up"\n'
        '[issue]\nload = { value = 3, unit = "clk", kind = "assumed", source = "me" }\n'
        '[caches]\nl2_bytes = { value = 0, unit = "B", kind = "assumed", source = "me" }\n'
    )
    with pytest.raises(InputError) as error:
        load_target(str(file))
    shown = [d.message for d in error.value.diagnostics]
    assert shown == [
        "belongs to machines of cubes, and there are no cubes",
        "must be at least 1, not 0",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "mi300x-cpx", "--sips", "2"), "mi300x-cpx has no SIPs; --gpus says"),
        (("--target", "ahbm", "--sips", "5"), "a node has 1 to 4 SIPs, not 5"),
        (("--target", "ahbm", "--sips", "2", "--gpus", "3"), "--sips 2 contradicts --gpus 3"),
        (("--target", "h200", "--issue-cost", "3"), "h200 has no commands with a cost"),
    ],
)
def test_wrong_options_of_the_command_line(options: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        _machine(*options)


def _machine(*options: str) -> Target:
    parsed = build_parser()[0].parse_args(["compile", "examples/tiny.sa", *options])
    return machine(target_name(parsed), parsed)


def test_options_of_the_command_line() -> None:
    assert _machine("--target", "ahbm", "--sips", "2").gpus == 2
    target = _machine("--target", "ahbm", "--issue-cost", "100", "--machine", "issue.load=1")
    own = {"load": 1000, "scheduler": 1000}
    assert target.issue_ps == dict.fromkeys(ISSUE_CLASSES, 100_000) | own
    free = _machine("--target", "ahbm", "--issue-cost", "0")
    assert {ps for name, ps in free.issue_ps.items() if name != "scheduler"} == {0}


SMALL = """
name = "small"
base = "ahbm"
max_gpus = 4

[sources]
me = "made up"

[structure]
dies = { value = 32, unit = "count", kind = "assumed", source = "me" }
cube_rows = { value = 2, unit = "count", kind = "assumed", source = "me" }
pe_columns = { value = 2, unit = "count", kind = "assumed", source = "me" }
port_cube_1 = { value = 5, unit = "count", kind = "assumed", source = "me" }
port_cube_2 = { value = 6, unit = "count", kind = "assumed", source = "me" }

[modes.cube]
dies_per_device = 1
memory_domains = 32
"""
