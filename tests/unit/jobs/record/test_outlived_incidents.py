"""An exception that a program printed and outlived hides nothing that comes after it."""

from __future__ import annotations

from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.jobs.record.incidents import DEFAULT_TRIGGERS, MOST_OUTLIVED, IncidentWatch, IsOver, parse_triggers
from prismdbg.model.moment import Moment

SECOND_NS = 10**9


def raises(watch: IncidentWatch, folder: str, at_s: int) -> list[str]:
    """What is wanted two seconds after it."""
    note = Note("incident", at_s * SECOND_NS, {"type": "ValueError", "text": f"at {at_s}", "incident": "exception"})
    watch.feed(folder, note, at_s * SECOND_NS)
    return [wanted.incident.text for wanted in watch.due((at_s + 2) * SECOND_NS, False)]


def steps(watch: IncidentWatch, folder: str, at_s: int) -> None:
    watch.feed(folder, StepMark(at_s, at_s * SECOND_NS, StepSource.OPTIMIZER), at_s * SECOND_NS)


def dies(watch: IncidentWatch, folder: str) -> list[str]:
    return [wanted.incident.text for wanted in watch.lost(folder, Moment(9), "was killed")]


def a_watch() -> IncidentWatch:
    return IncidentWatch(parse_triggers(DEFAULT_TRIGGERS))


def test_a_death_after_an_exception_that_its_rank_outlived_is_an_incident() -> None:
    watch = a_watch()
    assert raises(watch, "0", 10) == ["ValueError: at 10"]
    steps(watch, "0", 20)
    assert dies(watch, "1") == ["rank 1 was killed"]
    steps(watch, "0", 30)
    assert dies(watch, "2") == [], "it came of that"


def test_that_it_was_outlived_is_told_once_with_the_step_that_tells_it() -> None:
    """Other nodes have to know it."""
    watch = a_watch()
    raises(watch, "0.1", 10)
    steps(watch, "1.1", 15)
    assert watch.newly_over() == []
    steps(watch, "0.1", 20)
    steps(watch, "0.1", 25)
    assert watch.newly_over() == [IsOver(attempt=1, kind=IncidentKind.EXCEPTION, time_ns=20 * SECOND_NS)]
    assert watch.newly_over() == []


def test_what_a_thread_raised_is_told_to_be_of_one() -> None:
    watch = a_watch()
    data = {"type": "ValueError", "text": "no", "incident": "exception"}
    for number, thread in enumerate(({"thread": "reader"}, {})):
        watch.feed("0", Note("incident", SECOND_NS, {**data, **thread}), SECOND_NS * (3 * number + 1))
        (wanted,) = watch.due(SECOND_NS * (3 * number + 3), False)
        assert wanted.of_thread is bool(thread)


def test_one_that_was_outlived_does_not_hide_the_one_that_ended_a_short_job() -> None:
    """All that a job of less than a second raised is decided about at once."""
    watch = a_watch()
    data = {"type": "ValueError", "incident": "exception"}
    watch.feed("0", Note("incident", 10, {**data, "text": "outlived", "thread": True}), SECOND_NS)
    watch.feed("0", StepMark(1, 20, StepSource.OPTIMIZER), SECOND_NS)
    watch.feed("0", Note("incident", 30, {**data, "text": "the end"}), SECOND_NS)
    assert [wanted.incident.text for wanted in watch.due(SECOND_NS, True)] == ["ValueError: the end"]


def test_an_exception_after_it_is_one_too() -> None:
    watch = a_watch()
    raises(watch, "0", 10)
    steps(watch, "0", 20)
    assert raises(watch, "1", 30) == ["ValueError: at 30"]


def test_what_comes_while_another_rank_goes_on_follows_the_exception() -> None:
    watch = a_watch()
    raises(watch, "0", 10)
    steps(watch, "1", 20)
    steps(watch, "0", 5)  # told late, and before it
    assert dies(watch, "1") == []


def test_a_program_that_prints_one_in_each_step_does_not_make_a_capsule_of_each() -> None:
    watch, found = a_watch(), 0
    for n in range(10):
        found += len(raises(watch, "0", 10 * n + 10))
        steps(watch, "0", 10 * n + 15)
    assert found == MOST_OUTLIVED + 1 and len(watch.newly_over()) == MOST_OUTLIVED
