"""A fake device, whose streams are sums of lengths: what it is given takes its time on the clock that it has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAIN = "main"


class FakeDevice:
    """Of prismdbg/rank/emulation/device_waits.py, `Device`. A mark is the time at which its stream comes to it: streams
    of a device never wait for the host. `sleep`: lets the host's clock go on."""

    residual = 0.0

    def __init__(
        self,
        now_ns: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[int], None] = lambda length_ns: time.sleep(length_ns / 1e9),
    ) -> None:
        self._now_ns, self._sleep = now_ns, sleep
        self._free_ns: dict[str, int] = {}
        self._current = MAIN

    def compute(self, length_ns: int) -> None:
        """The program's: in the current stream."""
        self._free_ns[self._current] = self.mark() + length_ns

    def finish(self) -> None:
        """The host waits for all streams."""
        for at_ns in list(self._free_ns.values()):
            self.block(at_ns)

    def mark(self) -> int:
        return max(self._free_ns.get(self._current, 0), self._now_ns())

    def queue(self, key: str, after: int, length_ns: int) -> tuple[int, int]:
        begun_ns = max(self._free_ns.get(key, 0), after)
        self._free_ns[key] = begun_ns + length_ns
        return begun_ns, begun_ns + length_ns

    def stand(self, mark: int) -> None:
        self._free_ns[self._current] = max(self._free_ns.get(self._current, 0), mark)

    def block(self, mark: int) -> None:
        while (left_ns := mark - self._now_ns()) > 0:
            self._sleep(left_ns)

    def is_over(self, mark: int) -> bool:
        return self._now_ns() >= mark

    def at_ns(self, mark: int) -> int:
        return mark

    @contextmanager
    def inside(self, key: str) -> Iterator[None]:
        before, self._current = self._current, key
        try:
            yield
        finally:
            self._current = before
