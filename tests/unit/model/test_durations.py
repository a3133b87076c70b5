"""Times as people read them: one unit of each size, in all that is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from prismdbg_tui.drawing import figures

from prismdbg.model.durations import brief, four_digits
from prismdbg.simulate.quantities import say_time, time_ns, write_time

HERE = Path(__file__).parents[3]
WRITTEN = re.compile(r"""\} ?us\b|["']us["']""")
READ = {"prismdbg/simulate/quantities.py", "tui/prismdbg_tui/session/pattern.py"}  # take what is typed


@pytest.mark.parametrize("say", [brief, four_digits, figures.duration, say_time])
def test_microseconds_are_written_with_one_sign(say: Callable[[int], str]) -> None:
    assert say(537_000) == "537 µs"


def test_rounding() -> None:
    assert [brief(ns) for ns in (0, 7, 1500, 12_340_000, 310 * 10**9)] == ["0 ns", "7 ns", "1.5 µs", "12.3 ms", "310 s"]
    assert [four_digits(ns) for ns in (537_512, 12_345_678)] == ["537.5 µs", "12.35 ms"]
    assert [four_digits(ns * 10**9) for ns in (9999, 10_004, 23_983, 1_234_567)] == [
        "9999 s", "10,000 s", "23,980 s", "1,235,000 s",
    ]  # fmt: skip


def test_what_is_rounded_to_the_next_unit_is_said_in_it() -> None:
    assert [brief(ns) for ns in (999_499, 999_700, 999_999_999, 999_600)] == ["999 µs", "1.0 ms", "1.0 s", "1.0 ms"]
    assert [four_digits(ns) for ns in (999_940, 999_990, 999_996_000)] == ["999.9 µs", "1 ms", "1 s"]
    assert figures.duration(999_700) == "1.0 ms"
    assert [brief(ns * 10**9) for ns in (999, 1234)] == ["999 s", "1234 s"]


def test_a_file_has_the_unit_that_can_be_typed_and_both_are_read() -> None:
    assert write_time(4_500) == "4.5 us" and time_ns("4.5 us") == time_ns("4.5 µs") == 4_500


def test_nothing_else_writes_times_in_us() -> None:
    files = [path for folder in ("prismdbg", "tui/prismdbg_tui") for path in (HERE / folder).rglob("*.py")]
    assert {str(path.relative_to(HERE)) for path in files if WRITTEN.search(path.read_text())} == READ
