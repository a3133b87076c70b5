"""The run folder of a job that trained for long, without the job: what `record` would leave of it, at any size."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.log import format as fmt
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize
from prismdbg.runtime.environment import Environment
from tests.bench.large_capsule import PAIR, PER_STEP, record

LINES = 24
NO_PID = 1 << 22  # above what a kernel gives
GAP_NS = 5_000_000  # between two collectives: 200 a second
_OPS = ("allreduce_", "_allgather_base_", "_reduce_scatter_base_", "broadcast_")
_GROUP_OF = (0, 1, 1, 2)  # by place in a step: all ranks, half of them, pairs of them
_WALL_NS = 1_700_000_000_000_000_000
_STEP = np.dtype(
    [
        *[("head", "<u8"), ("step", "<u4"), ("pad", "<u4"), ("time", "<i8"), ("source", "u1"), ("zero", "u1", 7)],
        ("pairs", PAIR, PER_STEP),
    ]
)
assert _STEP.itemsize == fmt.RECORD.size + fmt.STEP.size + PER_STEP * PAIR.itemsize
_ROOM = fmt.EVENT_SEGMENT_BYTES - fmt.HEADER.size - fmt.RECORD.size
STEPS_PER_SEGMENT = _ROOM // _STEP.itemsize - 1  # the first also has the texts


class LongRun:
    """All ranks meet in every collective, but the last one, which the last rank does not come to. Logs longer than
    `log_bytes` are folded, as `record` does."""

    def __init__(self, path: Path, ranks: int, log_bytes: int = 0, pid: int = NO_PID) -> None:
        self.run = RunFolder.new(path)
        self._ranks = ranks
        self._log_bytes = log_bytes
        self._random = np.random.default_rng(1)
        for rank in range(ranks):
            folder = self.run.ranks / str(rank)
            folder.mkdir()
            write_json(folder / "rank.json", _described(rank, ranks, pid))
        write_json(self.run.run_json, {"command": ["torchrun", "train.py"]})
        write_json(self.run.config, {"nan_check": True})
        write_json(self.run.environment, Environment(()).to_json())

    def write(self, steps: int) -> None:
        """The whole job, of so many steps."""
        segments = -(-steps // STEPS_PER_SEGMENT)
        for segment in range(segments):
            first = segment * STEPS_PER_SEGMENT
            here = min(steps - first, STEPS_PER_SEGMENT)
            late_ns = self._random.integers(0, 20_000, (self._ranks, here * PER_STEP))
            for rank in range(self._ranks):
                blocks = _steps(first, here, late_ns, rank)
                is_last = segment == segments - 1
                if is_last:
                    _stop(blocks, rank, self._ranks)
                self._segment(rank, segment, blocks.tobytes(), is_last=is_last)
        write_json(
            self.run.supervisor_json,
            {"exit_code": 1, "ended_wall_ns": _WALL_NS + (steps * PER_STEP + 1000) * GAP_NS, "deaths": []},
        )

    def grow(self, steps: int, parts: int, nan_from: int | None = None) -> Iterator[None]:
        """Writes so many steps while somebody follows: each in so many parts, one after each look. The last rank sends
        NaN from the step `nan_from` on."""
        pairs = PER_STEP // parts * PAIR.itemsize
        for first in range(0, steps, STEPS_PER_SEGMENT):
            here = min(steps - first, STEPS_PER_SEGMENT)
            late_ns = np.zeros((self._ranks, here * PER_STEP), dtype=np.int64)
            blocks = [_steps(first, here, late_ns, rank) for rank in range(self._ranks)]
            if nan_from is not None:
                flags = fmt.IssueFlag.HAS_FINGERPRINT | fmt.IssueFlag.SENT_NONFINITE
                blocks[-1]["pairs"]["issue"]["flags"][max(nan_from - first, 0) :] = flags
            bodies = [each.tobytes() for each in blocks]
            at = [self._begin(rank, first // STEPS_PER_SEGMENT) for rank in range(self._ranks)]
            for number in range(here * parts):
                start = number // parts * _STEP.itemsize + (number % parts > 0) * (_STEP.itemsize - pairs * parts)
                start += number % parts * pairs
                length = pairs + (number % parts == 0) * (_STEP.itemsize - pairs * parts)
                for rank, (path, offset) in enumerate(at):
                    _write(path, offset + start, bodies[rank][start : start + length])
                yield
            for path, offset in at:
                _write(path, offset + here * _STEP.itemsize, record(fmt.Kind.END, b""))

    def _begin(self, rank: int, number: int) -> tuple[Path, int]:
        """A segment without collectives so far, and the place of the first."""
        head = _header(rank, number) + (_preface(rank, self._ranks) if number == 0 else b"")
        path = self.run.ranks / str(rank) / fmt.event_segment(number)
        path.write_bytes(head.ljust(fmt.EVENT_SEGMENT_BYTES, b"\0"))
        return path, len(head)

    def _segment(self, rank: int, number: int, body: bytes, *, is_last: bool) -> None:
        path, at = self._begin(rank, number)
        _write(path, at, body if is_last else body + record(fmt.Kind.END, b""))
        summarize(path.parent)
        if self._log_bytes:
            fold(path.parent, self._log_bytes)


def _header(rank: int, number: int) -> bytes:
    return fmt.HEADER.pack(fmt.MAGIC, fmt.VERSION, number, rank, 4711, _WALL_NS, 0, fmt.EVENT_SEGMENT_BYTES)


def _write(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def _described(rank: int, ranks: int, pid: int) -> dict[str, object]:
    return {
        "rank": rank,
        "world_size": ranks,
        "pid": pid,
        "cwd": "/job",
        "argv": ["train.py"],
        "orig_argv": ["python", "train.py"],
        "environment": {},
        "versions": {"torch": "2.13.0"},
        "hardware": {"node": platform.node()},
        "executable": sys.executable,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "sys_path": [],
    }


def _preface(rank: int, ranks: int) -> bytes:
    half = ranks // 2
    groups = {
        "0": range(ranks),
        f"half{rank // half}": range(rank // half * half, rank // half * half + half),
        f"pair{rank % half}": (rank % half, rank % half + half),
    }
    texts = [*_OPS, *groups, "cpu", "/job/train.py", "train_step"]
    records = [record(fmt.Kind.TEXT, fmt.TEXT.pack(n, len(t)) + t.encode()) for n, t in enumerate(texts, 1)]
    for number in range(1, LINES + 1):
        frame = fmt.FRAME.pack(len(texts) - 1, 40 + number, len(texts))
        records.append(record(fmt.Kind.STACK, fmt.STACK.pack(number, 1) + frame))
    for name, members in groups.items():
        body = {"name": name, "ranks": list(members), "desc": name, "backend": "gloo"}
        records.append(record(fmt.Kind.GROUP, json.dumps(body).encode()))
    return b"".join(records)


def _steps(first: int, count: int, late_ns: NDArray[np.int64], rank: int) -> NDArray[np.void]:
    blocks = np.zeros(count, dtype=_STEP)
    steps = first + np.arange(count)
    blocks["head"] = (fmt.RECORD.size + fmt.STEP.size) | fmt.Kind.STEP << 32
    blocks["step"], blocks["time"] = steps, steps * PER_STEP * GAP_NS
    issue, complete = blocks["pairs"]["issue"], blocks["pairs"]["complete"]
    place = np.arange(PER_STEP)
    number = steps[:, None] * PER_STEP + place
    base_ns = number * GAP_NS + 100_000
    group = np.array(_GROUP_OF)[place % len(_GROUP_OF)]
    before = np.array([np.count_nonzero(group[:at] == group[at]) for at in place])  # of the group, in this step
    of_group = np.array([np.count_nonzero(group == one) for one in range(3)])[group]
    issue["head"] = PAIR["issue"].itemsize | fmt.Kind.ISSUE << 32
    issue["record"] = complete["record"] = number
    issue["begun"] = base_ns + late_ns[rank].reshape(count, PER_STEP)
    issue["print"], issue["thread"], issue["seq"] = number * 64 + rank, 77, steps[:, None] * of_group + before
    issue["step"], issue["nth"] = steps[:, None], place + 1
    issue["op"], issue["group"] = 1 + place % len(_OPS), len(_OPS) + 1 + group
    issue["stack"], issue["device"] = 1 + place % LINES, len(_OPS) + 4
    issue["root"] = np.where(place % len(_OPS) == 3, 0, -1)
    issue["flags"] = fmt.IssueFlag.HAS_FINGERPRINT
    issue["inputs"] = issue["outputs"] = 1
    issue["in"] = issue["out"] = int.from_bytes(fmt.TENSOR.pack(6, 1, 0, 1), "little")
    issue["in0"] = issue["out0"] = 1 << (10 + place % 8)
    complete["head"] = PAIR["complete"].itemsize | fmt.Kind.COMPLETE << 32
    complete["ended"] = base_ns + late_ns.max(axis=0).reshape(count, PER_STEP) + 50_000
    complete["source"], complete["status"] = -1, fmt.Status.OK
    return blocks


def _stop(blocks: NDArray[np.void], rank: int, ranks: int) -> None:
    """The last rank does not issue the last collective, and its peer waits in it."""
    last = blocks[-1]["pairs"][-1]
    if rank % (ranks // 2) == ranks // 2 - 1:
        last["complete"]["head"] = 0
    if rank == ranks - 1:
        last["issue"]["head"] = 0
