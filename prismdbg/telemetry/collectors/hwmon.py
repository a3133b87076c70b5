"""The machine's chips that measure temperature and power, from `/sys/class/hwmon`
(Documentation/hwmon/sysfs-interface.rst)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prismdbg.telemetry.open_files import text_of
from prismdbg.telemetry.sensor import HOST, Kind, Sensor, Sink

TEMPERATURE, POWER = "chip_temperature", "chip_power"
_KINDS = ((TEMPERATURE, "m°C", ("temp*_input",)), (POWER, "uW", ("power*_input", "power*_average")))
_MOST = 64  # of a kind
_LONGEST_NS = 20_000_000  # of a reading: a chip behind a slow bus would hold up all other sensors


def reading_ns(path: Path) -> int:
    begun_ns = time.monotonic_ns()
    text_of(path)
    return time.monotonic_ns() - begun_ns


def chips(sys: Path, sink: Sink, takes_ns: Callable[[Path], int] = reading_ns) -> Iterator[tuple[Path, Sensor, int]]:
    """Files, their sensors, and by what their numbers are multiplied. Those of single cores are left out: the kernel
    interrupts a core to read its temperature. A slow one is missing, if it was slow twice: once, the sampler itself may
    have waited for a CPU."""
    folder = sys / "class/hwmon"
    for name, unit, patterns in _KINDS:
        files = sorted(path for pattern in patterns for path in folder.glob(f"hwmon*/{pattern}"))
        shared = [path for path in files if not _label(path).startswith("Core ")]
        if not shared:
            sink.missing(HOST, name, f"no chip with a sensor of it in {folder}")
        for path in shared[:_MOST]:
            sensor = Sensor(_title(path), name, unit, Kind.GAUGE)
            if takes_ns(path) > _LONGEST_NS and takes_ns(path) > _LONGEST_NS:
                sink.missing(sensor.subject, name, f"a reading takes more than {_LONGEST_NS // 1_000_000} ms")
            else:
                yield path, sensor, 1


def _title(path: Path) -> str:
    """As `hwmon2 (nvme Composite)`."""
    return f"{path.parent.name} ({text_of(path.parent / 'name')} {_label(path)})"


def _label(path: Path) -> str:
    """What the driver calls the input; `temp1` without that."""
    channel = path.name.partition("_")[0]
    label = path.with_name(f"{channel}_label")
    return text_of(label) if label.exists() else channel
