"""Temperatures, power, clocks and energy of the machine, from `/sys`: thermal zones, chips of hwmon, cpufreq, and RAPL
by powercap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.collectors.hwmon import chips
from prismdbg.telemetry.open_files import OpenFile, because, text_of
from prismdbg.telemetry.sensor import HOST, Kind, Sensor, Sink, cpu_subject

ENERGY = "energy"
TEMPERATURE = "temperature"
CPU_THROTTLED = "thermal_throttled"  # how often the CPU slowed itself because it was hot
_MOST_CPUS = 1024


@dataclass(slots=True)
class _Counter:
    """A counter that begins again at 0 after `largest`; what it has counted in all."""

    largest: int
    last: int | None = None
    total: int = 0

    def add(self, value: int) -> int:
        if self.last is not None:
            grew = value - self.last
            self.total += grew if grew >= 0 else grew + self.largest + 1
        self.last = value
        return self.total


class HardwareCollector:
    """What is there is looked up once, at the first look. A counter of energy must be read before it wraps twice, which
    takes a minute at 1 kW."""

    name = "hardware"
    every_ns = 1_000_000_000

    def __init__(self, root: Path) -> None:
        self._sys = root / "sys"
        self._found: list[tuple[OpenFile, Sensor, int]] | None = None
        self._energy: dict[Path, _Counter] = {}

    def sample(self, sink: Sink) -> None:
        if self._found is None:
            found = [*self._zones(sink), *chips(self._sys, sink), *self._frequencies(sink), *self._rapl(sink)]
            self._found = [(OpenFile(path), sensor, factor) for path, sensor, factor in found]
        for file, sensor, factor in self._found:
            try:
                value = int(file.read())
            except OSError as error:
                sink.missing(sensor.subject, sensor.name, because(error, file.path))
                continue
            except ValueError:
                sink.missing(sensor.subject, sensor.name, f"{file.path} does not contain a number")
                continue
            counter = self._energy.get(file.path)
            sink.reading(sensor, (value if counter is None else counter.add(value)) * factor)

    def close(self) -> None:
        for file, _, _ in self._found or ():
            file.close()

    def _zones(self, sink: Sink) -> Iterator[tuple[Path, Sensor, int]]:
        zones = sorted((self._sys / "class/thermal").glob("thermal_zone*"))
        if not zones:
            sink.missing(HOST, TEMPERATURE, f"no thermal zone in {self._sys / 'class/thermal'}")
        for zone in zones:
            title = f"{zone.name} ({text_of(zone / 'type')})"
            yield zone / "temp", Sensor(title, TEMPERATURE, "m°C", Kind.GAUGE), 1

    def _frequencies(self, sink: Sink) -> Iterator[tuple[Path, Sensor, int]]:
        base = self._sys / "devices/system/cpu"
        found = 0
        for cpu in range(_MOST_CPUS):
            folder = base / f"cpu{cpu}"
            if not folder.is_dir():
                break
            if (clock := folder / "cpufreq/scaling_cur_freq").exists():
                found += 1
                yield clock, Sensor(cpu_subject(cpu), names.CPU_FREQUENCY, "Hz", Kind.GAUGE), 1000
            if (throttled := folder / "thermal_throttle/core_throttle_count").exists():
                yield throttled, Sensor(cpu_subject(cpu), CPU_THROTTLED, "times", Kind.COUNTER), 1
        if not found:
            sink.missing(HOST, names.CPU_FREQUENCY, f"no cpufreq in {base}")

    def _rapl(self, sink: Sink) -> Iterator[tuple[Path, Sensor, int]]:
        """Of whole packages and what is inside them; zones of another control type count the same energy again."""
        zones = sorted((self._sys / "class/powercap").glob("intel-rapl:*"))
        if not zones:
            sink.missing(HOST, ENERGY, f"no RAPL zone in {self._sys / 'class/powercap'}")
        for zone in zones:
            path = zone / "energy_uj"
            try:
                largest = int((zone / "max_energy_range_uj").read_text())
            except (OSError, ValueError):
                sink.missing(
                    f"{zone.name} ({text_of(zone / 'name')})", ENERGY, "it does not say where its counter wraps"
                )
                continue
            self._energy[path] = _Counter(largest)
            yield path, Sensor(f"{zone.name} ({text_of(zone / 'name')})", ENERGY, "uJ", Kind.COUNTER), 1
