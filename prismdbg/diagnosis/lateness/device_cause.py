"""Whether the GPU of a late rank slowed itself while those of the other ranks did not."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

import numpy as np

from prismdbg.diagnosis.lateness.cause import LateCause, Why
from prismdbg.diagnosis.lateness.late_span import LateSpan
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import Provenance, rank_subject
from prismdbg.telemetry.series import Series, Telemetry

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


def device_throttle(telemetry: Telemetry, span: LateSpan, folder: Callable[[int], str]) -> LateCause | None:
    """None where no GPU of the rank did, where the others' did, too, or where their clocks were alike."""
    devices = {rank: _devices(telemetry, folder(rank)) for rank in (span.rank, *span.others)}
    others = [uuid for rank in span.others for uuid in devices[rank]]
    for uuid in devices[span.rank]:
        for why, title, bits in _KINDS:
            share = _share(telemetry, uuid, bits, span)
            shares = [found for other in others if (found := _share(telemetry, other, bits, span)) is not None]
            if share is None or not shares or share < _LEAST_SHARE or median(shares) > _MOST_OF_OTHERS:
                continue
            ratio = _clock_ratio(telemetry, uuid, others, span)
            if ratio is not None and ratio > _SLOWER_CLOCK:
                continue
            return _said(telemetry, uuid, why, title, share, ratio)
    return None


def _said(telemetry: Telemetry, uuid: str, why: Why, title: str, share: float, ratio: float | None) -> LateCause:
    series = telemetry.find(f"gpu {uuid}", names.THROTTLE_REASONS)
    is_fake = series is not None and series.sensor.provenance is Provenance.FAKE
    name = telemetry.texts.get((f"gpu {uuid}", "name"), "a GPU")
    clock = (
        f"its SM clock was {ratio:.0%} of the others'"
        if ratio is not None
        else f"{names.SM_CLOCK} of gpu {uuid} is not available: {telemetry.why_missing(f'gpu {uuid}', names.SM_CLOCK)}"
    )
    lines = (clock, "fake: the readings are of a library that stands in for a driver") if is_fake else (clock,)
    text = (
        f"its GPU {uuid} ({name}) was throttled by {title} in {share:.0%} of the readings, those of the others were not"
    )
    return LateCause(why=why, text=text, lines=lines, explained={}, is_fake=is_fake)


def _devices(telemetry: Telemetry, folder: str) -> list[str]:
    listed = telemetry.texts.get((rank_subject(folder), names.DEVICE), "")
    return [uuid for uuid in listed.split(",") if uuid]


def _read(telemetry: Telemetry, uuid: str, name: str, span: LateSpan) -> Series | None:
    series = telemetry.find(f"gpu {uuid}", name)
    return series if series is not None and series.covers(span.begin_ns, span.end_ns) else None


def _share(telemetry: Telemetry, uuid: str, bits: int, span: LateSpan) -> float | None:
    series = _read(telemetry, uuid, names.THROTTLE_REASONS, span)
    values = series.within(span.begin_ns, span.end_ns) if series is not None else np.zeros(0, dtype=np.int64)
    return float(np.mean((values & bits) != 0)) if len(values) else None


def _clock_ratio(telemetry: Telemetry, uuid: str, others: list[str], span: LateSpan) -> float | None:
    clocks = {each: _clock(telemetry, each, span) for each in (uuid, *others)}
    known = [clock for each, clock in clocks.items() if each != uuid and clock]
    own = clocks[uuid]
    return own / median(known) if own is not None and known else None


def _clock(telemetry: Telemetry, uuid: str, span: LateSpan) -> float | None:
    series = _read(telemetry, uuid, names.SM_CLOCK, span)
    values = series.within(span.begin_ns, span.end_ns) if series is not None else np.zeros(0, dtype=np.int64)
    return float(values.mean()) if len(values) else None
