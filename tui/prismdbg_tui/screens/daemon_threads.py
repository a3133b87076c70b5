"""Threads of what a screen reads. Who leaves it does not wait for them: a large log on a slow disk takes minutes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

MOST_AT_ONCE = 8
Result = TypeVar("Result")


class DaemonThreads(ThreadPoolExecutor):
    """Runs each call in a daemon thread. It is a `ThreadPoolExecutor` only because an event loop accepts no other."""

    def __init__(self) -> None:
        super().__init__()
        self._turns = threading.Semaphore(MOST_AT_ONCE)

    def submit(self, work: Callable[..., Result], /, *given: Any, **named: Any) -> Future[Result]:
        future: Future[Result] = Future()
        begin = partial(self._carry_out, future, partial(work, *given, **named))
        threading.Thread(target=begin, name="prismdbg-reader", daemon=True).start()
        return future

    def _carry_out(self, future: Future[Result], work: Callable[[], Result]) -> None:
        with self._turns:
            if future.set_running_or_notify_cancel():
                _settle(future, work)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Waits for nothing."""


def carried_through(work: Callable[[], Result]) -> Callable[[], Result]:
    """`work` in a thread that the interpreter waits for: it writes what may not be left half done."""

    def carry_out() -> Result:
        future: Future[Result] = Future()
        threading.Thread(target=_settle, args=(future, work), name="prismdbg-writer", daemon=False).start()
        return future.result()

    return carry_out


def _settle(future: Future[Result], work: Callable[[], Result]) -> None:
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
