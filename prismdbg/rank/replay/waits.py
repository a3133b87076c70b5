"""A traced replay tells where the program waits for a work; its answer is there at once, only the place counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation.open_calls import work_for
from prismdbg.rank.tracing import tracer


class ReplayedWork:
    """Stands behind one work. `record_id`: of its collective."""

    def __init__(self, record_id: int) -> None:
        self._record_id = record_id
        self._is_told = False

    def wait(self) -> None:
        if not self._is_told:
            self._is_told = True
            tracer.waited(self._record_id, time.monotonic_ns())

    def ends_backward(self) -> None:
        self.wait()

    def is_there(self) -> bool:
        return True

    def promise(self, keep: Callable[[], None], *, is_seen: bool = False) -> None:
        keep()


def holds_issuer(call: Call) -> bool:
    """There is nothing to wait for after such a call."""
    return call.spec.returns == "nothing" or (not call.is_async and not call.spec.is_p2p)


def watched(call: Call, record_id: int, source: int) -> Any:
    """A boxed Work that is complete."""
    from_any = call.spec.is_from_any
    return work_for(ReplayedWork(record_id), call, source, has_python_half=from_any)
