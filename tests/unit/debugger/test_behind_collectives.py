"""Ways back and searches from places that are no collective: an exception, the program's end, one between two
collectives, one that is not answered."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.debugger.routes import Routes
from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.session import answers, notices
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.session.reverse import Leg, way_to
from prismdbg.session.session import Phase
from tests.unit.debugger.bench import Bench

END_OF_LOG, EXCEPTION = "end of the log", "exception"


def went(bench: Bench, *lines: str) -> list[tuple[str, str]]:
    """Where each line came to, and why the rank stands there."""
    found = []
    for line in lines:
        bench.at(line)
        stop = bench.debugger.session.stop
        found.append((str(stop.moment), stop.reason) if stop is not None else ("", str(bench.debugger.session.phase)))
    return found


def moments(bench: Bench, *lines: str) -> list[str]:
    return [moment for moment, _ in went(bench, *lines)]


def broken(what: str, *lines: str, **rank: Any) -> Bench:
    bench = Bench(**rank)
    bench.debugger.do(f"break {what}")
    for line in lines:
        bench.debugger.do(line)
    return bench


# the program's end


@pytest.mark.parametrize("spaced", [0, 4])
def test_back_from_the_programs_end_to_the_last_hit(spaced: int) -> None:
    bench = broken("all_reduce", *["c"] * 5, spaced=spaced, spacing_s=0.0)
    assert bench.debugger.session.phase is Phase.FINISHED
    assert moments(bench, "rc", "rc") == ["3.2", "2.2"]


def test_an_older_rank_tells_its_hits_at_the_last_collective_instead_of_at_its_end() -> None:
    assert moments(broken("all_reduce", *["c"] * 5, tells_hits=False), "rc", "rc") == ["3.2", "2.2"]


def test_back_to_the_last_allocation_before_the_programs_end() -> None:
    bench = broken("allocation", "trace on", ops=2)
    bench.debugger.do("delete 1")
    bench.at("c")
    bench.debugger.do("break allocation")
    assert moments(bench, "rc", "rc", "rc") == ["3.3.2", "3.3.1", "3.2.2"]


def test_a_rank_that_dies_again_shows_its_hits_up_to_the_last_place_known() -> None:
    bench = broken("all_reduce", *["c"] * 5, dies=True)
    assert bench.debugger.session.phase is Phase.LOST
    assert moments(bench, "rc", "rc") == ["3.2", "2.2"]


@pytest.mark.parametrize("line", ["rn", "reverse-step", "goto 3.3"])
def test_back_from_an_end_after_an_optimizer_step(line: str) -> None:
    bench = Bench(steps_last=True)
    assert bench.at("c") == "finished" and bench.debugger.session.moment == Moment(4)
    assert bench.at(line) == "3.3"


def test_the_data_is_searched_where_the_program_has_ended_and_was_not_traced() -> None:
    bench = Bench(steps_last=True, nan_from=Moment(3, 1))
    bench.at("c")
    found = bench.debugger.do("origin")
    assert isinstance(found, answers.Originated) and found.seen_at == Moment(3, 1)


@pytest.mark.parametrize("end", [{"hangs": True}, {"dies": True}], ids=["hang", "lost"])
def test_hits_before_a_hang_or_a_loss_are_found_where_tracing_is_switched_on_for_them(end: dict[str, bool]) -> None:
    """Which brings the rank to its last place known: it stands there, and still tells nothing behind it."""
    bench = ended(ops=2, can_save=False, **end)
    bench.debugger.do("break allocation")
    assert moments(bench, "rc") == ["3.2.2"]


def ended(**rank: Any) -> Bench:
    """A rank that hangs again after 3.3, or is lost there."""
    bench = Bench(**rank)
    if bench.rank.hangs:
        bench.debugger.session.hang = RecordedHang(rank=1, bound_s=0.02, frames=(), grounds="")
    went(bench, "goto 3.3", "c")
    assert bench.debugger.session.phase in (Phase.HUNG, Phase.LOST) and bench.debugger.session.moment == Moment(3, 3)
    return bench


@pytest.mark.parametrize("line", ["rn", "reverse-step", "goto 3.3"])
def test_back_from_an_end_after_an_optimizer_step_of_an_older_rank(line: str) -> None:
    """It tells no hits at its end."""
    bench = Bench(steps_last=True, tells_hits=False, can_save=False)
    assert bench.at("c") == "finished" and bench.debugger.session.moment == Moment(4)
    assert bench.at(line) == "3.3"


def test_one_pass_leads_back_from_an_end_after_an_optimizer_step() -> None:
    bench = Bench(steps_last=True, can_save=False)
    bench.at("c")
    assert bench.at("rn") == "3.3" and bench.rank.returns == [0]


def test_the_last_collective_of_a_rank_beyond_its_record_is_not_the_last_recorded() -> None:
    bench = Bench(steps_last=True, can_save=False)
    session = bench.debugger.session
    session.recorded = session.recorded[:-2]
    session.notice(notices.EndOfLog(moment=Moment(3, 2), tally={}))
    bench.at("c")
    assert bench.at("rn") == "3.3"


def test_an_exception_behind_an_optimizer_step_is_not_the_last_collective_of_a_rank_beyond_its_record() -> None:
    bench = Bench(steps_last=True, raises=True, can_save=False)
    session = bench.debugger.session
    session.recorded = session.recorded[:-2]
    session.notice(notices.EndOfLog(moment=Moment(3, 2), tally={}))
    assert went(bench, "c", "c", "rn") == [("4.0", EXCEPTION), ("", "finished"), ("3.3", "reverse-next")]


def test_the_last_recorded_collective_may_not_come_again() -> None:
    bench = Bench(steps_last=True, steps=3, can_save=False)
    bench.debugger.session.recorded = (*bench.rank.moments, Moment(2, 4))
    assert bench.at("c") == "finished"
    assert bench.at("rn") == "2.3"


# an exception


@pytest.mark.parametrize("steps_last", [False, True])
def test_back_from_an_exception_to_a_hit_at_the_last_collective(steps_last: bool) -> None:
    bench = broken("barrier", *["c"] * 5, raises=True, steps_last=steps_last)
    stop = bench.debugger.session.stop
    assert stop is not None and stop.reason == EXCEPTION
    assert moments(bench, "rc", "rc") == ["3.3", "2.3"]


def test_back_from_an_exception_to_the_last_allocation() -> None:
    bench = Bench(raises=True, ops=2)
    bench.debugger.do("trace on")
    bench.at("c")
    bench.debugger.do("break allocation")
    assert moments(bench, "rc", "rc", "rc") == ["3.3.2", "3.3.1", "3.2.2"]


def test_back_from_the_end_to_an_exception() -> None:
    bench = Bench(raises=True)
    assert went(bench, "c", "c", "rc") == [("3.3", EXCEPTION), ("", "finished"), ("3.3", EXCEPTION)]


@pytest.mark.parametrize("way", [("c",), ("goto 3.3", "step 5")], ids=["by continue", "by events"])
def test_a_step_back_from_an_exception_is_to_the_last_event(way: tuple[str, ...]) -> None:
    bench = Bench(raises=True, ops=2)
    assert went(bench, *way)[-1] == ("3.3", EXCEPTION)
    events = []
    for _ in range(5):
        bench.at("reverse-step")
        stop = bench.debugger.session.stop
        assert stop is not None
        events.append((str(stop.moment), stop.event))
    assert events == [("3.3.2", 4), ("3.3.2", 3), ("3.3.1", 2), ("3.3.1", 1), ("3.3", 0)]


def test_several_steps_back_from_an_exception_at_once() -> None:
    bench = Bench(raises=True, ops=2)
    assert moments(bench, "c", "reverse-step 3", "c", "reverse-step 6") == ["3.3", "3.3.1", "3.3", "3.2.2"]


def test_an_exception_and_its_collective_are_two_places() -> None:
    bench = Bench(raises=True)
    assert went(bench, "c", "goto 3.3", "c", "rn") == [
        ("3.3", EXCEPTION),
        ("3.3", "goto"),
        ("3.3", EXCEPTION),
        ("3.3", "reverse-next"),
    ]


def test_a_checkpoint_at_an_exception_is_none_of_its_collective() -> None:
    bench = broken("barrier", *["c"] * 5, "checkpoint", raises=True)
    assert went(bench, "rn", "c", "rc", "restart 2", "goto 3.2") == [
        ("3.3", "reverse-next"),
        ("3.3", EXCEPTION),
        ("3.3", "stop"),
        ("3.3", EXCEPTION),
        ("3.2", "goto"),
    ]


@pytest.mark.parametrize("side", ["event 1", "raised"])
def test_only_a_checkpoint_at_the_exception_is_there(side: str) -> None:
    """What lies between a collective and its first operator is told with the moment of the collective, too."""
    kept = Checkpoint(number=3, moment=Moment(3, 3), size_bytes=0, cost_s=0.0, side=side)
    leg = way_to([kept], kept.moment.behind)
    assert leg == Leg(checkpoint=3, until=None if side == "raised" else kept.moment.behind)


def test_a_checkpoint_at_an_operator_is_there() -> None:
    kept = Checkpoint(number=3, moment=Moment(3, 3, 2), size_bytes=0, cost_s=0.0, side="event 4")
    assert kept.position == kept.moment and way_to([kept], kept.moment) == Leg(checkpoint=3, until=None)


def test_a_checkpoint_before_the_first_operator_is_not_taken_again_at_the_exception() -> None:
    bench = Bench(raises=True)
    went(bench, "goto 3.2", "goto 3.3")
    bench.debugger.do("checkpoint")
    bench.rank.sides[2] = "event 1"
    bench.debugger.do("trace on")
    assert 2 not in bench.rank.saved
    (text,) = [notice.text for notice in bench.of(notices.Said) if "deleted" in notice.text]
    assert "checkpoint 2 (3.3) is deleted" in text


def test_checkpoints_are_taken_again_in_the_order_of_their_places() -> None:
    """The one at the exception is told with the moment of its collective and has the lower number."""
    bench = Bench(raises=True)
    went(bench, "c")
    bench.debugger.do("checkpoint")
    assert went(bench, "goto 3.3") == [("3.3", "goto")]
    bench.debugger.do("checkpoint")
    asked = [kept.number for kept in bench.debugger.driver.checkpoints.asked_for]
    assert asked == sorted(asked, reverse=True)
    bench.debugger.do("trace on")
    assert [kept.number for kept in bench.debugger.driver.checkpoints.asked_for] == asked
    assert not [notice for notice in bench.of(notices.Said) if "deleted" in notice.text]


def test_back_and_forward_lead_to_an_exception() -> None:
    bench = Bench(raises=True)
    went(bench, "goto 3.3", "c", "goto 1.2")
    assert went(bench, "back", "back", "forward") == [("3.3", EXCEPTION), ("3.3", "back"), ("3.3", EXCEPTION)]
    info = bench.debugger.do("info")
    assert isinstance(info, answers.Info) and [str(at) for at in info.visited][-3:] == ["3.3", "3.3", "1.2"]
    with pytest.raises(UsageError, match=r"goes from 0\.0 to 3\.3$"):
        bench.debugger.do("goto 9.9")


def test_a_trace_from_an_exception_comes_back_to_it() -> None:
    bench = Bench(raises=True, ops=2)
    bench.at("c")
    bench.debugger.do("trace on")
    stop = bench.debugger.session.stop
    assert stop is not None and (stop.reason, bench.rank.traced) == (EXCEPTION, True)


# between collectives


def test_back_from_between_collectives_does_not_run_past_here() -> None:
    bench = broken("allocation", "trace on", ops=40)
    bench.debugger.do("goto 1.2.30")
    assert moments(bench, "rc", "rc") == ["1.2.29", "1.2.28"]
    bench.rank.asked.clear()
    bench.debugger.do("goto 1.2.30")
    bench.debugger.do("rc")
    runs = [asked for verb, asked in bench.rank.asked if verb == "resume" and asked["stops"] == "note"]
    assert runs[-1]["events"] == {"until": "1.2.31"}


def test_from_a_checkpoint_behind_the_collective_here_no_run_is_asked_for_up_to_that() -> None:
    """It would lead to the next one, past here."""
    bench = broken("allocation", "trace on", "goto 1.2", "checkpoint", "goto 1.2.3", ops=4)
    bench.rank.asked.clear()
    assert moments(bench, "rc") == ["1.2.2"]
    runs = [asked for verb, asked in bench.rank.asked if verb == "resume" and asked["stops"] == "note"]
    assert [asked["until"] for asked in runs] == ["1.2.4"]


def test_an_operator_before_the_first_collective_of_a_step_is_looked_for_from_the_last_one_of_the_step_before() -> None:
    """Which is known from the record: a run up to the step itself would lead to its first collective, past here."""
    bench = broken("allocation", "trace on", ops=2)
    bench.rank.asked.clear()
    Routes(bench.debugger.driver).noted(Moment(2, 0, 1))
    runs = [asked for verb, asked in bench.rank.asked if verb == "resume" and asked["stops"] == "note"]
    assert [asked["until"] for asked in runs] == ["1.3", "2.0.2"]


def test_a_rank_that_dies_again_is_not_run_beyond_the_operator_of_its_last_place_known() -> None:
    bench = Bench(ops=2, dies=True)
    bench.debugger.do("trace on")
    went(bench, "goto 3.3.2", "c")
    assert bench.debugger.session.phase is Phase.LOST and bench.debugger.session.moment == Moment(3, 3, 2)
    bench.debugger.do("break allocation")
    bench.rank.asked.clear()
    assert moments(bench, "rc") == ["3.3.1"]
    runs = [asked for verb, asked in bench.rank.asked if verb == "resume" and asked["stops"] == "note"]
    assert runs[-1]["until"] == "3.3.2"


def test_what_an_exception_behind_here_hits_is_not_past() -> None:
    bench = broken("all_reduce", "trace on", raises=True, ops=2)
    bench.debugger.do("goto 3.3.1")
    assert went(bench, "rc") == [("3.2", "stop")]


# searches


WRITES = (Moment(1, 1, 1), Moment(3, 2, 2))


def test_a_write_just_before_a_place_that_is_not_answered() -> None:
    bench = Bench(ops=2, ends_log=True, writes=WRITES)
    assert went(bench, "c") == [("3.3", END_OF_LOG)]
    found = bench.debugger.do("who wrote x")
    assert isinstance(found, answers.Wrote) and (found.moment, found.after) == (WRITES[1], Moment(3, 2))


@pytest.mark.parametrize("steps_last", [False, True])
def test_a_write_just_before_an_exception(steps_last: bool) -> None:
    writes = (*WRITES, Moment(3, 3, 2))
    bench = Bench(ops=2, raises=True, writes=writes, steps_last=steps_last)
    bench.at("c")
    found = bench.debugger.do("who wrote x")
    assert isinstance(found, answers.Wrote) and (found.moment, found.after) == (writes[2], Moment(3, 3))
    assert found.asked_at == (Moment(4) if steps_last else Moment(3, 3))


def test_an_earlier_write_is_found_from_an_exception() -> None:
    bench = Bench(ops=2, raises=True, writes=WRITES[:1])
    bench.at("c")
    found = bench.debugger.do("who wrote x")
    assert isinstance(found, answers.Wrote) and found.moment == WRITES[0]


def test_what_was_never_written_leaves_the_rank_at_its_exception() -> None:
    bench = Bench(ops=2, raises=True)
    bench.at("c")
    with pytest.raises(UsageError, match=r"between the start moment and 3\.3$"):
        bench.debugger.do("who wrote x")
    stop = bench.debugger.session.stop
    assert stop is not None and stop.reason == EXCEPTION


@pytest.mark.parametrize("rank", [{"ends_log": True}, {"raises": True}], ids=[END_OF_LOG, EXCEPTION])
def test_the_end_of_the_log_and_an_exception_are_no_write(rank: dict[str, bool]) -> None:
    """They are noted on a way that leads over them."""
    bench = Bench(ops=2, writes=WRITES[:1], **rank)
    bench.debugger.do("trace on")
    went(bench, "c", "c!") if "ends_log" in rank else went(bench, "c")
    if bench.debugger.session.phase is Phase.FINISHED:
        bench.at("rn")
    found = bench.debugger.do("who wrote x")
    assert isinstance(found, answers.Wrote) and found.moment == WRITES[0]


def test_the_end_of_the_log_before_an_operator_is_no_write() -> None:
    bench = Bench(ops=2, writes=WRITES[:1], ends_log=True)
    bench.debugger.do("trace on")
    assert went(bench, "c", "step!", "step!") == [("3.3", END_OF_LOG), ("3.3", "step"), ("3.3.1", "step")]
    found = bench.debugger.do("who wrote x")
    assert isinstance(found, answers.Wrote) and found.moment == WRITES[0]


@pytest.mark.parametrize(
    ("rank", "nan_from", "question", "seen"),
    [
        ({"ends_log": True}, Moment(3, 2, 1), "origin x", "3.3"),
        ({"ends_log": True}, Moment(3, 2, 1), "origin", "3.3"),
        ({"raises": True}, Moment(3, 3), "origin x", "3.3"),
        ({"raises": True, "steps_last": True}, Moment(4), "origin x", "4.0"),
    ],
)
def test_a_nan_that_only_the_place_where_one_stands_shows(
    rank: dict[str, bool], nan_from: Moment, question: str, seen: str
) -> None:
    bench = Bench(nan_from=nan_from, **rank)
    bench.at("c")
    found = bench.debugger.do(question)
    assert isinstance(found, answers.Originated) and (str(found.seen_at), str(found.moment)) == (seen, seen)


def test_no_nan_where_the_program_has_ended_is_said_and_nothing_is_asked_of_it() -> None:
    bench = Bench(steps_last=True)
    bench.at("c")
    with pytest.raises(UsageError, match=r"no NaN or infinity in the data sent and received up to 4\.0$"):
        bench.debugger.do("origin")


@pytest.mark.parametrize("nan_from", [None, Moment(0, 1)])
def test_at_the_start_moment_no_nan_is_behind(nan_from: Moment | None) -> None:
    """The run up to there stops at the first collective, which is not; and a parked rank cannot be asked."""
    bench = Bench(nan_from=nan_from, parked=True)
    with pytest.raises(UsageError, match=r"no NaN or infinity in the data sent and received up to 0\.[01]$"):
        bench.debugger.do("origin")
