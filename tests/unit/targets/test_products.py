"""Every mode of every product compiles a small model and simulates it."""

from __future__ import annotations

from pathlib import Path

import pytest

from starc.api import CompileOptions, compile_model, simulate
from starc.targets.loader import load_target
from starc.targets.names import target_names

TINY = Path(__file__).parents[3] / "examples" / "tiny.sa"


@pytest.mark.parametrize("name", target_names())
def test_every_mode_compiles_and_simulates(name: str) -> None:
    target = load_target(name, gpus=1)
    # Eight heads over the six dies of an MI300A, or its three partitions.
    uneven = 8 % target.devices != 0
    compilation = compile_model(CompileOptions(TINY, target=name, gpus=1, uneven=uneven))
    result = simulate(compilation.packed)
    assert result.time_ps > 0
    assert result.traffic.hbm_read_bytes > 0
    assert result.traffic.xgmi_bytes == 0
    assert (result.traffic.mall_hit_bytes > 0) <= (target.mall_bytes > 0)
    spread = target.devices > 1 or target.memory_domains < target.carriers
    for name in target.carrier_links_by_class:
        assert (result.traffic.links[name] > 0) == (spread and target.carriers > 1), name


@pytest.mark.parametrize("name", ["h200", "b200", "mi300a-spx", "mi325x-spx", "mi350x-dpx"])
def test_two_gpus_exchange(name: str) -> None:
    compilation = compile_model(CompileOptions(TINY, target=name, gpus=2))
    result = simulate(compilation.packed)
    assert result.traffic.xgmi_bytes > 0
