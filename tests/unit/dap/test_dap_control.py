"""Pause and the end of a session, whatever the thread that moves the rank is at."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.dap.control import Control
from prismdbg.session.answers import Phase


class SimulatedDebugger:
    def __init__(self) -> None:
        self.interrupts = 0
        self.session = self
        self.phase = Phase.STOPPED
        self.on_begin: Any = None

    def interrupt(self) -> None:
        self.interrupts += 1


@pytest.fixture
def debugger() -> SimulatedDebugger:
    return SimulatedDebugger()


@pytest.fixture
def control(debugger: SimulatedDebugger) -> Control:
    made = Control(lambda: None)
    made.drives(debugger)  # type: ignore[arg-type]
    return made


def test_a_rank_that_stands_is_not_paused(control: Control, debugger: SimulatedDebugger) -> None:
    assert not control.pause() and debugger.interrupts == 0


def test_a_move_is_paused_while_it_runs(control: Control, debugger: SimulatedDebugger) -> None:
    control.expects_move()
    debugger.on_begin()
    assert control.pause() and debugger.interrupts == 1
    control.stands()
    control.done_with_move()
    assert not control.pause()


def test_a_pause_that_comes_before_the_move_has_begun_is_not_lost(
    control: Control, debugger: SimulatedDebugger
) -> None:
    control.expects_move()
    assert control.pause() and debugger.interrupts == 0
    debugger.on_begin()
    assert debugger.interrupts == 1
    debugger.on_begin()
    assert debugger.interrupts == 1


def test_a_pause_that_comes_too_late_does_not_stop_the_next_move(control: Control, debugger: SimulatedDebugger) -> None:
    control.expects_move()
    debugger.on_begin()
    control.stands()
    assert control.pause()
    control.done_with_move()
    control.expects_move()
    debugger.on_begin()
    assert debugger.interrupts == 0


def test_a_rank_that_runs_on_and_is_not_waited_for_is_paused(control: Control, debugger: SimulatedDebugger) -> None:
    debugger.phase = Phase.RUNNING
    assert control.pause() and debugger.interrupts == 1


def test_the_end_gives_up_what_runs_and_what_begins_later(control: Control, debugger: SimulatedDebugger) -> None:
    control.close()
    assert debugger.interrupts == 2  # once: it stops; twice: nobody waits for it
    debugger.on_begin()
    assert debugger.interrupts == 4 and control.is_closing
    control.closed()


def test_a_start_that_is_cancelled_ends_the_session(control: Control) -> None:
    control.starts()
    control.cancel()
    assert control.is_closing
    control.closed()


def test_a_move_that_is_cancelled_is_paused(control: Control, debugger: SimulatedDebugger) -> None:
    control.starts()
    control.stands()
    control.expects_move()
    debugger.on_begin()
    control.cancel()
    assert debugger.interrupts == 1 and not control.is_closing
