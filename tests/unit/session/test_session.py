"""The debugging session: events of a rank in, requests out; no rank, no socket."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.errors import UsageError
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.session.notices import (
    BreakpointFailed,
    Diverged,
    EndOfLog,
    Finished,
    ProgramRaised,
    Said,
    StateCompared,
    Stopped,
    Synthesized,
    parse_notice,
)
from prismdbg.session.outside_collective import OutsideCollective
from prismdbg.session.session import MAX_ERRORS, Ask, Phase, Session

OWN = {"filename": "/home/me/train.py", "line": 7, "name": "main"}
LIBRARY = {"filename": "/venv/lib/python3.11/site-packages/torch/x.py", "line": 3, "name": "all_reduce"}
OUTER = {"filename": "/home/me/train.py", "line": 20, "name": "<module>"}


def stopped(moment: str, number: int = 0, reason: str = "next") -> Stopped:
    call = {"profiling_name": "all_reduce", "process_group": "0"}
    notice = parse_notice(
        {"event": "stopped", "number": number, "reason": reason, "moment": moment, "collective": call}
    )
    assert isinstance(notice, Stopped)
    return notice


def at(moment: str = "1.2", **options: Any) -> Session:
    session = Session(**options)
    session.notice(stopped(moment))
    return session


def test_a_stop_that_happened_before_anybody_listened() -> None:
    session = Session()
    session.begin({"moment": "0.0", "stopped": "start", "number": 1, "collective": {}})
    assert (session.phase, session.moment) == (Phase.STOPPED, Moment(0))
    assert session.stop is not None and session.stop.reason == "start"


def test_a_stop_told_twice_is_one() -> None:
    session = Session()
    session.begin({"moment": "0.0", "stopped": "start", "number": 1, "collective": {}})
    session.next()
    session.resumed()
    session.notice(stopped("0.0", number=1, reason="start"))
    assert session.phase is Phase.RUNNING
    session.notice(stopped("0.1", number=2))
    assert session.stop is not None and str(session.stop.moment) == "0.1" and session.stopped_times == 2


def test_a_rank_that_stands_does_not_stop_again() -> None:
    """Only a hostile one tells so, and what it tells is not kept."""
    session = at("1.2")
    assert not session.notice(stopped("1.3", number=7))
    assert (session.moment, session.stopped_times) == (Moment(1, 2), 1)


def test_errors_of_conditions_are_told_so_many_times() -> None:
    session = at()
    told = [BreakpointFailed(moment=Moment(1), stop=1, error=str(number)) for number in range(2000)]
    assert sum(session.notice(failed) for failed in told) == MAX_ERRORS


def test_next_runs_until_the_stop() -> None:
    session = at("1.2")
    ask = session.next(3)
    assert ask == Ask("resume", {"count": 3})
    assert session.pending is ask
    session.resumed()
    assert session.phase is Phase.RUNNING and session.stop is None
    session.notice(stopped("1.5"))
    assert session.pending is None and session.moment == Moment(1, 5)


def test_every_resume_says_where_the_capsule_ends() -> None:
    session = at(end_record=41)
    assert session.continue_().arguments == {"end": 41}
    assert session.until(Moment(9)).arguments == {"until": "9.0", "end": 41}


@pytest.mark.parametrize("moment", [Moment(1, 2), Moment(1, 1), Moment(0)])
def test_until_goes_forward_only(moment: Moment) -> None:
    with pytest.raises(UsageError, match="is before the current moment"):
        at("1.2").until(moment)


@pytest.mark.parametrize("count", [0, -1, 10**9])
def test_next_is_bounded(count: int) -> None:
    with pytest.raises(UsageError):
        at().next(count)


def test_the_programs_own_frame_is_chosen_once() -> None:
    session = at()
    session.stack_known([LIBRARY, OWN, OUTER])
    assert session.frame == 1
    assert session.move(1).line == 20
    session.stack_known([LIBRARY, OWN, OUTER])
    assert session.evaluate("x + 1") == Ask("evaluate", {"expression": "x + 1", "frame": 2})
    assert session.source(4) == Ask("source", {"frame": 2, "around": 5, "line": 4})
    assert session.local_names() == Ask("locals", {"frame": 2})


@pytest.mark.parametrize(("outwards", "word"), [(2, "outermost"), (-2, "innermost")])
def test_frames_end_somewhere(outwards: int, word: str) -> None:
    session = at()
    session.stack_known([LIBRARY, OWN, OUTER])
    with pytest.raises(UsageError, match=word):
        session.move(outwards)
    assert session.frame == 1


def test_there_may_be_no_frame() -> None:
    session = at()
    session.stack_known([])
    with pytest.raises(UsageError, match="no Python frame"):
        session.move(1)


def test_an_expression_is_refused_before_it_is_shipped() -> None:
    with pytest.raises(UsageError, match="private"):
        at().evaluate("x.__class__")


def test_while_it_runs_only_pause_is_asked() -> None:
    session = at()
    session.next()
    session.resumed()
    assert session.pause() == Ask("pause")
    for action in (session.next, session.continue_, session.stack, session.peers, session.source):
        with pytest.raises(UsageError, match="running"):
            action()
    assert session.quit() == Ask("quit")


def test_nothing_can_be_looked_at_where_a_restored_rank_is_parked() -> None:
    session = Session()
    session.begin({"moment": "4.7", "stopped": "parked"})
    with pytest.raises(UsageError, match="where it was captured"):
        session.evaluate("out")
    assert session.next().verb == "resume"


def test_after_the_end_a_lost_connection_is_as_it_should_be() -> None:
    session = at()
    session.notice(parse_notice({"event": "finished", "code": 0, "moment": "9.1", "tally": {"compared": 3}}))
    session.lost("the connection closed")
    assert session.phase is Phase.FINISHED
    assert session.quit() is None
    with pytest.raises(UsageError, match="has ended"):
        session.next()


def test_a_rank_that_vanishes_is_lost() -> None:
    session = at()
    session.lost("killed by signal 9")
    with pytest.raises(UsageError, match="killed by signal 9"):
        session.next()
    assert session.phase is Phase.LOST and session.quit() is None


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"event": "diverged", "moment": "1.2", "differences": []}, Diverged),
        ({"event": "synthesized", "moment": "1.2", "collective": {"op": "barrier"}}, Synthesized),
        ({"event": "end_of_log", "moment": "1.2", "tally": {}}, EndOfLog),
        ({"event": "state", "moment": "1.2", "expected": "a", "actual": "b", "equal": False}, StateCompared),
        ({"event": "exception", "moment": "1.2", "type": "ValueError", "text": "x", "traceback": ["y"]}, ProgramRaised),
        ({"event": "finished", "moment": "1.2", "code": 1, "tally": {}}, Finished),
        ({"event": "note", "text": "x"}, Said),
        ({"event": "something new"}, Said),
        ({"event": "stopped"}, Said),
        ({"event": "finished", "moment": "not a moment", "code": 0, "tally": {}}, Said),
        ({}, Said),
    ],
)
def test_every_event_becomes_a_notice(event: dict[str, Any], kind: type) -> None:
    notice = parse_notice(event)
    assert type(notice) is kind
    session = at()
    session.notice(notice)
    assert session.divergence is (notice if kind is Diverged else None)
    assert session.raised is (notice if kind is ProgramRaised else None)


def test_beyond_the_records_end_one_is_asked_once() -> None:
    session = at()
    session.resumed()
    session.notice(stopped("2.1", reason="end of the log"))
    with pytest.raises(UsageError, match="synthesized"):
        session.may_go_beyond(insists=False)
    session.may_go_beyond(insists=False)
    insisting = Session()
    insisting.notice(stopped("2.1", reason="end of the log"))
    insisting.may_go_beyond(insists=True)
    insisting.may_go_beyond(insists=False)


def test_after_a_way_back_the_ranks_own_count_of_stops_is_older() -> None:
    session = at()
    session.notice(stopped("3.1", number=7))
    session.lost("killed")
    session.returned({"moment": "1.2", "stopped": "next", "number": 2, "collective": {}})
    assert (session.phase, str(session.moment)) == (Phase.STOPPED, "1.2")
    session.resumed()
    assert session.notice(stopped("1.3", number=3))
    assert not session.notice(stopped("1.3", number=3))


def test_a_failed_condition_is_told_once() -> None:
    session = at()
    event = {"event": "stop_failed", "moment": "1.2", "stop": 1, "error": "there is no name 'x' here"}
    assert session.notice(parse_notice(event))
    assert not session.notice(parse_notice({**event, "moment": "1.3"}))
    assert session.notice(parse_notice({**event, "stop": 2}))


class TestARankThatWasCapturedOutsideOfACollective:
    LOAD = Frame("/job/data.py", 27, "load")

    def session(self) -> Session:
        session = Session(standing=OutsideCollective(rank=1, frames=(self.LOAD,)))
        session.begin({"moment": "5.0", "stopped": StopReason.PARKED, "number": 1, "collective": {}})
        return session

    def test_says_where_it_stands_instead_of_waiting(self) -> None:
        session = self.session()
        asks = (session.next, session.next_step, lambda: session.until(Moment(6)), session.stack, session.peers)
        for ask in asks:
            with pytest.raises(UsageError, match=r"outside a collective, at /job/data\.py:27 in load") as refused:
                ask()
            assert "(none was recorded)" in refused.value.hint

    def test_waits_when_told(self) -> None:
        session = self.session()
        assert session.continue_() == Ask("resume", {})
        session.resumed()
        assert session.astray is not None
        session.notice(stopped("5.1", number=2))
        assert session.astray is None
        assert session.next() == Ask("resume", {"count": 1})

    def test_is_there_again_after_a_way_back(self) -> None:
        session = self.session()
        session.continue_()
        session.resumed()
        session.notice(stopped("5.1", number=2))
        session.returned({"moment": "5.0", "stopped": StopReason.PARKED, "number": 1, "collective": {}})
        assert session.astray is not None
