"""Transfers as waits on a device: an emulated collective whose tensors lie there takes its time on a stream of its own,
beside what the program computes, and the program's stream waits where the program does. No torch: what a device does is
behind `Device`.

How long a wait took, and when it was over, is measured on the device, and told later: nobody stands for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from typing import Any, Protocol

from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.errors import FacilityError

SHORT, LONG = 200_000, 4_000_000  # cycles: about 0.1 ms and 2 ms
CHECKED_NS = 1_000_000
TOLERANCE = 0.02
ROUNDS = 5
REPEATS = 5


class Device(Protocol):
    """What one device must be able to do. A mark is a place in a stream: it is over when the device has come to it."""

    residual: float  # by which share a wait of CHECKED_NS was off when it was calibrated

    def mark(self) -> Any:
        """In the stream of the calling thread, after all that it was given so far."""
        ...

    def queue(self, key: str, after: Any, length_ns: int) -> tuple[Any, Any]:
        """A wait in the stream called `key`, after that mark and after what the stream has already: its begin and its
        end. The caller does not stand."""
        ...

    def stand(self, mark: Any) -> None:
        """What the calling thread's stream is given from here on waits for the mark. The caller does not."""
        ...

    def block(self, mark: Any) -> None:
        """The calling thread waits for it."""
        ...

    def is_over(self, mark: Any) -> bool: ...

    def at_ns(self, mark: Any) -> int:
        """When one that is over was: CLOCK_MONOTONIC."""
        ...

    def inside(self, key: str) -> AbstractContextManager[Any]:
        """Within it, the calling thread's stream is the one called `key`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """A wait of so many cycles takes `overhead_ns` + cycles * `cycle_ns`. residual: by which share a wait of CHECKED_NS
    by these figures was off, in the best of `rounds`."""

    cycle_ns: float
    overhead_ns: float
    residual: float
    rounds: int

    def cycles(self, length_ns: int) -> int:
        """0 where even an empty wait takes longer."""
        return max(round((length_ns - self.overhead_ns) / self.cycle_ns), 0)


def calibrated(measure: Callable[[int], float], device: str) -> Calibration:
    """`measure`: how many nanoseconds a wait of so many cycles takes. In at most ROUNDS rounds, until a check by the
    round's own figures is right to TOLERANCE: clocks rise when a device is first used. `FacilityError` where longer
    waits do not take longer."""
    best: Calibration | None = None
    for number in range(1, ROUNDS + 1):
        short_ns, long_ns = (median(measure(cycles) for _ in range(REPEATS)) for cycles in (SHORT, LONG))
        cycle_ns = (long_ns - short_ns) / (LONG - SHORT)
        if cycle_ns <= 0:
            continue
        tried = Calibration(
            cycle_ns=cycle_ns, overhead_ns=max(short_ns - SHORT * cycle_ns, 0.0), residual=0.0, rounds=number
        )
        checked_ns = median(measure(tried.cycles(CHECKED_NS)) for _ in range(REPEATS))
        residual = abs(checked_ns - CHECKED_NS) / CHECKED_NS
        if best is None or residual < best.residual:
            best = Calibration(cycle_ns=tried.cycle_ns, overhead_ns=tried.overhead_ns, residual=residual, rounds=number)
        if best.residual <= TOLERANCE:
            return best
    if best is None:
        raise FacilityError(
            f"waits on {device} cannot be calibrated: {LONG:,} cycles take no longer than {SHORT:,}",
            hint="end what else uses the device, or emulate without --pace",
        )
    return best


class StreamWait:
    """One transfer on the device: begins after what the issuing thread's stream was given, and after what the stream
    called `key` has already."""

    def __init__(self, device: Device, key: str, length_ns: int) -> None:
        self._device, self._key = device, key
        self.length_ns = length_ns
        self.begun, self.ended = device.queue(key, device.mark(), length_ns)

    def stand(self) -> None:
        """The stream of the calling thread waits for it; the thread does not."""
        self._device.stand(self.ended)

    def block(self) -> None:
        """The calling thread waits for it."""
        self._device.block(self.ended)

    def is_over(self) -> bool:
        return self._device.is_over(self.ended)

    def ended_ns(self) -> int:
        return self._device.at_ns(self.ended)

    def took_ns(self) -> int:
        return self._device.at_ns(self.ended) - self._device.at_ns(self.begun)

    def keep(self, promise: Callable[[], None]) -> None:
        """A future that is completed by `promise` is complete for the host; streams that wait for it wait for this."""
        with self._device.inside(self._key):
            promise()


@dataclass(slots=True)
class _Tally:
    calls: int = 0
    asked_ns: int = 0
    took_ns: int = 0
    worst_ns: int = 0  # by which one wait was longer or shorter than asked

    def add(self, wait: StreamWait) -> None:
        took_ns = wait.took_ns()
        self.calls += 1
        self.asked_ns += wait.length_ns
        self.took_ns += took_ns
        self.worst_ns = max(self.worst_ns, abs(took_ns - wait.length_ns))


@dataclass(slots=True)
class _Used:
    """One device, and its waits that are not known to be over: of each stream in their order, in which they end."""

    device: Device
    groups: set[str] = field(default_factory=set)
    open: dict[str, deque[tuple[StreamWait, Callable[[int], None]]]] = field(default_factory=dict)
    tally: _Tally = field(default_factory=_Tally)


class DeviceWaits:
    """Of one rank; thread safe. `make`: opens the device of this name. is_capturing: whether the calling thread's
    stream runs nothing now, because a CUDA graph is made of what it is given; no device may be opened or asked then.
    tell: writes a note into the log."""

    def __init__(
        self, make: Callable[[str], Device], is_capturing: Callable[[], bool], tell: Callable[..., None]
    ) -> None:
        self._make, self._is_capturing, self._tell = make, is_capturing, tell
        self._lock = threading.RLock()
        self._used: dict[str, _Used] = {}
        self._has_told_of_graphs = False

    def prepare(self, device: str) -> int:
        """Opens it, if that was not done, and says how many nanoseconds it took: the program itself would not have
        waited for it. Not while a CUDA graph is made."""
        if device in self._used or self._is_capturing():
            return 0
        with self._lock:
            began_ns = time.monotonic_ns()
            if device not in self._used:
                self._used[device] = _Used(self._make(device))
            return time.monotonic_ns() - began_ns

    def begin(
        self, device: str, group: str, length_ns: int, over: Callable[[int], None], *, is_p2p: bool = False
    ) -> StreamWait | None:
        """On the stream of the group's communicator; a send or a receive on one where nothing is under way, as in the
        simulation, where these wait for no other. `over`: told when it was, on CLOCK_MONOTONIC, by a later `settle` or
        `drain`. None while a CUDA graph is made: the call is complete at once then, and the log says so."""
        if self._is_capturing():
            self._tell_of_graphs(device)
            return None
        self.prepare(device)
        with self._lock:
            used = self._used[device]
            if group not in used.groups:
                used.groups.add(group)
                self._tell(DEVICE_WAITS, device=device, group=group)
            key = _free_stream(used) if is_p2p else f"group {group}"
            wait = StreamWait(used.device, key, length_ns)
            used.open.setdefault(key, deque()).append((wait, over))
            return wait

    def settle(self) -> None:
        """Tells of those that are over, and waits for none of them. But whoever is told may copy values to the host:
        that waits for what the calling thread's stream was given, and so for transfers that this stream waits for."""
        if not self._used or self._is_capturing():
            return
        with self._lock:
            for used in self._used.values():
                for key, of_stream in list(used.open.items()):
                    while of_stream and of_stream[0][0].is_over():
                        wait, over = of_stream.popleft()
                        used.tally.add(wait)
                        over(wait.ended_ns())
                    if not of_stream:
                        del used.open[key]

    def drain(self) -> None:
        """Waits for all, and notes of each device how long waits took and should have taken. Later ones go into a later
        note."""
        with self._lock:
            for used in self._used.values():
                for of_stream in used.open.values():
                    of_stream[-1][0].block()
            self.settle()
            for name, used in self._used.items():
                tally, used.tally = used.tally, _Tally()
                if tally.calls:
                    self._tell(
                        DEVICE_WAITS,
                        device=name,
                        calls=tally.calls,
                        asked_ns=tally.asked_ns,
                        took_ns=tally.took_ns,
                        worst_ns=tally.worst_ns,
                        residual=used.device.residual,
                    )

    def _tell_of_graphs(self, device: str) -> None:
        with self._lock:
            is_first, self._has_told_of_graphs = not self._has_told_of_graphs, True
        if is_first:
            self._tell(DEVICE_WAITS, device=device, text="collectives that a CUDA graph captures are not paced")


def _free_stream(used: _Used) -> str:
    """One of those for sends and receives, the first whose waits are over."""
    keys = (f"p2p {number}" for number in count())
    return next(key for key in keys if key not in used.open or used.open[key][-1][0].is_over())
