"""Paces one rank by its schedule: which call of the schedule this is, and when it ends. No torch, no sleeping.

On the wall clock a rank arrives when it does; on the virtual clock when the computations before it, as they are given,
have been added up. Either way a call ends when the last other member is there, too, plus the transfer. On the wall
clock, peers compute on machines as fast as this one is now: where this rank's last steps computed longer than
scheduled, the peers come as much later as all ranks' longer computation would make them.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from prismdbg.errors import UsageError
from prismdbg.model.schedule import MAIN, MILLION, NO_STREAM, RowKind, Schedule, digest

VIRTUAL_BEGIN_NS = 10**9
DRIFT_STEPS = 8  # whose median tells how fast the machine is: noise of a step is not the peers'
LEAST_STEPS = 4  # of which it is told
LEAST_DRIFT, MOST_DRIFT = 0.5, 2.0
DOES_NOT_MATCH = "build the graph again, from a run of this program whose steps issue the same collectives"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issued:
    """A call as the rank makes it. `ranks`: of its group. peer: of a send or a receive, -1 for none or any.

    where: the line of the program, asked for only where something is wrong.
    """

    label: str
    group: str
    ranks: Sequence[int]
    size_bytes: int
    is_p2p: bool = False
    peer: int = -1
    tag: int = 0
    where: Callable[[], str] = str

    def say(self) -> str:
        toward = f"peer {self.peer}" if self.is_p2p else f"{len(self.ranks)} ranks"
        where = self.where()
        return f"{self.label} of {self.size_bytes:,} bytes, {toward}" + (f", at {where}" if where else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Times are of the rank's clock. arrived_ns: of this rank; began_ns: of the transfer, once the last was there.

    late_ns: as the row's. busy_ns: of processor time that the transfer takes from the rank, which goes on computing.
    """

    step: int
    row: int
    arrived_ns: int
    began_ns: int
    ends_ns: int
    late_ns: int = 0
    busy_ns: int = 0

    @property
    def length_ns(self) -> int:
        """From when a device comes to it, which may be long after its issue: the others come as much later than this
        rank as in the simulation; then the transfer."""
        return self.late_ns + self.ends_ns - self.began_ns


