"""What stays of a job that its launcher restarts again and again: of each rank the newest two attempts as they are, the
one that goes on and the one that ended last. Of older ones the end of the log stays, and its summary."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.jobs.capture.capture import needed_by_captures
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize

KEPT = 2
END_BYTES = 2 * fmt.EVENT_SEGMENT_BYTES  # what is read of the end of a log is in there, however little the newest has


class EndedAttempts:
    """Of one supervisor. Capsules hold what they need themselves. `log_bytes`: as in its policy; where nothing of a log
    goes, nothing goes here."""

    def __init__(self, run: RunFolder, log_bytes: int) -> None:
        self._run = run
        self._log_bytes = log_bytes
        self._done: set[str] = set()

    def reduce_one(self, folders: Iterable[Path], ended: set[str]) -> None:
        """`ended`: names of folders whose process is gone. One of them at most, for it may take a while. To be called
        while nothing is being decided."""
        if self._log_bytes and (found := self._next(folders, ended)) is not None:
            self._done.add(found.name)  # also where it fails, which is said once
            self._reduce(found)

    def _next(self, folders: Iterable[Path], ended: set[str]) -> Path | None:
        by_rank: dict[int, list[Path]] = {}
        for folder in folders:
            by_rank.setdefault(rank_of(folder), []).append(folder)
        older = [
            folder
            for attempts in by_rank.values()
            for folder in sorted(attempts, key=lambda one: attempt_of(one.name))[:-KEPT]
            if folder.name in ended - self._done
        ]
        captured = needed_by_captures(self._run) if older else {}
        return next((folder for folder in older if folder.name not in captured), None)

    def _reduce(self, folder: Path) -> None:
        for kept in (self._run.states / folder.name, self._run.checkpoints / folder.name):
            if kept.is_dir():
                shutil.rmtree(kept)
        for received in folder.glob("payload.*.seg"):
            received.unlink()
        summarize(folder)
        fold(folder, min(END_BYTES, self._log_bytes))
