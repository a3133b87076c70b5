"""Asks collectors for readings, each in its own rhythm, and never for more of a CPU than is granted."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prismdbg.telemetry.sensor import SAMPLER, Collector, Kind, Sensor
from prismdbg.telemetry.writer import TelemetryWriter

FLUSH_NS = 1_000_000_000
COST_BOUND = 500  # a collector is asked so seldom that it takes at most this part of a CPU
_OWN_TIME = Sensor(SAMPLER, "cpu_time", "ns", Kind.COUNTER)


class Sampling:
    """`look` takes what is due. A collector that fails is said to be missing, and asked again at the next time."""

    def __init__(self, writer: TelemetryWriter, collectors: Sequence[Collector], period_ns: int) -> None:
        self.period_ns = period_ns
        self._writer = writer
        self._collectors = collectors
        self._due_ns = {collector.name: 0 for collector in collectors}
        self._cost_ns: dict[str, int] = {}
        self._flushed_ns = time.monotonic_ns()

    def look(self) -> None:
        for collector in self._collectors:
            if time.monotonic_ns() >= self._due_ns[collector.name]:
                self._ask(collector)
        if time.monotonic_ns() - self._flushed_ns >= FLUSH_NS:
            self._flush()

    def close(self) -> None:
        for collector in self._collectors:
            self._ask(collector)
        self._flush()
        self._writer.close()
        for collector in self._collectors:
            collector.close()

    def _ask(self, collector: Collector) -> None:
        """The cheaper one of its last two looks says when it is due again: a first one looks up what there is."""
        begun_ns, used_ns = time.monotonic_ns(), time.thread_time_ns()
        self._writer.now_ns = begun_ns
        try:
            collector.sample(self._writer)
        except Exception as error:  # one that fails takes none of the others with it
            self._writer.missing(SAMPLER, collector.name, f"{type(error).__name__}: {error}")
        cost_ns = time.thread_time_ns() - used_ns
        lesser_ns = min(cost_ns, self._cost_ns.get(collector.name, 0))
        self._cost_ns[collector.name] = cost_ns
        pause_ns = max(collector.every_ns - self.period_ns // 2, COST_BOUND * lesser_ns)
        self._due_ns[collector.name] = begun_ns + pause_ns

    def _flush(self) -> None:
        self._flushed_ns = self._writer.now_ns = time.monotonic_ns()
        self._writer.reading(_OWN_TIME, time.process_time_ns())
        self._writer.flush()
