"""In which order processes died, to the millisecond: one thread that waits on their pidfds."""

from __future__ import annotations

import contextlib
import os
import select
import threading


class DeathWatch:
    """`watch` processes as they appear; `order` lists those that died, first first."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        self._dead: list[str] = []
        self._wake_read, self._wake_write = os.pipe()
        self._poll.register(self._wake_read, select.POLLIN)
        threading.Thread(target=self._run, name="prismdbg-deaths", daemon=True).start()

    def watch(self, name: str, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._dead.append(name)
            return
        self._names[descriptor] = name
        self._poll.register(descriptor, select.POLLIN)
        os.write(self._wake_write, b"x")  # the thread is inside poll() with the old set

    def order(self) -> list[str]:
        return list(self._dead)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._wake_read:
                    os.read(self._wake_read, 64)
                    continue
                self._poll.unregister(descriptor)
                self._dead.append(self._names.pop(descriptor))
                with contextlib.suppress(OSError):
                    os.close(descriptor)
