"""The machine's CPUs: time that the hypervisor gave to others (steal), and the pressure of those who waited."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.open_files import OpenFile, because
from prismdbg.telemetry.pressure import stalled_ns
from prismdbg.telemetry.sensor import HOST, Kind, Sensor, Sink, cpu_subject

_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_STEAL = 8  # of the fields of a line in /proc/stat, the name counted
_MOST_CPUS = 1024


class CpuCollector:
    """One sensor for each CPU; times are counted in clock ticks, of 10 ms."""

    name = "cpus"
    every_ns = 200_000_000

    def __init__(self, root: Path) -> None:
        self._file = OpenFile(root / "proc/stat")
        self._sensors: dict[int, Sensor] = {}

    def sample(self, sink: Sink) -> None:
        try:
            text = self._file.read()
        except OSError as error:
            sink.missing(HOST, names.STOLEN_TIME, because(error, self._file.path))
            return
        for line in text.splitlines()[1 : _MOST_CPUS + 1]:
            if not line.startswith(b"cpu"):
                break
            fields = line.split()
            cpu = int(fields[0][3:])
            if cpu not in self._sensors:
                self._sensors[cpu] = Sensor(cpu_subject(cpu), names.STOLEN_TIME, "ns", Kind.COUNTER)
            sink.reading(self._sensors[cpu], int(fields[_STEAL]) * _TICK_NS)

    def close(self) -> None:
        self._file.close()


class PressureCollector:
    """Pressure stall information: how long anybody, or everybody, waited."""

    name = "pressure"
    every_ns = 1_000_000_000

    def __init__(self, root: Path) -> None:
        self._files = {what: OpenFile(root / "proc/pressure" / what) for what in ("cpu", "io", "memory")}
        self._sensors: dict[str, Sensor] = {}

    def sample(self, sink: Sink) -> None:
        for what, file in self._files.items():
            try:
                text = file.read()
            except OSError as error:
                sink.missing(HOST, f"{what}_pressure", because(error, file.path))
                continue
            for share, waited_ns in stalled_ns(text).items():
                if what == "cpu" and share == "full":  # not defined for a whole machine
                    continue
                name = f"{what}_pressure_{share}"
                if name not in self._sensors:
                    self._sensors[name] = Sensor(HOST, name, "ns", Kind.COUNTER)
                sink.reading(self._sensors[name], waited_ns)

    def close(self) -> None:
        for file in self._files.values():
            file.close()
