"""What a lowered launch does without one of its signals or waits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from xdsl.dialects.builtin import ModuleOp

from starc.diagnostics import InputError
from starc.dialects import isa
from starc.interpreter.concurrent import ConcurrentMachine
from starc.interpreter.element_types import Array
from starc.interpreter.shared_memory import ScheduleError
from starc.passes.base import RemarkSink
from starc.passes.isa.verify_schedule import VerifySchedule
from starc.targets.target import Target


def assert_losses_are_caught(
    module: ModuleOp, target: Target, buffers: Mapping[tuple[int, str], Array]
) -> int:
    """Leaves out every signal, which ``verify-schedule`` finds, and every wait, which one of a few
    interleavings over ``buffers`` finds; returns how many there are."""
    losses = [
        index for index, op in enumerate(module.walk()) if isinstance(op, isa.SignalOp | isa.WaitOp)
    ]
    for index in losses:
        changed = module.clone()
        lost = list(changed.walk())[index]
        text = str(lost)
        lost.detach()
        lost.erase()
        if isinstance(lost, isa.SignalOp):
            with pytest.raises(InputError, match=r"waits forever|deadlock"):
                VerifySchedule().run(changed, target, RemarkSink())
            continue
        caught = 0
        for seed in range(6):
            try:
                ConcurrentMachine(changed, buffers, seed=seed).run()
            except ScheduleError:
                caught += 1
        assert caught, text
    return len(losses)
