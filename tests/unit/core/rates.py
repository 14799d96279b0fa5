"""Rates of devices for tests: a partition with 38 compute units and a GPU of 304."""

from __future__ import annotations

from starc.core.kernel_schedules.device_rates import DeviceRates
from starc.targets.loader import load_target

PARTITION = DeviceRates.of(load_target("mi300x-cpx"))
GPU = DeviceRates.of(load_target("mi300x-spx"))