class Pace:
    """Thread safe. `now_ns`: the wall clock; None for the virtual one."""

    def __init__(self, schedule: Schedule, now_ns: Callable[[], int] | None) -> None:
        self._schedule = schedule
        self._paced = frozenset(schedule.steps)
        self._wall = now_ns
        self._lock = threading.RLock()
        self._channel_of: dict[str, int] = {}  # of each group
        self._group_on: dict[int, str] = {}
        self._digests: dict[str, str] = {}
        self._calls: dict[int, list[int]] = {}  # of each stream that issues
        for number, row in enumerate(schedule.rows):
            if row.is_call:
                self._calls.setdefault(row.issuer, []).append(number)
        self._anchor_ns = VIRTUAL_BEGIN_NS if now_ns is None else 0
        self._scheduled_ns = schedule.computed_ns
        self._ratios: deque[float] = deque(maxlen=DRIFT_STEPS)
        self._drifts = now_ns is not None and self._scheduled_ns > 0 and set(self._calls) <= {MAIN}
        self._begin(0)

    def now_ns(self) -> int:
        if self._wall is not None:
            return self._wall()
        with self._lock:
            return self._anchor_ns + self._clocks[self._own_stream()]

    @property
    def is_on(self) -> bool:
        """Whether the step under way is paced."""
        return self._is_on

    @property
    def slower_ppm(self) -> int:
        """As of the schedule; on the virtual clock, computations last as long as it says."""
        return self._schedule.slower_ppm

    @property
    def drift_ppm(self) -> int:
        """How long this rank computes, as a share of the schedule: of its last paced steps. One million where that is
        not known: after fewer than `LEAST_STEPS`, and where several threads issue."""
        if not self._drifts or len(self._ratios) < LEAST_STEPS:
            return MILLION
        return round(min(max(median(self._ratios), LEAST_DRIFT), MOST_DRIFT) * MILLION)

    def stood(self, taken_ns: int) -> None:
        """For so long the rank did not compute, but stood in a call or a wait."""
        with self._lock:
            self._stood_ns += taken_ns

    def ignore_drift(self) -> None:
        """How long the rank computes is not seen from its calls: a device does, or it stands in waits of which nobody
        is told. Such a wait counts as computation, makes the peers later, and so makes the next one longer.
        """
        self._drifts = False

    def begin_step(self, step: int) -> None:
        """Ends the iteration before: UsageError where it issued less than the schedule has."""
        with self._lock:
            if self._is_on and step > self._step:
                self._finish()
                if self._wall is not None and self._drifts:
                    computed_ns = self._wall() - self._anchor_ns - self._stood_ns
                    self._ratios.append(computed_ns / self._scheduled_ns)
            self._anchor_ns = self._anchor_ns + self._clocks[MAIN] if self._wall is None else self._wall()
            self._begin(step)

    def issue(self, call: Issued, thread: int | None = None) -> Due | None:
        """None where this step is not paced. UsageError where the schedule has another call here, or none.

        thread: None for the one that calls.
        """
        with self._lock:
            if not self._is_on:
                return None
            stream = self._stream_of(call, threading.get_ident() if thread is None else thread)
            number = self._next_call(stream)
            why = "one call too many" if number is None else self._differs(number, call)
            if number is None or why:
                raise self._mismatch(call, number, why)
            if not call.is_p2p:
                channel = self._schedule.rows[number].channel
                self._channel_of[call.group], self._group_on[channel] = channel, call.group
            return self._issue(stream, number)

    def wait(self, due: Due) -> int:
        """A thread begins to wait for it: when, on its clock. A virtual clock goes on to the end of it."""
        if self._wall is not None:
            return self._wall()
        with self._lock:
            stream = self._own_stream()
            self._let_go()
            if due.step == self._step and (waiting := self._next_wait(stream, due.row)) is not None:
                self._advance(waiting)
                self._done[waiting] = True
            began_ns = self._anchor_ns + self._clocks[stream]
            self._clocks[stream] = max(self._clocks[stream], due.ends_ns - self._anchor_ns)
            return began_ns

    # below: times count from the step's begin

    def _begin(self, step: int) -> None:
        self._step, self._is_on, self._stood_ns = step, step in self._paced, 0
        self._drifted_ppm = self.drift_ppm
        self._issued: dict[int, int] = defaultdict(int)  # of each stream: how many calls
        self._clocks: dict[int, int] = defaultdict(int)
        self._held: dict[int, int] = {}  # streams that stand in a call, until then
        self._ends: dict[int, int] = {}
        self._done = [False] * len(self._schedule.rows)
        self._first_left = 0
        self._threads: dict[int, int] = {}

    def _own_stream(self) -> int:
        return self._threads.get(threading.get_ident(), MAIN)

    def _stream_of(self, call: Issued, thread: int) -> int:
        """The issuing stream that this thread is: threads come in any order, so the first that begins like this."""
        if thread not in self._threads:
            free = sorted(set(self._calls) - set(self._threads.values()))
            fitting = (s for s in free if (n := self._next_call(s)) is not None and not self._differs(n, call))
            self._threads[thread] = next(fitting, free[0] if free else MAIN)
        return self._threads[thread]

    def _next_call(self, stream: int) -> int | None:
        calls, at = self._calls.get(stream, []), self._issued[stream]
        return calls[at] if at < len(calls) else None

    def _differs(self, number: int, call: Issued) -> str:
        row = self._schedule.rows[number]
        lane = self._schedule.channels[row.channel]
        op = call.label.removesuffix("_any_source") if call.is_p2p else self._schedule.family(call.label)
        if op != row.op:
            return "another operation"
        if call.size_bytes != row.size_bytes and op != "barrier":
            return "another size"
        if call.is_p2p:
            return "" if call.peer in (-1, lane.peer) and call.tag == lane.tag else "another peer or tag"
        if self._digest(call) != lane.digest:
            return "another group"
        is_known = self._channel_of.get(call.group, row.channel) == row.channel
        is_same = self._group_on.get(row.channel, call.group) == call.group
        return "" if is_known and is_same else "another group of the same ranks"

    def _digest(self, call: Issued) -> str:
        if call.group not in self._digests:
            self._digests[call.group] = digest(call.ranks)
        return self._digests[call.group]

    def _issue(self, stream: int, number: int) -> Due:
        row = self._schedule.rows[number]
        if self._wall is None:
            self._advance(number)
        else:
            self._clocks[stream] = self._wall() - self._anchor_ns
        self._issued[stream] += 1
        self._done[number] = True
        arrived = self._clocks[stream]
        queues = row.stream not in (NO_STREAM, stream)
        free = max(arrived, self._clocks[row.stream]) if queues else arrived
        began = max(free, row.others_at_ns(self._drifted_ppm))
        end = self._ends[number] = began + row.transfer_ns
        if queues:
            self._clocks[row.stream] = end
        if self._wall is None and (row.stream == stream or row.blocking):
            self._held[stream] = end  # only when it goes on: the log is to say when it came
        arrived_ns, began_ns, ends_ns = (self._anchor_ns + at for at in (arrived, began, end))
        contends = self._wall is not None and row.kind is RowKind.COLLECTIVE and not row.blocking
        return Due(
            step=self._step,
            row=number,
            arrived_ns=arrived_ns,
            began_ns=began_ns,
            ends_ns=ends_ns,
            late_ns=row.late_ns,
            busy_ns=row.transfer_ns * self._schedule.contention_ppm // 10**6 if contends else 0,
        )

    def _next_wait(self, stream: int, target: int) -> int | None:
        """The row of this wait, where the stream has it before its next call."""
        beyond = self._next_call(stream)
        for number in range(target + 1, len(self._schedule.rows) if beyond is None else beyond):
            row = self._schedule.rows[number]
            if row.kind is RowKind.WAIT and (row.stream, row.target) == (stream, target) and not self._done[number]:
                return number
        return None

    def _advance(self, before: int) -> None:
        """Adds up what stands before that row, in order, as far as what it waits for was issued."""
        self._let_go()
        held: set[int] = set()
        for number in range(self._first_left, before):
            row = self._schedule.rows[number]
            if self._done[number] or row.stream in held:
                continue
            if row.is_call:
                held |= {row.issuer, row.stream}
            elif row.kind is RowKind.COMPUTE:
                self._clocks[row.stream] += row.duration_ns
                self._ends[number] = self._clocks[row.stream]
                self._done[number] = True
            elif row.target in self._ends:
                self._clocks[row.stream] = max(self._clocks[row.stream], self._ends[row.target])
                self._done[number] = True
            else:
                held.add(row.stream)
        while self._first_left < len(self._done) and self._done[self._first_left]:
            self._first_left += 1

    def _let_go(self) -> None:
        for stream, end in self._held.items():
            self._clocks[stream] = max(self._clocks[stream], end)
        self._held.clear()

    def _finish(self) -> None:
        for stream in self._calls:
            missing = self._next_call(stream)
            if missing is not None:
                raise UsageError(
                    f"rank {self._schedule.rank} ended step {self._step} without {self._schedule.say(missing)}, "
                    f"which the slice of step {self._schedule.step} has",
                    hint=DOES_NOT_MATCH,
                )
        if self._wall is None:
            self._advance(len(self._schedule.rows))

    def _mismatch(self, call: Issued, number: int | None, why: str) -> UsageError:
        theirs = "no more calls" if number is None else self._schedule.say(number)
        return UsageError(
            f"rank {self._schedule.rank} issues {call.say()} in step {self._step}, where the slice of step "
            f"{self._schedule.step} has {theirs}: {why}",
            hint=DOES_NOT_MATCH,
        )
