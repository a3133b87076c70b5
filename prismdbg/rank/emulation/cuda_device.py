"""A CUDA device as paced collectives use it: side streams with kernels that spin, and events."""

from __future__ import annotations

import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from prismdbg.rank.emulation.device_waits import LONG, calibrated

_WARM_CYCLES = 10 * LONG  # some 20 ms, in which clocks rise
_ANCHORED = 5  # tries to bring the device's time and the host's together
_FAR_NS = 10**10  # events give 32-bit floats of milliseconds: after 10 s a microsecond is lost


@dataclass(frozen=True, slots=True)
class _Anchor:
    """An event of which the host's time is known, too."""

    event: torch.cuda.Event
    at_ns: int


@dataclass(frozen=True, slots=True)
class _Mark:
    event: torch.cuda.Event
    anchor: _Anchor  # before it, and not long before


class CudaDevice:
    """Calibrates when it is made, in some 0.1 s, for which the calling thread waits."""

    def __init__(self, name: str) -> None:
        self._device = torch.device(name)
        self._streams: dict[str, torch.cuda.Stream] = {}
        self._lock = threading.Lock()
        self._own = torch.cuda.Stream(self._device)
        self._measured(_WARM_CYCLES)
        self._calibration = calibrated(self._measured, name)
        self.residual = self._calibration.residual
        self._anchor = self._anchored()

    def mark(self) -> Any:
        return self._marked(torch.cuda.current_stream(self._device))

    def queue(self, key: str, after: Any, length_ns: int) -> tuple[Any, Any]:
        stream = self._stream(key)
        cycles = self._calibration.cycles(length_ns)
        with torch.cuda.stream(stream):
            stream.wait_event(after.event)
            begun = self._marked(stream)
            if cycles:
                torch.cuda._sleep(cycles)
            return begun, self._marked(stream)

    def stand(self, mark: Any) -> None:
        torch.cuda.current_stream(self._device).wait_event(mark.event)

    def block(self, mark: Any) -> None:
        mark.event.synchronize()

    def is_over(self, mark: Any) -> bool:
        return bool(mark.event.query())

    def at_ns(self, mark: Any) -> int:
        return int(mark.anchor.at_ns + round(mark.anchor.event.elapsed_time(mark.event) * 1e6))

    def inside(self, key: str) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.cuda.stream(self._stream(key))
        return context

    def _stream(self, key: str) -> torch.cuda.Stream:
        """Before others where the device has to choose: a transfer needs none of what computes."""
        with self._lock:
            if key not in self._streams:
                self._streams[key] = torch.cuda.Stream(self._device, priority=-1)
            return self._streams[key]

    def _marked(self, stream: torch.cuda.Stream) -> _Mark:
        with self._lock:
            if time.monotonic_ns() - self._anchor.at_ns > _FAR_NS:
                self._anchor = self._anchored()
            return _Mark(self._recorded(stream), self._anchor)

    @staticmethod
    def _recorded(stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def _measured(self, cycles: int) -> float:
        with torch.cuda.stream(self._own):
            begun = self._recorded(self._own)
            if cycles:
                torch.cuda._sleep(cycles)
            ended = self._recorded(self._own)
        ended.synchronize()
        return float(begun.elapsed_time(ended)) * 1e6

    def _anchored(self) -> _Anchor:
        """Between two looks at the clock, the closest of a few. Its stream has nothing else to do, so nothing waits."""
        found = []
        for number in range(_ANCHORED):
            before_ns = time.monotonic_ns()
            event = self._recorded(self._own)
            event.synchronize()
            after_ns = time.monotonic_ns()
            found.append((after_ns - before_ns, number, event, (before_ns + after_ns) // 2))
        _, _, event, at_ns = min(found, key=lambda each: each[:2])
        return _Anchor(event, at_ns)
