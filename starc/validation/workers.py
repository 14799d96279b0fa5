"""Worker processes for simulations, which an interrupt ends at once and without a word."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def _interrupts_held() -> Generator[None]:
    """Holds interrupts back. Processes that start here never see one: it is this process that ends
    them."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Its start would let them through again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def in_workers(
    function: Callable[[Item], Result], items: Sequence[Item], workers: int
) -> Generator[tuple[int, Result]]:
    """The results of a function with the places of their items, as they come."""
    if workers <= 1:
        for index, item in enumerate(items):
            yield index, function(item)
        return
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
    done = False
    try:
        futures: dict[Future[Result], int] = {}
        with _interrupts_held():
            for index, item in enumerate(items):
                futures[pool.submit(function, item)] = index
        for future in as_completed(futures):
            yield futures[future], future.result()
        done = True
    finally:
        if not done:
            with _interrupts_held():
                pool.shutdown(wait=False, cancel_futures=True)
                for process in multiprocessing.active_children():
                    process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
