"""A rank that multiprocessing spawned, and the file with what it was given: two pickles, of which nothing but their
texts is looked at outside the rank itself."""

from __future__ import annotations

from collections.abc import Iterable

FILE = "spawned.pickle"  # in the rank's folder
MOST_BYTES = 16 << 20
# In a replay, of an exception where the rank asks for what the recording does not have.
NOT_RECORDED = "prismdbg: not in the recording of this rank"
_COMMAND = "from multiprocessing.spawn import "


def is_spawned(command: Iterable[str]) -> bool:
    """Whether multiprocessing started a process with this command, with the start method `spawn`."""
    return any(word.startswith(_COMMAND) for word in command)
