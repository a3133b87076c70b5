"""Every name inside a capsule, and the rule a name must obey. Nothing is read or written here.

The root is as podman and CRI-O write a checkpoint; everything of ours lies under `prismdbg/`. Existing tools
find their files by substring, so no other name may contain one of theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from prismdbg.errors import CapsuleError

CONFIG_DUMP = "config.dump"
SPEC_DUMP = "spec.dump"
STATS_DUMP = "stats-dump"  # the engine's statistics: podman moves them from the images to the root
CHECKPOINT = "checkpoint"  # the engine's images; empty where the origin is the program's start

OURS = "prismdbg"
MANIFEST = "prismdbg/manifest.json"
LOG = "prismdbg/log"
RANK = "prismdbg/rank.json"
FILES = "prismdbg/files"
FILES_INDEX = "prismdbg/files.json"
ENVIRONMENT = "prismdbg/environment.json"
SECRETS = "prismdbg/secrets.json"  # what was found when it was made, by place
STACKS = "prismdbg/stacks.json"  # of all ranks of the job, where a hang was seen
MEMORY = "prismdbg/memory"  # the trace of `record --memory`, where there is one
TELEMETRY = "prismdbg/telemetry"  # readings of `record --telemetry` that concern the rank, over the time of the log
STATE = "prismdbg/state"  # a state snapshot, and the log of what came before the restore point
SPAWNED = "prismdbg/spawned.pickle"  # what multiprocessing gave the rank; only the replayed rank itself unpickles it
RANK_PACKAGE = "prismdbg/recorder.tar.zst"  # the half of prismdbg that runs in the rank, as it was

PACKED_SUFFIX = ".tar.zst"
REQUIRED = (CONFIG_DUMP, SPEC_DUMP, RANK)
FOLDERS = (CHECKPOINT, OURS, LOG, FILES)
MAX_NAME_BYTES = 100  # what a plain tar header holds: no extension records are needed, and none accepted

_FOREIGN = (CONFIG_DUMP, SPEC_DUMP, STATS_DUMP, "network.status")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=-]*")


def content(sha256: str) -> str:
    """Where a file of the rank lies, by its content."""
    return f"{FILES}/{sha256}"


def folders_of(names: Iterable[str]) -> set[str]:
    """All that a capsule with files of these names may have."""
    with_files = {PurePosixPath(name.rpartition("/")[0]) for name in names}
    return {*FOLDERS, *(str(folder) for within in with_files for folder in (within, *within.parents))}


def check_name(name: str) -> str:
    """`name` itself if a capsule may hold it, else `CapsuleError`."""
    if len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES:
        raise CapsuleError(
            f"the name {name[:60]!r}... is longer than {MAX_NAME_BYTES} bytes",
            hint="fetch the capsule again: this copy was altered",
        )
    parts = name.split("/")
    if not all(_PART.fullmatch(part) for part in parts):
        raise CapsuleError(
            f"a capsule cannot contain the name {name!r}", hint="fetch the capsule again: this copy was altered"
        )
    if name in (CONFIG_DUMP, SPEC_DUMP, STATS_DUMP):
        return name
    if parts[0] not in (CHECKPOINT, OURS):
        raise CapsuleError(f"{name!r} is not part of a capsule", hint="give a capsule; if this is one, it was altered")
    if any(foreign in name for foreign in _FOREIGN):
        raise CapsuleError(
            f"the capsule contains the file name {name!r}, which is reserved for podman and CRI-O",
            hint="fetch the capsule again: this copy was altered",
        )
    return name


def check_file_name(name: str) -> str:
    """As `check_name`, and not the name of a folder."""
    if name in FOLDERS:
        raise CapsuleError(
            f"{name!r} must be a folder in a capsule, not a file", hint="fetch the capsule again: this copy was altered"
        )
    return check_name(name)
