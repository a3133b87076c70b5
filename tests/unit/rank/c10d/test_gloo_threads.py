"""A program's end waits for gloo's threads, and not for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from prismdbg.rank.c10d import gloo_threads


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The states of two threads, look by look; the last ones stay. A sleep takes a tenth of a second."""
    coming: list[str] = []
    now = [0.0]

    def states() -> Iterator[str]:
        return iter(coming.pop(0) if len(coming) > 1 else coming[0])

    monkeypatch.setattr(gloo_threads, "_states", states)
    monkeypatch.setattr(gloo_threads.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(gloo_threads.time, "sleep", lambda _: now.__setitem__(0, now[0] + 0.1))
    yield coming


@pytest.mark.parametrize(
    ("seen", "slept"),
    [
        ([""], 0.0),  # no gloo
        (["SS"], 0.2),
        (["SS", "RS", "SS"], 0.4),
        (["SS", "SS", "SR", "SS"], 0.5),
        (["RS"], gloo_threads.BOUND_S),
        (["?"], gloo_threads.BOUND_S),
    ],
)
def test_until_they_are_quiet(looks: list[str], seen: list[str], slept: float) -> None:
    looks += seen
    gloo_threads.let_go()
    assert gloo_threads.time.monotonic() == pytest.approx(slept)


def test_a_process_without_gloo_has_none() -> None:
    """A child, which has none of the threads that other tests have left here."""
    if (pid := os.fork()) == 0:
        os._exit(len(list(gloo_threads._states())))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
