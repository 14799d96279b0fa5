"""What half the request size changes: ``python benchmarks/halving.py``.

Pieces of 4 KiB are cut to 2 KiB. Prints by how much the time of a layer and the bytes of memory
and links move, and ends with 1 beyond 2 % of a time or 5 % of the bytes.
"""

from __future__ import annotations

from pathlib import Path

from starc.api import CompileOptions, compile_model, simulate
from starc.simulator.options import SimulationOptions
from starc.simulator.results.result import SimulationResult

ROOT = Path(__file__).resolve().parents[1]
WHOLE, HALF = 4096, 2048
TIME, BYTES = 0.02, 0.05


def cases() -> dict[str, CompileOptions]:
    """Small layers of both phases on both kinds of partitions."""
    model = str(ROOT / "examples" / "llama3-8b.sa")
    return {
        "8b decode cpx": CompileOptions(
            model, target="mi300x-cpx", gpus=1, strategy="naive", batch=8, context=4096
        ),
        "8b decode spx": CompileOptions(
            model, target="mi300x-spx", gpus=1, strategy="naive", batch=8, context=4096
        ),
        "8b prefill cpx": CompileOptions(
            model, target="mi300x-cpx", gpus=1, strategy="naive", phase="prefill", prompt=256
        ),
    }


def moved(whole: SimulationResult, half: SimulationResult) -> dict[str, float]:
    """Relative differences of time and bytes."""
    values = {
        "time": (whole.time_ps, half.time_ps),
        "read": (whole.traffic.hbm_read_bytes, half.traffic.hbm_read_bytes),
        "written": (whole.traffic.hbm_write_bytes, half.traffic.hbm_write_bytes),
        "links": (whole.traffic.usr_bytes, half.traffic.usr_bytes),
    }
    return {name: (b - a) / a if a else 0.0 for name, (a, b) in values.items()}


def main() -> None:
    """Compares all cases."""
    beyond: list[str] = []
    for name, options in cases().items():
        program = compile_model(options).packed
        whole, half = (
            simulate(program, SimulationOptions(piece_bytes=size)) for size in (WHOLE, HALF)
        )
        found = moved(whole, half)
        text = "  ".join(f"{key} {100 * value:+.2f} %" for key, value in found.items())
        print(f"{name:16s} requests x {half.requests / whole.requests:.2f}  {text}")
        for key, value in found.items():
            if abs(value) > (TIME if key == "time" else BYTES):
                beyond.append(f"{name}: {key}")
    if beyond:
        raise SystemExit(f"moved too much: {', '.join(beyond)}")


if __name__ == "__main__":
    main()
