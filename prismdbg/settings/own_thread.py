"""Threads of ours in a process of the user's."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from typing import Any

_OF_THE_THREAD = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}


def start_own_thread(name: str, target: Callable[..., Any], arguments: Iterable[Any] = ()) -> threading.Thread:
    """A daemon thread that takes no signal which is meant for the process: a program that blocks one in its own
    threads and waits for it (`signal.sigwait`) would be ended by it. `RuntimeError` where no thread can be had."""
    thread = threading.Thread(target=target, args=tuple(arguments), name=name, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _OF_THE_THREAD)
    try:
        thread.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return thread
