"""A receive from any source through the Python kernels: how long it waits, and who it says has sent."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prismdbg.rank.c10d.backend_work import AnySourceWork
from prismdbg.rank.c10d.completion import Completion


class Inner:
    def __init__(self) -> None:
        self.asked: list[timedelta] = []

    def wait(self, timeout: timedelta) -> bool:
        self.asked.append(timeout)
        return True

    def _source_rank(self) -> int:
        return 3


class Done:
    def done(self, source: int) -> None:
        self.source = source


@pytest.mark.parametrize("timeout", [None, timedelta(seconds=2)])
def test_the_timeout_goes_to_the_backend(timeout: timedelta | None) -> None:
    inner, done = Inner(), Done()
    completion: Any = done
    assert AnySourceWork(inner, completion).wait(timeout)
    assert inner.asked == [timeout or timedelta(0)]
    assert done.source == 3


class Gone:
    def wait(self, timeout: timedelta) -> bool:
        raise RuntimeError("Connection closed by peer")


class Restored:
    """A recorder that handed over while a receive was in flight. `answer`: of whoever fills it now."""

    def __init__(self, answer: bool | int) -> None:
        self.answer = answer
        self.failures: list[object] = []

    def rescue(self, call: object, record_id: int) -> bool | int:
        return self.answer

    def complete(self, call: object, record_id: int, source: int, failure: object, at_ns: int | None) -> None:
        self.failures.append(failure)


@pytest.mark.parametrize(("answer", "source"), [(0, 0), (2, 2), (True, -1)])
def test_whoever_fills_it_after_a_restore_says_who_has_sent(answer: bool | int, source: int) -> None:
    recorder: Any = Restored(answer)
    call: Any = SimpleNamespace(outputs=[torch.ones(1)])
    work = AnySourceWork(Gone(), Completion(recorder, call, 7))
    assert work.wait() and work.is_completed()
    assert work._source_rank() == source and recorder.failures == []
    assert work.result() == call.outputs == work.get_future().value(), "the backend that would say it is gone"


def test_what_nobody_fills_fails_as_it_did() -> None:
    recorder: Any = Restored(False)
    call: Any = object()
    with pytest.raises(RuntimeError, match="closed by peer"):
        AnySourceWork(Gone(), Completion(recorder, call, 7)).wait()
    assert len(recorder.failures) == 1
