"""Programs that a rank starts, recorded and replayed in this process."""

from __future__ import annotations

import os
import posix
import subprocess
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from prismdbg.capsule import json_text
from prismdbg.capsule.checked_json import Fields, parse
from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.notes import checked_note
from prismdbg.rank.recording.inputs.outcomes import Outcomes
from prismdbg.rank.replay.recorded_outcomes import RecordedOutcomes

WRAPPED = ("__init__", "communicate", "wait", "poll")


def unwrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the test."""
    for name in WRAPPED:
        monkeypatch.setattr(subprocess.Popen, name, getattr(subprocess.Popen, name))
    for name in ("_prismdbg", "_prismdbg_reads"):
        monkeypatch.delattr(subprocess.Popen, name, raising=False)
    for module in (os, posix):
        monkeypatch.setattr(module, "system", module.system)


def recorded(action: Callable[[], Any], moment: str = "0.0") -> list[Note]:
    """What a reader of the log gets of it. What the action raises is dropped."""
    notes: list[Note] = []

    def note(kind: str, **data: Any) -> None:
        body = {"kind": kind, "time_ns": 1, "moment": moment, **data}
        fields = checked_note(Fields(parse(json_text.dump(body).encode(), "note").value, "note"))
        notes.append(Note(fields.pop("kind"), fields.pop("time_ns"), fields))

    with pytest.MonkeyPatch.context() as patch:
        unwrapped(patch)
        outcomes = Outcomes()
        outcomes.listen(note)
        outcomes.install()
        failure(action)
    return notes


def failure(action: Callable[[], Any]) -> BaseException | None:
    try:
        action()
    except Exception as error:
        return error
    return None


def replaying(
    monkeypatch: pytest.MonkeyPatch, notes: Iterable[Note], replaced: Iterable[str] = ()
) -> tuple[RecordedOutcomes, list[str]]:
    """Until the end of the test; with what is said."""
    unwrapped(monkeypatch)
    said: list[str] = []
    outcomes = RecordedOutcomes(notes, list(replaced))
    outcomes.listen(said.append)
    outcomes.install()
    return outcomes, said
