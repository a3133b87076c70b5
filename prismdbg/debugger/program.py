"""The rank's process as a debugger's front end shows it: what it prints, and how it ended."""

from __future__ import annotations

from typing import Protocol

from prismdbg.errors import PrismError
from prismdbg.runtime.rank_folder import Output
from prismdbg.runtime.runtime import RunningRank

MAX_OUTPUT_BYTES = 64 << 10
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
    """The rank's own output as it grows, and its end. Output that was cut back with the time is not shown again."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._read_bytes = 0

    def new_output(self) -> str:
        """At most `MAX_OUTPUT_BYTES` of it, the newest."""
        end = self._live.output.size_bytes
        self._read_bytes = min(self._read_bytes, end)
        start = max(self._read_bytes, end - MAX_OUTPUT_BYTES)
        data = self._live.output.read(start, end - start)
        skipped = start - self._read_bytes
        self._read_bytes = start + len(data)
        return (f"... {skipped} bytes left out\n" if skipped else "") + data.decode("utf-8", "replace")

    def how_it_ended(self) -> str:
        try:
            return f"its process ended with {self._live.running.wait(END_BOUND_S)}"
        except PrismError as error:
            return str(error)
