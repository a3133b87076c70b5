"""A sink that keeps what collectors give it."""

from __future__ import annotations

from dataclasses import dataclass, field

from prismdbg.telemetry.sensor import Sensor


@dataclass
class Collected:
    readings: dict[Sensor, list[int]] = field(default_factory=dict)
    absent: dict[tuple[str, str], str] = field(default_factory=dict)
    texts: dict[tuple[str, str], str] = field(default_factory=dict)

    def reading(self, sensor: Sensor, value: int) -> None:
        self.readings.setdefault(sensor, []).append(value)

    def missing(self, subject: str, name: str, why: str) -> None:
        self.absent[subject, name] = why

    def text(self, subject: str, name: str, value: str) -> None:
        self.texts[subject, name] = value

    def values(self, subject: str, name: str) -> list[int]:
        return next((v for s, v in self.readings.items() if (s.subject, s.name) == (subject, name)), [])

    def last(self, subject: str, name: str) -> int | None:
        return next(iter(self.values(subject, name)[-1:]), None)
