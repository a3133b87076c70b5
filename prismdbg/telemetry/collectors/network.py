"""The machine's network: bytes, errors and drops of its interfaces, and TCP segments that were sent again."""

from __future__ import annotations

from pathlib import Path

import psutil

from prismdbg.telemetry.open_files import OpenFile, because
from prismdbg.telemetry.sensor import HOST, INTERFACE, TCP_RETRANSMITS, Kind, Sensor, Sink

_RETRANSMITTED = Sensor(HOST, TCP_RETRANSMITS, "segments", Kind.COUNTER)
_COUNTED = ("bytes_sent", "bytes_recv", "errin", "errout", "dropin", "dropout")


class NetworkCollector:
    """`lo` is no interface to another machine and is left out."""

    name = "network"
    every_ns = 1_000_000_000

    def __init__(self, root: Path) -> None:
        self._snmp = OpenFile(root / "proc/net/snmp")
        self._sensors: dict[tuple[str, str], Sensor] = {}

    def sample(self, sink: Sink) -> None:
        for interface, counted in psutil.net_io_counters(pernic=True).items():
            if interface == "lo":
                continue
            for name in _COUNTED:
                key = interface, name
                if key not in self._sensors:
                    unit = "bytes" if name.startswith("bytes") else "packets"
                    self._sensors[key] = Sensor(f"{INTERFACE}{interface}", name, unit, Kind.COUNTER)
                sink.reading(self._sensors[key], int(getattr(counted, name)))
        try:
            rows = [line.split() for line in self._snmp.read().splitlines() if line.startswith(b"Tcp:")]
            sink.reading(_RETRANSMITTED, int(dict(zip(*rows, strict=True))[b"RetransSegs"]))
        except OSError as error:
            sink.missing(HOST, _RETRANSMITTED.name, because(error, self._snmp.path))
        except (KeyError, TypeError, ValueError):
            sink.missing(HOST, _RETRANSMITTED.name, f"{self._snmp.path} does not count RetransSegs")

    def close(self) -> None:
        self._snmp.close()
