"""Which other processes used CPUs: who ran instead of a rank that waited.

Command lines may hold secrets, so a process is named by its program and the base name of its script alone.
"""

from __future__ import annotations

import os
import time
from pathlib import Path, PurePath

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.collectors.ranks import RankCollector
from prismdbg.telemetry.sensor import Kind, Sensor, Sink

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_LEAST_SHARE = 0.03  # of a CPU, since the last look: others are not worth a name
_MOST_NAMED = 128


class ProcessCollector:
    """All processes but the ranks, which have sensors of their own, and the sampler."""

    name = "processes"
    every_ns = 2_000_000_000

    def __init__(self, root: Path, ranks: RankCollector) -> None:
        self._proc = root / "proc"
        self._ranks = ranks
        self._used: dict[tuple[int, int], int] = {}
        self._named: dict[tuple[int, int], tuple[Sensor, Sensor]] = {}
        self._looked_ns = 0

    def sample(self, sink: Sink) -> None:
        now_ns = time.monotonic_ns()
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        ranks, used = self._ranks.pids, {}
        for name in os.listdir(self._proc):  # noqa: PTH208  paths cost more than reading
            if not name.isdecimal() or int(name) in ranks or int(name) == os.getpid():
                continue
            found = self._stat(name)
            if found is None:
                continue
            key, used_ns, cpu = found
            used[key] = used_ns
            grew_ns = used_ns - self._used.get(key, used_ns)
            if key in self._named or (grew_ns >= _LEAST_SHARE * since_ns and len(self._named) < _MOST_NAMED):
                self._say(key, used_ns, cpu, sink)
        self._used = used

    def close(self) -> None:
        self._used.clear()

    def _say(self, key: tuple[int, int], used_ns: int, cpu: int, sink: Sink) -> None:
        if key not in self._named:
            subject = f"process {key[0]} ({self._title(key[0])})"
            self._named[key] = (
                Sensor(subject, names.CPU_TIME, "ns", Kind.COUNTER),
                Sensor(subject, names.LAST_CPU, "cpu", Kind.GAUGE),
            )
        sink.reading(self._named[key][0], used_ns)
        sink.reading(self._named[key][1], cpu)

    def _stat(self, name: str) -> tuple[tuple[int, int], int, int] | None:
        """PID and start, CPU time of all threads, last CPU; None where it ended meanwhile."""
        try:
            descriptor = os.open(f"{self._proc}/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                fields = os.read(descriptor, 1024).rpartition(b")")[2].split()
            finally:
                os.close(descriptor)
        except OSError:
            return None
        return (int(name), int(fields[19])), (int(fields[11]) + int(fields[12])) * _TICK_NS, int(fields[36])

    def _title(self, pid: int) -> str:
        folder = self._proc / str(pid)
        try:
            program = (folder / "comm").read_text().strip()
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return "ended"
        script = PurePath(arguments[1].decode(errors="replace")).name if len(arguments) > 1 else ""
        return f"{program} {script}" if script.endswith((".py", ".sh", ".pl", ".rb")) else program
