"""This recording beside another one, on the screen: by a key, and on to the first difference."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsules import make_capsule
from played import screen_of_app, until
from prismdbg_tui.screens.differences import Differences
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.comparer import compared
from prismdbg_tui.session.messages import Compared, Failed
from shown import raising
from textual.pilot import Pilot
from textual.widgets import Static
from tiny_log import TinyLog

from prismdbg.api import recording
from prismdbg.capsule.capsule_dir import Capsule


def capsule_in_a_run(folder: Path, *, other: bytes = bytes([1, 1]) * 8) -> Capsule:
    """Rank 1 of the run received `other` in its third collective, 1.1, and rank 0 nothing else."""
    run = folder / "run"
    for rank in range(2):
        log = TinyLog(run / "ranks" / f"{rank}.0", rank)
        log.group("0", (0, 1), "default_pg")
        for step in range(3):
            for nth in (1, 2):
                data = other if (rank, step, nth) == (1, 1, 1) else bytes([step, nth]) * 8
                log.complete(log.issue(step, nth), data)
            log.step(step + 1)
    (run / "run.json").write_text('{"command": ["python"], "started_wall_ns": 1}')
    return make_capsule(run / "capsules" / "capsule")


def test_a_rank_of_the_same_run_and_on_to_where_it_differs(tmp_path: Path) -> None:
    app = PrismApp(capsule_in_a_run(tmp_path, other=b"\0\0\x80\x3f" * 4), "capsule")

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await pilot.press("g", "D", *"rank 1", "enter")
        await until(lambda: isinstance(app.screen, Differences), pilot)
        shown = str(app.screen.query_one(Static).content)
        assert "first difference: received other values" in shown and "output[0] float32[4]" in shown
        assert "A median" in shown, "times side by side"
        await pilot.press("enter")
        await until(lambda: app.cursor == 2, pilot)

    screen_of_app(app, part, (80, 24))


def test_where_other_values_were_sent_it_is_seen_what_was_received(tmp_path: Path) -> None:
    capsule, fixed = capsule_in_a_run(tmp_path), TinyLog(tmp_path / "fixed" / "ranks" / "0")
    fixed.group("0", (0, 1), "default_pg")
    for step, nth in ((0, 1), (0, 2), (1, 1), (1, 2)):
        data = b"\0\0\x80\x3f" * 4 if step else bytes([step, nth]) * 8
        fixed.complete(fixed.issue(step, nth), data, sent=7 if (step, nth) == (0, 2) else None)
    found = compared(capsule, str(tmp_path / "fixed"))
    assert isinstance(found, Compared), getattr(found, "text", "")
    assert str(found.moment) == "0.2" and found.lines[0] == "first difference: sent other values"
    (at,) = (number for number, line in enumerate(found.lines) if "it received other values at 1.1" in line)
    assert found.lines[at + 1].startswith("  output[0] float32[4]: 4 elements differ, by at most 1")


@pytest.mark.parametrize(
    ("what", "equal"), [("rank 1", True), ("{run}", True), ("{run} rank 1", True), ("{run}/capsules/capsule", True)]
)
def test_what_one_can_name(tmp_path: Path, what: str, equal: bool) -> None:
    capsule = capsule_in_a_run(tmp_path)
    found = compared(capsule, what.format(run=capsule.path.parent.parent))
    assert isinstance(found, Compared), getattr(found, "text", "")
    assert (found.equal, found.moment) == (equal, None)


@pytest.mark.parametrize(
    ("what", "said"),
    [("rank 7", "has no rank 7"), ("/missing", "no such file"), ("{run} rank 99999999999", "no such file")],
)
def test_what_is_not_there_is_told(tmp_path: Path, what: str, said: str) -> None:
    capsule = capsule_in_a_run(tmp_path)
    found = compared(capsule, what.format(run=capsule.path.parent.parent))
    assert isinstance(found, Failed) and said in found.text and found.hint


def test_what_is_removed_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capsule = capsule_in_a_run(tmp_path)
    monkeypatch.setattr(
        recording, "open_recording", raising(FileNotFoundError(2, "No such file or directory", "/run/x"))
    )
    found = compared(capsule, "rank 1")
    assert (
        isinstance(found, Failed) and found.text == "/run/x is gone: the recording was removed or moved" and found.hint
    )


def test_an_error_that_nobody_has_foreseen_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    capsule = capsule_in_a_run(tmp_path)
    monkeypatch.setattr(recording, "open_recording", raising(TimeoutError("timed out")))
    with pytest.raises(TimeoutError):
        compared(capsule, "rank 1")


@pytest.mark.parametrize("what", ["x" * 300, "x" * 5000])
def test_of_a_path_that_is_too_long_it_is_said_what_to_do(tmp_path: Path, what: str) -> None:
    found = compared(capsule_in_a_run(tmp_path), what)
    assert (
        isinstance(found, Failed)
        and found.text.endswith(": File name too long")
        and found.hint == "give a shorter path"
    )


def test_outside_of_a_run_there_is_no_other_rank(tmp_path: Path) -> None:
    found = compared(make_capsule(tmp_path / "capsule"), "rank 1")
    assert isinstance(found, Failed) and found.text == "the RUN of this capsule was not found" and found.hint
