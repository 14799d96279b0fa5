"""Names, modes and numbers of targets, and how a target travels."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.dlti import DLTI
from xdsl.parser import Parser

from starc.diagnostics import InputError
from starc.dialects.target import decode, encode, target_of
from starc.targets.file_keys import KINDS
from starc.targets.loader import described_target, load_target
from starc.targets.names import aliases, numbers, target_names
from starc.targets.target import Target


def test_short_names() -> None:
    assert (
        aliases().items()
        >= {
            "mi300x-spx": "mi300x-spx-nps1",
            "mi300x-cpx": "mi300x-cpx-nps4",
            "mi355x-spx": "mi355x-spx-nps1",
            "mi355x-dpx": "mi355x-dpx-nps2",
        }.items()
    )
    assert load_target("mi300x-cpx").mode == "cpx-nps4"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mi300x-spx-nps4", "is impossible: 4 memory domains, and only 1 partition"),
        ("mi300x-qpx-nps2", "is possible but not offered"),
        ("mi300x-dpx-nps4", "is impossible"),
        ("mi300a-cpx-nps4", "NPS1 of mi300a is fixed at boot"),
        ("mi300a-qpx-nps1", "is impossible: 6 dies do not divide by 4"),
        ("mi325x-cpx-nps4", "is possible but not offered"),
        ("h200-spx-nps1", "has no partitions"),
        ("mi300x-cpx-nps", "is not a partition mode"),
        ("mi300x-tpx", "is impossible: 8 dies do not divide by 3"),
        ("mi300a-qpx", "is impossible: 6 dies do not divide by 4"),
        ("mi300x-cpx-nps3", "is impossible: 4 carriers do not divide by 3"),
        ("mi300x-cpx-nps8", "is impossible: 4 carriers do not divide by 8"),
        ("mi300x-qpx", "lacks its memory mode"),
        ("mi300", "unknown target"),
        ("mi355x-cpx-nps4", "is impossible"),
        ("mi355x-dpx-nps4", "is impossible"),
    ],
)
def test_refused_names_list_the_legal_ones(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_target(name)
    assert name.partition("-")[0] in str(error.value.diagnostics[0].hint)


def test_documented_modes_warn() -> None:
    assert load_target("mi300x-qpx-nps4").warnings
    assert not load_target("mi300x-cpx").warnings


def test_partitions_are_eighths_of_the_gpu() -> None:
    spx, cpx = load_target("mi300x-spx"), load_target("mi300x-cpx")
    assert spx.device_memory_bytes == 8 * cpx.device_memory_bytes == 192_000_000_000
    assert (spx.devices, cpx.devices) == (8, 64)
    assert (spx.dies_per_device, cpx.dies_per_device) == (8, 1)
    assert spx.coherent is False
    assert cpx.coherent is True
    assert spx.hbm_peak == 8 * cpx.hbm_peak
    assert 8 * cpx.hbm_rate == pytest.approx(4210e9, rel=0.001)
    assert spx.hbm_rate == pytest.approx(4017e9, rel=0.001)


def test_mi355x_has_two_partitions_of_four_dies() -> None:
    spx, dpx = load_target("mi355x-spx"), load_target("mi355x-dpx")
    assert (spx.devices, dpx.devices) == (8, 16)
    assert (dpx.dies_per_device, dpx.dies_per_carrier, dpx.carriers) == (4, 4, 2)
    assert dpx.mesh == (("gpu", 8, "outer", "xgmi"), ("xcd", 2, "inner", "usr"))
    assert spx.device_memory_bytes == 2 * dpx.device_memory_bytes == 288_000_000_000
    assert not spx.coherent
    assert not dpx.coherent
    # A partition's memory is its own carrier's: nothing of it is a hop away.
    assert dpx.memory_domains == 2
    assert dpx.memory_latency_ps == dpx.mall_latency_ps + dpx.hbm_extra_ps
    assert spx.memory_latency_ps == pytest.approx(322_000, abs=1)
    assert spx.link_rate["usr"] == 2_750_000_000_000


@pytest.mark.parametrize(
    ("name", "validated"),
    [
        ("mi355x-spx", True),
        ("mi355x-dpx", True),
        ("mi355x-dpx-nps1", False),
        ("mi355x-qpx-nps1", False),
        ("mi355x-cpx-nps2", False),
        ("mi355x-cpx-nps1", False),
    ],
)
def test_modes_of_mi355x_say_whether_they_are_validated(name: str, validated: bool) -> None:
    assert (not load_target(name).warnings) == validated


@pytest.mark.parametrize("gpus", [0, 9])
def test_a_node_has_one_to_eight_gpus(gpus: int) -> None:
    with pytest.raises(InputError, match="1 to 8 GPUs"):
        load_target("mi300x-cpx", gpus=gpus)


def test_illustration_mesh() -> None:
    target = load_target("mi300x-cpx", mesh={"gpu": 4, "xcd": 2})
    assert target.mesh == (("gpu", 4, "outer", "xgmi"), ("xcd", 2, "inner", "die"))
    assert (target.devices, target.carriers) == (8, 1)
    with pytest.raises(InputError, match="'xcd' can be 1 to 8"):
        load_target("mi300x-cpx", mesh={"gpu": 4, "xcd": 9})


@pytest.mark.parametrize("name", target_names())
def test_a_target_travels_as_a_dictionary_and_as_an_attribute(name: str) -> None:
    target = load_target(name, gpus=4)
    assert Target.from_dict(json.loads(json.dumps(target.to_dict()))) == target
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(DLTI)
    text = f"builtin.module attributes {{dlti.target_system_spec = {encode(target)}}} {{}}"
    assert target_of(Parser(context, text).parse_module()) == target


def test_a_toy_machine_in_an_attribute_changes_a_base() -> None:
    context = Context()
    context.load_dialect(Builtin)
    context.load_dialect(DLTI)
    text = """builtin.module attributes {dlti.target_system_spec = #dlti.target_system_spec<
      "starc" = #dlti.target_device_spec<"base" = "mi300x-cpx", "name" = "toy",
        "mesh" = [["gpu", 2, "outer", "xgmi"], ["xcd", 2, "inner", "usr"]]>>} {}"""
    target = target_of(Parser(context, text).parse_module())
    assert (target.name, target.devices) == ("toy", 4)
    with pytest.raises(InputError, match="no field 'colour'"):
        described_target({"base": "mi300x-cpx", "colour": 1})


@pytest.mark.parametrize("name", ["mi300x-cpx", "mi355x-dpx"])
def test_every_number_has_unit_kind_and_source(name: str) -> None:
    found = numbers(name)
    assert len(found) > 60
    for number in found:
        assert number.kind in KINDS
        assert number.unit
        assert number.source


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"gpus": "a"}, "the target's 'gpus' must be a whole number, at least 1, got 'a'"),
        ({"gpus": 0}, "the target's 'gpus' must be a whole number, at least 1, got 0"),
        ({"hbm_rate": -1}, "the target's 'hbm_rate' must be a whole number, at least 1, got -1"),
        ({"matrix_sustained": "x"}, "'matrix_sustained' must be a number, at least 0, got 'x'"),
        ({"network": "lynx"}, "the target's network is 'lynx'"),
        ({"gpu_links": [[0, 0]]}, "'gpu_links' must be pairs of whole numbers, at least 0"),
        ({"coherent": 1}, "'coherent' must be true or false, got 1"),
        ({"name": 3}, "'name' must be a string, got 3"),
        ({"link_rate": {"xgmi": "fast"}}, "'link_rate' must be names with numbers, at least 0"),
        ({"transports": {"bulk": 3}}, "'transports' must be names with transports"),
        ({"transports": {"bulk": {"speed": 3}}}, "the target's transports: "),
        ({"mesh": [["gpu", "a"]]}, "'mesh' must be rows of axis, size, level and link class"),
        ({"gpus": 99}, "the target's mesh has 64 devices, but 99 GPUs of 8 devices have 792"),
    ],
)
def test_a_target_of_nonsense_is_refused(values: dict[str, object], message: str) -> None:
    whole = load_target("mi300x-cpx").to_dict()
    with pytest.raises(InputError, match=message):
        Target.from_dict({**whole, **values})
    if "gpus" not in values:
        with pytest.raises(InputError, match=message):
            described_target({"base": "mi300x-cpx", **values})


@pytest.mark.parametrize(
    "target",
    [
        *(load_target(name) for name in target_names()),
        load_target("mi300x-cpx", gpus=1),
        load_target("mi300x-spx", gpus=3),
        load_target("mi300x-cpx", mesh={"gpu": 4, "xcd": 2}),
        load_target("mi300x-cpx", mesh={"xcd": 3}),
        replace(load_target("mi300x-cpx", gpus=2), name="toy", core_clock_mhz=1000),
        replace(load_target("mi300x-cpx"), name="toy", product="toy", mode="toy"),
    ],
    ids=lambda target: f"{target.name}-{target.gpus}",
)
def test_an_attribute_says_what_differs(target: Target) -> None:
    attribute = encode(target)
    assert decode(attribute) == target
    if target.product == "mi300x":
        assert len(str(attribute)) < 500
