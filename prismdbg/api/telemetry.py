"""The readings of `record --telemetry`, in plain values: a series for each sensor, and the reason for a missing one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.api.tables import table
from prismdbg.errors import NoSuchKey, UsageError
from prismdbg.telemetry.export import of_rank
from prismdbg.telemetry.sensor import Kind, Provenance
from prismdbg.telemetry.series import Series, Telemetry

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Readings:
    """One sensor, in order of time. `subject`: what it belongs to: `rank 3`, `cpu 0`, `gpu UUID`, `host`.

    times_ns: nanoseconds since 1970. values: in `unit`; of a counter, which only grows, since its own begin.
    is_fake: read from a mock library, not a measurement of any device.
    """

    subject: str
    sensor: str
    unit: str
    is_counter: bool
    is_fake: bool
    times_ns: NDArray[np.int64]
    values: NDArray[np.int64]

    def rates(self) -> NDArray[np.float64]:
        """Growth per second from each reading to the next, so one value less than readings. NaN between two readings
        of one time. Raises `UsageError` for a gauge."""
        if not self.is_counter:
            raise UsageError(f"{self.sensor} of {self.subject} is a gauge", hint="use its values")
        elapsed_ns = np.diff(self.times_ns).astype(np.float64)
        elapsed_ns[elapsed_ns <= 0] = np.nan
        rates: NDArray[np.float64] = np.diff(self.values) / elapsed_ns * 1e9
        return rates


class Sensors(Mapping[tuple[str, str], Readings]):
    """Readings by subject and sensor. `Recording.telemetry` returns one.

        >>> with prismdbg.open("RUN") as recording:
        ...     sensors = recording.telemetry()
        >>> sensors.subjects
        ('rank 0', 'gpu GPU-1', 'host')
        >>> sensors["rank 0", "cpu_time"].rates()
        array([5.e+08, 5.e+08])
        >>> sensors.missing
        {('host', 'energy'): 'no RAPL zone'}

    A sensor without readings is never 0: asking for it raises a `UsageError`, also a `KeyError`, with the reason.
    """

    def __init__(self, found: Telemetry) -> None:
        self._found = found

    @property
    def missing(self) -> dict[tuple[str, str], str]:
        """Why a sensor could not be read, by subject and sensor. One that failed later has readings, too."""
        return dict(self._found.missing)

    @property
    def texts(self) -> dict[tuple[str, str], str]:
        """What is no number: the devices of a rank, the name of a GPU."""
        return dict(self._found.texts)

    @property
    def damage(self) -> str:
        """Why readings are incomplete; empty if they are not."""
        older = "older readings were dropped" if self._found.dropped else ""
        return "; ".join(filter(None, [self._found.damage, older]))

    @property
    def subjects(self) -> tuple[str, ...]:
        return tuple(self._found.subjects())

    def of_rank(self, rank: int) -> Sensors:
        """Only those of `rank` and of the GPUs that it used. Raises `UsageError` if there are none."""
        return Sensors(of_rank(self._found, rank))

    def __getitem__(self, key: tuple[str, str]) -> Readings:
        series = self._found.find(*key)
        if series is None:
            subject, sensor = key
            why = self._found.why_missing(subject, sensor)
            raise NoSuchKey(f"no readings of {sensor} of {subject}: {why}", hint="list what there is: list(sensors)")
        return self._readings(series)

    def __contains__(self, key: object) -> bool:
        return key in self._found.series

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._found.series)

    def __len__(self) -> int:
        return len(self._found.series)

    def _readings(self, series: Series) -> Readings:
        sensor = series.sensor
        return Readings(
            subject=sensor.subject,
            sensor=sensor.name,
            unit=sensor.unit,
            is_counter=sensor.kind is Kind.COUNTER,
            is_fake=sensor.provenance is not Provenance.MEASURED,
            times_ns=series.times_ns + self._found.wall_offset_ns,
            values=series.values,
        )

    def columns(self) -> dict[str, Sequence[Any]]:
        """One list per field, with one value per reading of each sensor: `to_pandas` without pandas."""
        found: dict[str, list[Any]] = {
            name: [] for name in ("time_ns", "subject", "sensor", "value", "unit", "is_fake")
        }
        for readings in self.values():
            count = len(readings.values)
            found["time_ns"] += readings.times_ns.tolist()
            found["value"] += readings.values.tolist()
            for name in ("subject", "sensor", "unit", "is_fake"):
                found[name] += [getattr(readings, name)] * count
        return dict(found)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per reading. Needs pandas."""
        return table(self.columns())

    def __repr__(self) -> str:
        return f"<{len(self)} sensors of {len(self.subjects)} subjects, {len(self._found.missing)} missing>"
