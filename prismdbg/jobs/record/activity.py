"""What ranks' processes do while somebody waits for them: whether they compute, or wait for a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prismdbg.diagnosis.hang import Busy

_MOST_OF_IT = 0.5


@dataclass(frozen=True, slots=True)
class Used:
    """Of all threads that a process has now, since each began."""

    computed_ns: int
    in_line_ns: int


@dataclass(slots=True)
class Activity:
    """Between the first look at somebody's wait and now."""

    _first: dict[int, tuple[int, Used]] = field(default_factory=dict)

    def forget(self) -> None:
        self._first.clear()

    def look(self, now_ns: int, pids: Mapping[int, int]) -> Busy:
        computing, in_line = set(), set()
        for rank, pid in pids.items():
            used = used_by(pid)
            since_ns, before = self._first.setdefault(rank, (now_ns, used))
            most_ns = _MOST_OF_IT * max(now_ns - since_ns, 1)
            computed_ns = used.computed_ns - before.computed_ns
            if computed_ns > most_ns:
                computing.add(rank)
            if computed_ns + used.in_line_ns - before.in_line_ns > most_ns:
                in_line.add(rank)
        return Busy(computing=frozenset(computing), in_line=frozenset(in_line))


def used_by(pid: int) -> Used:
    """Nothing where the kernel does not count it, or the process has ended."""
    computed_ns = in_line_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            computed, waited = path.read_text().split()[:2]
        except (OSError, ValueError):  # the thread has ended
            continue
        computed_ns, in_line_ns = computed_ns + int(computed), in_line_ns + int(waited)
    return Used(computed_ns, in_line_ns)
