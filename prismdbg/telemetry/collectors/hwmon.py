"""The machine's chips that measure temperature and power, from `/sys/class/hwmon`
(Documentation/hwmon/sysfs-interface.rst)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.telemetry.open_files import text_of
from prismdbg.telemetry.sensor import HOST, Kind, Sensor, Sink

TEMPERATURE, POWER = "chip_temperature", "chip_power"
_KINDS = ((TEMPERATURE, "m°C", ("temp*_input",)), (POWER, "uW", ("power*_input", "power*_average")))
_MOST = 64  # of a kind
_LONGEST_NS = 20_000_000  # of a reading: a chip behind a slow bus would hold up all other sensors
_LONGEST_LOOK_NS = 500_000_000  # of all first readings together, for the same reason


def reading_ns(path: Path) -> int:
    begun_ns = time.monotonic_ns()
    text_of(path)
    return time.monotonic_ns() - begun_ns


def chips(sys: Path, sink: Sink, takes_ns: Callable[[Path], int] = reading_ns) -> Iterator[tuple[Path, Sensor, int]]:
    """Files, their sensors, and by what their numbers are multiplied. Those of single cores are left out: the kernel
    interrupts a core to read its temperature. A slow one is missing, if it was slow twice: once, the sampler itself may
    have waited for a CPU."""
    folder, look = sys / "class/hwmon", _Look(takes_ns)
    for name, unit, patterns in _KINDS:
        files = sorted(path for pattern in patterns for path in folder.glob(f"hwmon*/{pattern}"))
        shared = [path for path in files if not _is_second(path) and not _label(path).startswith("Core ")]
        if not shared:
            sink.missing(HOST, name, f"no chip with a sensor of it in {folder}")
        for path, title in _titles(shared[:_MOST]).items():
            if why := look.why_not(path):
                sink.missing(title, name, why)
            else:
                yield path, Sensor(title, name, unit, Kind.GAUGE), 1


@dataclass(slots=True)
class _Look:
    """The first readings, which find out how long each takes."""

    takes_ns: Callable[[Path], int]
    took_ns: int = 0

    def why_not(self, path: Path) -> str:
        """Why the file is not read from here on; empty if it is."""
        if self.took_ns > _LONGEST_LOOK_NS:
            return f"the chips before it take more than {_LONGEST_LOOK_NS // 1_000_000} ms"
        if self._is_slow(path) and self._is_slow(path):
            return f"a reading takes more than {_LONGEST_NS // 1_000_000} ms"
        return ""

    def _is_slow(self, path: Path) -> bool:
        took_ns = self.takes_ns(path)
        self.took_ns += took_ns
        return took_ns > _LONGEST_NS


def _is_second(path: Path) -> bool:
    """The average of an input that can be read itself."""
    return not path.name.endswith("_input") and path.with_name(f"{_channel(path)}_input").exists()


def _titles(paths: Sequence[Path]) -> dict[Path, str]:
    """As `hwmon2 (nvme Composite)`; with its channel where two inputs of a chip have one label."""
    titles = {path: _title(path, _label(path)) for path in paths}
    uses = Counter(titles.values())
    return {
        path: title if uses[title] == 1 else _title(path, f"{_label(path)} {_channel(path)}")
        for path, title in titles.items()
    }


def _title(path: Path, label: str) -> str:
    return f"{path.parent.name} ({text_of(path.parent / 'name')} {label})"


def _channel(path: Path) -> str:
    return path.name.partition("_")[0]


def _label(path: Path) -> str:
    """What the driver calls the input; `temp1` without that."""
    label = path.with_name(f"{_channel(path)}_label")
    return text_of(label) if label.exists() else _channel(path)
