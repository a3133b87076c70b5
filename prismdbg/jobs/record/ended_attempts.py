"""What stays of a job that its launcher restarts again and again: of each rank the newest two attempts as they are, the
one that goes on and the one that ended last. Of older ones the end of the log stays, and its summary."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.rank_json import variables_of
from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture.capture import needed_by_captures
from prismdbg.jobs.storage.generations import last_ns
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of, read_if_whole
from prismdbg.log.columns import LAST_BYTES, read_columns
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize

KEPT = 2
END_BYTES = 2 * fmt.EVENT_SEGMENT_BYTES  # what is read of the end of a log is in there, however little the newest has


@dataclass(frozen=True, slots=True)
class _Start:
    """`job`: as torchrun calls it; empty where torchrun did not start it. count: how often torchrun says that it has
    restarted it, which it counts only on the node where a rank failed. agent, worker, started_ns: as in rank.json;
    empty or 0 where that is not known."""

    job: str
    count: int
    agent: Sequence[int]
    worker: Sequence[int]
    started_ns: int

    @classmethod
    def of(cls, rank: Mapping[str, Any]) -> _Start:
        given = variables_of(rank)
        count = given.get("TORCHELASTIC_RESTART_COUNT", "")
        job = given.get("TORCHELASTIC_RUN_ID", "") if count.isdecimal() else ""
        agent, worker, started_ns = rank.get("agent", ()), rank.get("worker", ()), int(rank.get("started_ns", 0))
        return cls(job, int(count) if job else 0, agent, worker, started_ns)

    def restarts(self, earlier: _Start) -> bool:
        if not self.job or self.job != earlier.job:
            return False
        if self._is_of_the_agent_of(earlier):
            return _began(self.worker) > _began(earlier.worker)
        return self.count > earlier.count  # also of a torchrun below a worker of another one

    def is_counted_after(self, earlier: _Start) -> bool:
        """By the same torchrun."""
        return self._is_of_the_agent_of(earlier) and self.restarts(earlier) and self.count > earlier.count

    def is_counted_as(self, other: _Start) -> bool:
        """By the same torchrun, of another worker."""
        return self._is_of_the_agent_of(other) and (self.job, self.count) == (other.job, other.count)

    def _is_of_the_agent_of(self, earlier: _Start) -> bool:
        return bool(self.agent) and self.agent == earlier.agent and self.worker != earlier.worker


@dataclass(frozen=True, slots=True)
class _End:
    """`code`: that the log ends with; None where it does not say one."""

    last_ns: int
    code: int | None

    @classmethod
    def of(cls, folder: Path) -> _End:
        try:
            log = read_columns(folder, LAST_BYTES)
        except (CapsuleError, OSError):
            return cls(0, None)
        codes = [note.data.get("code") for note in log.notes if note.kind == "exit"]
        return cls(last_ns(log), codes[-1] if codes else None)


def _began(process: Sequence[int]) -> int:
    """In clock ticks since boot."""
    return process[-1] if process else 0


class EndedAttempts:
    """Of one supervisor. Capsules hold what they need themselves. `log_bytes`: as in its policy; where nothing of a log
    goes, nothing goes here."""

    def __init__(self, run: RunFolder, log_bytes: int) -> None:
        self._run = run
        self._log_bytes = log_bytes
        self._done: set[str] = set()
        self._starts: dict[str, _Start] = {}
        self._ends: dict[str, _End] = {}

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
        all_ended = {one.name: one for attempts in by_rank.values() for one in attempts if one.name in ended}
        older = [
            folder
            for attempts in by_rank.values()
            if len(attempts) > KEPT
            for folder in sorted(attempts, key=lambda one: attempt_of(one.name))[:-KEPT]
            if folder.name in ended - self._done and self._restarts_of(folder, attempts, all_ended) >= KEPT
        ]
        captured = needed_by_captures(self._run) if older else {}
        return next((folder for folder in older if folder.name not in captured), None)

    def _restarts_of(self, folder: Path, attempts: Iterable[Path], ended: Mapping[str, Path]) -> int:
        """By its launcher; counted up to `KEPT`. Jobs that a script starts one after the other, or beside each other,
        have the same ranks; so have those that one process launches (`elastic_launch`)."""
        start = self._start(folder)
        restarts = [other for other in attempts if self._start(other).restarts(start)]
        chain = [folder, *sorted(restarts, key=lambda one: attempt_of(one.name))[:KEPT]]
        ends = (
            number
            for number, (one, later) in enumerate(pairwise(chain))
            if one.name in ended
            and self._end(one).code == 0
            and not self._is_restarted_with_others(one, later, ended.values())
        )
        return next(ends, len(chain) - 1)

    def _is_restarted_with_others(self, one: Path, later: Path, ended: Iterable[Path]) -> bool:
        """Though `one` ended well. The count alone does not say it: what is launched next may fail before it
        communicates, and only its restarts have logs."""
        return self._start(later).is_counted_after(self._start(one)) and any(
            self._start(other).is_counted_as(self._start(one))
            and self._end(other).code != 0
            and self._ran_together(one, other)
            for other in ended
        )

    def _ran_together(self, one: Path, other: Path) -> bool:
        began_ns = max(self._start(folder).started_ns for folder in (one, other))
        return began_ns < min(self._end(folder).last_ns for folder in (one, other))

    def _end(self, folder: Path) -> _End:
        """Of one that has ended."""
        if folder.name not in self._ends:
            self._ends[folder.name] = _End.of(folder)
        return self._ends[folder.name]

    def _start(self, folder: Path) -> _Start:
        if folder.name not in self._starts:
            self._starts[folder.name] = _Start.of(read_if_whole(folder / "rank.json"))
        return self._starts[folder.name]

    def _reduce(self, folder: Path) -> None:
        for kept in (self._run.states / folder.name, self._run.checkpoints / folder.name):
            if kept.is_dir():
                shutil.rmtree(kept)
        for received in folder.glob("payload.*.seg"):
            received.unlink()
        summarize(folder)
        fold(folder, min(END_BYTES, self._log_bytes))
