"""The checkpoint engine as the starter runs it, beside the rank; `choice` knows the engines by name. Standard library
only. Its half on the host is `prismdbg.checkpoint.engine`.
"""

from __future__ import annotations

from typing import Any, Protocol


class DumpError(Exception):
    """The engine's own log has the reason."""


class RestoreError(Exception):
    """The engine's own log has the reason."""


class Engine(Protocol):
    """Made before the place is closed: what it needs of this machine is opened then.

    `asked`: `images`, the folder of the image; `work` and `log`, a folder and the name of the log in it; `timeout_s`;
    `leads_session`, whether the rank does; and what each method names.
    """

    def dump(self, asked: dict[str, Any]) -> None:
        """Saves the process `root_pid` and its children, and leaves them stopped; `standards` are terminals of ours
        among its first descriptors."""

    def restore(self, asked: dict[str, Any], streams: dict[str, int]) -> None:
        """Gives the processes back under their own `pids`, and leaves them stopped. `streams`: what takes the place of
        standard input and output, by key."""
