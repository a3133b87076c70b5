"""What the bodies of a log's records say, as values: the one decoder, both for reading a log from its beginning and for
single rows of one that is held as columns. See `format.py` for the bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prismdbg.capsule import checked_json
from prismdbg.capsule.limits import MAX_LISTED_TENSORS, MAX_TENSORS
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import Note, StepMark
from prismdbg.capsule.log.notes import checked_note, read_group
from prismdbg.model import dtypes, synthesis
from prismdbg.model.collective import (
    Collective,
    Failure,
    Frame,
    Group,
    Identity,
    PayloadRef,
    State,
    TensorMeta,
    Tensors,
)
from prismdbg.model.moment import Moment
from prismdbg.model.sketch import Sketch

MOST_RECENT = MAX_TENSORS  # tensors in lists that are kept of a log that is followed


class RecordDecoder:
    """Of one log, whose records number its texts and stacks: `text`, `stack` and `note` in the order of the log come
    before what refers to them. `ValueError`, `struct.error` and `CapsuleError` where a body is damaged."""

    def __init__(self, texts: Mapping[int, str] | None = None) -> None:
        self.texts: dict[int, str] = {0: "", **(texts or {})}
        self.stacks: dict[int, tuple[Frame, ...]] = {0: ()}
        self.failures: dict[int, Failure] = {}  # by record id
        self.lists = TensorLists()

    def text(self, body: bytes) -> None:
        number, size = fmt.TEXT.unpack_from(body)
        self.texts[number] = part(body, fmt.TEXT.size, size).decode("utf-8", "replace")

    def stack(self, body: bytes) -> None:
        number, count = fmt.STACK.unpack_from(body)
        rows = fmt.FRAME.iter_unpack(part(body, fmt.STACK.size, count * fmt.FRAME.size))
        self.stacks[number] = tuple(Frame(self.texts.get(f, ""), line, self.texts.get(n, "")) for f, line, n in rows)

    def step(self, body: bytes) -> StepMark:
        step, time_ns, source = fmt.STEP.unpack_from(body)
        return StepMark(step, time_ns, fmt.StepSource(source))

    def group(self, body: bytes) -> Group:
        return read_group(checked_json.parse(body.rstrip(b"\0"), "group", any_float=True))

    def collective(
        self, body: bytes, completion: bytes | None = None, wait: tuple[int, int] | None = None
    ) -> Collective:
        """As it was issued, and with the body of its completion as it ended. `wait`: when, in the log's time, which
        thread began to wait for it."""
        (record_id, created, fingerprint, thread, seq, step, nth, op, group, stack, device,
         root, tag, timeout, reduce_op, flags, _, n_in, n_out) = fmt.ISSUE.unpack_from(body)  # fmt: skip
        device_name, _, stream = self.texts.get(device, "cpu").partition(fmt.STREAM)
        inputs, offset = self.lists.read(body, fmt.ISSUE.size, n_in, device_name)
        outputs, offset = self.lists.read(body, offset, n_out, device_name)
        if reduce_op != fmt.NO_REDUCE_OP and reduce_op >= len(dtypes.REDUCE_OPS):
            raise ValueError(f"unknown reduce operator {reduce_op}")
        if stream and not (stream.isascii() and stream.isdigit() and len(stream) < 19):
            raise ValueError(f"{stream[:40]!r} is not a stream")
        ending: dict[str, Any] = {
            "fingerprint": fingerprint if flags & fmt.IssueFlag.HAS_FINGERPRINT else None,
            "sent_nonfinite": bool(flags & fmt.IssueFlag.SENT_NONFINITE),
            **({} if completion is None else self._end(completion)),
        }
        if wait is not None:
            ending["time_waited_ns"], ending["waiting_thread_id"] = wait
        p2p = bool(flags & fmt.IssueFlag.P2P)
        op_name, group_name = self.texts.get(op, ""), self.texts.get(group, "")
        return Collective(
            record_id=record_id,
            moment=Moment(step, nth),
            identity=Identity(group_name, seq, op_name, root, tag) if p2p else Identity(group_name, seq),
            op=op_name,
            group=group_name,
            is_p2p=p2p,
            is_async=bool(flags & fmt.IssueFlag.ASYNC),
            root=root,
            tag=tag,
            reduce_op="" if reduce_op == fmt.NO_REDUCE_OP else dtypes.REDUCE_OPS[reduce_op],
            timeout_ms=timeout,
            inputs=inputs,
            outputs=outputs,
            sketch=Sketch.unpack_from(body, offset) if flags & fmt.IssueFlag.HAS_SKETCH else None,
            time_created_ns=created,
            thread_id=thread,
            frames=self.stacks.get(stack, ()),
            stream=int(stream or 0),
            **ending,
        )

    def completed(self, issued: Collective, completion: bytes) -> Collective:
        return replace(issued, **self._end(completion))

    def _end(self, body: bytes) -> dict[str, Any]:
        record_id, time_ns, offset, size, segment, source, status, flags, way, _ = fmt.COMPLETE.unpack_from(body)
        sent: dict[str, Any] = {"sent_nonfinite": True} if flags & fmt.CompleteFlag.SENT_NONFINITE else {}
        if flags & fmt.CompleteFlag.HAS_FINGERPRINT:
            sent["fingerprint"] = fmt.COMPLETE_AND_SENT.unpack_from(body)[-1]
        return sent | {
            "state": State.COMPLETED if status == fmt.Status.OK else State.FAILED,
            "time_completed_ns": time_ns,
            "received_nonfinite": bool(flags & fmt.CompleteFlag.RECEIVED_NONFINITE),
            "source_rank": source,
            "payload": PayloadRef(segment, offset, size) if flags & fmt.CompleteFlag.PAYLOAD else None,
            "failure": self.failures.get(record_id),
            "synthesized": bool(flags & fmt.CompleteFlag.SYNTHESIZED),
            "made": synthesis.way_of(way),
        }

    def note(self, body: bytes) -> Note:
        """Why a collective failed stands in front of its completion."""
        fields = checked_note(checked_json.parse(body.rstrip(b"\0"), "note", any_float=True))
        note = Note(fields.pop("kind"), fields.pop("time_ns", 0), fields)
        if note.kind == "failed":
            data = note.data
            self.failures[data["record_id"]] = Failure(data["type"], data["text"], data["at_issue"])
        return note


def part(body: bytes, offset: int, size: int) -> bytes:
    """Of a record. `ValueError` where that has no such part."""
    if offset + size > len(body):
        raise ValueError(f"{size} bytes do not fit into the record")
    return body[offset : offset + size]


class TensorLists:
    """The lists of tensors in one log, each kept once: collectives that are alike share theirs.

    A record may say that a tensor comes many times over, so what lists take beyond the records' own entries is bounded
    for the log as a whole.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, str], tuple[TensorMeta, ...]] = {}
        self._listed = 0

    def read(self, body: bytes, offset: int, entries: int, device: str) -> tuple[tuple[TensorMeta, ...], int]:
        """The list that begins at `offset`, and where it ends. `ValueError` where the record has no room for it."""
        end = offset
        for _ in range(entries):
            dims = fmt.TENSOR.unpack_from(body, end)[1]
            end += fmt.TENSOR.size + 8 * dims
        if end > len(body):
            raise ValueError(f"{entries} tensors do not fit into the record")
        key = body[offset:end], device
        if key not in self._known:
            self._known[key] = self._listed_anew(key[0], entries, device)
        return self._known[key], end

    def _listed_anew(self, data: bytes, entries: int, device: str) -> tuple[TensorMeta, ...]:
        runs: list[tuple[TensorMeta, int]] = []
        offset = 0
        for _ in range(entries):
            number, dims, _, repeat = fmt.TENSOR.unpack_from(data, offset)
            shape = struct.unpack_from(f"<{dims}q", data, offset + fmt.TENSOR.size)
            offset += fmt.TENSOR.size + 8 * dims
            runs.append((TensorMeta(shape, dtypes.name_of(number), device), repeat))
        listed = sum(count for _, count in runs)
        if listed > MAX_TENSORS:
            raise ValueError(f"a collective of {listed} tensors; the limit is {MAX_TENSORS}")
        self._add(listed, len(runs))
        return Tensors.of_runs(runs)

    def _add(self, listed: int, entries: int) -> None:
        self._listed += listed - entries
        if self._listed > MAX_LISTED_TENSORS:
            raise ValueError(f"more than {MAX_LISTED_TENSORS} tensors in lists that differ")


class RecentLists(TensorLists):
    """Of a log that is followed for weeks, of which nobody holds more than a few collectives: those read last, however
    many differ."""

    def _add(self, listed: int, entries: int) -> None:
        if self._listed + listed > MOST_RECENT:
            self._known.clear()
            self._listed = 0
        self._listed += listed
