"""What a rank says of itself in `rank.json`, in a run and, with what a capsule adds, in a capsule."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from prismdbg.capsule import json_border
from prismdbg.capsule.json_border import Count, Word
from prismdbg.errors import CapsuleError


class RankJson(TypedDict, total=False):
    """Everything is checked where it is there; what somebody cannot do without is asked for with `required`."""

    rank: Count
    world_size: Count
    cwd: Word
    argv: list[Word]
    orig_argv: list[Word]
    environment: dict[Word, Word]
    versions: dict[str, str]
    hardware: dict[str, Any]
    pid: Count
    pid_namespace: Count
    started_ticks: Count
    uid: Count
    executable: Word
    prefix: Word
    base_prefix: Word
    sys_path: list[Word]
    socket: Word
    inject: Word
    torch_threads: Count
    cpu_capability: Word
    memory_cap: Count
    emulation: dict[str, Any]
    seeds: dict[str, Any]
    # of a capsule
    changed: list[Word]
    redacted: list[Word]
    redacted_arguments: list[Word]
    past_records: Count
    in_flight: list[Count]
    folders: list[Word]
    absent: list[Word]


def read_rank(path: Path) -> RankJson:
    """`CapsuleError` where it is missing or anything in it is not what it must be."""
    rank = json_border.checked(RankJson, json_border.read(path).value, str(path))
    return required(rank, "cwd", "argv", "environment")


def required(rank: RankJson, *names: str) -> RankJson:
    """`rank` itself where it has the fields without which it cannot be run again, else `CapsuleError`."""
    for name in names:
        if name not in rank:
            raise CapsuleError(
                f"rank.json: {name} is missing", hint="the capsule is incomplete: capture the rank again"
            )
    return rank
