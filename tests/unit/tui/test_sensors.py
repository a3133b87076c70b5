"""Readings of sensors on the timeline: which comes first, what a cell shows, and the key that changes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from played import screen_of_app, small_capsule
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.timeline.axis import make_axis
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.timeline.sensor_drawing import times_of_cells
from prismdbg_tui.timeline.sensor_row import TITLES, SensorRow, sensor_rows
from prismdbg_tui.timeline.visible_range import VisibleRange
from prismdbg_tui.widgets.timeline import LABEL_WIDTH, Timeline
from shown import told
from textual.pilot import Pilot

from prismdbg.capsule import layout
from prismdbg.log.columns import read_columns
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.excerpt import write_excerpt
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.series import Series, Telemetry

MS = 1_000_000


def series(
    subject: str, name: str, values: list[int], unit: str = "ns", kind: Kind = Kind.COUNTER, every_ns: int = 100 * MS
) -> Series:
    sensor = Sensor(subject, name, unit, kind)
    times = np.arange(len(values), dtype=np.int64) * every_ns
    return Series(sensor=sensor, times_ns=times, values=np.array(values, dtype=np.int64))


def telemetry(*some: Series) -> Telemetry:
    return Telemetry(
        period_ns=100 * MS, wall_offset_ns=0, series={(each.sensor.subject, each.sensor.name): each for each in some}
    )


def spans(*edges_ms: float) -> tuple[np.ndarray, np.ndarray]:
    edges = np.array(edges_ms) * MS
    return edges[:-1], edges[1:]


def test_a_counter_of_time_is_a_share_of_the_time() -> None:
    row = SensorRow(series("rank 0", names.RUN_QUEUE_WAIT, [0, 25 * MS, 75 * MS]))
    assert row.level(*spans(0, 100, 200)).tolist() == [0.25, 0.5]
    assert row.level(*spans(50, 150)).tolist() == [0.375]
    assert row.said(0.5) == "50%"
    assert row.most == 1.0


def test_a_gauge_is_its_mean_and_another_counter_a_rate() -> None:
    power = SensorRow(series("gpu A", "power", [100_000, 300_000], "mW", Kind.GAUGE))
    assert power.level(*spans(0, 100)).tolist() == [200_000]
    assert (power.said(200_000), power.most) == ("200 W", 200_000)
    sent = SensorRow(series("interface eth0", "bytes_sent", [0, 1_000_000], "bytes"))
    assert sent.said(float(sent.level(*spans(0, 100))[0])) == "9.5 MiB/s"


@pytest.mark.parametrize(
    ("unit", "kind", "level", "said"),
    [
        ("bytes", Kind.COUNTER, 0.0, "0 B/s"), ("bytes", Kind.COUNTER, 107_400.0, "105 KiB/s"),
        ("bytes", Kind.COUNTER, 1023 * 1024.0, "1 MiB/s"), ("bytes", Kind.GAUGE, 3.25 * 2**30, "3.2 GiB"),
        ("segments", Kind.COUNTER, 0.0, "0/s"), ("packets", Kind.COUNTER, 12_345.0, "12k/s"),
        ("uJ", Kind.COUNTER, 98_600_000.0, "98.6 W"), ("mW", Kind.GAUGE, 700_000.0, "700 W"),
        ("MHz", Kind.GAUGE, 1980.0, "1980 MHz"), ("m°C", Kind.GAUGE, 65_500.0, "65.5 °C"),
        ("share", Kind.GAUGE, 0.5, "50%"), ("%", Kind.GAUGE, 97.0, "97%"), ("ns", Kind.COUNTER, 1.0, "100%"),
    ],
)  # fmt: skip
def test_a_level_is_short_whatever_its_size(unit: str, kind: Kind, level: float, said: str) -> None:
    assert SensorRow(series("host", "some", [0, 1], unit, kind)).said(level) == said


@pytest.mark.parametrize("name", TITLES)
def test_a_title_leaves_room_for_a_level(name: str) -> None:
    """Beside the longest of a usual one: of a share, a size, a clock, a power or a temperature."""
    longest = {"SM": 8, "clk": 8, "tx": 9, "rx": 9, "power": 6, "chip": 7, "temp": 7, "mem": 8, "drawn": 6}
    title = TITLES[name]
    size = 9 if name.startswith(("pcie", "nvlink")) else longest.get(title, 4)
    assert len(f" {title} ") + size <= LABEL_WIDTH - 1


def test_where_there_are_no_readings_nothing_is_shown() -> None:
    row = SensorRow(series("rank 0", names.CPU_TIME, [0, 10]))
    levels = row.level(*spans(-50, -10, 50, 150, 200))
    assert np.isnan(levels[[0, 3]]).all() and not np.isnan(levels[[1, 2]]).any()
    assert row.said(float("nan")) == "-"


def test_what_says_most_comes_first_and_what_never_changes_last() -> None:
    found = sensor_rows(
        telemetry(
            series("host", "io_pressure_full", [0, 1]),
            series("cpu 0", names.STOLEN_TIME, [0, 0]),
            series("rank 0", names.CPU_TIME, [0, 1]),
            series("rank 0", names.LAST_CPU, [0, 1], "cpu", Kind.GAUGE),
            series("gpu A", names.SM_CLOCK, [1980, 1200], "MHz", Kind.GAUGE),
            series("rank 0", names.DISK_SLEEP, [1], "share", Kind.GAUGE),
        )
    )
    assert [row.title for row in found] == ["SM", "CPU", "io all", "stolen"]
    assert sensor_rows(None) == []


def test_a_stand_in_for_a_device_is_said() -> None:
    fake = Sensor("gpu A", "power", "mW", Kind.GAUGE, Provenance.FAKE)
    flat = series("gpu A", "power", [1, 2])
    assert SensorRow(Series(sensor=fake, times_ns=flat.times_ns, values=flat.values)).described.endswith("fake")


@pytest.mark.parametrize("by_time", [True, False])
def test_cells_are_times_of_the_log_on_either_axis(tmp_path: Path, by_time: bool) -> None:
    capsule = small_capsule(tmp_path)
    recording = Recording(capsule, read_columns(capsule.log))
    stretch = VisibleRange(recording)
    stretch.axis, stretch.cells = make_axis(recording, by_time=by_time), 40
    stretch.zoom(0)
    times = times_of_cells(stretch, recording.columns.begun_ns)
    assert len(times) == 41 and (np.diff(times) >= 0).all()
    begun = recording.columns.begun_ns
    for row in range(len(recording)):
        cell = stretch.begin(row)
        assert times[cell] <= begun[row] <= times[cell + 1] + 1


def with_telemetry(folder: Path) -> PrismApp:
    capsule = small_capsule(folder)
    log = read_columns(capsule.log)
    every_ns, until_ns = 200, int(log.ended_ns.max())
    count = until_ns // every_ns + 2
    kept = [
        series("rank 0", names.RUN_QUEUE_WAIT, [every_ns // 2 * n for n in range(count)], every_ns=every_ns),
        series("rank 0", names.CPU_TIME, [every_ns // 4 * n for n in range(count)], every_ns=every_ns),
    ]
    write_excerpt(capsule.path / layout.TELEMETRY, telemetry(*kept))
    return PrismApp(capsule, "capsule")


def line_of_sensor(app: PrismApp) -> str:
    timeline = app.panes.timeline
    return timeline.render_line(timeline.size.height - 2).text


def test_the_key_goes_through_the_sensors_and_hides_them(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g")
        height = app.panes.timeline.size.height
        assert line_of_sensor(app).startswith(" queue 50%") and "▄" in line_of_sensor(app)
        await pilot.press("r")
        assert line_of_sensor(app).startswith(" CPU 25%")
        await pilot.press("r")
        await pilot.pause()
        assert "CPU" not in line_of_sensor(app) and app.panes.timeline.size.height == height - 1
        await pilot.press("r")
        assert line_of_sensor(app).startswith(" queue")

    screen_of_app(with_telemetry(tmp_path), part)


def test_before_the_recording_is_read_nothing_is_said_of_its_sensors() -> None:
    assert Timeline().next_sensor() == "the recording is still being read"


def test_a_click_on_the_line_shows_the_next_sensor(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g")
        await pilot.click("#timeline", offset=(30, app.panes.timeline.size.height - 1))  # the frame is a line
        await pilot.pause()
        assert line_of_sensor(app).startswith(" CPU")

    screen_of_app(with_telemetry(tmp_path), part)


def test_a_recording_without_telemetry_says_how_to_get_it(tmp_path: Path) -> None:
    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        height = app.panes.timeline.size.height
        await pilot.press("r")
        await pilot.pause()
        assert "record --telemetry" in str(app.panes.status.visual) and not told(app)
        assert app.panes.timeline.size.height == height

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)
