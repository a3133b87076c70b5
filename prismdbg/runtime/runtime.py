"""The seam between a replay and the places that it can run in: Docker, namespaces of this machine, a plain process.

`docker_runtime`, `local_runtime` and `plain_runtime` are the implementations; `jobs/replay/runtimes.py` chooses one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prismdbg.runtime.spec import ReplaySpec

Say = Callable[[str], None]


def silent(_text: str) -> None:
    """Says nothing."""


def fact_and_advice(reason: str) -> tuple[str, str]:
    """What is wrong and what to do, of a sentence that `available` or `refuses` returns."""
    fact, _, advice = reason.rpartition(": ")
    return (fact, advice) if fact else (advice, "")


class RunningRank(Protocol):
    """A rank that was restored or started. Whoever holds it kills it or waits for its end; both remove its place."""

    def rank_pid(self) -> int | None:
        """Its PID as this machine sees it; None once it has ended."""

    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal where a signal ended it, 124 and 129 where its bound or its client did."""

    def describe(self) -> str:
        """For people: what it is, where it runs, how to look at it."""

    def kill(self) -> None:
        """Ends it now, with everything it started. Harmless when it has ended."""

    def wait(self, timeout_s: float) -> int:
        """Its exit code, or `WaitTimeout`, or `LimitReached`. Its place is gone afterwards."""

    def require_within_limits(self) -> None:
        """`LimitReached` where it ended, and not well, after it had met a limit."""

    def require_no_limit_met(self, *, ends: bool) -> None:
        """`LimitReached` where it has met a limit, whatever it made of that: for what is no result of the program's
        then. ends: it is about to end, which is waited for."""


class Runtime(Protocol):
    """A place to run ranks in. Callers ask `available` before they start anything."""

    name: str

    def available(self) -> str | None:
        """Why this machine cannot do it, as a sentence with what to do; None when it can."""

    def refuses(self, spec: ReplaySpec) -> str | None:
        """Why this start is not for this place; None when it is. Nothing is changed."""

    def start(self, spec: ReplaySpec, say: Say = silent) -> RunningRank:
        """Returns when the rank runs. On any error everything that was made for it is removed again.

        say: is told what takes long; what it raises ends the start."""
