"""Writes a rank's log byte by byte, as `capsule/log/format.py` says, for tests that need one without a training job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from prismdbg.capsule.log import format as fmt
from prismdbg.model import dtypes
from prismdbg.model.collective import TensorMeta
from prismdbg.model.sketch import Sketch

FLOATS = TensorMeta((4,), "float32")


class TinyLog:
    """One log folder, written record by record; `next_segment` closes a segment and begins another."""

    WALL_NS, MONOTONIC_NS = 10**18, 10**9
    WALL_OFFSET_NS = WALL_NS - MONOTONIC_NS

    def __init__(self, folder: Path, rank: int = 0, *, segment_bytes: int = 1 << 16) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.rank = rank
        self.segment_bytes = segment_bytes
        self.index = -1
        self.records = 0
        self.payload_offset = 0
        self._texts: dict[str, int] = {"": 0}
        self._stacks = 0
        self.next_segment()

    @property
    def path(self) -> Path:
        return self.folder / fmt.event_segment(self.index)

    def next_segment(self) -> None:
        if self.index >= 0:
            self.append(fmt.Kind.END, b"")
        self.index += 1
        clocks = (self.WALL_NS, self.MONOTONIC_NS)
        header = fmt.HEADER.pack(fmt.MAGIC, fmt.VERSION, self.index, self.rank, 4711, *clocks, self.segment_bytes)
        self.path.write_bytes(header + bytes(self.segment_bytes - len(header)))
        self.offset = len(header)

    def append(self, kind: int, body: bytes) -> int:
        """The offset of the new record."""
        size = fmt.RECORD.size + len(body)
        size += -size % 8
        record = fmt.RECORD.pack(size, kind, 0) + body
        offset = self.offset
        self.write(offset, record + bytes(size - len(record)))
        self.offset += size
        return offset

    def write(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = number = len(self._texts)
            data = text.encode()
            self.append(fmt.Kind.TEXT, fmt.TEXT.pack(number, len(data)) + data)
        return self._texts[text]

    def stack(self, *frames: tuple[str, int, str]) -> int:
        rows = b"".join(fmt.FRAME.pack(self.text(file), line, self.text(name)) for file, line, name in frames)
        self._stacks += 1
        self.append(fmt.Kind.STACK, fmt.STACK.pack(self._stacks, len(frames)) + rows)
        return self._stacks

    def group(self, name: str, ranks: Sequence[int], desc: str = "") -> None:
        body = {"name": name, "ranks": list(ranks), "desc": desc, "backend": "gloo"}
        self.append(fmt.Kind.GROUP, json.dumps(body).encode())

    def note(self, kind: str, **data: object) -> None:
        self.append(fmt.Kind.NOTE, json.dumps({"kind": kind, "time_ns": 5, **data}).encode())

    def step(self, step: int, source: fmt.StepSource = fmt.StepSource.OPTIMIZER, time_ns: int | None = None) -> None:
        self.append(fmt.Kind.STEP, fmt.STEP.pack(step, 1000 + step if time_ns is None else time_ns, source))

    def issue(
        self,
        step: int,
        collective: int,
        *,
        op: str = "allreduce_",
        group: str = "0",
        root: int = -1,
        seq: int | None = None,
        stack: int = 0,
        inputs: Sequence[TensorMeta] = (FLOATS,),
        outputs: Sequence[TensorMeta] = (FLOATS,),
        flags: int = fmt.IssueFlag.HAS_FINGERPRINT,
        device: str = "cpu",
        sketch: Sketch | None = None,
        time_ns: int | None = None,
    ) -> int:
        """The record's id."""
        record = self.records
        self.records += 1
        flags |= fmt.IssueFlag.HAS_SKETCH if sketch is not None else 0
        op_text, group_text, device_text = self.text(op), self.text(group), self.text(device)
        time_ns = 2000 + record if time_ns is None else time_ns
        head = fmt.ISSUE.pack(
            record, time_ns, 0xABC + record, 77, record if seq is None else seq, step, collective, op_text,
            group_text, stack, device_text, root, 0, 1000, 0, flags, 0, len(inputs), len(outputs),
        )  # fmt: skip
        tail = b"" if sketch is None else sketch.pack()
        self.append(fmt.Kind.ISSUE, head + b"".join(map(_tensor, [*inputs, *outputs])) + tail)
        return record

    def complete(
        self,
        record: int,
        payload: bytes | None = None,
        status: fmt.Status = fmt.Status.OK,
        *,
        flags: int = 0,
        made: int = 0,
        sent: int | None = None,
        ended_ns: int | None = None,
    ) -> None:
        """sent: the fingerprint of what was sent, where it is known only now."""
        offset = self.payload_offset
        if payload is not None:
            flags |= fmt.CompleteFlag.PAYLOAD
            with (self.folder / fmt.payload_segment(0)).open("ab") as file:
                file.write(payload)
            self.payload_offset += len(payload)
        size = len(payload or b"")
        flags |= fmt.CompleteFlag.HAS_FINGERPRINT if sent is not None else 0
        ended_ns = 3000 + record if ended_ns is None else ended_ns
        body = fmt.COMPLETE.pack(
            record, 3000 + record if ended_ns is None else ended_ns, offset, size, 0, -1, status, flags, made, 0
        )
        self.append(fmt.Kind.COMPLETE, body + (b"" if sent is None else sent.to_bytes(8, "little")))


def _tensor(meta: TensorMeta) -> bytes:
    head = fmt.TENSOR.pack(dtypes.NUMBERS[meta.dtype], len(meta.shape), 0, 1)
    return head + b"".join(size.to_bytes(8, "little", signed=True) for size in meta.shape)


def write_training(folder: Path, steps: int = 3, per_step: int = 2, rank: int = 0, device: str = "cpu") -> TinyLog:
    """A rank that all-reduces `per_step` times a step and receives 16 bytes each time."""
    log = TinyLog(folder, rank)
    log.group("0", (0, 1), "default_pg")
    for step in range(steps):
        for collective in range(1, per_step + 1):
            log.complete(log.issue(step, collective, device=device), bytes([step, collective]) * 8)
        log.step(step + 1)
    return log
