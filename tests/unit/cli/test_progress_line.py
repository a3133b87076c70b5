"""How far long work is, in a line that gives way to what is said next; and nothing of it in a pipe."""

from __future__ import annotations

import io
import os
from dataclasses import replace

import pytest

from prismdbg.cli.terminal.long_work import LongWork
from prismdbg.cli.terminal.progress_line import ProgressLine
from prismdbg.model.moment import Moment
from prismdbg.render.stop_text import progress_text, progress_texts
from prismdbg.session.notices import Progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((20, 5)))


def test_it_gives_way_and_never_fills_the_line() -> None:
    screen = Screen()
    line = ProgressLine(screen, wanted=True)
    line.clear()
    assert screen.getvalue() == ""
    line.show("returning to 12.345, which is long")
    line.show("there\x1b[31m")
    line.clear()
    line.clear()
    parts = screen.getvalue().split("\r\x1b[2K")
    assert parts == ["", "returning to 12.345", "there\ufffd[31m", ""]


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, "origin: running, pass 2, at 12.345, 40 of 120 collectives ..."),
        (60, "origin: running, pass 2, 40 of 120 collectives ..."),
        (50, "origin: running, pass 2, 40 of 120 ..."),
        (35, "origin: running, 40 of 120 ..."),
        (25, "origin: running ..."),
        (16, "origin … ..."),
    ],
)
def test_whole_parts_are_left_out_the_least_important_first(
    monkeypatch: pytest.MonkeyPatch, columns: int, shown: str
) -> None:
    """It was cut where the terminal ends, so that how far it is went first, or half of it."""
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((columns, 5)))
    screen = Screen()
    again = Progress(text="origin: running", moment=Moment(12, 345), done=40, total=120, passes=2)
    ProgressLine(screen, wanted=True).show(*progress_texts(again), end=" ...")
    assert screen.getvalue() == f"\r\x1b[2K{shown}"


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (80, "waiting for 2 collectives in flight, at most 60 s ... 12 s"),
        (45, "waiting for 2 collectives in flight ... 12 s"),
        (40, "waiting for 2 collectives in … ... 12 s"),
    ],
)
def test_how_long_it_takes_already_is_always_there(monkeypatch: pytest.MonkeyPatch, columns: int, shown: str) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((columns, 5)))
    screen, now = Screen(), iter((0.0, 12.0, 12.0))
    work = LongWork(ProgressLine(screen, wanted=True), lambda _: None, lambda: next(now))
    work.show("waiting for 2 collectives in flight, at most 60 s")
    assert screen.getvalue() == f"\r\x1b[2K{shown}"


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_take_a_line_back_shows_none(monkeypatch: pytest.MonkeyPatch, term: str) -> None:
    monkeypatch.setenv("TERM", term)
    screen = Screen()
    ProgressLine(screen, wanted=True).show("running")
    assert screen.getvalue() == ""


def test_a_pipe_and_who_does_not_want_it_are_spared() -> None:
    pipe, screen = io.StringIO(), Screen()
    ProgressLine(pipe, wanted=True).show("running")
    ProgressLine(screen, wanted=False).show("running")
    assert pipe.getvalue() == screen.getvalue() == ""


def test_what_it_says() -> None:
    running = Progress(text="running", moment=Moment(12, 3), done=7, total=5)
    assert progress_text(running) == "running, at 12.3, 5 of 5 collectives ..."
    again = Progress(text="running", moment=Moment(12, 3), done=1, total=5, passes=2)
    assert progress_text(again) == "running, pass 2, at 12.3, 1 of 5 collectives ..."
    bounded = replace(again, most_passes=4)
    assert progress_text(bounded) == "running, pass 2 of at most 4, at 12.3, 1 of 5 collectives ..."
    assert progress_text(replace(again, most_passes=1)) == progress_text(again), "a bound that did not hold is not said"
    assert progress_text(Progress(text="returning to 12.3", moment=Moment(12, 3))) == "returning to 12.3 ..."
