"""What steps took in energy, from scripted sensors: a package of 200 W, a GPU of 300 W with a peak of 700 W."""

from __future__ import annotations

import numpy as np
import pytest

from prismdbg.sweep.energy import of_steps
from prismdbg.telemetry.sensor import Kind, Sensor
from prismdbg.telemetry.series import Series, Telemetry

SECOND_NS = 1_000_000_000
BEGUN_NS = {step: 10 * SECOND_NS + step * 2 * SECOND_NS for step in range(6)}  # steps of 2 s
EVERY_NS = SECOND_NS // 10


def series(subject: str, name: str, unit: str, kind: Kind, values: dict[float, int] | int, until_s: float) -> Series:
    """`values`: a level from a second on, or what a counter grows by in a second."""
    times = np.arange(9 * SECOND_NS, int(until_s * SECOND_NS), EVERY_NS, dtype=np.int64)
    if isinstance(values, int):
        found = (values * (times - times[0]) // SECOND_NS).astype(np.int64)
    else:
        since = np.searchsorted([second * SECOND_NS for second in values], times, side="right") - 1
        found = np.array(list(values.values()), dtype=np.int64)[since]
    return Series(sensor=Sensor(subject, name, unit, kind), times_ns=times, values=found)


def telemetry(*found: Series) -> Telemetry:
    named = {(each.sensor.subject, each.sensor.name): each for each in found}
    return Telemetry(period_ns=EVERY_NS, wall_offset_ns=0, series=named)


def energy(subject: str, unit: str, in_a_second: int, until_s: float = 30) -> Series:
    return series(subject, "energy", unit, Kind.COUNTER, in_a_second, until_s)


def power(subject: str, unit: str, levels: dict[float, int], until_s: float = 30) -> Series:
    return series(subject, "power", unit, Kind.GAUGE, levels, until_s)


def test_joules_of_a_step_are_those_of_all_counters_without_what_a_package_counts_already() -> None:
    package, part = "intel-rapl:0 (package-0)", "intel-rapl:0:0 (core)"
    found = telemetry(
        energy(package, "uJ", 200_000_000), energy(part, "uJ", 150_000_000), energy("gpu GPU-1", "mJ", 300_000)
    )
    joules, _ = of_steps(found, BEGUN_NS, [1, 2, 4])
    assert joules == pytest.approx(2 * (200 + 300)), "from step 1 to the end of step 4, of 2 s each"


def test_memory_is_counted_beside_packages_and_the_platform_which_has_both_is_not() -> None:
    zones = {
        "intel-rapl:0 (package-0)": 200,
        "intel-rapl:0:0 (core)": 150,
        "intel-rapl:0:1 (dram)": 30,
        "intel-rapl:0:1 (dram) on n2": 20,
        "intel-rapl:1 (psys)": 260,
        "intel-rapl:1 (psys) on n2": 250,
    }
    found = telemetry(*(energy(zone, "uJ", watts * 10**6) for zone, watts in zones.items()))
    joules, _ = of_steps(found, BEGUN_NS, [1, 2])
    assert joules == pytest.approx(2 * (200 + 30 + 20))


def test_peak_power_is_that_of_one_device_within_the_steps() -> None:
    first = power("gpu GPU-1", "mW", {9: 900_000, 12: 300_000, 15: 700_000, 15.5: 300_000, 20: 800_000})
    found = telemetry(first, power("gpu GPU-2", "mW", {9: 400_000}))
    assert of_steps(found, BEGUN_NS, [2, 3]) == (None, pytest.approx(700))


def test_a_sensor_that_was_not_read_all_the_time_is_not_counted() -> None:
    found = telemetry(energy("gpu GPU-1", "mJ", 300_000, until_s=15), power("gpu GPU-1", "mW", {9: 1}, until_s=15))
    assert of_steps(found, BEGUN_NS, [1, 2, 3, 4]) == (None, None)
    assert of_steps(telemetry(), BEGUN_NS, [1]) == (None, None)
