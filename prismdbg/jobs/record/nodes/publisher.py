"""Brings what a node's ranks have written into RUN: their logs at each incident and whenever somebody asks, everything
at the end. A file server may be slow: the watch goes on meanwhile."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread

from prismdbg.errors import CapsuleError, PrismError
from prismdbg.jobs.record.nodes.heartbeat import Heartbeat
from prismdbg.jobs.storage.fresh_logs import Asked, last_asked
from prismdbg.jobs.storage.job_nodes import NodeFolder
from prismdbg.jobs.storage.local_logs import LocalFolder, publish_all, publish_ends, publish_logs, publish_so_far
from prismdbg.jobs.storage.ranks_alive import who_may_write
from prismdbg.jobs.storage.run_folder import RunFolder, write_json

LOOK_S = 1.0
RETRY_S = 5.0
LAST_TRIES_S = 20.0  # at the end, while the folder cannot be reached
_FULL = (errno.ENOSPC, errno.EDQUOT)

Reason = tuple[frozenset[str], Asked]


class _StillRuns(PrismError):
    """What would be published is not all."""


class Publisher:
    """`tell`: what the ledger keeps as a problem."""

    def __init__(self, run: RunFolder, node: NodeFolder, heart: Heartbeat, tell: Callable[[str], None]) -> None:
        assert run.local is not None, "there is a folder of this node"
        self._run = run
        self._node = node
        self._heart = heart
        self._tell = tell
        self._local = LocalFolder(run.local)
        self._last_asked = Asked()
        self._done: Reason = frozenset(), self._asked()
        self._next_s = 0.0
        self._thread: Thread | None = None

    @property
    def left_in(self) -> str:
        """Where what RUN lacks is; empty once it has all."""
        return str(self._local.path) if self._local.path.exists() else ""

    def look(self) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s or (self._thread is not None and self._thread.is_alive()):
            return
        self._next_s = now_s + LOOK_S
        reason = self._incidents(), self._asked()
        if reason != self._done:
            self._thread = Thread(target=self._publish, args=(reason,), name="prismdbg-publish", daemon=True)
            self._thread.start()

    def _asked(self) -> Asked:
        """What was asked for last, as far as it can be read: a damaged file keeps no log of an incident from RUN."""
        with suppress(CapsuleError, OSError):
            self._last_asked = last_asked(self._run)
        return self._last_asked

    def _incidents(self) -> frozenset[str]:
        """Also those that no capsule is made of, and of other nodes."""
        decided = self._run.decisions.glob("*/decided") if self._run.decisions.is_dir() else ()
        return frozenset(path.parent.name for path in decided)

    def _publish(self, reason: Reason) -> None:
        """Who asks for the ends of logs has them soon, also who asks meanwhile: all that is in logs may be much for a
        file server."""
        answered = self._done[1]

        def answer() -> None:
            nonlocal answered
            asked = self._asked()
            if asked != answered and asked.newest_bytes is not None:
                publish_ends(self._local, self._run.path, asked.newest_bytes)
                self._heart.tell_published(asked.token)
                answered = asked

        try:
            publish_logs(self._local, self._run.path, between=answer)
            if answered == self._done[1]:
                self._heart.tell_published(reason[1].token)
            self._done = reason
        except (OSError, PrismError) as error:
            self._next_s = time.monotonic() + RETRY_S
            self._tell(f"the logs of this node could not be copied into {self._run.path} yet: {_why(error)}")

    def finish(self) -> None:
        """All of it, once the ranks have ended; what is not in RUN then stays where it is, and so does the folder of
        ranks that still run: the command that was recorded may end before them."""
        if self._thread is not None:
            self._thread.join()
        end_s = time.monotonic() + LAST_TRIES_S
        while (error := self._last_try()) is not None:
            if getattr(error, "errno", None) in _FULL or time.monotonic() > end_s:
                self._leave(error)
                return
            time.sleep(LOOK_S)

    def _leave(self, error: Exception) -> None:
        """What RUN lacks is where it is. Of ranks that go on, all that they have written so far is in RUN: a scheduler
        may end them and remove the folder as soon as the command has ended."""
        when = "the folder can be written to"
        if isinstance(error, _StillRuns):
            when = "the job has ended"
            try:
                publish_so_far(self._local, self._run.path)
            except (OSError, PrismError) as failed:
                error = failed
        self._tell(
            f"{self._run.path} lacks the logs of this node: {_why(error)}; they are in {self._local.path}: "
            f"run `prismdbg publish {self._run.path}` on this node when {when}"
        )

    def _last_try(self) -> Exception | None:
        try:
            if writers := who_may_write(self._local.ranks, self._node.config):
                publish_logs(self._local, self._run.path)
                return _StillRuns(writers)
            publish_all(self._local, self._run.path)
            write_json(self._node.published, {"by": "supervisor"})
        except (OSError, PrismError) as error:
            return error
        self._local.remove()
        return None


def _why(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
