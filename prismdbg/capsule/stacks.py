"""The Python stacks of a job's ranks at a hang: the values, their JSON in the run folder and in a capsule, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.checked_json import Fields, dumps, read
from prismdbg.capsule.manifest import Manifest
from prismdbg.model.frame import Frame, source_of

MAX_BYTES = 4 << 20
MOST_THREADS, MOST_FRAMES, MOST_TEXT = 64, 128, 1024
_FEWEST_FRAMES = 8
_OURS = "/prismdbg/rank/"
FROM_OUTSIDE, FROM_AGENT = "py-spy", "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """`frames` innermost first; empty for a thread that runs no Python."""

    name: str
    holds_gil: bool
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStacks:
    """`threads`: the main thread first; empty where they could not be taken. taken_by: FROM_OUTSIDE or FROM_AGENT.
    problem: why it was not taken from outside; empty where it was."""

    rank: int
    taken_by: str
    threads: tuple[ThreadStack, ...] = ()
    problem: str = ""

    def cut(self, threads: int, frames: int) -> RankStacks:
        """Without what lies beyond so many threads and innermost frames."""
        return replace(self, threads=tuple(replace(t, frames=t.frames[:frames]) for t in self.threads[:threads]))

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Of the main thread."""
        return self.threads[0].frames if self.threads else ()

    @property
    def source(self) -> Frame | None:
        """The program's own line in the main thread."""
        return source_of(self.frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class HangPlace:
    """The collective that ranks wait in, by its `Identity` as text; by rank who `never_came`, and the last that it
    did: `19.2 train.py:84 in main`, empty where it issued none."""

    identity: str
    waiting: tuple[int, ...]
    never_came: Mapping[int, str]

    def arrived(self, rank: int) -> str:
        """In words; empty for a rank of which it says nothing."""
        if rank in self.never_came:
            last = self.never_came[rank]
            return f"never joined, last at {last}" if last else "never joined; it issued no collective"
        return "waits" if rank in self.waiting else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStacks:
    """All ranks of one attempt of the job, at `taken_wall_ns`: nanoseconds since 1970, by the clock of their logs.
    hang: what they were taken for, where that is one."""

    taken_wall_ns: int
    attempt: int
    ranks: Mapping[int, RankStacks]
    hang: HangPlace | None = None

    def bounded(self) -> JobStacks:
        """As much as MAX_BYTES take: of a job that is too large the main threads, then less of them."""
        for threads, frames in ((MOST_THREADS, MOST_FRAMES), (1, MOST_FRAMES), (1, _FEWEST_FRAMES)):
            kept = replace(self, ranks={rank: found.cut(threads, frames) for rank, found in self.ranks.items()})
            if len(dumps(kept.to_json())) <= MAX_BYTES:
                return kept
        return replace(self, ranks={})

    def to_json(self) -> dict[str, Any]:
        return {
            "taken_wall_ns": self.taken_wall_ns,
            "attempt": self.attempt,
            "ranks": [_rank_json(found) for _, found in sorted(self.ranks.items())],
            "hang": None if self.hang is None else _hang_json(self.hang),
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> JobStacks:
        ranks = [_rank(each) for each in fields.objects("ranks")]
        return cls(
            taken_wall_ns=fields.integer("taken_wall_ns"),
            attempt=fields.integer("attempt"),
            ranks={found.rank: found for found in ranks},
            hang=_hang(fields.fields("hang")) if fields.has("hang") else None,
        )


def capsule_stacks(capsule: Capsule) -> JobStacks | None:
    """Of all ranks, where a hang was seen; `CapsuleError` where they are damaged."""
    if layout.STACKS not in capsule.manifest.files:
        return None
    return JobStacks.from_fields(read(capsule.path / layout.STACKS, limit_bytes=MAX_BYTES))


def known_until_ns(manifest: Manifest, taken: JobStacks | None) -> int:
    """Until when (nanoseconds since 1970) a call that had not ended is known to have waited: in a hang until that was
    found, by the clock of the log; else until the capsule was made, by a clock that may have been set meanwhile."""
    return taken.taken_wall_ns if taken is not None and taken.hang is not None else manifest.created_ns


def main_first(threads: Sequence[ThreadStack]) -> tuple[ThreadStack, ...]:
    """The main thread, then the others as they came, within bounds."""
    ordered = sorted(threads, key=lambda thread: thread.name != "MainThread")
    return tuple(ordered[:MOST_THREADS])


def thread_of(name: object, holds_gil: object, frames: Sequence[Mapping[str, Any]]) -> ThreadStack:
    """Of what py-spy, or the rank's agent, tells, within bounds; without the recorder's own frames."""
    told = [frame for frame in frames if _OURS not in str(frame["filename"])]
    return ThreadStack(
        name=str(name or "")[:MOST_TEXT],
        holds_gil=bool(holds_gil),
        frames=tuple(
            Frame(str(f["filename"])[:MOST_TEXT], int(f["line"]), str(f["name"])[:MOST_TEXT])
            for f in told[:MOST_FRAMES]
        ),
    )


def _rank_json(found: RankStacks) -> dict[str, Any]:
    return {
        "rank": found.rank,
        "taken_by": found.taken_by,
        "problem": found.problem,
        "threads": [
            {
                "name": thread.name,
                "holds_gil": thread.holds_gil,
                "frames": [{"filename": f.filename, "line": f.line, "name": f.name} for f in thread.frames],
            }
            for thread in found.threads
        ],
    }


def _hang_json(hang: HangPlace) -> dict[str, Any]:
    never = [{"rank": rank, "last": last} for rank, last in sorted(hang.never_came.items())]
    return {"identity": hang.identity, "waiting": list(hang.waiting), "never_came": never}


def _hang(fields: Fields) -> HangPlace:
    return HangPlace(
        identity=fields.text("identity"),
        waiting=fields.integers("waiting"),
        never_came={each.integer("rank"): each.text("last") for each in fields.objects("never_came")},
    )


def _rank(fields: Fields) -> RankStacks:
    return RankStacks(
        rank=fields.integer("rank"),
        taken_by=fields.text("taken_by"),
        problem=fields.text("problem"),
        threads=tuple(
            ThreadStack(
                name=thread.text("name"),
                holds_gil=thread.boolean("holds_gil"),
                frames=tuple(_frame(frame) for frame in thread.objects("frames")),
            )
            for thread in fields.objects("threads")
        ),
    )


def _frame(fields: Fields) -> Frame:
    return Frame(fields.text("filename"), fields.integer("line"), fields.text("name"))
