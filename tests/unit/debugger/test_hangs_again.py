"""A rank whose recording ends in a hang outside of a collective: it is silent again, that is said, and one goes on."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.errors import UsageError, WaitTimeout
from prismdbg.model.frame import Frame
from prismdbg.render import answer_text, stop_text
from prismdbg.session import answers, notices
from prismdbg.session.interrupted import Interrupted
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.session.session import Phase
from tests.unit.simulated_rank import SimulatedRank

THEN = (Frame("/job/data.py", 26, "load"), Frame("/job/train.py", 9, "main"))
NOW = (Frame("/job/data.py", 27, "load"), Frame("/job/train.py", 9, "main"))


class Hanging:
    """A debugger of a rank that hangs after 3.3, in which hanging takes `hang_s` of silence and waiting ends after
    `bound_s`."""

    def __init__(self, *, hang_s: float = 0.02, bound_s: float = 0.05, spacing_s: float = 1000.0, **rank: Any) -> None:
        self.rank = SimulatedRank(hangs=True, **rank)
        self.told: list[notices.Notice] = []
        self.debugger = Debugger(
            self.rank,
            self.told.append,
            recorded=self.rank.moments,
            settings=Settings(bound_s=bound_s, spacing_s=spacing_s),
            hang=RecordedHang(rank=1, bound_s=hang_s, frames=THEN, grounds="the gaps were short"),
        )
        self.debugger.begin()

    def do(self, line: str) -> answers.Arrived:
        answer = self.debugger.do(line)
        assert isinstance(answer, answers.Arrived), answer
        return answer

    def verdicts(self) -> list[notices.HangsAgain]:
        return [notice for notice in self.told if isinstance(notice, notices.HangsAgain)]

    def where(self) -> answers.Stack:
        answer = self.debugger.do("where")
        assert isinstance(answer, answers.Stack)
        return answer


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismdbg.debugger.driver.PROGRESS_S", 0.01)


@pytest.mark.parametrize(
    "lines", [("continue",), ("goto 3.3", "next"), ("goto 3.2", "next 2"), ("goto 3.3", "next-step")]
)
def test_running_beyond_the_last_recorded_call_ends_in_the_verdict(lines: tuple[str, ...]) -> None:
    bench = Hanging()
    for line in lines:
        answer = bench.do(line)
    assert (answer.phase, str(answer.moment), answer.stop) == (Phase.HUNG, "3.3", None)
    (verdict,) = bench.verdicts()
    assert (verdict.frames, verdict.tally["compared"]) == (NOW, 12)
    text = stop_text.notice_text(verdict)
    assert text.startswith(
        "hangs again, as recorded: no further collective within 0.02 s after 3.3; the gaps were short\n"
    )
    assert "rank 1 is at /job/data.py:27 in load; in the recording it was at /job/data.py:26 in load" in text


def test_the_recorded_frame_is_told_before_the_wait_is_over() -> None:
    bench = Hanging(hang_s=0.5, bound_s=20.0)
    bench.do("continue")
    texts = [stop_text.notice_text(notice) for notice in bench.told]
    (waits,) = [
        n for n, text in enumerate(texts) if "rank 1 hung here, at /job/data.py:26 in load; waiting 0.5 s" in text
    ]
    assert waits < texts.index(stop_text.notice_text(bench.verdicts()[0]))


def test_who_does_not_want_to_wait_for_the_hang_says_so_once() -> None:
    """There is no further collective at which the rank could pause."""
    bench = Hanging(hang_s=60.0, bound_s=120.0)

    def hear(notice: notices.Notice) -> None:
        bench.told.append(notice)
        if isinstance(notice, notices.AtRecordedHang):
            bench.debugger.interrupt()

    bench.debugger.driver._tell = hear
    with pytest.raises(Interrupted, match="the rank is still running"):
        bench.do("continue")
    last = [notice for notice in bench.told if isinstance(notice, notices.Progress)][-1]
    assert (last.text, last.total) == ("waiting up to 60 s for a further collective", 0)


def test_where_shows_the_recorded_frame_at_the_start_and_the_live_one_at_the_hang() -> None:
    bench = Hanging()
    assert (bench.where().frames, bench.where().chosen) == (THEN, 0)
    assert "has not run yet" in answer_text.answer_text(bench.where())
    bench.do("next")
    assert bench.where().frames not in (THEN, NOW)
    bench.do("continue")
    assert (bench.where().frames, bench.where().note) == (NOW, "")


def test_a_rank_that_holds_the_gil_hangs_at_its_last_call_with_the_recorded_frame() -> None:
    bench = Hanging(holds_gil=True)
    assert str(bench.do("continue").moment) == "3.3"
    (verdict,) = bench.verdicts()
    assert (verdict.frames, verdict.tally["compared"]) == ((), 12)
    text = stop_text.notice_text(verdict)
    assert "in the recording, rank 1 was at /job/data.py:26 in load; the replayed rank does not answer" in text
    assert bench.where().frames == THEN and "GIL" in bench.where().note
    assert "12 collectives compared" in answer_text.answer_text(bench.debugger.do("info"))


def test_the_session_goes_on_after_the_verdict() -> None:
    bench = Hanging(spaced=1, spacing_s=0.0)
    bench.debugger.do("break all_reduce")
    bench.do("goto 3.3")
    assert bench.do("continue").phase is Phase.HUNG
    for line in ("next", "step", "print x", "checkpoint"):
        with pytest.raises(UsageError, match=r"hangs again after 3\.3, as recorded") as refused:
            bench.debugger.do(line)
        assert "`continue` to wait longer" in refused.value.hint
    assert str(bench.do("reverse-continue").moment) == "3.2"
    assert bench.do("next 2").phase is Phase.HUNG
    assert str(bench.do("reverse-next").moment) == "3.3"
    assert bench.do("next").phase is Phase.HUNG
    assert str(bench.do("goto 1.2").moment) == "1.2"
    assert bench.do("restart 0").phase is Phase.STOPPED
    assert len(bench.verdicts()) == 3


def test_where_no_collective_lies_before_the_hang_the_advice_is_the_start_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`goto` and `reverse-next` have nowhere to go there."""
    bench = Hanging()
    monkeypatch.setattr(bench.debugger.session, "recorded", ())
    bench.do("continue")
    (verdict,) = bench.verdicts()
    text = stop_text.notice_text(verdict)
    assert text.endswith("`continue` to wait longer, or `restart` to go back to the start moment")
    with pytest.raises(UsageError) as refused:
        bench.debugger.do("next")
    assert refused.value.hint == verdict.hint and "goto" not in verdict.hint


