"""A screen that is left while something is read for it."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from played import screen_of_app, small_capsule, until
from prismdbg_tui.screens.daemon_threads import MOST_AT_ONCE, DaemonThreads, carried_through
from prismdbg_tui.screens.pictured_app import PicturedApp
from prismdbg_tui.session.app import PrismApp
from prismdbg_tui.session.messages import Said
from prismdbg_tui.session.reader import CapsuleReader
from textual.pilot import Pilot
from waiting import wait_for


class Reads(PicturedApp[int]):
    """Is left as soon as its reading has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end, self.ended = threading.Event(), threading.Event()

    def on_mount(self) -> None:
        self.run_worker(self._read, thread=True)

    def _read(self) -> None:
        self.call_from_thread(self.exit, 3)
        self.may_end.wait(20)
        self.ended.set()


def test_a_reading_that_takes_long_is_not_waited_for() -> None:
    """The command line came back only when a large log on a slow disk was read, and nothing said why."""
    app = Reads()
    assert app.run(headless=True) == 3 and not app.ended.is_set()
    app.may_end.set()
    assert app.ended.wait(20)


def test_what_is_written_is_carried_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter waits for threads that are no daemons."""
    written: list[bool] = []

    def export(_reader: CapsuleReader, _path: Path) -> Said:
        written.append(threading.current_thread().daemon)
        return Said("written")

    monkeypatch.setattr(CapsuleReader, "export_timeline", export)

    async def part(app: PrismApp, pilot: Pilot[int]) -> None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        app.views.export_timeline("timeline.json")
        await until(lambda: "written" in app.panes.console.log_pane.lines_said, pilot)

    screen_of_app(PrismApp(small_capsule(tmp_path), "capsule"), part)
    assert written == [False]


@pytest.mark.parametrize("through", [False, True])
def test_what_comes_of_it_and_what_goes_wrong_is_told(through: bool) -> None:
    threads = DaemonThreads()

    def submitted(work: type[int], text: str) -> object:
        return threads.submit(carried_through(lambda: work(text)) if through else lambda: work(text)).result(20)

    assert submitted(int, "3") == 3
    with pytest.raises(ValueError, match="invalid literal"):
        submitted(int, "x")


def test_only_so_many_run_at_once_and_one_that_was_cancelled_before_never_does() -> None:
    threads, may_end, began = DaemonThreads(), threading.Event(), list[float]()

    def read() -> None:
        began.append(time.monotonic())
        assert may_end.wait(20)

    running = [threads.submit(read) for _ in range(MOST_AT_ONCE)]
    wait_for(lambda: len(began) == MOST_AT_ONCE, 20, "all that may run at once")
    waits, dropped = threads.submit(read), threads.submit(read)
    assert dropped.cancel() and not waits.running()
    may_end.set()
    assert [each.result(20) for each in (*running, waits)] == [None] * (MOST_AT_ONCE + 1)
    assert len(began) == MOST_AT_ONCE + 1
