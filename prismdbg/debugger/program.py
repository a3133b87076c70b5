"""The rank's process as a debugger's front end shows it: what it prints, and how it ended."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

from prismdbg.errors import PrismError
from prismdbg.runtime.rank_folder import Output
from prismdbg.runtime.runtime import RunningRank

MAX_OUTPUT_BYTES = 64 << 10
MAX_COMPARED_BYTES = 1 << 20
DIFFERS = "... other output than before:"
END_BOUND_S = 10.0


class Program(Protocol):
    """Asked at every stop and at the end."""

    def new_output(self) -> str:
        """What the program printed since the last call; empty where its output goes elsewhere."""

    def how_it_ended(self) -> str:
        """In words, once the agent is gone; empty where that is not known."""


class Unseen:
    """A program whose output and end go elsewhere."""

    def new_output(self) -> str:
        return ""

    def how_it_ended(self) -> str:
        return ""


class Live(Protocol):
    """What is needed of a replay that runs."""

    @property
    def output(self) -> Output: ...

    @property
    def running(self) -> RunningRank: ...


class LiveProgram:
    """The rank's own output as it grows, and its end.

    A rank that is put back writes the same output again, which is not shown again. Output that differs from what was
    shown there is, from the line that differs on, and all that follows it. Compared is with the newest
    `MAX_COMPARED_BYTES` of what was shown."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._shown = b""
        self._shown_to = 0  # in the output: where `_shown` ends

    def new_output(self) -> str:
        """At most `MAX_OUTPUT_BYTES` of it, the newest."""
        end = self._live.output.size_bytes
        if end < self._shown_to - len(self._shown):
            self._shown, self._shown_to = b"", end
        before = self._shown_to - len(self._shown)
        start = max(before, end - MAX_COMPARED_BYTES)
        written, known = self._live.output.read(start, end - start), self._shown[start - before :]
        skipped = max(start - self._shown_to, 0)
        alike = _alike(known, written)
        differs = alike < min(len(known), len(written))
        self._shown = max(written, b"" if differs else known, key=len)
        self._shown_to = start + len(self._shown)
        return _as_text(written, alike, skipped, differs=differs)

    def how_it_ended(self) -> str:
        try:
            return f"its process ended with {self._live.running.wait(END_BOUND_S)}"
        except PrismError as error:
            return str(error)


def _alike(known: bytes, written: bytes) -> int:
    """How many of their first bytes are the same."""
    both = min(len(known), len(written))
    return bisect_left(range(both), True, key=lambda at: known[: at + 1] != written[: at + 1])


def _as_text(written: bytes, alike: int, skipped: int, *, differs: bool) -> str:
    """What follows the first `alike` bytes; where it differs from what was shown, from the begin of its line on."""
    begin = written.rfind(b"\n", 0, alike) + 1 if differs else alike
    start = max(begin, len(written) - MAX_OUTPUT_BYTES)
    left_out = skipped + start - begin
    return (
        f"{DIFFERS}\n" * differs
        + f"... {left_out} bytes left out\n" * bool(left_out)
        + written[start:].decode("utf-8", "replace")
    )
