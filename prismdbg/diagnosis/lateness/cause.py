"""Why a rank was late, as a value. `late_cause` finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Why(StrEnum):
    QUOTA = "quota"
    STOLEN = "stolen_time"
    RUN_QUEUE = "run_queue"
    COMPUTES = "computes_longer"
    CLOCK = "cpu_clock"
    DISK = "disk"
    ASLEEP = "asleep"
    LINK = "link"
    OTHER_CALLS = "other_calls"  # a part of the lateness, never named: peers or links, nobody knows
    GPU_THERMAL = "gpu_thermal"
    GPU_POWER = "gpu_power"
    GPU_HARDWARE = "gpu_hardware"
    SEVERAL = "several"  # no single one
    UNKNOWN = "unknown"  # a sensor is missing

    @property
    def is_named(self) -> bool:
        return self not in (Why.SEVERAL, Why.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class LateCause:
    """explained: how much of the lateness each cause explains, 1 is all; empty where a sensor is missing. is_fake: it
    rests on readings of a library that stands in for a driver."""

    why: Why
    text: str
    lines: tuple[str, ...] = ()
    explained: Mapping[Why, float]
    is_fake: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "why": str(self.why),
            "text": self.text,
            "lines": list(self.lines),
            "explained": {str(why): round(share, 3) for why, share in self.explained.items()},
            "fake": self.is_fake,
        }


def lines_of(cause: LateCause | None) -> tuple[str, ...]:
    """What stands below a verdict."""
    if cause is None:
        return ()
    return (f"why: {cause.text}" if cause.why.is_named else cause.text, *cause.lines)
