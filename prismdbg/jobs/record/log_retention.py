"""What stays of each rank's log: `--log-bytes`, or more where a checkpoint that is kept, or a capture, needs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from prismdbg.jobs.capture.capture import needed_by_captures
from prismdbg.jobs.capture.states import KeptState, list_states
from prismdbg.jobs.record.checkpoints import Checkpoint, list_checkpoints
from prismdbg.jobs.record.ledger import Ledger
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.folding import fold, span_estimated_s, span_kept_s
from prismdbg.model.durations import duration
from prismdbg.model.sizes import size

PINNED = 2  # so many times `--log-bytes` at most: a checkpoint or snapshot that is never replaced keeps no log for ever
FAR_OFF = 2  # an estimate is corrected beyond this factor


class LogRetention:
    """`log_bytes`: of each rank; 0: nothing is dropped."""

    def __init__(self, run: RunFolder, log_bytes: int, ledger: Ledger, say: Callable[[str], None]) -> None:
        self._run = run
        self._log_bytes = log_bytes
        self._ledger = ledger
        self._say = say
        self._told_span = False
        self._estimated_s: float | None = None
        self._without_states: set[str] = set()
        self.held_by_captures: set[str] = set()  # folders of logs that were not shortened as far as they may be

    def no_more_states(self, name: str) -> None:
        """Received data is kept as without snapshots from now on, so a replay from one does not get far."""
        self._without_states.add(name)

    def shorten(self, folder: Path) -> None:
        if not self._log_bytes:
            return
        self._say_span(folder)
        captured = self._captured(folder)
        usable = [kept for kept in self._kept(folder) if kept.is_in(folder)]
        fold(folder, PINNED * self._log_bytes, min(captured, default=None))
        pins = [kept.needed_from for kept in self._pinning(folder, usable)]
        fold(folder, self._log_bytes, min([*captured, *pins], default=None))
        for kept in usable:
            if not kept.is_in(folder):
                self._say_lost(folder, kept)

    def _kept(self, folder: Path) -> list[Checkpoint | KeptState]:
        return [*list_checkpoints(self._run, folder), *list_states(self._run, folder, skip_damaged=True)]

    def _pinning(self, folder: Path, kept: Iterable[Checkpoint | KeptState]) -> list[Checkpoint | KeptState]:
        ended = folder.name in self._without_states
        return [one for one in kept if one.is_in(folder) and not (ended and isinstance(one, KeptState))]

    def _captured(self, folder: Path) -> list[int]:
        """What a capture in progress needs, which ends soon."""
        needed = needed_by_captures(self._run)
        if folder.name not in needed:
            self.held_by_captures.discard(folder.name)
            return []
        self.held_by_captures.add(folder.name)
        return [needed[folder.name]]

    def _say_lost(self, folder: Path, kept: Checkpoint | KeptState) -> None:
        """Once for each rank: where they are too far apart, each of them is lost."""
        is_state = isinstance(kept, KeptState)
        what = f"state snapshot of rank {folder.name} of step {kept.moment.step}"
        if not is_state:
            what = f"checkpoint of rank {folder.name} at {kept.moment}"
        self._ledger.problem(
            f"no capsule can start at the {what} any more: its log no longer reaches back to it",
            f"record with a larger --log-bytes, or take {'snapshots' if is_state else 'checkpoints'} more often",
            about=f"{folder.name} lost {is_state}",
        )

    def estimate_span(self, folders: Iterable[Path]) -> None:
        """Says once, before a rank has filled a segment, how much of this job its log will hold."""
        if not self._log_bytes or self._told_span or self._estimated_s is not None:
            return
        found = (span_estimated_s(folder, self._log_bytes) for folder in folders)
        self._estimated_s = next((span_s for span_s in found if span_s is not None), None)
        if self._estimated_s is not None:
            self._say(
                f"estimate: at the pace of its first collectives, {self._span(self._estimated_s, 'will contain')}"
            )

    def _say_span(self, folder: Path) -> None:
        """Once, when it can be known, and only where the estimate was far off."""
        if self._told_span or (span_s := span_kept_s(folder, self._log_bytes)) is None:
            return
        self._told_span = True
        if self._estimated_s is None or not 1 / FAR_OFF <= span_s / self._estimated_s <= FAR_OFF:
            self._say(f"at its present pace, {self._span(span_s, 'contains')}")

    def _span(self, span_s: float, contains: str) -> str:
        held = f"the last {duration(span_s)} of the job (--log-bytes {size(self._log_bytes)})"
        return f"the log of a rank {contains} {held}"
