"""Follows a log while it is written, however fast. A job of weeks writes hundreds of collectives a second and rank, and
whoever watches it needs to know how far each rank came, not every collective as a value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.batch import CLEAN_STEPS, NOTABLE_KEPT, Batch, Key
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.capsule.log.notes import SKIPPED
from prismdbg.capsule.log.reader import DAMAGED, LogReader
from prismdbg.capsule.log.records import RecentLists
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Collective
from prismdbg.model.frame import infers_shapes

_Issued = tuple[int, int, bytes]  # begun ns, step that waits in it, the record for whoever asks
NOWHERE = -1  # the step of a call on a device: it is issued and left

# Of the two records what is looked at here: all fields take a third longer.
_ISSUE = struct.Struct(
    "<Qq8xQQI4xII4xIii5xB10x"
)  # record, begun, thread, seq, step, op, group, device, root, tag, flags
_COMPLETE = struct.Struct("<Qq25xB6x")  # record, ended, flags

_P2P = int(fmt.IssueFlag.P2P)  # numbers: an enumeration's operators take longer than all the rest
_SENT_NONFINITE = int(fmt.IssueFlag.SENT_NONFINITE)
_ENDED_NONFINITE = int(fmt.CompleteFlag.RECEIVED_NONFINITE | fmt.CompleteFlag.SENT_NONFINITE)


class LogFollower(LogReader):
    """`poll` gives a `Batch` in place of collectives, completions and waits: a tenth of the time and memory.

    first_segment: older ones are passed over. What they define reads as empty.
    """

    def __init__(self, folder: Path, first_segment: int = 0) -> None:
        super().__init__(folder)
        self._segment = first_segment
        self._records.lists = RecentLists()
        self._undecoded: CapsuleError | None = None
        self._batch: Batch | None = None
        self._issued: dict[int, _Issued] = {}
        self._given_open: set[int] = set()
        self._thread_issued_ns: dict[int, int] = {}
        self._notable_left = NOTABLE_KEPT
        self._clean_steps = 0
        self._last_id = -1
        self._last_body: bytes | None = None  # None: given

    @property
    def segment(self) -> int:
        """The one that is written to, as far as it is read."""
        return self._segment

    def poll(self) -> list[Event]:
        if self._undecoded is not None:
            error, self._undecoded = self._undecoded, None
            raise error
        try:
            events = super().poll()
            opened = self._issued.keys() - self._given_open
            if self._last_body is not None or opened:
                if self._batch is None:  # the last thing read was a mark
                    self._batch = Batch()
                    events.append(self._batch)
                self._finish(self._batch, sorted(opened))
            return events
        finally:
            self._batch = None

    def _finish(self, batch: Batch, opened: list[int]) -> None:
        self._given_open.update(opened)
        batch.open = [call for record_id in opened if (call := self._decoded(self._issued[record_id][2])) is not None]
        if self._last_body is not None:
            batch.last = self._decoded(self._last_body)
        self._last_body = None

    def _decoded(self, body: bytes) -> Collective | None:
        """None where it is damaged, which the next call of `poll` raises: all else that was read is given."""
        try:
            return self._records.collective(body)
        except (CapsuleError, ValueError, struct.error) as error:
            self._undecoded = CapsuleError(f"{self.folder} has a damaged record: {error}", hint=DAMAGED)
            return None

    def _by_kind(self) -> dict[int, Callable[[bytes], Event | None]]:
        known = super()._by_kind()
        del known[fmt.Kind.WAIT], known[fmt.Kind.CLOCK]
        return known | {
            int(fmt.Kind.ISSUE): self._follow_issue,
            int(fmt.Kind.COMPLETE): self._follow_completion,
            int(fmt.Kind.STEP): self._mark(self._step),
            int(fmt.Kind.NOTE): self._mark(self._note),
        }

    def _mark(self, decode: Callable[[bytes], Event | None]) -> Callable[[bytes], Event | None]:
        """What comes after it is told after it, too."""

        def mark(body: bytes) -> Event | None:
            self._batch = None
            return decode(body)

        return mark

    def _step(self, body: bytes) -> StepMark:
        mark = self._records.step(body)
        self._clean_steps += 1
        if mark.source is fmt.StepSource.SKIPPED_BY_SCALER or self._clean_steps > CLEAN_STEPS:
            self._notable_left = NOTABLE_KEPT
        return mark

    def _note(self, body: bytes) -> Note:
        note = self._records.note(body)
        if note.kind == SKIPPED:
            self._notable_left = NOTABLE_KEPT
        return note

    def _saw_nonfinite(self, batch: Batch, decode: Callable[[], Collective]) -> None:
        """Decodes it where it may be given."""
        if self._notable_left > 0:
            record = decode()
            if infers_shapes(record.frames):
                return
            batch.notable.append(record)
        self._notable_left -= 1
        batch.nonfinite, self._clean_steps = True, 0

    def _follow_issue(self, body: bytes) -> Batch | None:
        """The batch, where it begins with this record."""
        record_id, begun_ns, thread, seq, step, op, group, device, root, tag, flags = _ISSUE.unpack_from(body)
        begins = self._batch is None
        batch = self._batch = self._batch or Batch()
        name = self._records.texts.get(group, "")
        key: Key = (name, self._records.texts.get(op, ""), root, tag) if flags & _P2P else (name,)
        if seq > batch.reached.get(key, -1):
            batch.reached[key] = seq
        before_ns = self._thread_issued_ns.get(thread)
        if before_ns is not None:
            batch.gaps.append((before_ns, begun_ns, record_id))
        if before_ns is None or begun_ns > before_ns:
            self._thread_issued_ns[thread] = begun_ns
        batch.issued_ns[thread] = self._thread_issued_ns[thread]
        waits_in = step if self._records.texts.get(device, "cpu") == "cpu" else NOWHERE
        self._issued[record_id] = begun_ns, waits_in, body
        if flags & _SENT_NONFINITE:
            self._saw_nonfinite(batch, lambda: self._records.collective(body))
        if record_id > self._last_id:
            self._last_id, self._last_body = record_id, body
        return batch if begins else None

    def _follow_completion(self, body: bytes) -> Batch | None:
        record_id, ended_ns, flags = _COMPLETE.unpack_from(body)
        issued = self._issued.pop(record_id, None)
        if issued is None:
            return None
        begins = self._batch is None
        batch = self._batch = self._batch or Batch()
        begun_ns, step, issue = issued
        if step != NOWHERE:
            batch.waited_ns[step] = batch.waited_ns.get(step, 0) + ended_ns - begun_ns
        if flags & _ENDED_NONFINITE:
            self._saw_nonfinite(batch, lambda: self._records.completed(self._records.collective(issue), body))
        if record_id in self._given_open:
            self._given_open.remove(record_id)
            batch.closed.append(record_id)
        self._records.failures.pop(record_id, None)
        return batch if begins else None
