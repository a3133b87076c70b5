"""Where hashes of the parameters are compared: at the begin of a step, or at the end of the program."""

from __future__ import annotations

from prismdbg.capsule.log.events import Note
from prismdbg.rank.replay.replayed_rank import hashes_of


def noted(value: str, step: int, moment: str) -> Note:
    return Note("state", 5, {"hash": value, "step": step, "moment": moment})


def test_one_that_is_noted_before_its_step_is_compared_where_the_step_begins() -> None:
    assert hashes_of([noted("a", 3, "2.7")]) == ({3: "a"}, {})


def test_one_that_is_noted_in_its_step_is_of_the_end_also_before_any_collective() -> None:
    """The step may have begun with other parameters, or with none."""
    assert hashes_of([noted("a", 3, "3.0")]) == ({}, {3: "a"})


def test_both_of_one_step_are_kept_and_other_notes_are_none() -> None:
    notes = [noted("a", 3, "2.7"), Note("exit", 6, {"code": 0}), noted("b", 3, "3.4")]
    assert hashes_of(notes) == ({3: "a"}, {3: "b"})