def test_a_rank_that_hangs_is_waited_for_again_and_may_come_back() -> None:
    bench = Hanging()
    bench.do("continue")
    assert bench.do("continue").phase is Phase.HUNG and len(bench.verdicts()) == 2
    bench.rank._events.append({"event": "stopped", "number": 90, "reason": "end of the log", "moment": "4.1"})
    bench.debugger.poll(0.0)
    assert (bench.debugger.session.phase, str(bench.debugger.session.moment)) == (Phase.STOPPED, "4.1")


def test_a_hang_before_the_last_recorded_call_is_no_recorded_one() -> None:
    """The rank is silent on its way; nothing says that this happened before."""
    bench = Hanging(lacks=1)
    with pytest.raises(WaitTimeout, match=r"next collective after 3\.3"):
        bench.debugger.do("continue")
    assert not bench.verdicts()


def test_the_silence_of_a_rank_that_left_the_recording_is_no_recorded_hang() -> None:
    """What it waits for may be what nobody recorded."""
    bench = Hanging()
    bench.do("goto 3.3")
    bench.debugger.session.notice(notices.Departed(moment=bench.debugger.session.moment, story={"assumed": True}))
    with pytest.raises(WaitTimeout, match="next collective after"):
        bench.debugger.do("continue")
    assert not bench.verdicts()


def test_a_wait_that_is_too_short_for_the_verdict_says_how_long_it_takes() -> None:
    bench = Hanging(hang_s=5.0)
    with pytest.raises(WaitTimeout, match=r"after 3\.3$") as waited:
        bench.debugger.do("continue")
    assert "more than 5 to see whether it hangs again: the gaps were short" in waited.value.hint


def test_the_last_place_is_named_also_of_a_rank_that_cannot_answer() -> None:
    bench = Hanging(holds_gil=True, hang_s=5.0)
    with pytest.raises(WaitTimeout, match=r"after 3\.3 or later \(it does not answer: native code holds its GIL\)"):
        bench.debugger.do("continue")
