"""Which sensors this machine has: every collector is asked once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prismdbg.telemetry.collectors.cpus import CpuCollector, PressureCollector
from prismdbg.telemetry.collectors.hardware import HardwareCollector
from prismdbg.telemetry.collectors.nvidia import NvidiaCollector
from prismdbg.telemetry.collectors.ranks import RankCollector
from prismdbg.telemetry.sensor import Collector, Sensor

_EVERY_NS = 1_000_000_000


@dataclass(slots=True)
class Available:
    """A sink. names: of sensors that were read; missing: why, by name."""

    names: dict[str, None] = field(default_factory=dict)
    devices: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def reading(self, sensor: Sensor, value: int) -> None:
        self.names[sensor.name] = None

    def missing(self, subject: str, name: str, why: str) -> None:
        self.absent.setdefault(name, why)

    def text(self, subject: str, name: str, value: str) -> None:
        if name == "name":
            self.devices[subject] = value

    @property
    def text_of_absent(self) -> str:
        return "; ".join(f"{name} not available: {why}" for name, why in self.absent.items())


def of_host(root: Path = Path("/")) -> Available:
    """This process stands for a rank."""
    ranks = RankCollector(root, _EVERY_NS)
    ranks.watch("0", os.getpid())
    return _asked([ranks, CpuCollector(root), PressureCollector(root), HardwareCollector(root)])


def of_nvidia() -> Available:
    return _asked([NvidiaCollector(dict)])


def _asked(collectors: Sequence[Collector]) -> Available:
    found = Available()
    for collector in collectors:
        collector.sample(found)
        collector.close()
    return found
