"""Machine files: the worked example of the documentation, bases, other numbers, and bad files."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from starc.api import CompileOptions, compile_model, simulate
from starc.diagnostics import InputError
from starc.targets.checked_files import check
from starc.targets.file_keys import KINDS
from starc.targets.loader import load_target
from starc.targets.machine_file import merged, products, shipped, walk
from starc.targets.names import dram_fraction, numbers, target_names
from starc.targets.target import Target

ROOT = Path(__file__).parents[3]


def toy_text() -> str:
    page = (ROOT / "docs" / "targets.md").read_text()
    return re.findall(r"```toml\n(.*?)```", page, re.DOTALL)[0]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    path = tmp_path / "toy.toml"
    path.write_text(toy_text())
    return path


@pytest.mark.parametrize("product", products())
def test_files_of_starc_keep_the_rules(product: str) -> None:
    check(shipped(product))


@pytest.mark.parametrize("name", target_names())
def test_every_number_has_a_kind_and_assumptions_have_ranges(name: str) -> None:
    for number in numbers(name):
        assert number.kind in KINDS
        assert number.unit
        assert number.source
        if number.low is not None and number.high is not None:
            assert number.low <= number.value <= number.high
        fixed = number.key.startswith("structure.") or number.unit in ("B/B", "rows", "flag")
        own = number.source.partition(" from ")[0] != "carried over"
        exempt = ("l2_line", "access_bytes", "matrix_f32", "memory.hash")
        if number.kind == "assumed" and own and not fixed and not number.key.endswith(exempt):
            assert number.low is not None, number.key


def test_numbers_of_a_base_are_assumptions_unless_the_vendor_says_so() -> None:
    found = {number.key: number for number in numbers("mi325x-spx")}
    assert found["fabric.usr_rate"].kind == "assumed"
    assert found["dispatch.clocks"].kind == "assumed"
    assert "carried over from mi300x" in found["dispatch.clocks"].source
    assert found["caches.l2_bytes"].kind == "vendor_peak"
    assert found["memory.stack_rate"].value == 750_000_000_000


def test_visible_memory_is_the_files() -> None:
    assert load_target("b200").visible_memory_bytes == 180_000_000_000
    assert load_target("h200").visible_memory_bytes == 141_000_000_000
    tpx = load_target("mi300a-tpx")
    assert (tpx.devices_per_gpu, tpx.visible_memory_bytes) == (3, 128_000_000_000)
    assert 3 * tpx.device_memory_bytes <= 128_000_000_000
    assert tpx.carriers == 4


def test_b200_is_coherent_in_hardware() -> None:
    target = load_target("b200")
    assert (target.dies_per_device, target.coherent, target.network) == (2, True, "switch")
    assert not load_target("mi300x-spx").coherent


# Other numbers


def test_other_numbers_change_the_machine() -> None:
    own = load_target("mi300x-cpx", gpus=1)
    other = load_target("mi300x-cpx", gpus=1, overrides={"fabric.usr_rate": 0.6e12})
    assert other.link_rate["usr"] == 600_000_000_000 == own.link_rate["usr"] // 2
    assert other.warnings == ("fabric.usr_rate is 6e+11 instead of 1.2e+12",)
    step = load_target("mi300x-cpx", overrides={"transports.bulk.step": 7})
    assert step.transports["bulk"].step_ps == 7
    same = {
        load_target(name, overrides=dram_fraction(name, 0.8)).hbm_stack_rate
        for name in ("mi300x-spx", "mi300x-cpx", "mi300x-dpx-nps2")
    }
    assert same == {532_480_000_000}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"fabric.usr_rat": 1.0}, "no number 'fabric.usr_rat'"),
        ({"structure.dies": 1.5}, "'structure.dies' is a whole number of count, not 1.5"),
        ({"memory.sustained_nps1": 1.5}, "a fraction is above 0 and at most 1"),
        ({"caches.l2_ways": 17}, "caches.l2_ways: is 17: 1 to 16"),
        ({"latency.xgmi": 3}, "take at least 1024 ps"),
        ({"latency.hop": 100000}, "latency.hop: leaves 99,300 ps to the memory side"),
    ],
)
def test_numbers_that_cannot_be(overrides: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        load_target("mi300x-spx", overrides=overrides)
    if "rat'" in message:
        assert "did you mean 'fabric.usr_rate'?" in str(error.value.diagnostics[0].hint)


def test_other_numbers_concern_the_mode_that_is_asked_for() -> None:
    with pytest.raises(InputError) as error:
        load_target("mi300x-cpx", overrides={"structure.dies": 3})
    assert [item.hint for item in error.value.diagnostics] == ["legal: 1, 2"]
    assert load_target("mi300x-cpx-nps1", overrides={"structure.dies": 4}).dies_per_gpu == 4


@pytest.mark.parametrize("product", products())
def test_both_ends_of_a_hops_range_are_machines(product: str) -> None:
    hop = next(number for number in numbers(product) if number.key == "latency.hop")
    for end in (hop.low, hop.high):
        assert end is None or load_target(product, overrides={"latency.hop": end})


# The worked example


def test_the_toy_of_the_documentation_is_a_machine(toy: Path) -> None:
    target = load_target(str(toy))
    assert (target.name, target.gpus, target.devices, target.carriers) == ("toy-whole", 4, 4, 5)
    assert target.mall_bytes == 0
    assert target.warnings == ("toy-whole is a machine of your own, and not validated",)
    assert target.gpu_links == ((0, 1), (1, 2), (2, 3), (3, 0))
    each = load_target(f"{toy}:each", gpus=2)
    assert (each.devices, each.dies_per_device, each.memory_domains) == (10, 1, 5)
    assert each.gpu_links == ((0, 1),)
    assert Target.from_dict(each.to_dict()) == each


@pytest.mark.parametrize(("mode", "gpus", "uneven"), [("whole", 4, False), ("each", 1, True)])
def test_the_toy_compiles_and_runs(toy: Path, mode: str, gpus: int, uneven: bool) -> None:
    options = CompileOptions(
        model=ROOT / "examples" / "tiny.sa", target=f"{toy}:{mode}", gpus=gpus, uneven=uneven
    )
    compilation = compile_model(options)
    result = simulate(compilation.packed)
    assert result.time_ps > 0
    assert result.traffic.hbm_read_bytes > 0
    assert result.traffic.mall_hit_bytes == 0
    crossed = result.traffic.links
    assert crossed["usr"] > 0
    assert (crossed["xgmi"] > 0) == (gpus > 1)


# Bad files


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    return str(path)


def problems(name: str) -> str:
    with pytest.raises(InputError) as error:
        load_target(name)
    return "\n".join(f"{item} / {item.hint}" for item in error.value.diagnostics)


def test_every_violated_rule_is_reported_at_once(tmp_path: Path) -> None:
    text = toy_text()
    for old, new in [
        ("max_gpus = 4", "max_gpus = 9"),
        ('default_mode = "whole"', 'default_mode = "hole"\ncolour = "red"'),
        ('kind = "assumed", source = "me", note = "none"', 'kind = "guessed", source = "you"'),
        ("stacks_per_carrier = { value = 3,", "stacks_per_carier = { value = 3,"),
        ("cus_per_die = { value = 8,", "cus_per_die = { value = 8.5,"),
        ("sustained = { value = 0.8,", "sustained = { value = 1.8,"),
        ("l2_bytes = { value = 3000000, unit", "l2_bytes = { unit"),
        ('network = "links"', 'network = "lynx"'),
        ("[[0, 1], [1, 2], [2, 3], [3, 0]]", "[[0, 0]]"),
        ('memory_domains = 5\nstatus = "own"', 'memory_domains = 5\nstatus = "fine"'),
    ]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = problems(written(tmp_path, text))
    for part in [
        "bad.toml: max_gpus: must be 1 to 8, not 9",
        "bad.toml: default_mode: is 'hole', no mode / legal: whole, each",
        "bad.toml: colour: is no part of a machine",
        "mall_bytes_per_stack.kind: is 'guessed' / legal: vendor_peak, measured",
        "mall_bytes_per_stack.source: 'you' is not in [sources]",
        "stacks_per_carier: is no number of a machine / did you mean 'stacks_per_carrier'",
        "structure.cus_per_die.value: must be a whole number, not 8.5",
        "memory.sustained: is 1.8: a fraction is above 0 and at most 1",
        "caches.l2_bytes: lacks its value",
        "fabric.network: is 'lynx' / legal: direct, switch, links",
        "fabric.gpu_links: [0, 0] would link one with itself",
        "modes.each.status: is 'fine' / legal: validated, documented, driver-legal, own",
    ]:
        assert part in found, part


def test_numbers_that_do_not_go_together(tmp_path: Path) -> None:
    text = toy_text()
    for old, new in [
        ("interleave_granule = { value = 1024", "interleave_granule = { value = 1000"),
        ("l2_ways = { value = 12", "l2_ways = { value = 17"),
        ("dies_per_device = 5", "dies_per_device = 2"),
        ("memory_domains = 5", "memory_domains = 3"),
        ("[3, 0], [0, 4], [1, 4]]", "[3, 0]]"),
        ("gpu_links = [[0, 1], [1, 2], [2, 3], [3, 0]]", "gpu_links = [[0, 1], [2, 5]]"),
        ("hbm = { value = 300000", "hbm = { value = 100000"),
    ]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = problems(written(tmp_path, text))
    for part in [
        "interleave_granule: is 1000: a power of two from 256 on",
        "l2_ways: is 17: 1 to 16",
        "modes.whole.dies_per_device: 2 do not divide 5 / legal: 1, 5",
        "modes.each.memory_domains: 3 domains of 5 carriers and 5 devices / legal: 1, 5",
        "fabric.carrier_links: 4 cannot be reached from 0",
        "fabric.gpu_links: there is no 5 / legal: 0 to 3",
        "latency.hbm: is 100000, less than to the memory side, 200000",
    ]:
        assert part in found, part


def test_mistakes_of_one_kind_do_not_hide_those_of_another(tmp_path: Path) -> None:
    text = toy_text()
    for old, new in [
        ("l2_ways = { value = 12,", "l2_weighs = { value = 12,"),
        ('high = 0.9, unit = "fraction"', 'high = 0.9, unit = "percent"'),
        ("memory_domains = 5", "memory_domains = 3"),
        ("[0, 4], [1, 4]]", "[0, 4], [1, 7]]"),
        ("gpu_links = [[0, 1], [1, 2], [2, 3], [3, 0]]", "gpu_links = 3"),
    ]:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = problems(written(tmp_path, text))
    for part in [
        "caches.l2_weighs: is no number of a machine",
        "memory.sustained.unit: is 'percent' / legal: fraction",
        "modes.each.memory_domains: 3 domains of 5 carriers and 5 devices / legal: 1, 5",
        "fabric.carrier_links: there is no 7 / legal: 0 to 4",
        "fabric.gpu_links: must be pairs of numbers from 0",
    ]:
        assert part in found, part


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dies = { value = 5,", f"dies = {{ value = {'9' * 20},", "at most 255"),
        ("dies = { value = 5,", "dies = { value = 300,", "structure.dies: is 300: at most 255"),
        (
            "dies = { value = 5,",
            "dies = { value = 100,",
            "5, 6, 7, 8, 9, 10, 11, 12, ... cannot be",
        ),
        ("cus_per_die = { value = 8,", f"cus_per_die = {{ value = {'9' * 9},", "at most 1,024"),
        ("l2_bytes = { value = 3000000,", f"l2_bytes = {{ value = {'9' * 30},", "at most 68,719"),
        ("stack_rate = { value = 2", f"stack_rate = {{ value = {'2' * 20}", "at most 1,000,000"),
        ("dies_per_device = 5", f"dies_per_device = {'5' * 20}", "must be 1 to 255"),
    ],
)
def test_machines_too_large_are_refused_at_once(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = toy_text().replace(old, new)
    found = problems(written(tmp_path, text))
    assert message in found
    assert len(found) < 1000


def test_a_file_without_a_base_lists_everything_that_it_lacks(tmp_path: Path) -> None:
    found = problems(
        written(
            tmp_path,
            'max_gpus = 1\ndefault_mode = "m"\n[sources]\nme = "made up"\n[structure]\n'
            'dies = { value = 1, unit = "count", kind = "assumed", source = "me" }\n'
            'ports = { value = 1, unit = "count", kind = "assumed", source = "me" }\n'
            '[modes.m]\ndies_per_device = 1\nmemory_domains = 1\nstatus = "documented"\n',
        )
    )
    for key in ("clock.core_mhz", "memory.stack_rate", "latency.l2", "structure.cus_per_die"):
        assert f"bad.toml: {key}: is missing" in found
    assert "memory.sustained: is missing" in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is no TOML"),
        ('base = "mi301x"', "there is no machine 'mi301x'"),
        ("", "the file is empty"),
        ("max_gpus = 9", "max_gpus"),
        ('base = "mi300x"\nname = "a/b"', "name: is 'a/b': letters"),
        (
            'base = "mi300x"\n[modes.m]\ndies_per_device = 8\nmemory_domains = 1',
            "memory.sustained: is missing / mi300x has it for its own modes only (memory.sustained",
        ),
        ('modes = 3\nmax_gpus = "x"\nname = 5', "must be a table"),
    ],
)
def test_files_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    assert message in problems(written(tmp_path, text))


def test_a_missing_file_and_a_missing_mode(tmp_path: Path, toy: Path) -> None:
    assert "cannot read the machine" in problems(str(tmp_path / "none.toml"))
    assert "has no mode 'spx' / legal modes: whole, each" in problems(f"{toy}:spx")


def test_mesh_that_cuts_a_graph_is_refused(toy: Path, tmp_path: Path) -> None:
    text = toy.read_text().replace("[[0, 1], [1, 2], [2, 3], [3, 0]]", "[[0, 3], [3, 2], [2, 1]]")
    path = written(tmp_path, text)
    with pytest.raises(InputError, match="the first 2 of them leave 1 without a way"):
        load_target(path, gpus=2)


def keys_of_the_toy() -> list[str]:
    return [key for key, _ in walk(tomllib.loads(toy_text()))]


@pytest.mark.parametrize("bad", ['"text"', "-1", "true", "[]", "nan", "inf"])
@pytest.mark.parametrize("key", keys_of_the_toy())
def test_no_number_may_be_nonsense(tmp_path: Path, key: str, bad: str) -> None:
    section, _, name = key.partition(".")
    text = re.sub(
        rf"(\[{section}\]\n(?:.*\n)*?{name} = )\{{ value = [\d.]+,",
        rf"\g<1>{{ value = {bad},",
        toy_text(),
        count=1,
    )
    assert text != toy_text()
    assert key in problems(written(tmp_path, text))


def test_a_mode_without_a_status_is_its_authors_own() -> None:
    assert all("status" in mode for mode in shipped("mi300x").modes.values())
    file = merged({"base": "mi300x", "modes": {"whole": {"dies_per_device": 8}}}, "mine", "mine")
    assert file.modes["whole"]["status"] == "own"
