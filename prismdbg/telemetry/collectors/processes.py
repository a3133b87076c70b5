"""Which other processes used CPUs: who ran instead of a rank that waited.

Command lines may hold secrets, so a process is named by its program and the base name of its script alone.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path, PurePath

from prismdbg.settings.process_stat import text_of
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.collectors.ranks import RankCollector
from prismdbg.telemetry.open_files import OpenFile
from prismdbg.telemetry.sensor import HOST, Kind, Sensor, Sink

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_LEAST_SHARE = 0.03  # of a CPU, since the last look: others are not worth a name
_MOST_NAMED = 128  # at once
_QUIET_LOOKS = 5  # without that share: then a process gives way to others that need a name


@dataclass(slots=True, kw_only=True)
class _Process:
    """As last read. used_ns: CPU time of all its threads. sensors: once it was worth a name; is_named: and is read.
    quiet: looks since it last used its share."""

    file: OpenFile
    text: bytes = b""
    started: int = -1
    used_ns: int = 0
    cpu: int = 0
    sensors: tuple[Sensor, Sensor] | None = None
    is_named: bool = False
    quiet: int = 0


class ProcessCollector:
    """All processes but the ranks, which have sensors of their own, and the sampler. Most do nothing: of those nothing
    is parsed."""

    name = names.PROCESSES
    every_ns = 2_000_000_000

    def __init__(self, root: Path, ranks: RankCollector) -> None:
        self._proc = root / "proc"
        self._ranks = ranks
        self._processes: dict[str, _Process] = {}
        self._looked_ns = 0

    def sample(self, sink: Sink) -> None:
        now_ns = time.monotonic_ns()
        since_ns, self._looked_ns = now_ns - self._looked_ns, now_ns
        own = {str(pid) for pid in (*self._ranks.pids, os.getpid())}
        alive = {name for name in os.listdir(self._proc) if name.isdecimal()} - own  # noqa: PTH208  paths cost more
        for gone in self._processes.keys() - alive:
            self._processes.pop(gone).file.close()
        used = [name for name in alive if self._read(name) >= _LEAST_SHARE * since_ns]
        for process in self._processes.values():
            process.quiet += 1
        for name in used:
            self._processes[name].quiet = 0
        self._name(used, sink)
        for process in self._processes.values():
            if process.is_named and process.sensors is not None:
                sink.reading(process.sensors[0], process.used_ns)
                sink.reading(process.sensors[1], process.cpu)

    def _name(self, used: list[str], sink: Sink) -> None:
        """Those that used a CPU: as many as there is room for beside those that are named, have not ended, and used one
        lately."""
        fresh = [name for name in used if not self._processes[name].is_named]
        room = self._room(len(fresh))
        for name in fresh[:room]:
            process = self._processes[name]
            process.sensors, process.is_named = process.sensors or self._sensors(name), True
        if len(fresh) > room:
            sink.missing(HOST, self.name, f"more than {_MOST_NAMED} used CPUs at once: the others were not read")

    def _room(self, wanted: int) -> int:
        named = [process for process in self._processes.values() if process.is_named]
        lacking = max(wanted + len(named) - _MOST_NAMED, 0)
        quiet = sorted((one for one in named if one.quiet >= _QUIET_LOOKS), key=lambda one: -one.quiet)
        for process in quiet[:lacking]:
            process.is_named = False
        return _MOST_NAMED - len(named) + len(quiet[:lacking])

    def close(self) -> None:
        for process in self._processes.values():
            process.file.close()
        self._processes.clear()

    def _read(self, name: str) -> int:
        """How much CPU time it has used since the last look; 0 at the first, and where it ended meanwhile."""
        if name not in self._processes:
            self._processes[name] = _Process(file=OpenFile(self._proc / name / "stat"))
        process = self._processes[name]
        try:
            text = process.file.read()
        except OSError:
            return 0
        if text == process.text:
            return 0
        fields = text.rpartition(b")")[2].split()
        started, used_ns = int(fields[19]), (int(fields[11]) + int(fields[12])) * _TICK_NS
        is_same = started == process.started
        grew_ns = used_ns - process.used_ns if is_same else 0
        if not is_same:  # a PID may come again
            process.sensors, process.is_named = None, False
        process.text, process.started, process.used_ns, process.cpu = text, started, used_ns, int(fields[36])
        return grew_ns

    def _sensors(self, name: str) -> tuple[Sensor, Sensor]:
        subject = f"process {name} ({self._title(name)})"
        return Sensor(subject, names.CPU_TIME, "ns", Kind.COUNTER), Sensor(subject, names.LAST_CPU, "cpu", Kind.GAUGE)

    def _title(self, name: str) -> str:
        folder = self._proc / name
        try:
            program = text_of(folder / "comm").strip()
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            return "ended"
        script = PurePath(arguments[1].decode(errors="replace")).name if len(arguments) > 1 else ""
        return f"{program} {script}" if script.endswith((".py", ".sh", ".pl", ".rb")) else program
