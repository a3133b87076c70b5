"""What an emulated rank is given for each call: a work that ends when the pace says so, and that tells who waits.

Which kind depends on who called. Python gets a work in Python; C++ behind a functional collective one that it may wait
for as often as it likes; what else C++ calls (DDP's reducer) asks for the future and waits for that at the end of the
backward pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch._C._distributed_c10d import (  # type: ignore[attr-defined]
    PythonCallbackWork,
    _create_work_from_future,
)
from torch.autograd import Variable

from prismdbg.capsule.log.format import StepSource
from prismdbg.errors import UsageError
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.c10d.caller import FUNCTIONAL_CALLERS, PYTHON_CALLERS, calling_file
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.watched_work import WatchedWork, Watcher
from prismdbg.rank.emulation.backend_load import Carrier
from prismdbg.rank.emulation.clocks import SharedProcessor, Timer, WallClock
from prismdbg.rank.emulation.device_calls import is_blocking_wait, runs_on_stream
from prismdbg.rank.emulation.device_waits import DeviceWaits, StreamWait
from prismdbg.rank.emulation.pace import Due, Issued, Pace
from prismdbg.rank.program.isolation import unseen
from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.tracing import tracer

T = TypeVar("T")


class PacedClock:
    """The clock and the pace of one rank. Without a pace everything is there at once.

    wall: None for the virtual clock. refuse: told where the program is not the one that the schedule is of.
    leaves_out: what recording and answering take is left out of the wall clock; not where ranks run at once.
    """

    def __init__(
        self,
        pace: Pace | None,
        wall: WallClock | None,
        refuse: Callable[[UsageError], None],
        *,
        leaves_out: bool = False,
    ) -> None:
        self.pace = pace
        self.wall = wall
        self.leaves_out = leaves_out and wall is not None
        is_paced = wall is not None and pace is not None
        self.timer = Timer(wall) if wall is not None and is_paced else None
        self.carrier = Carrier(wall) if wall is not None and is_paced else None
        is_shared = pace is not None and pace.slower_ppm > 10**6
        self._processor = SharedProcessor(wall, pace.slower_ppm) if pace and wall and is_shared else None
        self._refuse = refuse
        self.devices: DeviceWaits | None = None  # for collectives of tensors there

    def begin_step(self, step: int, _: StepSource) -> None:
        self.stops_computing()
        if self.devices is not None:
            self.devices.settle()
        self._guarded(lambda pace: pace.begin_step(step))

    def stops_computing(self) -> None:
        """This thread comes to a call, a wait or a step's end: later, where it shares its processor."""
        if self._processor is None or self.pace is None:
            return
        if self.pace.is_on:
            self._processor.catch_up()
        else:
            self._processor.go_on()

    def computes(self, came_ns: int | None = None, until_ns: int | None = None) -> None:
        """This thread was answered, and goes on. It came at `came_ns`, and a real rank would go on at `until_ns`; what
        it took from then on is left out. None where the call is not ours."""
        if came_ns is not None and until_ns is not None:
            self.leave_out_since(until_ns)
            if self.pace is not None:
                self.pace.stood(max(self.now_ns() - came_ns, 0))
        if self._processor is not None:
            self._processor.go_on()

    def loses_sight(self) -> None:
        """How long the rank computes does not show in its calls and waits any more."""
        if self.pace is not None:
            self.pace.ignore_drift()

    def leave_out_since(self, at_ns: int) -> None:
        """What passed on this clock since then was recording."""
        if self.leaves_out and self.wall is not None and (taken_ns := self.wall.now_ns() - at_ns) > 0:
            self.wall.leave_out(taken_ns)

    def issue(self, call: Issued) -> Due | None:
        self.stops_computing()
        if self.devices is not None:
            self.devices.settle()
        return self._guarded(lambda pace: pace.issue(call))

    def _guarded(self, action: Callable[[Pace], T]) -> T | None:
        if self.pace is None:
            return None
        try:
            return action(self.pace)
        except UsageError as error:
            self._refuse(error)
            raise

    def now_ns(self) -> int:
        if self.wall is not None:
            return self.wall.now_ns()
        assert self.pace is not None
        return self.pace.now_ns()

    def hold(self, due: Due | None) -> int:
        """Until it is there, on the wall clock: when the wait began."""
        began_ns = self.now_ns() if due is None or self.pace is None else self.pace.wait(due)
        if due is not None and self.wall is not None:
            self.wall.sleep_until(due.ends_ns)
        return began_ns

    def runs_on_stream(self, call: Call) -> bool:
        return self.devices is not None and runs_on_stream(call)

    def prepare(self, call: Call) -> None:
        """Opens the call's device before a call on it has to be paced. The rank's clock stands meanwhile."""
        if self.devices is not None and self.wall is not None and self.runs_on_stream(call):
            self._guarded(lambda _: is_blocking_wait())
            taken_ns = self.devices.prepare(call.device)
            if taken_ns:
                self.wall.leave_out(taken_ns)

    def on_device(
        self, call: Call, due: Due | None, over: Callable[[int], None]
    ) -> tuple[StreamWait | None, Due | None]:
        """The call as a wait on its device, which begins now; and, where there is none, until when the host waits for
        it. Neither where nobody waits. `over`: told later when it was, on this clock."""
        if due is None or self.wall is None or self.devices is None or not self.runs_on_stream(call):
            return None, due
        wall = self.wall
        wall.keep_past()
        wait = self.devices.begin(
            call.device,
            call.group_name,
            due.length_ns,
            lambda at_ns: over(wall.at_ns(at_ns)),
            is_p2p=call.spec.is_p2p,
        )
        if wait is not None:
            self.loses_sight()
        return wait, due if wait is not None else None

    def is_there(self, due: Due | None) -> bool:
        return due is None or self.wall is None or self.wall.now_ns() >= due.ends_ns


