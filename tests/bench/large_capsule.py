"""A capsule of any number of collectives, written in columns: what a long run of production would leave behind."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest, Origin
from prismdbg.model.collective import Group
from prismdbg.model.moment import Moment

PER_STEP = 200
OPS = ("allreduce_", "_allgather_base_", "_reduce_scatter_base_", "alltoall_base_", "broadcast_", "barrier")
GROUPS = (
    Group(name="0", ranks=tuple(range(64)), desc="default_pg", backend="nccl"),
    Group(name="1", ranks=tuple(range(8)), desc="mesh_tp", backend="nccl"),
    Group(name="2", ranks=tuple(range(0, 64, 8)), desc="mesh_dp", backend="nccl"),
    Group(name="3", ranks=(0, 8), desc="mesh_pp", backend="nccl"),
)
LINES = tuple(("/job/train.py", 40 + number, "train_step") for number in range(24))
_ISSUE = np.dtype(
    [
        *[("head", "<u8"), ("record", "<u8"), ("begun", "<i8"), ("print", "<u8"), ("thread", "<u8"), ("seq", "<u8")],
        *[(name, "<u4") for name in ("step", "nth", "op", "group", "stack", "device")],
        *[("root", "<i4"), ("tag", "<i4"), ("timeout", "<i4"), ("reduce", "u1"), ("flags", "u1"), ("zero", "<u2")],
        *[("inputs", "<u4"), ("outputs", "<u4"), ("in", "<u8"), ("in0", "<i8"), ("out", "<u8"), ("out0", "<i8")],
    ]
)
_COMPLETE = np.dtype(
    [
        *[("head", "<u8"), ("record", "<u8"), ("ended", "<i8"), ("offset", "<u8"), ("bytes", "<u8")],
        *[("segment", "<u4"), ("source", "<i4"), ("status", "u1"), ("flags", "u1"), ("zero", "<u2"), ("pad", "<u4")],
    ]
)
PAIR = np.dtype([("issue", _ISSUE), ("complete", _COMPLETE)])
assert _ISSUE.itemsize == fmt.RECORD.size + fmt.ISSUE.size + 2 * (fmt.TENSOR.size + 8)
assert _COMPLETE.itemsize == fmt.RECORD.size + fmt.COMPLETE.size


def make_large_capsule(path: Path, collectives: int, seed: int = 1) -> Capsule:
    log = path.with_name(path.name + ".log")
    log.mkdir(parents=True)
    write_log(log, collectives, np.random.default_rng(seed))
    last = Moment((collectives - 1) // PER_STEP, (collectives - 1) % PER_STEP + 1)
    manifest = Manifest(
        created_ns=1_700_000_000_000_000_000,
        job="large",
        rank=0,
        world_size=64,
        moment_a=Moment(0, 1),
        moment_b=last,
        incident=Incident(kind=IncidentKind.REQUEST, text="generated", moment=Moment(last.step // 2, 1)),
        origin=Origin.START,
        contains_raw_memory=False,
        replayable_from=Moment(0, 1),
        groups=GROUPS,
    )
    with CapsuleWriter(path) as writer:
        writer.add_tree(layout.LOG, log)
        writer.add_json(layout.RANK, {"argv": ["train.py"], "cwd": "/job", "environment": {}, "redacted": []})
        return writer.finish(manifest)


def write_log(folder: Path, collectives: int, random: np.random.Generator, rank: int = 0) -> None:
    """Whole segments of the size that a recorder writes."""
    preface = _preface()
    room = fmt.EVENT_SEGMENT_BYTES - fmt.HEADER.size - fmt.RECORD.size
    pairs = _pairs(collectives, random)
    at, segment = 0, 0
    while at < collectives or segment == 0:
        first = preface if segment == 0 else b""
        count = (room - len(first)) // PAIR.itemsize
        header = fmt.HEADER.pack(fmt.MAGIC, fmt.VERSION, segment, rank, 4711, 10**18, 10**9, fmt.EVENT_SEGMENT_BYTES)
        part = pairs[at : at + count]
        at += len(part)
        end = record(fmt.Kind.END, b"") if at < collectives else b""
        data = header + first + part.tobytes() + end
        with (folder / fmt.event_segment(segment)).open("wb") as file:
            file.write(data + bytes(fmt.EVENT_SEGMENT_BYTES - len(data)))
        segment += 1


def _preface() -> bytes:
    texts = [*OPS, *(group.name for group in GROUPS), "cuda:0", LINES[0][0], LINES[0][2]]
    records = [record(fmt.Kind.TEXT, fmt.TEXT.pack(n, len(t)) + t.encode()) for n, t in enumerate(texts, 1)]
    for number, (_, line, _) in enumerate(LINES, 1):
        frame = fmt.FRAME.pack(len(texts) - 1, line, len(texts))
        records.append(record(fmt.Kind.STACK, fmt.STACK.pack(number, 1) + frame))
    for group in GROUPS:
        body = {"name": group.name, "ranks": group.ranks, "desc": group.desc, "backend": group.backend}
        records.append(record(fmt.Kind.GROUP, json.dumps(body).encode()))
    return b"".join(records)


def record(kind: int, body: bytes) -> bytes:
    size = fmt.RECORD.size + len(body)
    size += -size % 8
    return (fmt.RECORD.pack(size, kind, 0) + body).ljust(size, b"\0")


def _pairs(count: int, random: np.random.Generator) -> NDArray[np.void]:
    pairs = np.zeros(count, dtype=PAIR)
    issue, complete = pairs["issue"], pairs["complete"]
    number = np.arange(count)
    waited = random.lognormal(12.0, 1.0, count).astype(np.int64)
    issue["head"] = _ISSUE.itemsize | fmt.Kind.ISSUE << 32
    issue["record"] = complete["record"] = number
    issue["begun"] = np.cumsum(waited + random.integers(10_000, 400_000, count))
    issue["print"], issue["thread"], issue["seq"] = number, 77, number
    issue["step"], issue["nth"] = number // PER_STEP, number % PER_STEP + 1
    issue["op"] = 1 + random.choice(len(OPS), count, p=(0.3, 0.25, 0.25, 0.1, 0.08, 0.02))
    issue["group"] = len(OPS) + 1 + random.choice(len(GROUPS), count)
    issue["stack"] = 1 + number % len(LINES)
    issue["device"] = len(OPS) + len(GROUPS) + 1
    issue["root"], issue["reduce"], issue["flags"] = -1, 0, fmt.IssueFlag.HAS_FINGERPRINT
    issue["flags"][count * 9 // 10 :: 97] = fmt.IssueFlag.HAS_FINGERPRINT | fmt.IssueFlag.SENT_NONFINITE
    issue["inputs"] = issue["outputs"] = 1
    issue["in"] = issue["out"] = struct.unpack("<Q", fmt.TENSOR.pack(6, 1, 0, 1))[0]
    issue["in0"] = issue["out0"] = 1 << random.integers(2, 24, count)
    complete["head"] = _COMPLETE.itemsize | fmt.Kind.COMPLETE << 32
    complete["ended"] = issue["begun"] + waited
    complete["source"], complete["status"] = -1, fmt.Status.OK
    return pairs
