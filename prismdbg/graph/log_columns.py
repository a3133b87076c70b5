"""A rank's whole log as columns: a million collectives in about a second, for front ends that show them all.

Everything that is one value a collective is an array, in the order of issue; what one of them is in full (tensors,
frames) is decoded when asked for, by `detail`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule import json_border
from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.json_border import Fields
from prismdbg.capsule.limits import MAX_TENSORS
from prismdbg.capsule.log_notes import checked_note, read_group
from prismdbg.capsule.log_reader import event_segments, part
from prismdbg.errors import CapsuleError
from prismdbg.graph import segment_columns as seg
from prismdbg.graph.segment_columns import Ints
from prismdbg.model import dtypes, made_up
from prismdbg.model.collective import Frame, Group, PayloadRef, TensorMeta
from prismdbg.model.moment import Moment

NOT_ENDED = -1

Bools = NDArray[np.bool_]
_NONE = np.zeros(0, dtype=np.int64)
# fields of the log's records by their place in the format
_ISSUE = {
    "record_id": 0,
    "begun_ns": 1,
    "thread": 3,
    "seq": 4,
    "step": 5,
    "nth": 6,
    "op": 7,
    "group": 8,
    "stack": 9,
    "root": 11,
    "tag": 12,
    "flags": 15,
    "inputs": 17,
    "outputs": 18,
}
_COMPLETE = {"record_id": 0, "ended_ns": 1, "source_rank": 5, "status": 6, "flags": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """One collective in full."""

    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    frames: tuple[Frame, ...]
    reduce_op: str
    timeout_ms: int
    payload: PayloadRef | None
    made: str = made_up.NOT_KNOWN  # how, where what was received is made up


@dataclass(slots=True, kw_only=True)
class LogColumns:
    """`texts[op[i]]` is the operator of row i. Times are the log's own; `ended_ns` is NOT_ENDED where it did not.

    synthesized: what was received is made up, so that nothing may be concluded from its values.
    """

    rank: int
    wall_offset_ns: int
    record_id: Ints
    step: Ints
    nth: Ints
    op: Ints
    group: Ints
    seq: Ints
    size_bytes: Ints
    begun_ns: Ints
    ended_ns: Ints
    root: Ints
    tag: Ints
    thread: Ints
    stack: Ints
    source_rank: Ints
    is_async: Bools
    is_p2p: Bools
    sent_nonfinite: Bools
    received_nonfinite: Bools
    failed: Bools
    has_payload: Bools
    synthesized: Bools
    texts: dict[int, str]
    groups: dict[str, Group]
    notes: list[dict[str, Any]]
    damage: CapsuleError | None
    stacks: dict[int, tuple[tuple[int, int, int], ...]] = field(repr=False)
    parts: Parts = field(repr=False)

    def __len__(self) -> int:
        return len(self.record_id)

    def moment(self, row: int) -> Moment:
        return Moment(int(self.step[row]), int(self.nth[row]))

    def row_at(self, moment: Moment) -> int:
        """The first row at or after `moment`; the number of rows where there is none."""
        first = int(np.searchsorted(self.step, moment.step))
        beyond = int(np.searchsorted(self.step, moment.step + 1))
        return first + int(np.searchsorted(self.nth[first:beyond], moment.collective))

    def frames(self, stack: int) -> tuple[Frame, ...]:
        """Innermost first; empty where the log does not have the stack."""
        return tuple(
            Frame(self.texts.get(file, ""), line, self.texts.get(name, ""))
            for file, line, name in self.stacks.get(stack, ())
        )

    def detail(self, row: int) -> Detail:
        issue, complete = self.parts.bodies(row)
        head = fmt.ISSUE.unpack_from(issue)
        timeout_ms, reduce_op, inputs, outputs = head[13], head[14], head[17], head[18]
        device = self.texts.get(head[10], "cpu").partition(fmt.STREAM)[0]
        metas, offset = _tensors(issue, fmt.ISSUE.size, inputs, device)
        outs, _ = _tensors(issue, offset, outputs, device)
        payload, made = None, made_up.NOT_KNOWN
        if complete is not None:
            end = fmt.COMPLETE.unpack_from(complete)
            made = made_up.way_of(end[8])
            if self.has_payload[row]:
                payload = PayloadRef(segment=end[4], offset=end[2], size_bytes=end[3])
        known = reduce_op < len(dtypes.REDUCE_OPS)
        return Detail(
            inputs=metas,
            outputs=outs,
            frames=self.frames(int(self.stack[row])),
            reduce_op=dtypes.REDUCE_OPS[reduce_op] if known else "",
            timeout_ms=timeout_ms,
            payload=payload,
            made=made,
        )


@dataclass(slots=True, kw_only=True)
class Parts:
    """Where the two records of each row lie: segment and slot; slot -1 where it has no second."""

    words: list[seg.Words]
    issue_segment: Ints
    issue_slot: Ints
    complete_segment: Ints
    complete_slot: Ints

    def bodies(self, row: int) -> tuple[bytes, bytes | None]:
        issue = seg.body(self.words[int(self.issue_segment[row])], int(self.issue_slot[row]))
        slot = int(self.complete_slot[row])
        return issue, seg.body(self.words[int(self.complete_segment[row])], slot) if slot >= 0 else None


def read_columns(folder: Path) -> LogColumns:
    """`CapsuleError` where there is no log; `damage` says where a damaged one ends early."""
    paths = [path for _, path in event_segments(folder)]
    if not paths:
        raise CapsuleError(f"no log in {folder}", hint="check the path, or wait until the rank has issued a collective")
    reading = _Reading()
    for number, path in enumerate(paths):
        if not reading.add(number, path):
            break
    return reading.columns()


class _Reading:
    """Collects the segments' columns; joined once at the end."""

    def __init__(self) -> None:
        self.words: list[seg.Words] = []
        self.rank, self.wall_offset_ns = -1, 0
        self.issues: dict[str, list[Ints]] = {}
        self.ends: dict[str, list[Ints]] = {}
        self.texts: dict[int, str] = {0: ""}
        self.stacks: dict[int, tuple[tuple[int, int, int], ...]] = {0: ()}
        self.groups: dict[str, Group] = {}
        self.notes: list[dict[str, Any]] = []
        self.damage: CapsuleError | None = None

    def add(self, number: int, path: Path) -> bool:
        """False where the log ends with this segment."""
        try:
            words = seg.read_words(path)
        except OSError as error:
            raise CapsuleError(
                f"{path} cannot be read: {error.strerror}", hint="record or fetch it again: the log is damaged"
            ) from error
        self.words.append(words)
        if not len(words) or not self._header(words, path):
            return False
        places = seg.find_records(words, path)
        for kind, slot in places.others:
            self._other(kind, seg.body(words, slot), path, slot)
        self._issue(number, words, places.issues)
        self._complete(number, words, places.completions)
        self.damage = places.damage
        return places.closed and self.damage is None

    def _header(self, words: seg.Words, path: Path) -> bool:
        magic, version, _, rank, _, wall, monotonic, _ = fmt.HEADER.unpack(words[:8].tobytes())
        if magic == bytes(8):
            return False
        if magic != fmt.MAGIC or version != fmt.VERSION:
            raise CapsuleError(
                f"{path} is not a log of format {fmt.VERSION}",
                hint="use a newer prismdbg, or record again: the log is damaged or newer",
            )
        self.rank, self.wall_offset_ns = rank, wall - monotonic
        return True

    def _other(self, kind: int, body: bytes, path: Path, slot: int) -> None:
        try:
            self._decode_other(kind, body)
        except (CapsuleError, ValueError, struct.error) as error:
            at = slot * seg.SLOT_BYTES
            raise CapsuleError(f"{path} is damaged at offset {at}: {error}", hint="record or fetch it again") from error

    def _decode_other(self, kind: int, body: bytes) -> None:
        if kind == fmt.Kind.TEXT:
            number, size = fmt.TEXT.unpack_from(body)
            self.texts[number] = part(body, fmt.TEXT.size, size).decode("utf-8", "replace")
        elif kind == fmt.Kind.STACK:
            number, count = fmt.STACK.unpack_from(body)
            rows = part(body, fmt.STACK.size, count * fmt.FRAME.size)
            self.stacks[number] = tuple(fmt.FRAME.iter_unpack(rows))
        elif kind == fmt.Kind.GROUP:
            group = read_group(_json(kind, body))
            self.groups[group.name] = group
        elif kind == fmt.Kind.NOTE:
            self.notes.append(checked_note(_json(kind, body)))

    def _issue(self, number: int, words: seg.Words, slots: Ints) -> None:
        if not len(slots):
            return
        fields = {name: seg.field(words, slots, fmt.ISSUE, number) for name, number in _ISSUE.items()}
        inputs, outputs = fields.pop("inputs"), fields.pop("outputs")
        self._extend(
            self.issues,
            **fields,
            size_bytes=seg.tensor_bytes(words, slots, inputs, outputs),
            segment=np.full(len(slots), number, dtype=np.int64),
            slot=slots,
        )

    def _complete(self, number: int, words: seg.Words, slots: Ints) -> None:
        if not len(slots):
            return
        fields = {name: seg.field(words, slots, fmt.COMPLETE, number) for name, number in _COMPLETE.items()}
        self._extend(self.ends, **fields, segment=np.full(len(slots), number, dtype=np.int64), slot=slots)

    @staticmethod
    def _extend(columns: dict[str, list[Ints]], **values: Ints) -> None:
        for name, value in values.items():
            columns.setdefault(name, []).append(value)

    def columns(self) -> LogColumns:
        issue = {name: np.concatenate(parts) for name, parts in self.issues.items()}
        record_id = issue.get("record_id", _NONE)
        if len(record_id) > 1 and not (np.diff(record_id) > 0).all():
            order = np.argsort(record_id, kind="stable")
            issue = {name: column[order] for name, column in issue.items()}
            record_id = issue["record_id"]
        end = self._joined_ends(record_id)
        flags, end_flags = issue.get("flags", _NONE), end["flags"]
        named = ("record_id", "step", "nth", "op", "group", "seq", "size_bytes", "begun_ns", "root", "tag")
        return LogColumns(
            rank=self.rank,
            wall_offset_ns=self.wall_offset_ns,
            **{name: issue.get(name, _NONE) for name in (*named, "thread", "stack")},
            ended_ns=end["ended_ns"],
            source_rank=end["source_rank"],
            is_async=(flags & fmt.IssueFlag.ASYNC) > 0,
            is_p2p=(flags & fmt.IssueFlag.P2P) > 0,
            sent_nonfinite=(flags & fmt.IssueFlag.SENT_NONFINITE) > 0,
            received_nonfinite=(end_flags & fmt.CompleteFlag.RECEIVED_NONFINITE) > 0,
            failed=end["status"] == fmt.Status.FAILED,
            has_payload=(end_flags & fmt.CompleteFlag.PAYLOAD) > 0,
            synthesized=(end_flags & fmt.CompleteFlag.SYNTHESIZED) > 0,
            texts=self.texts,
            groups=self.groups,
            notes=self.notes,
            damage=self.damage,
            stacks=self.stacks,
            parts=Parts(
                words=self.words,
                issue_segment=issue.get("segment", _NONE),
                issue_slot=issue.get("slot", _NONE),
                complete_segment=end["segment"],
                complete_slot=end["slot"],
            ),
        )

    def _joined_ends(self, record_id: Ints) -> dict[str, Ints]:
        """The completions' columns in the order of the issues; -1 or 0 where there is none."""
        absent = {"ended_ns": NOT_ENDED, "source_rank": -1, "status": 0, "flags": 0, "segment": 0, "slot": -1}
        joined = {name: np.full(len(record_id), value, dtype=np.int64) for name, value in absent.items()}
        if not self.ends or not len(record_id):
            return joined
        end = {name: np.concatenate(parts) for name, parts in self.ends.items()}
        at = np.minimum(np.searchsorted(record_id, end["record_id"]), len(record_id) - 1)
        known = record_id[at] == end["record_id"]
        for name, column in joined.items():
            column[at[known]] = end[name][known]
        return joined


def _json(kind: int, body: bytes) -> Fields:
    return json_border.parse(body.rstrip(b"\0"), fmt.Kind(kind).name.lower(), any_float=True)


@lru_cache(maxsize=256)
def _tensors(issue: bytes, offset: int, entries: int, device: str) -> tuple[tuple[TensorMeta, ...], int]:
    metas: list[TensorMeta] = []
    for _ in range(entries):
        if offset + fmt.TENSOR.size > len(issue):
            break
        number, dims, _, repeat = fmt.TENSOR.unpack_from(issue, offset)
        offset += fmt.TENSOR.size
        sizes = np.frombuffer(issue[offset : offset + 8 * dims], dtype="<i8")
        offset += 8 * dims
        meta = TensorMeta(tuple(int(size) for size in sizes), dtypes.name_of(number), device)
        metas.extend([meta] * min(repeat, MAX_TENSORS - len(metas)))
    return tuple(metas), offset
