"""What a sensor is, what a collector of sensors gives, and names that collectors and the diagnosis have in common."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

HOST = "host"
INTERFACE = "interface "  # before its name, as a subject
PORT = "port "  # of InfiniBand: before device/number
SAMPLER = "sampler"
CPU_TIME = "cpu_time"
RUN_QUEUE_WAIT = "run_queue_wait"
THREADS_CPU_TIME = "threads_cpu_time"
THREADS_RUN_QUEUE_WAIT = "threads_run_queue_wait"
QUOTA_THROTTLED = "quota_throttled"
STOLEN_TIME = "stolen_time"
DISK_SLEEP = "disk_sleep"
NO_IO_PRESSURE = "io_pressure"  # missing where the kernel counts none
IO_PRESSURE = "io_pressure_some"
GROUP_IO_PRESSURE = "group_io_pressure_full"
LAST_CPU = "last_cpu"
DEVICE = "device"
THROTTLE_REASONS = "throttle_reasons"
SM_CLOCK = "sm_clock"
UTILIZATION = "utilization"
CPU_FREQUENCY = "frequency"
PROCESSES = "processes"  # missing where some that used a CPU were not read
TCP_RETRANSMITS = "tcp_retransmits"


class Kind(StrEnum):
    COUNTER = "counter"  # only grows; what it grows by in a span is said
    GAUGE = "gauge"  # a level at an instant


class Provenance(StrEnum):
    MEASURED = "measured"
    FAKE = "fake"  # a library that stands in for a driver: never evidence of a machine


def rank_subject(folder: str) -> str:
    """By the name of the rank's log folder: each attempt of a rank is a subject of its own."""
    return f"rank {folder}"


def cpu_subject(cpu: int) -> str:
    return f"cpu {cpu}"


@dataclass(frozen=True, slots=True, eq=False)
class Sensor:
    """`subject`: what it is a sensor of: `rank 3`, `host`, `gpu GPU-1b2c`. Readings are whole numbers of `unit`.

    A collector makes one object for a sensor and keeps it: sensors are looked up by identity, at every reading.
    """

    subject: str
    name: str
    unit: str
    kind: Kind
    provenance: Provenance = Provenance.MEASURED


class Sink(Protocol):
    """Takes what collectors read. A sensor that cannot be read is missing, never 0."""

    def reading(self, sensor: Sensor, value: int) -> None: ...

    def missing(self, subject: str, name: str, why: str) -> None: ...

    def text(self, subject: str, name: str, value: str) -> None: ...


class Collector(Protocol):
    """`every_ns`: it is asked for readings no more often. `sample` may raise `OSError`: then all of it is missing at
    that time."""

    name: str
    every_ns: int

    def sample(self, sink: Sink) -> None: ...

    def close(self) -> None: ...
