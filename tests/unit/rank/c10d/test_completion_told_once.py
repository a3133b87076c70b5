"""A collective's completion is told once."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from prismdbg.rank.c10d.completion import Completion


def test_a_signal_s_handler_that_waits_for_the_same_work_meanwhile_tells_nothing() -> None:
    told = []

    def complete(*_: object) -> None:
        told.append("begun")
        completion.done()  # a handler runs on the same thread
        told.append("ended")

    recorder: Any = SimpleNamespace(complete=complete)
    completion = Completion(recorder, SimpleNamespace(), 1)  # type: ignore[arg-type]
    thread = threading.Thread(target=completion.done, daemon=True)
    thread.start()
    thread.join(20)
    assert told == ["begun", "ended"]
    completion.done()
    assert told == ["begun", "ended"]


def test_what_could_not_be_told_for_a_signal_s_handler_is_told_later() -> None:
    told = []

    def complete(*_: object) -> None:
        told.append(1)
        if len(told) == 1:
            raise ValueError("preempted")

    recorder: Any = SimpleNamespace(complete=complete)
    completion = Completion(recorder, SimpleNamespace(), 1)  # type: ignore[arg-type]
    try:
        completion.done()
    except ValueError:
        completion.done()
    assert told == [1, 1]
