"""Worker processes: results with the places of their items, and an interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from starc.validation.workers import in_workers


@pytest.mark.parametrize("workers", [1, 2])
def test_results_have_the_places_of_their_items(workers: int):
    assert dict(in_workers(abs, [-3, 1, -2], workers)) == {0: 3, 1: 1, 2: 2}


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="signals of process groups")
@pytest.mark.parametrize("after_s", [0.5, 4.0])
def test_an_interrupt_is_one_word_and_code_130(after_s: float, tmp_path: Path):
    rows = "".join(f"{m},8192,8192,a,100\n" for m in range(1024, 8192, 64))
    (tmp_path / "h200_gemm.csv").write_text("M,N,K,name,us\n" + rows)
    # Before the first line of starc an interrupt is Python's own. Not by -m: there Python ends
    # itself by the signal, whatever the code, where the interrupt came while it evaluated text.
    started = "print(flush=True); from starc.cli import main; main()"
    command = [sys.executable, "-c", started, "validate", "--data", str(tmp_path)]
    # What runs in the background of a shell ignores the signal, and its children would too.
    process = subprocess.Popen(
        [*command, "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "interrupted\n")
