"""Whether the GPU of a late rank slowed itself while those of the other ranks did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from prismdbg.diagnosis.lateness.cause import LateCause, Why
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import Provenance, rank_subject
from prismdbg.telemetry.series import Ints, Telemetry

_LEAST_SHARE = 0.5  # of the readings in the span
_MOST_OF_OTHERS = 0.25
_SLOWER_CLOCK = 0.9
# nvml.h, nvmlClocksEventReason*
_THERMAL = 0x20 | 0x40
_POWER = 0x04 | 0x80
_HARDWARE = 0x08  # of which the reason is one of the two above, or not said
_KINDS = (
    (Why.GPU_THERMAL, "heat", _THERMAL),
    (Why.GPU_POWER, "power", _POWER),
    (Why.GPU_HARDWARE, "hardware", _HARDWARE),
)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU that a rank computed on: readings of its node, and the span by the clock of that."""

    telemetry: Telemetry
    uuid: str
    span: tuple[int, int]

    @property
    def subject(self) -> str:
        return f"gpu {self.uuid}"

    def read(self, name: str) -> Ints | None:
        """In the span; None where the sensor was not read all the time."""
        series = self.telemetry.find(self.subject, name)
        return series.within(*self.span) if series is not None and series.covers(*self.span) else None


def devices_of(telemetry: Telemetry, folder: str, span: tuple[int, int]) -> list[Device]:
    listed = telemetry.texts.get((rank_subject(folder), names.DEVICE), "")
    return [Device(telemetry, uuid, span) for uuid in listed.split(",") if uuid]


def device_throttle(own: Sequence[Device], others: Sequence[Device]) -> LateCause | None:
    """None where no GPU of the rank did, where the others' did, too, or where their clocks were alike."""
    for device in own:
        for why, title, bits in _KINDS:
            share = _share(device, bits)
            shares = [found for other in others if (found := _share(other, bits)) is not None]
            if share is None or not shares or share < _LEAST_SHARE or median(shares) > _MOST_OF_OTHERS:
                continue
            ratio = _clock_ratio(device, others)
            if ratio is not None and ratio > _SLOWER_CLOCK:
                continue
            return _said(device, why, title, share, ratio)
    return None


def _said(device: Device, why: Why, title: str, share: float, ratio: float | None) -> LateCause:
    telemetry, subject = device.telemetry, device.subject
    series = telemetry.find(subject, names.THROTTLE_REASONS)
    is_fake = series is not None and series.sensor.provenance is Provenance.FAKE
    name = telemetry.texts.get((subject, "name"), "a GPU")
    clock = (
        f"its SM clock was {ratio:.0%} of the others'"
        if ratio is not None
        else f"{names.SM_CLOCK} of {subject} is not available: {telemetry.why_missing(subject, names.SM_CLOCK)}"
    )
    lines = (clock, "fake: the readings are of a library that stands in for a driver") if is_fake else (clock,)
    text = (
        f"its GPU {device.uuid} ({name}) was throttled by {title} in {share:.0%} of the readings, "
        "those of the others were not"
    )
    return LateCause(why=why, text=text, lines=lines, explained={}, is_fake=is_fake)


def _share(device: Device, bits: int) -> float | None:
    values = device.read(names.THROTTLE_REASONS)
    return float(np.mean((values & bits) != 0)) if values is not None and len(values) else None


def _clock_ratio(device: Device, others: Sequence[Device]) -> float | None:
    own = _clock(device)
    known = [clock for other in others if other.uuid != device.uuid and (clock := _clock(other))]
    return own / median(known) if own is not None and known else None


def _clock(device: Device) -> float | None:
    values = device.read(names.SM_CLOCK)
    return float(values.mean()) if values is not None and len(values) else None
