"""The device that is measured, through PyTorch (CUDA or ROCm).

PyTorch is looked up by name, so that this file can be read, checked and tested without it.
"""

from __future__ import annotations

import importlib
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from timing import Launch, Timing, buffer_sets, time_launches

BUSY_CLOCKS = 500_000
"""Of the device, about a quarter of a millisecond: longer than the host takes to queue a graph."""


class Device:
    """One accelerator: its tensors, launches and times."""

    def __init__(self, index: int = 0) -> None:
        self.torch: Any = importlib.import_module("torch")
        if not self.torch.cuda.is_available():
            raise SystemExit("measure: error: PyTorch finds no CUDA or ROCm device")
        self.torch.cuda.set_device(index)
        self.index = index
        self.properties: Any = self.torch.cuda.get_device_properties(index)
        self.name: str = self.properties.name
        self.units: int = self.properties.multi_processor_count
        self.cache_bytes = int(getattr(self.properties, "L2_cache_size", 0) or 64 << 20)
        # AMD's memory-side cache is not among the properties: 256 MiB on the MI300 series.
        self.hip: str | None = getattr(self.torch.version, "hip", None)
        if self.hip:
            self.cache_bytes = max(self.cache_bytes, 256 << 20)
        self.memory_bytes = int(self.properties.total_memory)
        self.torch.manual_seed(0)

    @property
    def prefix(self) -> str:
        """What the file names begin with: h200, mi300x, ..."""
        return prefix_of(self.name)

    # Data

    def dtype(self, name: str) -> Any:
        """An element type by its name in PyTorch."""
        return getattr(self.torch, name)

    def random(self, *shape: int, dtype: str = "bfloat16") -> Any:
        """Normally distributed data of a floating-point type, uniform bytes of an integer one."""
        torch = self.torch
        if dtype.startswith(("int", "uint")):
            return torch.randint(0, 100, shape, dtype=self.dtype(dtype), device="cuda")
        if dtype.startswith("float8"):
            return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).to(self.dtype(dtype))
        return torch.randn(*shape, device="cuda", dtype=self.dtype(dtype))

    def empty(self, *shape: int, dtype: str = "bfloat16") -> Any:
        """Memory that a launch writes."""
        return self.torch.empty(*shape, device="cuda", dtype=self.dtype(dtype))

    def sets(self, bytes_of_one: int, *, least: int = 2) -> int:
        """Buffer sets to rotate over so that each comes from memory, not from a cache."""
        return max(least, buffer_sets(bytes_of_one, self.cache_bytes, self.memory_bytes))

    def forget(self) -> None:
        """Gives back the memory of buffers that are no longer used."""
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()

    # Time

    def elapsed_us(self, work: Launch, *, queued: bool = True) -> float:
        """See ``Clock``."""
        if queued:
            self.torch.cuda._sleep(BUSY_CLOCKS)
        start = self.torch.cuda.Event(enable_timing=True)
        end = self.torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1000.0

    def graph(self, work: Launch) -> Launch:
        """See ``Clock``."""
        captured = self.torch.cuda.CUDAGraph()
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            work()
        self.torch.cuda.current_stream().wait_stream(side)
        with self.torch.cuda.graph(captured):
            work()
        return captured.replay

    def time(self, launches: Sequence[Launch], *, graph: bool = True) -> Timing:
        """The time of one launch."""
        return time_launches(self, launches, graph=graph)

    def rested(self, work: Launch, seconds: float) -> float:
        """Microseconds of ``work`` after the device was idle for so long: median of three."""
        times: list[float] = []
        for _ in range(3):
            self.torch.cuda.synchronize()
            time.sleep(seconds)
            times.append(self.elapsed_us(work))
        return sorted(times)[1]

    def under_load(self, work: Launch, seconds: float) -> tuple[float, float | None, float | None]:
        """Keeps the device busy with ``work``: the time of one ``work`` at the end (us), and the
        clock (MHz) and power (W) meanwhile where they can be read."""
        single = max(self.elapsed_us(work), 1.0)
        end = time.monotonic() + seconds
        clock: float | None = None
        power: float | None = None
        while time.monotonic() < end:
            for _ in range(max(1, int(50_000 / single))):
                work()
            time.sleep(0.02)
            clock, power = self.reading("clock_rate"), self.reading("power_draw")
        last = [self.elapsed_us(work) for _ in range(5)]
        return sorted(last)[2], clock, power and power / 1000.0

    def reading(self, what: str) -> float | None:
        """A sensor of the device through PyTorch, or None where it cannot be read."""
        try:
            return float(getattr(self.torch.cuda, what)(self.index))
        except Exception:
            return None

    def facts(self) -> Mapping[str, Any]:
        """Everything about the device and the software that a reader of the files may ask for."""
        torch = self.torch
        return {
            "device": self.name,
            "units": self.units,
            "memory_bytes": self.memory_bytes,
            "l2_bytes": int(getattr(self.properties, "L2_cache_size", 0) or 0),
            "devices": torch.cuda.device_count(),
            "driver": _driver(self),
            "runtime": f"ROCm {self.hip}" if self.hip else f"CUDA {torch.version.cuda}",
            "pytorch": torch.__version__,
            "triton": _version("triton"),
            "python": platform.python_version(),
            "clock_mhz_at_start": self.reading("clock_rate"),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        }


def prefix_of(name: str) -> str:
    """'NVIDIA H200' is h200, 'AMD Instinct MI300X' mi300x, anything else its letters."""
    found = re.search(r"\b(mi\d+\w*|[a-z]{1,3}\d{2,4}\w*)\b", name.lower())
    return found.group(1) if found else re.sub(r"\W+", "_", name.lower()).strip("_")


def _version(package: str) -> str | None:
    try:
        return str(importlib.import_module(package).__version__)
    except ImportError:
        return None


def _driver(device: Device) -> str | None:
    def nvidia() -> str:
        sensors: Any = importlib.import_module("pynvml")
        sensors.nvmlInit()
        return sensors.nvmlSystemGetDriverVersion()

    def amd() -> str:
        sensors: Any = importlib.import_module("amdsmi")
        sensors.amdsmi_init()
        handle = sensors.amdsmi_get_processor_handles()[device.index]
        return sensors.amdsmi_get_gpu_driver_info(handle)["driver_version"]

    readers: list[Callable[[], str]] = [nvidia, amd]
    for reader in readers:
        try:
            return str(reader())
        except Exception:
            continue
    return None
