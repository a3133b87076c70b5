"""Whether the GPU of a late rank slowed itself while those of the others did not, and how much that can explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from prismdbg.diagnosis.lateness.cause import Why
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttled:
    """A GPU that slowed itself in `share` of the readings, while those of the other ranks did not. ratio: of its SM
    clock to theirs; busy: in which share of the span it computed. None where that was not read."""

    device: Device
    why: Why
    title: str
    share: float
    ratio: float | None
    busy: float | None

    @property
    def text(self) -> str:
        name = self.device.telemetry.texts.get((self.device.subject, "name"), "a GPU")
        return (
            f"its GPU {self.device.uuid} ({name}) was throttled by {self.title} in {self.share:.0%} of the readings, "
            "those of the others were not"
        )

    @property
    def lacks(self) -> str:
        """What is to be known before it is the cause, and why it is not; empty where it is known."""
        read = {names.SM_CLOCK: self.ratio, names.UTILIZATION: self.busy}
        name = next((name for name, value in read.items() if value is None), "")
        telemetry, subject = self.device.telemetry, self.device.subject
        return f"{name} of {subject} is not available: {telemetry.why_missing(subject, name)}" if name else ""

    @property
    def lines(self) -> tuple[str, ...]:
        clock = () if self.ratio is None else (f"its SM clock was {self.ratio:.0%} of the others'",)
        busy = () if self.busy is None else (f"it computed in {self.busy:.0%} of the time",)
        fake = ("fake: the readings are of a library that stands in for a driver",) if self.is_fake else ()
        return (*clock, *busy, *fake)

    @property
    def is_fake(self) -> bool:
        series = self.device.telemetry.find(self.device.subject, names.THROTTLE_REASONS)
        return series is not None and series.sensor.provenance is Provenance.FAKE

    def slower_ns(self, lasted_ns: float, in_collectives_ns: float) -> float:
        """How much of a span its clock took at most: its computation, as much slower as the clock. On many GPUs it also
        counts as busy while a collective waits."""
        if self.ratio is None or self.busy is None:
            return 0.0
        computed_ns = min(self.busy * lasted_ns, max(lasted_ns - in_collectives_ns, 0.0))
        return computed_ns * max(1 - self.ratio, 0.0)


def throttled(own: Sequence[Device], others: Sequence[Device]) -> Throttled | None:
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
            busy = device.read(names.UTILIZATION)
            computed = float(busy.mean()) / 100 if busy is not None and len(busy) else None
            return Throttled(device=device, why=why, title=title, share=share, ratio=ratio, busy=computed)
    return None


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
