"""A job that its scheduler starts again, as Slurm does with `requeue`, and that goes on in the same RUN.

`RUN/nodes/.restart.N` is renamed to its place by the first supervisor of the N-th restart. It says which attempt the
logs of this restart begin with, so that all its nodes count alike.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from prismdbg.jobs.storage.first_folder import place_first
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, read_json, write_json

_NAME = re.compile(r"\.restart\.([0-9]{1,9})")
_COMING = ".coming."
_FILE = "restart.json"


def latest_restart(run: RunFolder) -> int:
    """0 for a job that was started once."""
    names = (path.name for path in run.nodes.iterdir()) if run.nodes.is_dir() else ()
    return max((int(found[1]) for name in names if (found := _NAME.fullmatch(name))), default=0)


def begin_restart(run: RunFolder, number: int) -> bool:
    """Whether it was this caller that began it: only one of several does."""

    def fill(coming: Path) -> None:
        before = max((attempt_of(folder.name) + 1 for folder in run.rank_folders()), default=0)
        write_json(coming / _FILE, {"first_attempt": max(before, number)})

    coming = run.nodes / f"{_COMING}{secrets.token_hex(6)}"
    return place_first(coming, restart_folder(run.nodes, number), fill)


def first_attempt(run: RunFolder, number: int) -> int:
    """Of the ranks of this restart."""
    return int(read_json(restart_folder(run.nodes, number) / _FILE).get("first_attempt", number))


def restart_folder(nodes: Path, number: int) -> Path:
    return nodes / f".restart.{number}"
