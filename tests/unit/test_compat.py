"""What `make compat` takes for a success: each file that it names ran a test."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from compat import FILES, ROOT, read


def test_each_file_is_there() -> None:
    assert [name for name in FILES if len(list((ROOT / "tests").rglob(name))) != 1] == []


def reported(folder: Path, names: Sequence[str], skipped: Collection[str] = ()) -> tuple[str, ...]:
    """What failed, by a report of pytest in which each file has one test."""
    cases = (
        f'<testcase classname="tests.integration.{Path(name).stem}" name="test_it[1]">'
        f"{'<skipped/>' if name in skipped else ''}</testcase>"
        for name in names
    )
    report = folder / "report.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    return read(report, demo=True).failed


def test_a_file_that_ran_no_test_is_a_failure(tmp_path: Path) -> None:
    assert reported(tmp_path, FILES) == ()
    assert reported(tmp_path, FILES[1:]) == (f"{FILES[0]} ran no test",)
    assert reported(tmp_path, FILES, skipped=[FILES[-1]]) == (f"{FILES[-1]} ran no test",)
