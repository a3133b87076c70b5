"""What the scheduler did with each rank: how long it ran, waited for a CPU, was held by a quota, slept for a disk, and
how long its control group waited for I/O.

Read from outside the rank, from `/proc/PID`. The main thread is read at each look, all threads together less often.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import lt
from pathlib import Path

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.collectors.control_groups import ControlGroups
from prismdbg.telemetry.open_files import OpenFile, because
from prismdbg.telemetry.sensor import Kind, Sensor, Sink, rank_subject

THREADS_EVERY_NS = 500_000_000
STATE_EVERY_NS = 200_000_000
GROUP_EVERY_NS = (
    1_000_000_000  # a process seldom changes it, and its pressure is added up from all CPUs at each reading
)
MOST_THREADS = 512
_Times = tuple[int, int]  # ns on a CPU, and in its run queue
_NO_SCHEDSTAT = "the kernel counts it only with CONFIG_SCHED_INFO"


@dataclass(slots=True, kw_only=True)
class _Rank:
    """threads: CPU time and wait of each, as last read; ended: of all that ended, together."""

    pid: int
    subject: str
    stat: OpenFile
    schedstat: OpenFile
    sensors: dict[str, Sensor] = field(default_factory=dict)
    threads: dict[str, _Times] = field(default_factory=dict)
    ended: _Times = (0, 0)
    looks: int = 0
    thread_files: dict[str, OpenFile] = field(default_factory=dict)

    def sensor(self, name: str, unit: str = "ns", kind: Kind = Kind.COUNTER) -> Sensor:
        if name not in self.sensors:
            self.sensors[name] = Sensor(self.subject, name, unit, kind)
        return self.sensors[name]

    def look(self, thread: str) -> bool:
        """Whether it can be read. What was last read of one that has ended counts."""
        try:
            self.read(thread, _schedstat(self.thread_files[thread].read()))
        except (OSError, ValueError):
            return False
        return True

    def read(self, thread: str, times: _Times) -> None:
        """Neither time of a thread ever falls: where one does, another thread has the number."""
        if any(map(lt, times, self.threads.get(thread, times))):
            self.end(thread)
        self.threads[thread] = times

    def end(self, thread: str) -> None:
        self.ended = _sum([self.ended, self.threads.pop(thread, (0, 0))])


class RankCollector:
    """`watch` adds a rank by the name of its log folder. A rank that has ended is no longer read."""

    name = "ranks"

    def __init__(self, root: Path, every_ns: int) -> None:
        self.every_ns = every_ns
        self._proc = root / "proc"
        self._groups = ControlGroups(root)
        self._ranks: dict[str, _Rank] = {}

    @property
    def pids(self) -> dict[int, str]:
        return {rank.pid: rank.subject for rank in self._ranks.values()}

    def watch(self, folder: str, pid: int) -> None:
        place = self._proc / str(pid)
        self._ranks[folder] = _Rank(
            pid=pid,
            subject=rank_subject(folder),
            stat=OpenFile(place / "stat"),
            schedstat=OpenFile(place / "schedstat"),
        )

    def sample(self, sink: Sink) -> None:
        for folder, rank in list(self._ranks.items()):
            look, rank.looks = rank.looks, rank.looks + 1
            if self._is_due(look, STATE_EVERY_NS) and not self._state(rank, sink):
                del self._ranks[folder]
                self._close(rank)
                continue
            self._main_thread(rank, sink)
            if self._is_due(look, GROUP_EVERY_NS):
                self._groups.find(rank.pid)
                self._group_pressure(rank, sink)
            self._throttled(rank, sink)
            if self._is_due(look, THREADS_EVERY_NS):
                self._all_threads(rank, sink)

    def close(self) -> None:
        for rank in self._ranks.values():
            self._close(rank)
        self._groups.close()

    def _close(self, rank: _Rank) -> None:
        for file in (rank.stat, rank.schedstat, *rank.thread_files.values()):
            file.close()
        self._groups.forget(rank.pid)

    def _is_due(self, look: int, every_ns: int) -> bool:
        return look % max(1, every_ns // self.every_ns) == 0

    def _state(self, rank: _Rank, sink: Sink) -> bool:
        """Whether it still runs."""
        try:
            fields = rank.stat.read().rpartition(b")")[2].split()
        except OSError:
            return False
        if fields[0] in (b"Z", b"X"):
            return False
        sink.reading(rank.sensor(names.LAST_CPU, "cpu", Kind.GAUGE), int(fields[36]))
        sink.reading(rank.sensor(names.DISK_SLEEP, "share", Kind.GAUGE), int(fields[0] == b"D"))
        return True

    def _main_thread(self, rank: _Rank, sink: Sink) -> None:
        try:
            ran, waited = _schedstat(rank.schedstat.read())
        except ProcessLookupError:  # it has just ended
            return
        except (OSError, ValueError) as error:
            why = because(error, rank.schedstat.path) if isinstance(error, OSError) else _NO_SCHEDSTAT
            sink.missing(rank.subject, names.CPU_TIME, why)
            sink.missing(rank.subject, names.RUN_QUEUE_WAIT, why)
            return
        sink.reading(rank.sensor(names.CPU_TIME), ran)
        sink.reading(rank.sensor(names.RUN_QUEUE_WAIT), waited)

    def _throttled(self, rank: _Rank, sink: Sink) -> None:
        throttled_ns, why = self._groups.throttled_ns(rank.pid)
        if throttled_ns is None:
            sink.missing(rank.subject, names.QUOTA_THROTTLED, why)
        else:
            sink.reading(rank.sensor(names.QUOTA_THROTTLED), throttled_ns)

    def _group_pressure(self, rank: _Rank, sink: Sink) -> None:
        waited_ns, why = self._groups.held_up_by_io_ns(rank.pid)
        if waited_ns is None:
            sink.missing(rank.subject, names.GROUP_IO_PRESSURE, why)
        else:
            sink.reading(rank.sensor(names.GROUP_IO_PRESSURE), waited_ns)

    def _all_threads(self, rank: _Rank, sink: Sink) -> None:
        tasks = self._proc / str(rank.pid) / "task"
        try:
            alive = os.listdir(tasks)  # noqa: PTH208  paths cost more than reading
        except OSError:  # it ended between two files
            return
        if len(alive) > MOST_THREADS:
            why = f"the rank has {len(alive)} threads, more than {MOST_THREADS}"
            sink.missing(rank.subject, names.THREADS_RUN_QUEUE_WAIT, why)
            return
        for thread in alive:
            if thread not in rank.thread_files:
                rank.thread_files[thread] = OpenFile(tasks / thread / "schedstat")
            rank.look(thread)
        for thread in rank.thread_files.keys() - set(alive):
            rank.thread_files[thread].close()  # it is opened again by its name
            if not rank.look(thread):  # the list may lack one that lives, where another ends meanwhile
                rank.thread_files.pop(thread).close()
                rank.end(thread)
        ran, waited = _sum([rank.ended, *rank.threads.values()])
        sink.reading(rank.sensor(names.THREADS_CPU_TIME), ran)
        sink.reading(rank.sensor(names.THREADS_RUN_QUEUE_WAIT), waited)


def _sum(times: Sequence[_Times]) -> _Times:
    return sum(ran for ran, _ in times), sum(waited for _, waited in times)


def _schedstat(text: bytes) -> _Times:
    """Nanoseconds on a CPU, and in its run queue (Documentation/scheduler/sched-stats.rst)."""
    ran, waited, _ = text.split()
    return int(ran), int(waited)