class OpenCall:
    """One call that was answered. `fill`: what it receives is known only when it is waited for. later: to be filled by
    the carrier, as a backend's thread would. arrived_ns: when the rank came to it."""

    def __init__(
        self,
        recorder: PythonRecorder,
        beat: PacedClock,
        call: Call,
        due: Due | None,
        fill: Callable[[], None] | None,
        later: Callable[[], None] | None = None,
        arrived_ns: int | None = None,
    ) -> None:
        self._recorder, self._clock, self._fill = recorder, beat, fill
        self._arrived_ns = arrived_ns
        self._holds_issuer = not call.is_async and not call.spec.is_p2p
        self._completion: Completion | None = None
        self._lock = threading.Lock()
        self._is_told = False
        self._kept: list[Callable[[], None]] = []  # promises
        self._over = threading.Event()
        self._worked = threading.Event()
        self._ended_ns: int | None = None
        self._is_filled = fill is None
        self._was_waited_for = False
        self._stream, due = beat.on_device(call, due, self._ended)
        self._due = due
        self._wants_values = self._stream is not None and recorder.wants_values(call)
        self.devices = [] if self._stream is None else [torch.device(call.device)]
        is_busy = due is not None and due.busy_ns > 0 and beat.carrier is not None
        self._is_carried = is_busy and self._stream is None
        if self._is_carried and due is not None and beat.carrier is not None:
            self._over_ns = due.ends_ns
            beat.carrier.carry(due, later, self._is_worked, self._is_over)

    def _is_worked(self) -> None:
        """From the carrier's thread: the transfer has done its work, and is over when its time has come."""
        self._over_ns = max(self._over_ns, self._clock.now_ns())
        self._worked.set()

    def _is_over(self) -> None:
        """The transfer is over, as whoever comes first says: the carrier, a timer, or the thread that waits for it."""
        with self._lock:
            if self._over.is_set():
                return
            self._over.set()
            completion, kept, self._kept = self._completion, self._kept, []
        if completion is not None and self._is_carried:
            completion.done(self._source, self._over_ns)
        for keep in kept:
            keep()

    def _ended(self, at_ns: int) -> None:
        """On the device, as was measured; told when the next call is made, or a step begins."""
        with self._lock:
            self._ended_ns = at_ns
        self._told_of_device()

    def _told_of_device(self) -> None:
        """Writes the end, when it is known and the values are there."""
        with self._lock:
            completion, ended_ns = self._completion, self._ended_ns
        if completion is not None and ended_ns is not None and self._is_filled:
            completion.done(self._source, ended_ns)

    def _keep_values(self, completion: Completion) -> None:
        """Before the program overwrites them, and before another thread may write the end."""
        with unseen():
            completion.keep_values(self._wants_values)

    def opened(self, completion: Completion, source: int) -> None:
        """It is in the log. That it is complete is written ahead, where it is known when. Of a wait on a device it is
        not, so that it is written later; but what a replay needs of the values is kept now."""
        if self._stream is not None and self._is_filled:
            self._keep_values(completion)
        with self._lock:
            self._completion, self._source = completion, source
            is_over = self._over.is_set()
        if self._stream is not None:
            self._told_of_device()
        elif self._fill is None and self._is_carried and is_over:
            completion.done(source, self._over_ns)
        elif self._fill is None and not self._is_carried:
            completion.done(source, self.ends_ns)

    def wait(self) -> None:
        if self._stream is not None and self._was_waited_for:
            self._stream.stand()
            return
        self._was_waited_for = True
        self._clock.stops_computing()
        began_ns = time.monotonic_ns()
        waited_ns = self._hold()
        over_ns = self._goes_on_ns(waited_ns)
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill()
            if self._completion is not None and self._stream is not None:
                self._keep_values(self._completion)
            self._is_filled = True
            if self._stream is not None:
                self._told_of_device()
            elif self._completion is not None:
                self._completion.done(
                    self._source, over_ns if self._clock.leaves_out else max(over_ns, self._clock.now_ns())
                )
        self._tell(waited_ns)
        if self._holds_issuer:
            tracer.answered()
        elif self._completion is not None:
            tracer.waited(self._completion.record_id, began_ns)
        self._clock.computes(waited_ns, None if self._stream is not None else over_ns)

    def ends_backward(self) -> None:
        """The reducer is about to wait for it: waited for here, where it can be told how long that took."""
        self._clock.stops_computing()
        began_ns = time.monotonic_ns()
        waited_ns = self._hold()
        self._tell(waited_ns)
        if self._completion is not None:
            tracer.waited(self._completion.record_id, began_ns)
        if self._stream is None:
            self._is_over()  # keeps its promises: the reducer finds them kept, and is not woken again
        self._clock.computes(waited_ns, None if self._stream is not None else self._goes_on_ns(waited_ns))

    def is_there(self) -> bool:
        if self._fill is not None:
            self.wait()
        if self._stream is not None:
            return self._stream.is_over()
        is_there = (not self._is_carried or self._worked.is_set()) and self._clock.is_there(self._due)
        if not is_there:
            self._clock.loses_sight()  # whoever asks again until it is there waits, and computes nothing
        return is_there

    def _hold(self) -> int:
        if self._stream is not None:
            began_ns = self._clock.now_ns()
            self._stream.stand()
            if is_blocking_wait():
                self._stream.block()
            return began_ns
        if self._is_carried:
            began_ns = self._clock.now_ns()
            self._worked.wait()
            self._clock.hold(self._due)
            self._is_over()
            return began_ns
        return self._clock.hold(self._due)

    def _goes_on_ns(self, came_ns: int) -> int:
        """When a thread that came to it then may go on."""
        if self._due is None:
            return came_ns
        return max(came_ns, self._over_ns if self._is_carried else self._due.ends_ns)

    @property
    def ends_ns(self) -> int | None:
        """When it is over, as far as that is known when it is made: None for now. Where nothing is paced, at once."""
        if self._due is not None:
            return self._due.ends_ns
        return self._arrived_ns if self._clock.leaves_out else None

    def issuer_goes_on_ns(self) -> int | None:
        """When a real rank's issuing thread would; None where that is a device's matter."""
        if self._stream is not None:
            return None
        return self.ends_ns if self._holds_issuer else self._arrived_ns

    def promise(self, keep: Callable[[], None], *, is_seen: bool = False) -> None:
        if self._stream is not None:
            self._stream.keep(keep)
            return
        if self._is_carried:
            if self._is_kept(keep) and not is_seen:
                self._clock.loses_sight()
            return
        if self._due is None or self._clock.timer is None or self._clock.is_there(self._due):
            keep()
            return
        if not is_seen:
            self._clock.loses_sight()
        if self._is_kept(keep):
            self._clock.timer.at(self._due.ends_ns, self._is_over)

    def _is_kept(self, keep: Callable[[], None]) -> bool:
        """Until it is over. Where it is over already, `keep` is called now."""
        with self._lock:
            if not self._over.is_set():
                self._kept.append(keep)
                return True
        keep()
        return False

    def _tell(self, began_ns: int) -> None:
        with self._lock:
            is_first, self._is_told = not self._is_told, True
        if is_first and not self._holds_issuer and self._completion is not None:
            self._recorder.waited(self._completion.record_id, began_ns)


