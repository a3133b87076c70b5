"""What ranks' processes do while somebody waits for them: whether they compute, or wait for a CPU."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from prismdbg.diagnosis.hang import NS_PER_S, Busy

_MOST_OF_IT = 0.5


@dataclass(frozen=True, slots=True)
class Used:
    """Since each thread and each process that is counted began."""

    computed_ns: int
    in_line_ns: int


@dataclass(slots=True)
class Activity:
    """Between the first look at somebody's wait and now. newest_ns: over about the last of it only, no less than half
    of this."""

    newest_ns: int | None = None
    _looks: dict[int, deque[tuple[int, Used]]] = field(default_factory=dict)  # by rank: from which is counted

    def forget(self) -> None:
        self._looks.clear()

    def look(self, now_ns: int, pids: Mapping[int, int]) -> Busy:
        computing, in_line = set(), set()
        for rank, pid in pids.items():
            used = used_by(pid)
            since_ns, before = self._since(rank, now_ns, used)
            most_ns = _MOST_OF_IT * max(now_ns - since_ns, 1)
            computed_ns = used.computed_ns - before.computed_ns
            if computed_ns > most_ns:
                computing.add(rank)
            if computed_ns + used.in_line_ns - before.in_line_ns > most_ns:
                in_line.add(rank)
        return Busy(computing=frozenset(computing), in_line=frozenset(in_line))

    def _since(self, rank: int, now_ns: int, used: Used) -> tuple[int, Used]:
        looks = self._looks.setdefault(rank, deque([(now_ns, used)], maxlen=2))
        if self.newest_ns is not None and now_ns - looks[-1][0] >= self.newest_ns // 2:
            looks.append((now_ns, used))
        return looks[0]


def used_by(pid: int) -> Used:
    """Of the process and all that it started: its data loaders and compilers compute for it. Nothing where the kernel
    does not count it, or the process has ended."""
    tree = _with_descendants(pid)
    threads = [used for process in tree for used in _threads(process)]
    return Used(
        sum(computed_ns for computed_ns, _ in threads) + sum(map(_of_ended_children, tree)),
        sum(in_line_ns for _, in_line_ns in threads),
    )


def _with_descendants(pid: int) -> list[int]:
    tree = [pid]
    for process in tree:
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            with contextlib.suppress(OSError, ValueError):  # the thread has ended
                tree += [child for child in map(int, path.read_text().split()) if child not in tree]
    return tree


def _threads(pid: int) -> Iterator[tuple[int, int]]:
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError):
            computed, waited = path.read_text().split()[:2]
            yield int(computed), int(waited)


def _of_ended_children(pid: int) -> int:
    """The time of those that it has waited for, in nanoseconds."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return 0
    return int((times.children_user + times.children_system) * NS_PER_S)
