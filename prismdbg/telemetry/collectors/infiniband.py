"""Counters of InfiniBand and RoCE ports, of `/sys/class/infiniband`: those of the standard, and the driver's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prismdbg.telemetry.open_files import OpenFile, because
from prismdbg.telemetry.sensor import HOST, PORT, Kind, Sensor, Sink

COUNTERS = "infiniband_counters"
_DATA = ("port_xmit_data", "port_rcv_data")
_DATA_BYTES = 4  # the standard counts words
_NO_COUNTERS = ("lifespan",)  # how old the driver lets readings of its own become


class InfinibandCollector:
    """What is there is looked up once, at the first look."""

    name = "infiniband"
    every_ns = 1_000_000_000

    def __init__(self, root: Path) -> None:
        self._devices = root / "sys/class/infiniband"
        self._found: list[tuple[OpenFile, Sensor, int]] | None = None

    def sample(self, sink: Sink) -> None:
        if self._found is None:
            self._found = list(self._counters())
        if not self._found:
            sink.missing(HOST, COUNTERS, f"no counters of a port in {self._devices}")
        for file, sensor, factor in self._found:
            try:
                sink.reading(sensor, int(file.read()) * factor)
            except OSError as error:
                sink.missing(sensor.subject, sensor.name, because(error, file.path))
            except ValueError:
                sink.missing(sensor.subject, sensor.name, f"{file.path} does not contain a number")

    def close(self) -> None:
        for file, _, _ in self._found or ():
            file.close()

    def _counters(self) -> Iterator[tuple[OpenFile, Sensor, int]]:
        for port in sorted(self._devices.glob("*/ports/*")):
            subject = f"{PORT}{port.parents[1].name}/{port.name}"
            taken = set(_NO_COUNTERS)
            for path in (*sorted(port.glob("counters/*")), *sorted(port.glob("hw_counters/*"))):
                if path.name not in taken:
                    taken.add(path.name)
                    is_data = path.name in _DATA
                    sensor = Sensor(subject, path.name, "bytes" if is_data else "", Kind.COUNTER)
                    yield OpenFile(path), sensor, _DATA_BYTES if is_data else 1
