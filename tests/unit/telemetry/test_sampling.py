"""Who is asked for readings, and when."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from waiting import wait_for

from prismdbg.telemetry.reader import read_telemetry
from prismdbg.telemetry.sampling import COST_BOUND, Sampling
from prismdbg.telemetry.sensor import Kind, Sensor, Sink
from prismdbg.telemetry.writer import TelemetryWriter, about

READ = Sensor("host", "looks", "times", Kind.COUNTER)


@dataclass
class Asked:
    name: str = "asked"
    every_ns: int = 0
    error: Exception | None = None
    costs_ns: int = 0
    looks: int = 0
    closed: bool = False

    def sample(self, sink: Sink) -> None:
        self.looks += 1
        end = time.thread_time_ns() + self.costs_ns
        while time.thread_time_ns() < end:
            pass
        if self.error is not None:
            raise self.error
        sink.reading(READ, self.looks)

    def close(self) -> None:
        self.closed = True


def sampling(folder: Path, *collectors: Asked) -> Sampling:
    return Sampling(TelemetryWriter(folder, about(1)), collectors, 1)


def test_a_collector_that_fails_is_missing_and_takes_none_with_it(tmp_path: Path) -> None:
    bad, good = Asked(name="bad", error=RuntimeError("driver")), Asked(name="good")
    asked = sampling(tmp_path, bad, good)
    asked.look()
    asked.look()
    asked.close()
    found = read_telemetry(tmp_path)
    assert found is not None
    assert found.missing["sampler", "bad"] == "RuntimeError: driver"
    assert found.find("host", "looks") is not None
    assert (bad.looks, good.looks) == (3, 3)
    assert bad.closed and good.closed


def test_a_collector_is_asked_in_its_own_rhythm(tmp_path: Path) -> None:
    seldom, often = Asked(name="seldom", every_ns=1 << 60), Asked(name="often")
    asked = sampling(tmp_path, seldom, often)

    def looks() -> int:
        asked.look()
        return often.looks

    wait_for(lambda: looks() == 5, 60, "five looks of the one that is asked often")
    assert seldom.looks == 1


def test_an_expensive_collector_is_asked_less_often(tmp_path: Path) -> None:
    """But for its first look, which finds out what there is."""
    expensive = Asked(costs_ns=2_000_000)
    asked = sampling(tmp_path, expensive)
    begun_ns = time.monotonic_ns()
    for _ in range(100):
        asked.look()
    lasted_ns = time.monotonic_ns() - begun_ns
    assert expensive.looks <= 2 + lasted_ns // (COST_BOUND * expensive.costs_ns)


def test_its_own_cost_is_a_sensor(tmp_path: Path) -> None:
    asked = sampling(tmp_path)
    asked.close()
    found = read_telemetry(tmp_path)
    assert found is not None
    assert found.find("sampler", "cpu_time") is not None
