"""What a recorded configuration took in energy, by the sensors of its machine."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prismdbg.telemetry.sensor import Kind
from prismdbg.telemetry.series import Series, Telemetry

_WATTS = {"mW": 1e-3, "W": 1.0}
# A package's counter has its parts, but not its memory. That of the platform has all packages.
_COUNTED_ALREADY = re.compile(r"intel-rapl:\d+(:\d+ \((?!dram\))| \(psys\))")
_JOULES = {"uJ": 1e-6, "mJ": 1e-3, "J": 1.0}


def of_steps(
    telemetry: Telemetry, begun_ns: Mapping[int, int], steps: Sequence[int]
) -> tuple[float | None, float | None]:
    """Joules of an iteration, and the largest power of a device, between the first and the last of these steps.
    begun_ns: of steps, and of the one after the last."""
    begin_ns, end_ns = begun_ns[steps[0]], begun_ns[steps[-1] + 1]
    taken = joules(telemetry, begin_ns, end_ns)
    each = None if taken is None else taken / (steps[-1] + 1 - steps[0])
    return each, peak_watts(telemetry, begin_ns, end_ns)


def joules(telemetry: Telemetry, begin_ns: int, end_ns: int) -> float | None:
    """Of all counters of energy between two times; None where there is none that was read all that time."""
    counters = _of(telemetry, "energy", begin_ns, end_ns)
    grown = [each.growth(begin_ns, end_ns) * _JOULES[each.sensor.unit] for each in counters]
    return sum(grown) if grown else None


def peak_watts(telemetry: Telemetry, begin_ns: int, end_ns: int) -> float | None:
    """Of one device: the largest reading between two times."""
    gauges = _of(telemetry, "power", begin_ns, end_ns)
    most = [float(each.within(begin_ns, end_ns).max(initial=0)) * _WATTS[each.sensor.unit] for each in gauges]
    return max(most, default=None)


def _of(telemetry: Telemetry, name: str, begin_ns: int, end_ns: int) -> list[Series]:
    kind, units = (Kind.COUNTER, _JOULES) if name == "energy" else (Kind.GAUGE, _WATTS)
    return [
        series
        for (subject, named), series in telemetry.series.items()
        if named == name
        and not _COUNTED_ALREADY.match(subject)
        and series.sensor.kind is kind
        and series.sensor.unit in units
        and series.covers(begin_ns, end_ns)
    ]