def work_for(
    open_call: Watcher, call: Call, source: int, *, has_python_half: bool, devices: Sequence[torch.device] = ()
) -> Any:
    """Boxed. `has_python_half`: nothing but a work in Python can stand for it. devices: whose streams wait for it."""
    caller = calling_file()
    if has_python_half or caller.endswith(PYTHON_CALLERS):
        return WatchedWork(open_call, call.outputs, source, call.held, devices).boxed()
    if caller.endswith(FUNCTIONAL_CALLERS):
        return PythonCallbackWork(_Waiting(open_call, call.held, each_time=bool(devices))).boxed()
    future: Any = torch.futures.Future(devices=list(devices))
    outputs = call.outputs
    is_seen = torch._C._current_graph_task_id() >= 0
    open_call.promise(lambda: future.set_result(outputs), is_seen=is_seen)
    if is_seen:
        _END.wait_for(open_call)
    return _create_work_from_future(future).boxed()


class _Waiting:
    """What C++ calls to wait. Holds the tensors, as a backend's work would. each_time: streams of a device wait."""

    def __init__(self, open_call: Watcher, held: list[torch.Tensor], *, each_time: bool) -> None:
        self._each_time = each_time
        self._open_call = open_call
        self._held = held
        self._is_waited_for = False

    def __call__(self, _: object) -> bool:
        if self._each_time or not self._is_waited_for:
            self._is_waited_for = True
            self._open_call.wait()
        return True


class _EndOfBackward:
    """Told just before the reducer waits: what is queued while a backward pass runs is called in that order."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[Watcher]] = {}

    def wait_for(self, open_call: Watcher) -> None:
        task = torch._C._current_graph_task_id()
        if task not in self._waiting:
            self._waiting[task] = []
            Variable._execution_engine.queue_callback(lambda: self._end(task))
        self._waiting[task].append(open_call)

    def _end(self, task: int) -> None:
        for open_call in self._waiting.pop(task, ()):
            open_call.ends_backward()


_END = _EndOfBackward()
