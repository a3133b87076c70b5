"""The debugger over a simulated rank: every verb forwards and backwards, checkpoints, loss, what is told."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.debugger.history_queries import HistoryQueries
from prismdbg.errors import Defect, PrismError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.render.stop_text import checkpoint_text, stop_line
from prismdbg.session import answers, notices
from prismdbg.session.session import Phase
from tests.only_forward import OnlyForward
from tests.unit.debugger.bench import Bench
from tests.unit.simulated_rank import SimulatedRank


def test_forwards_and_backwards_over_the_same_places() -> None:
    bench = Bench()
    assert [bench.at(line) for line in ("next", "n 4", "rn", "rn 2", "next", "next-step")] == [
        "0.1", "1.2", "1.1", "0.2", "0.3", "1.1",
    ]  # fmt: skip
    assert bench.of(notices.Unlike) == []
    assert bench.debugger.session.places.compared > 0


def test_goto_goes_both_ways_and_a_bare_moment_is_one() -> None:
    bench = Bench()
    assert [bench.at(line) for line in ("goto 2.1", "0.2", "goto 3", "goto 3.1")] == ["2.1", "0.2", "3.1", "3.1"]


def test_a_verb_that_had_nowhere_to_go_is_said_and_not_the_one_before() -> None:
    bench = Bench()
    assert [bench.at(line) for line in ("goto 1.2", "rn")] == ["1.2", "1.1"]
    answer = bench.debugger.do("goto 1.1")
    assert isinstance(answer, answers.Arrived) and answer.stop is not None
    assert stop_line(answer.stop, asked="goto").startswith("stopped at 1.1 (goto): ")


def test_the_beginning_is_said() -> None:
    bench = Bench()
    bench.at("next")
    answer = bench.debugger.do("rn")
    assert isinstance(answer, answers.Arrived) and answer.beginning and answer.moment == Moment(0)
    answer = bench.debugger.do("reverse-next")
    assert isinstance(answer, answers.Arrived) and answer.beginning


def test_reverse_continue_goes_to_the_last_hit_before_here() -> None:
    bench = Bench()
    bench.debugger.do("break all_reduce")
    assert [bench.at("c") for _ in range(3)] == ["0.2", "1.2", "2.2"]
    assert [bench.at("rc"), bench.at("rc")] == ["1.2", "0.2"]
    answer = bench.debugger.do("rc")
    assert isinstance(answer, answers.Arrived) and answer.beginning
    assert bench.at("c") == "0.2"


@pytest.mark.parametrize(
    ("breakpoint", "passes"),
    [
        ("all_reduce", ["", ", pass 2 of at most 7"]),  # it is in the last window, and then returned to
        (
            "all_gather",
            ["", *(f", pass {number} of at most 7" for number in range(2, 8))],
        ),  # in none: back to the start
    ],
)
def test_a_way_back_says_how_many_passes_it_takes_at_most(
    breakpoint: str, passes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(spaced=2, spacing_s=0.0)
    bench.at("goto 3.3")
    assert len(bench.rank.checkpoints) == 6
    bench.debugger.do(f"break {breakpoint}")
    told, driver, return_to = [], bench.debugger.driver, bench.debugger.driver.return_to

    def returned(number: int) -> None:
        return_to(number)
        bench.told.clear()
        driver.say_progress("running", bench.debugger.session.moment)
        told.extend(notice.which_pass for notice in bench.of(notices.Progress))

    monkeypatch.setattr(driver, "return_to", returned)
    bench.debugger.do("rc")
    assert told == passes


def test_a_place_that_is_come_to_again_needs_no_second_image() -> None:
    bench = Bench(spaced=4, spacing_s=0.0)
    bench.at("goto 3.3")
    for _ in range(2):
        bench.debugger.do("restart 0")
        bench.at("goto 3.3")
    moments = [kept.moment for kept in bench.rank.checkpoints]
    assert len(moments) == len(set(moments)) > 2


def test_a_trace_takes_checkpoints_of_the_same_places_under_the_same_numbers() -> None:
    bench = Bench(spaced=2, spacing_s=0.0)
    bench.at("goto 2.2")
    before = {kept.number: kept.moment for kept in bench.rank.checkpoints}
    bench.debugger.do("trace on")
    assert {kept.number: kept.moment for kept in bench.rank.checkpoints} == before and len(before) == 4
    assert all(bench.rank.saved_traced[number] for number in before if number)


@pytest.mark.parametrize("line", ["checkpoint", "step", "trace on", "print allocated", "origin", "rn", "restart 1"])
def test_there_is_one_image_of_a_place(line: str) -> None:
    """The first one is taken by itself; one that is asked for there, also where the rank runs again traced, is that."""
    bench = Bench(parked=True, behind=2)
    bench.at("next")
    bench.debugger.do("checkpoint")
    with suppress(UsageError):  # there is no NaN
        bench.debugger.do(line)
    bench.debugger.do("goto 0.3")
    bench.debugger.do("checkpoint")
    (kept,) = [kept for kept in bench.rank.checkpoints if kept.number]
    assert (str(kept.moment), kept.number) == ("0.3", 1)
    taken = [notice for notice in bench.of(notices.CheckpointMade) if not notice.asked]
    assert len(taken) == 1 and len(bench.rank.saves) == 1 + bench.rank.traced


def test_hits_before_an_image_are_found_in_an_earlier_window() -> None:
    bench = Bench(spaced=4, spacing_s=0.0)
    bench.at("goto 3.3")
    assert len(bench.rank.saved) > 2
    bench.debugger.do("tbreak broadcast")
    bench.debugger.do("condition 1 step == 0")
    bench.rank.returns.clear()
    assert bench.at("rc") == "3.1"
    assert bench.rank.returns[0] == max(n for n, place in bench.rank.saved.items() if place.at < 11)


def test_checkpoints_are_taken_on_the_way_and_silently() -> None:
    bench = Bench(spaced=2, spacing_s=0.0)
    assert bench.at("goto 2.2") == "2.2"
    made = bench.of(notices.CheckpointMade)
    assert [str(notice.moment) for notice in made] == ["0.2", "1.1", "1.3"]
    assert all(not notice.asked for notice in made)
    assert len(bench.of(notices.Stopped)) == 1
    bench.rank.returns.clear()
    assert bench.at("rn") == "2.1"
    assert bench.rank.returns == [made[-1].number], "the nearest earlier image"


def test_a_checkpoint_whose_number_was_told_before_says_what_became_of_it() -> None:
    """A line of the same number looked like another checkpoint."""
    bench = Bench(spaced=2, spacing_s=0.0)
    for line in ("next", "checkpoint", "goto 3.1", "checkpoint", "checkpoint"):
        bench.debugger.do(line)
    first, second, third = (checkpoint_text(made) for made in bench.of(notices.CheckpointMade) if made.asked)
    assert re.fullmatch(r"checkpoint \d+ at 0\.1 exists already: \S+ \S+", first), "it was taken by itself"
    assert re.fullmatch(r"checkpoint \d+ at 3\.1: \S+ \S+ in \S+ s", second)
    assert third.startswith(f"{second.partition(':')[0]} exists already: ")
    bench.told.clear()
    bench.at("step")  # traced from the start on: all are taken anew
    made = bench.of(notices.CheckpointMade)
    assert {each.number for each in made if each.asked} == {int(text.split()[1]) for text in (first, second)}
    assert all(", taken again: " in checkpoint_text(each) for each in made)


def test_no_more_checkpoints_than_are_wanted_and_never_one_that_was_asked_for() -> None:
    bench = Bench(spaced=1, spacing_s=0.0, most=3)
    bench.at("next 2")
    bench.debugger.do("checkpoint")
    asked = bench.of(notices.CheckpointMade)[-1]
    bench.at("goto 3.3")
    assert asked.asked and asked.number in bench.rank.saved
    assert len(bench.rank.saved) <= 4 and 0 in bench.rank.saved


def test_where_no_checkpoints_can_be_taken_the_way_back_is_from_the_start() -> None:
    bench = Bench(can_save=False)
    assert [bench.at(line) for line in ("next 5", "rn", "rn")] == ["1.2", "1.1", "0.3"]
    assert set(bench.rank.returns) == {0}
    assert (
        len([n for n in bench.of(notices.Said) if n.text.startswith("going back replays from the start moment: ")]) == 1
    )


def test_a_place_that_is_not_as_it_was_is_said() -> None:
    bench = Bench()
    for line in ("next", "next 2", "goto 0.2"):
        bench.at(line)
    bench.rank.weather = "rain"
    bench.at("next")
    (unlike,) = bench.of(notices.Unlike)
    assert (str(unlike.moment), unlike.what) == ("0.3", ("torch's random numbers",))


def test_after_the_end_there_is_a_way_back() -> None:
    bench = Bench()
    assert bench.at("continue") == "finished"
    with pytest.raises(UsageError, match="has ended"):
        bench.debugger.do("next")
    assert bench.at("rn") == "3.3"
    assert bench.at("rn") == "3.2"


def test_the_programs_end_is_told_once_on_a_way_back_that_leads_over_it() -> None:
    bench = Bench()
    assert bench.at("c") == "finished" and len(bench.of(notices.Finished)) == 1
    bench.at("rc")
    assert len(bench.of(notices.Finished)) == 1
    assert bench.at("c") == "finished" and len(bench.of(notices.Finished)) == 2


def test_a_rank_that_is_killed_is_brought_back() -> None:
    bench = Bench()
    bench.at("next 4")
    bench.rank.kill()
    assert bench.at("next") == "lost"
    (lost,) = bench.of(notices.Lost)
    assert str(lost.moment) == "1.1"
    with pytest.raises(UsageError, match="the rank is lost") as refused:
        bench.debugger.do("print out")
    assert "to start it again" in refused.value.hint
    assert bench.at("restart 1") == "1.1"
    bench.rank.kill()
    bench.debugger.poll(0.0)
    assert bench.debugger.session.phase is Phase.LOST
    assert bench.at("goto 0.3") == "0.3"


def test_stops_are_sent_again_after_each_way_back() -> None:
    bench = Bench()
    bench.at("next 2")
    bench.debugger.do("break barrier")
    bench.at("c")
    bench.at("goto 0.1")
    assert bench.at("c") == "0.3"
    bench.debugger.do("delete 1")
    assert bench.at("c") == "finished"


def test_once_is_once_and_hits_are_counted() -> None:
    bench = Bench()
    bench.debugger.do("tbreak broadcast")
    bench.debugger.do("break all_reduce")
    assert [bench.at("c"), bench.at("c"), bench.at("c")] == ["0.1", "0.2", "1.2"]
    table = bench.debugger.do("stops")
    assert isinstance(table, answers.BreakpointTable)
    assert ([stop.title for stop in table.stops], table.hits) == (["all_reduce"], {1: 1, 2: 2})


def test_a_stop_that_only_tells_is_passed_on_the_way_back_too() -> None:
    bench = Bench()
    for line in ("break broadcast", "break all_reduce", "log-only 2"):
        bench.debugger.do(line)
    bench.at("goto 2.3")
    assert [bench.at("rc"), bench.at("rc")] == ["2.1", "1.1"]


def test_on_the_way_back_once_is_once_too_and_hits_are_counted() -> None:
    bench = Bench()
    bench.at("goto 2.3")
    for line in ("break all_reduce", "tbreak broadcast"):
        bench.debugger.do(line)
    assert [bench.at("rc"), bench.at("rc"), bench.at("rc")] == ["2.2", "2.1", "1.2"]
    table = bench.debugger.do("stops")
    assert isinstance(table, answers.BreakpointTable)
    assert ([stop.title for stop in table.stops], table.hits) == (["all_reduce"], {1: 2, 2: 1})


def test_back_and_forward_through_what_was_looked_at() -> None:
    bench = Bench()
    for line in ("next", "goto 2.1", "goto 1.1"):
        bench.at(line)
    assert [bench.at("back"), bench.at("back"), bench.at("forward 2")] == ["2.1", "0.1", "1.1"]
    with pytest.raises(UsageError, match="no visited location further forward"):
        bench.debugger.do("forward")
    bench.at("back")
    bench.at("next")
    with pytest.raises(UsageError, match="further forward"):
        bench.debugger.do("forward")


def test_watches_are_shown_at_every_stop_with_what_changed() -> None:
    bench = Bench()
    bench.at("next")
    bench.debugger.do("watch x + 1")
    first, second = bench.debugger.do("next"), bench.debugger.do("goto 0.2")
    assert isinstance(first, answers.Arrived) and isinstance(second, answers.Arrived)
    assert [(w.number, w.text, w.changed) for w in first.watched] == [(1, "x + 1", True)]
    assert second.watched[0].changed is False
    bench.debugger.do("unwatch 1")
    assert bench.debugger.session.watches.all == ()


@pytest.mark.parametrize(
    "line",
    [
        "goto 0.1.5",
        "step",
        "who wrote step",
        "frobnicate",
        "restart 77",
        "break nothing_like_it",
        "forward",
        "who ate x",
    ],
)
def test_what_cannot_be_done_is_an_error_and_the_session_goes_on(line: str) -> None:
    bench = Bench(can_trace=False)
    bench.at("next 3")
    with pytest.raises(PrismError) as refused:
        bench.debugger.do(line)
    assert str(refused.value)
    assert bench.at("goto 1.1") == "1.1"


def test_without_a_way_back_only_the_way_forward_works() -> None:
    rank = SimulatedRank()
    told: list[notices.Notice] = []
    debugger = Debugger(OnlyForward(rank.client), told.append, settings=Settings(bound_s=0.05, checkpoints=False))
    debugger.begin()
    debugger.do("next 3")
    with pytest.raises(PrismError, match="cannot go back"):
        debugger.do("rn")
    answer = debugger.do("next")
    assert isinstance(answer, answers.Arrived) and str(answer.moment) == "1.1"


def test_an_interrupt_while_going_back_leaves_the_rank_where_it_came_to() -> None:
    bench = Bench()
    bench.at("next 6")
    held = bench.rank.next_event

    def interrupted(timeout_s: float | None, what: str) -> dict[str, Any]:
        bench.debugger.interrupt()
        return held(timeout_s, what)

    bench.rank.saved = {0: bench.rank.saved[0]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedRank, "next_event", lambda _, timeout_s, what: interrupted(timeout_s, what))
        answer = bench.debugger.do("rn")
    assert isinstance(answer, answers.Arrived) and answer.phase is Phase.STOPPED
    assert [notice.text for notice in bench.of(notices.Cancelled)] == [f"reverse-next was cancelled at {answer.moment}"]
    assert bench.at("goto 1.1") == "1.1"


def test_a_defect_in_a_verb_leaves_the_rank_and_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.at("next 3")
    with monkeypatch.context() as patch:
        patch.setattr(SimulatedRank, "_history", lambda _, arguments: {"nonsense": arguments})
        with pytest.raises(Defect, match="KeyError: 'moments'") as told:
            bench.debugger.do("rn")
    assert "bug in prismdbg" in told.value.hint and "routes.py" in str(told.value)
    assert bench.at("rn") == "0.2"


def test_a_snapshot_that_has_no_place_is_refused_before_anything_is_traced(tmp_path: Path) -> None:
    bench = Bench()
    bench.at("next 3")
    asked = len(bench.rank.asked)
    with pytest.raises(UsageError, match="no such directory"):
        bench.debugger.do(f"memory export {tmp_path}/nowhere/x")
    assert len(bench.rank.asked) == asked
    assert bench.at("rn") == "0.2"


@pytest.mark.parametrize("line", ["n", "c", "u 1.1", "f", "ns", "s"])
def test_what_lies_between_collectives_is_looked_at_from_a_captured_processs_beginning_on(line: str) -> None:
    bench = Bench(parked=True)
    bench.debugger.do("break allocation if size > 500KiB")
    bench.rank.stops.clear()
    bench.at(line)
    assert bench.rank.traced and bench.rank.returns == []
    assert bench.of(notices.Progress) == [], "silently: nothing was done twice"


def test_an_operators_moment_is_gone_to_by_the_collective_before_it() -> None:
    bench = Bench(parked=True)
    bench.debugger.do("until 2.0.5")
    runs = [arguments for verb, arguments in bench.rank.asked if verb == "resume"]
    assert [(run["until"], run.get("events")) for run in runs] == [("1.3", None), ("2.0.5", {"until": "2.0.5"})]
    assert bench.rank.traced and all(run["stops"] == "apply" for run in runs)


def test_a_trace_that_was_switched_off_and_is_needed_is_said() -> None:
    bench = Bench()
    for line in ("step", "next"):
        bench.at(line)
    assert bench.of(notices.Said) == []
    bench.debugger.do("trace off")
    bench.at("step")
    assert ["replaying with tracing" in said.text for said in bench.of(notices.Said)] == [True]
    for line in ("trace off", "trace on"):
        bench.debugger.do(line)
    assert len(bench.of(notices.Said)) == 1, "asked for in so many words"


def test_checkpoints_are_taken_again_of_the_traced_rank_under_their_numbers() -> None:
    bench = Bench(spaced=2, spacing_s=0.0)
    for line in ("goto 1.1", "checkpoint", "goto 3.1", "checkpoint", "goto 2.1"):
        bench.at(line) if line.startswith("goto") else bench.debugger.do(line)
    wanted = {c.number: c.moment for c in bench.of(notices.CheckpointMade) if c.asked}
    bench.told.clear()
    assert bench.at("step") == "2.2"
    assert {n: bench.rank._moment(bench.rank.saved[n].at) for n in wanted} == wanted
    assert all(bench.rank.saved_traced[n] for n in bench.rank.saved if n)
    assert {c.number: c.moment for c in bench.of(notices.CheckpointMade) if c.asked} == wanted
    (said,) = bench.of(notices.Said)
    assert "(1.1)" in said.text and "(3.1) are taken again" in said.text
    assert [bench.at(f"restart {number}") for number in wanted] == ["1.1", "3.1"]


def test_a_checkpoint_that_cannot_be_taken_again_is_said() -> None:
    bench = Bench()
    bench.at("next 2")
    bench.debugger.do("checkpoint")
    bench.at("next")
    bench.rank.can_save = False
    bench.told.clear()
    assert bench.at("step") == "1.1"
    assert [said.text for said in bench.of(notices.Said) if "deleted" in said.text] == [
        "checkpoint 1 (0.2) is deleted: no criu here; goto MOMENT still works"
    ]


def test_nothing_is_given_up_for_a_trace_that_cannot_be_had() -> None:
    bench = Bench(can_trace=False)
    bench.at("next 2")
    bench.debugger.do("checkpoint")
    bench.at("next 2")
    with pytest.raises(PrismError, match="cannot be traced"):
        bench.debugger.do("step")
    assert bench.rank.returns == [] and bench.at("restart 1") == "0.2"


def test_checkpoints_are_taken_again_from_the_beginning_too() -> None:
    bench = Bench()
    bench.at("next 2")
    bench.debugger.do("checkpoint")
    bench.at("restart 0")
    assert bench.at("step") == "0.1"
    assert bench.at("restart 1") == "0.2"


def test_how_strictly_is_compared_is_said_with_every_run() -> None:
    rank = SimulatedRank()
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, strict=True)
    debugger.begin()
    for line in ("next 3", "rn", "continue"):
        debugger.do(line)
    runs = [arguments for verb, arguments in rank.asked if verb == "resume"]
    assert len(runs) >= 3 and all(run["strict"] is True for run in runs)


@pytest.mark.parametrize("line", ["print allocated > 2GiB", "watch allocated"])
def test_what_is_allocated_is_asked_of_a_traced_rank(line: str) -> None:
    bench = Bench()
    bench.at("next 2")
    bench.debugger.do("print total")
    assert not bench.rank.traced, "that may be a name of the program's"
    bench.debugger.do(line)
    assert bench.rank.traced and str(bench.debugger.session.moment) == "0.2"


def test_a_search_that_finds_nothing_leaves_the_rank_where_it_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(spaced=2, spacing_s=0.0)
    bench.at("goto 2.2")

    def finds_nothing(queries: HistoryQueries, text: str) -> NoReturn:
        queries._routes.back_to(Moment.parse("1.1"))
        raise UsageError("no NaN or infinity")

    monkeypatch.setattr(HistoryQueries, "origin", finds_nothing)
    with pytest.raises(UsageError, match="no NaN or infinity"):
        bench.debugger.do("origin")
    stop = bench.debugger.session.stop
    assert stop is not None and (str(stop.moment), stop.reason) == ("2.2", "origin")
