"""What a rank notes of exceptions that come again is small, and each of them has its note."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prismdbg.capsule.log.notes import MOST_PLACES
from prismdbg.rank.recording.repeated_exceptions import MOST_ALIKE, MOST_LINES, RepeatedExceptions


def raised(text: str = "no answer", line: int = 9, **more: Any) -> dict[str, Any]:
    frames = [f'  File "uploader.py", line {depth}, in send\n    post()\n' for depth in (*range(100, 200), line)]
    traceback = ["Traceback (most recent call last):\n", *frames, f"OSError: {text}\n"]
    return {"incident": "exception", "type": "OSError", "text": text, "traceback": traceback, **more}


@pytest.mark.parametrize("thread", [{}, {"thread": True}])
def test_only_the_first_of_one_place_have_their_traceback(thread: dict[str, Any]) -> None:
    exceptions = RepeatedExceptions()
    noted = [exceptions.numbered(raised(f"no answer after {number} ms", **thread)) for number in range(10_000)]
    assert [note["nth"] for note in noted] == list(range(1, 10_001))
    assert {note["place"] for note in noted} == {1}
    assert noted[0] == {**raised("no answer after 0 ms", **thread), "place": 1, "nth": 1}
    assert all("traceback" in note for note in noted[:MOST_ALIKE])
    assert not any("traceback" in note for note in noted[MOST_ALIKE:])
    assert noted[-1]["text"] == "no answer after 9999 ms" and max(len(json.dumps(n)) for n in noted[MOST_ALIKE:]) < 200


@pytest.mark.parametrize("other", [{"line": 10}, {"thread": True}, {"type": "ValueError"}])
def test_one_of_another_place_has_its_traceback_whatever_was_raised_before(other: dict[str, Any]) -> None:
    exceptions = RepeatedExceptions()
    for _ in range(1000):
        exceptions.numbered(raised())
    ends_it = exceptions.numbered(raised(**other))
    assert (ends_it["place"], ends_it["nth"]) == (2, 1) and ends_it["traceback"] == raised(**other)["traceback"]


def test_of_very_many_places_most_have_only_their_last_frames() -> None:
    """No number counts exceptions of different places, and each one may be the one that ends the program."""
    exceptions = RepeatedExceptions()
    noted = [exceptions.numbered(raised(line=number)) for number in range(10_000)]
    assert [note["text"] for note in noted] == ["no answer"] * 10_000
    assert {note["nth"] for note in noted if "place" in note} == {1}
    assert not any("nth" in note for note in noted[MOST_PLACES:])
    for number, note in enumerate(noted):
        whole = raised(line=number)["traceback"]
        assert note["traceback"] == (whole if number < MOST_PLACES else whole[-MOST_LINES:])
