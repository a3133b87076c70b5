"""The rank's process as a debugger's front end shows it: what it prints, and how it ended."""

from __future__ import annotations

from typing import Protocol


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
