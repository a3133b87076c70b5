"""A supervisor's heartbeat in RUN, and the watch over that of the next node: who falls silent is named by another.

Each watches one other, in the order of their names, so that what this costs a file server does not grow with the square
of the nodes. Whether somebody is silent is measured by the own clock alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.job_nodes import SILENT_S, NodeFolder, last_beat, node_folders, nodes_of_ranks
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json

BEAT_S = 1.0
LOOK_NS = 2_000_000_000


class Heartbeat:
    """Counts up a number in RUN, from `begin` to `end`."""

    def __init__(self, node: NodeFolder) -> None:
        self._node = node
        self._ended = Event()
        self._beat = 0
        self._ranks: dict[str, Any] = {}
        self._published = ""

    def tell(self, living: list[str], gone: list[str], progress: Mapping[str, Any] | None = None) -> None:
        """What others cannot see: the log folders of ranks whose processes are there, and of those that are not.
        progress: of each rank, for who does not read the logs of all."""
        self._ranks = {"living": living, "gone": gone} | ({"progress": progress} if progress else {})

    def tell_published(self, token: str) -> None:
        """That the logs are in RUN which somebody asked for by this token."""
        self._published = token

    def begin(self) -> None:
        Thread(target=self._run, name="prismdbg-heartbeat", daemon=True).start()

    def end(self) -> None:
        """What was told last stays there."""
        self._ended.set()
        self.once()

    def once(self) -> None:
        self._beat += 1
        with suppress(OSError):  # the next one may get there; the supervisor says what is wrong with RUN
            write_json(self._node.beat, {"beat": self._beat, "pid": os.getpid(), **self._ranks, **self._answer()})

    def _answer(self) -> dict[str, str]:
        return {"published": self._published} if self._published else {}

    def _run(self) -> None:
        while True:
            self.once()
            if self._ended.wait(BEAT_S):
                return


def beat_of(node: NodeFolder) -> int:
    """The number of its last heartbeat; -1 where there is none that can be read."""
    try:
        return int(last_beat(node).get("beat", -1))
    except (CapsuleError, OSError):
        return -1


def has_ended(node: NodeFolder) -> bool:
    """Its part of the job is over, and its supervisor has seen that."""
    with suppress(CapsuleError, OSError):
        return "exit_code" in read_json(node.supervisor_json)
    return False


class NeighbourWatch:
    """The watch over the next node that is not known to be lost or to have ended."""

    def __init__(self, run: RunFolder, own: NodeFolder, tell: Callable[[str], None]) -> None:
        self._run = run
        self._own = own
        self._tell = tell
        self._restart = own.restart
        self._gone: set[str] = set()
        self._watched: tuple[str, int, int] = "", -1, 0  # name, beat, since when it is the same
        self._looked_ns = 0

    def look(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns - self._looked_ns < LOOK_NS:
            return
        self._looked_ns = now_ns
        node = self._next()
        if node is None:
            return
        beat = beat_of(node)
        name, last, since_ns = self._watched
        if (node.name, beat) != (name, last):
            self._watched = node.name, beat, now_ns
            return
        if now_ns - since_ns > SILENT_S * 1e9:
            self._gone.add(node.name)
            self._tell(self._text(node, (now_ns - since_ns) / 1e9))

    def _next(self) -> NodeFolder | None:
        nodes = node_folders(self._run, self._restart, self._tell)
        later = [node for node in nodes if node.name > self._own.name]
        others = [*later, *(node for node in nodes if node.name < self._own.name)]
        for node in others:
            if node.name not in self._gone and has_ended(node):
                self._gone.add(node.name)
        return next((node for node in others if node.name not in self._gone), None)

    def _text(self, node: NodeFolder, silent_s: float) -> str:
        ranks = sorted(name for name, owner in nodes_of_ranks(self._run).items() if owner == node.name)
        whose = f" with rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)}" if ranks else ""
        return (
            f"node {node.name}{whose} has been silent for {silent_s:.0f} s: it, its supervisor or its network is lost"
        )
