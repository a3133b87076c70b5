"""A receive from any source through the Python kernels waits as long as the program asked for, no longer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from prismdbg.rank.c10d.works import AnySourceWork


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
