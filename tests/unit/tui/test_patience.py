"""How long the screen waits for a rank: `debug --timeout`, from the command line to what is seen when it is over."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from played import PlayedRank, PlayedTravel, screen_of, small_capsule, stopped, until
from prismdbg_tui import start
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.views import Phase
from textual.pilot import Pilot

from prismdbg.cli import main
from prismdbg.jobs.replay.replay_plan import ReplayRequest

BOUND_S = 0.2


def app_over(rank: PlayedRank, folder: Path, monkeypatch: pytest.MonkeyPatch) -> PrismApp:
    """As `start.debug` makes it, over a played rank."""
    capsule = small_capsule(folder)

    @contextmanager
    def open_travel(request: ReplayRequest, say: Callable[[str], None]) -> Iterator[PlayedTravel]:
        yield PlayedTravel(capsule, rank)

    monkeypatch.setattr("prismdbg.debugger.time_travel.open_travel", open_travel)
    return PrismApp(capsule, "capsule", live=start.live_rank(ReplayRequest(capsule=capsule), BOUND_S))


def said(app: PrismApp) -> str:
    return "\n".join(app.panes.console.log_pane.lines_said)


def test_a_rank_that_does_not_come_to_a_collective_is_told_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs on: what it does later is seen, and escape still stops it."""
    rank = PlayedRank()
    rank.answers["progress"] = progress = Progress()
    rank.answers["pause"] = lambda _: rank.tell(stopped("0.2", 3, "paused")) or {}

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        await until(lambda: app.state.phase is Phase.STOPPED, pilot)
        progress.stands = False
        await pilot.press("n")
        await until(lambda: f"waited {BOUND_S} s for the rank's next collective after 0.0" in said(app), pilot)
        assert "give a longer --timeout" in said(app)
        await until(lambda: app.state.phase is Phase.RUNS_ON, pilot)
        rank.tell(stopped("0.1", 2))
        await until(lambda: app.state.phase is Phase.STOPPED and str(app.state.moment) == "0.1", pilot)
        await pilot.press("n")
        await until(lambda: said(app).count("give a longer --timeout") == 2, pilot)
        await pilot.press("escape")
        await until(lambda: app.state.phase is Phase.STOPPED and str(app.state.moment) == "0.2", pilot)

    screen_of(part, tmp_path, rank, app=app_over(rank, tmp_path, monkeypatch))


def test_a_screen_of_a_lost_rank_leaves_a_line_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(app: PrismApp, *_: Any) -> int:
        app.state = replace(app.state, phase=Phase.LOST, lost_because="its process ended with 137\nmore")
        return 0

    monkeypatch.setattr(start, "_shown", shown)
    talk = io.StringIO()
    assert start.debug(ReplayRequest(capsule=small_capsule(tmp_path)), "capsule", talk, BOUND_S) == 6
    assert talk.getvalue() == "prismdbg: the rank is lost: its process ended with 137\n"


class Progress:
    """The rank's answer to `progress`: it stands at its beginning, or runs and comes nowhere."""

    stands = True

    def __call__(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"moment": "0.0", "stopped": "start" if self.stands else None, "number": 1, "tally": {}}


@pytest.mark.parametrize(("options", "bound_s"), [((), 600.0), (("--timeout", "2m"), 120.0)])
def test_the_command_line_says_how_long(
    options: tuple[str, ...], bound_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def screen(request: Any, name: str, talk: Any, bound_s: float, at: Any, **others: Any) -> int:
        given.append(bound_s)
        return 0

    monkeypatch.setattr(start, "debug", screen)
    monkeypatch.setattr(start, "on_terminal", lambda: True)
    monkeypatch.setenv("TEXTUAL_DRIVER", "in a browser")
    assert main.run(["debug", str(small_capsule(tmp_path).path), *options]) == 0
    assert given == [bound_s]
