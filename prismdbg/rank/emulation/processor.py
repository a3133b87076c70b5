"""How long a rank waited for a CPU, step by step: where it did, all it computes seems to take longer."""

from __future__ import annotations

import os
from collections.abc import Callable

from prismdbg.capsule.log.format import StepSource


class ProcessorWaits:
    """Listens to steps on the program's own thread. `note`: is told the step that ended."""

    def __init__(self, note: Callable[..., None]) -> None:
        self._note = note
        self._step = 0
        try:
            self._stat = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # a kernel that does not count it
            self._stat = -1
        self._before_ns = self._waited_ns()

    def _waited_ns(self) -> int:
        """Runnable, and not running."""
        return int(os.pread(self._stat, 128, 0).split()[1]) if self._stat >= 0 else 0

    def __call__(self, step: int, _: StepSource) -> None:
        if self._stat >= 0:
            now_ns = self._waited_ns()
            self._note("processor", step=self._step, waited_ns=now_ns - self._before_ns)
            self._step, self._before_ns = step, now_ns
