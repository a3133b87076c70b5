"""What lies on disk: runs and capsules found, sized, removed, kept within a quota. Nothing else is touched."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from prismdbg.capsule import layout, path_kind
from prismdbg.capsule.partial import is_abandoned, is_partial, removed_name
from prismdbg.capsule.walk import entries
from prismdbg.errors import CapsuleError, PrismError, UsageError
from prismdbg.jobs.storage.archive_crypto import ENCRYPTED_SUFFIX, is_encrypted, is_signature, signature_path
from prismdbg.jobs.storage.job_nodes import is_shared, node_folders, node_states, supervisor_report
from prismdbg.jobs.storage.pack import read_manifest
from prismdbg.jobs.storage.ranks_alive import pid_here, still_runs
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.jobs.storage.zstd_frames import ends_early
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.plurals import counted
from prismdbg.runtime import foreign_files
from prismdbg.settings.process_stat import seconds_since, start_ticks

_RUN_FIELDS = frozenset({"command", "started_wall_ns"})  # of every run, and of few other files called run.json
_CLOCK_S = 1.0  # by which two clocks may differ
_FAILS = (errno.EIO, errno.ESTALE)
DEPTH = 3  # how far below the given folder runs and capsules are looked for


class ItemKind(StrEnum):
    RUN = "run"
    CAPSULE = "capsule"
    PACKED = "packed"
    PARTIAL = "partial"  # left over from a killed prismdbg process


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One thing on the shelf. size_bytes is what it takes on disk; `text` says what it is, in a few words. damage: why
    it cannot be read, for want of a key, too; by its name alone, it may be something else."""

    kind: ItemKind
    path: Path
    size_bytes: int
    created_ns: int
    text: str
    damage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """How many capsules, and how many bytes of them, a folder may hold. None: no limit."""

    count: int | None = None
    size_bytes: int | None = None


def find(folder: Path, depth: int = DEPTH) -> list[Item]:
    """Runs, capsules and what killed writers left, at `folder` and below it, oldest first."""
    if not folder.exists():
        raise UsageError(f"no such file or directory: {folder}", hint="give a folder that contains runs or capsules")
    paths = one_by_one(list(_walk(folder, depth)), "measuring runs and capsules")
    items = [item for path in paths if (item := describe(path)) is not None]
    return sorted(items, key=lambda item: (item.created_ns, str(item.path)))


def describe(path: Path) -> Item | None:
    """What `path` itself is, None where it is nothing of ours."""
    kind = _kind(path)
    if kind is None:
        return None
    size_bytes, changed_ns = disk_bytes(path), path.stat().st_mtime_ns
    if _is_encrypted(path):
        damage = "it is encrypted"
        return Item(kind=kind, path=path, size_bytes=size_bytes, created_ns=changed_ns, text="encrypted", damage=damage)
    try:
        created_ns, text = _about(kind, path)
    except (PrismError, OSError, TypeError, ValueError, KeyError) as error:
        return Item(
            kind=kind,
            path=path,
            size_bytes=size_bytes,
            created_ns=changed_ns,
            text=f"damaged: {error}",
            damage=str(error),
        )
    return Item(kind=kind, path=path, size_bytes=size_bytes, created_ns=created_ns, text=text)


def removable(path: Path, *, force: bool = False) -> Item:
    """What `path` itself is. `UsageError` where it is nothing of ours, or cannot be read and so may be anything."""
    item = describe(path)
    if item is None:
        raise UsageError(f"{path} is neither a run nor a capsule", hint="run `prismdbg list` to see what exists")
    if item.damage and not force:
        what = "run" if item.kind is ItemKind.RUN else "capsule"
        raise UsageError(
            f"{path} cannot be read as a {what}: {item.damage}", hint="use --force if it is one and you do not need it"
        )
    return item


def remove(path: Path, *, force: bool = False) -> Item:
    """Removes one run or capsule, with the signature of a packed one. `UsageError` as `removable`, and where it is a
    run whose job still lives.

    It is renamed first: a removal that is interrupted leaves a partial, never half a capsule.
    """
    if path.is_symlink():
        raise UsageError(f"{path} is a link", hint="give the path it points to")
    path = path.resolve()
    item = removable(path, force=force)
    if item.kind is ItemKind.RUN and not force:
        _refuse_recording(RunFolder(path))
    if item.kind is ItemKind.RUN:
        _remove_from_nodes(RunFolder(path), force=force)
    doomed = path
    if item.kind is not ItemKind.PARTIAL:
        doomed = removed_name(path)
        path.rename(doomed)
    parent = foreign_files.open_folder(doomed.parent)
    try:
        if item.kind is ItemKind.PACKED and is_signature(signature := signature_path(path)):
            foreign_files.remove(signature.name, parent)
        foreign_files.remove(doomed.name, parent)
    finally:
        os.close(parent)
    return item


def _refuse_recording(run: RunFolder) -> None:
    """`UsageError` where its job still lives, or may do so out of sight."""
    if living := living_processes(run):
        pids = ", ".join(map(str, living))
        doing = "emulating" if _is_emulated(run) else "recording"
        raise UsageError(f"{run.path} is still {doing} (process {pids})", hint="end the job first, or use --force")
    if nodes := _recording_nodes(run):
        names = ", ".join(nodes)
        raise UsageError(f"{run.path} is still recording (on {names})", hint="end the job first, or use --force")
    if _may_record_unseen(run, supervisor_report(run)):
        raise UsageError(
            f"{run.path} does not contain the job's exit code, and its processes cannot be seen from here",
            hint="use --force if the job has ended: it may run in a container or on another node",
        )


def excess(items: Iterable[Item], quota: Quota) -> list[Item]:
    """The oldest capsules that must go for the others to fit. The newest one always stays. What cannot be read neither
    goes nor counts: it may be something else, and a damaged one is not worth the good ones."""
    capsules = sorted(
        (item for item in items if item.kind in (ItemKind.CAPSULE, ItemKind.PACKED) and not item.damage),
        key=lambda item: item.created_ns,
    )
    total = sum(item.size_bytes for item in capsules)
    doomed: list[Item] = []
    for item in capsules[:-1]:
        left = len(capsules) - len(doomed)
        too_many = quota.count is not None and left > quota.count
        too_large = quota.size_bytes is not None and total > quota.size_bytes
        if not too_many and not too_large:
            break
        doomed.append(item)
        total -= item.size_bytes
    return doomed


def disk_bytes(path: Path) -> int:
    """Blocks in use, so holes cost nothing. Files that vanish meanwhile are not counted."""
    total = 0
    below = entries(path, lambda _: None) if path.is_dir() else ()
    for entry in (path, *map(Path, below)):
        with contextlib.suppress(OSError):
            total += entry.lstat().st_blocks * 512
    return total


def living_processes(run: RunFolder) -> list[int]:
    """Process ids, as they are here, of the run's supervisor and ranks that still live; a number used again does not
    count."""
    seen = [(pid_here(process), process) for process in _processes(run)]
    return [pid for pid, process in seen if pid is not None and still_runs(process)]


def is_recording(run: RunFolder, supervisor: Mapping[str, Any]) -> bool:
    """Whether its job goes on, or may do so out of sight. supervisor: what its supervisor wrote, or all of several."""
    if "exit_code" in supervisor:
        return False
    return bool(living_processes(run) or _recording_nodes(run)) or _may_record_unseen(run, supervisor)


def _processes(run: RunFolder) -> list[Mapping[str, Any]]:
    """Its supervisor and its ranks, as they describe themselves."""
    ranks = (read_json(folder / "rank.json") for folder in run.rank_folders())
    return [process for process in (_supervisor(read_json(run.run_json)), *ranks) if "pid" in process]


def _supervisor(info: dict[str, Any]) -> dict[str, Any]:
    """As it describes itself in run.json. Of an older version only its number is known: that of a process which began
    before the run, unless it was used again."""
    described: dict[str, Any] = info.get("supervisor", {})
    if described or "supervisor_pid" not in info:
        return described
    ticks = start_ticks(info["supervisor_pid"])
    began_s = time.time() - seconds_since(ticks)
    is_it = began_s <= info.get("started_wall_ns", 0) / 1e9 + _CLOCK_S
    return {"pid": info["supervisor_pid"], "started_ticks": ticks} if is_it else {}


def _may_record_unseen(run: RunFolder, supervisor: Mapping[str, Any]) -> bool:
    """Whether nothing tells that its job has ended, and a process of it is out of sight. Of several supervisors their
    heartbeats tell; an emulation writes no exit code."""
    if "exit_code" in supervisor or is_shared(run) or _is_emulated(run):
        return False
    return any(pid_here(process) is None for process in _processes(run))


def _is_emulated(run: RunFolder) -> bool:
    return "emulated" in read_json(run.run_json)


def _recording_nodes(run: RunFolder) -> list[str]:
    """Of a job of several nodes: those of which something is still heard."""
    states = node_states(run)
    return [node.name for node in states if node.silent_s is not None and (not node.is_lost or node.goes_on)]


def _remove_from_nodes(run: RunFolder, *, force: bool) -> None:
    """What a killed supervisor left on its node, where that is this one. Once RUN is gone nothing names the others'."""
    left, removed = [], ""
    gone = {state.name for state in node_states(run) if state.is_gone}
    for node in node_folders(run):
        local = node.local if node.name not in gone else None
        if local is not None and local.is_of(run.path, node.name):
            local.remove()
            removed = " (those of this node were removed)"
            write_json(node.about, {**read_json(node.about), "local": ""})
        elif local is not None:
            left.append(f"node {node.name} in {local.path}")
    if left and not force:
        raise UsageError(
            f"{run.path}: logs that were not published are on {', '.join(left)}{removed}",
            hint="run this command on each of these nodes, too, or use --force to leave them there",
        )


def _walk(path: Path, depth: int) -> Iterator[Path]:
    kind = _kind(path)
    if kind is not None:
        yield path
    if kind is ItemKind.RUN:
        path, depth = path / "capsules", 1
    elif kind is not None or depth == 0:
        return
    for child in _children(path):
        if not path_kind.is_link(child) and (path_kind.is_folder(child) or _kind(child)):
            yield from _walk(child, depth - 1)


def _children(path: Path) -> list[Path]:
    """None of what is no folder, or may not be read."""
    if path_kind.is_link(path) or not path_kind.is_folder(path):
        return []
    with contextlib.suppress(PermissionError, FileNotFoundError):
        return sorted(path.iterdir())
    return []


def _kind(path: Path) -> ItemKind | None:
    _require_answer(path)
    if is_partial(path):
        return ItemKind.PARTIAL if is_abandoned(path) else None
    if path_kind.is_folder(path):
        if path_kind.is_file(path / layout.MANIFEST):
            return ItemKind.CAPSULE
        run = RunFolder(path)
        return ItemKind.RUN if path_kind.is_file(run.run_json) and path_kind.is_folder(run.ranks) else None
    is_packed = path.name.endswith(layout.PACKED_SUFFIX) and path_kind.is_file(path)
    return ItemKind.PACKED if is_packed or _is_encrypted(path) else None


def _require_answer(path: Path) -> None:
    """`OSError` where its file system fails. Elsewhere that is nothing, but what is not seen here is not counted."""
    try:
        path.lstat()
    except OSError as error:
        if error.errno in _FAILS:
            raise


def _is_encrypted(path: Path) -> bool:
    return path.name.endswith(layout.PACKED_SUFFIX + ENCRYPTED_SUFFIX) and is_encrypted(path)


def _ranks(path: Path, info: dict[str, Any]) -> str:
    """`4 ranks`, `emulated, 3 of 8,192 ranks`."""
    there = len(RunFolder(path).rank_folders())
    emulated = info.get("emulated")
    if emulated is None:
        return counted(there, "rank")
    return f"emulated, {there} of {counted(int(emulated['world']), 'rank')}"


def _about(kind: ItemKind, path: Path) -> tuple[int, str]:
    """When it was made, and what it is."""
    if kind is ItemKind.PARTIAL:
        return path.stat().st_mtime_ns, "left over from a killed prismdbg process"
    if kind is ItemKind.RUN:
        info = read_json(RunFolder(path).run_json)
        if not info.keys() >= _RUN_FIELDS:
            raise CapsuleError(f"{RunFolder(path).run_json} lacks {min(_RUN_FIELDS - info.keys())}")
        return int(info["started_wall_ns"]), f"{_ranks(path, info)}: {' '.join(info['command'])}"
    manifest = read_manifest(path)
    if kind is ItemKind.PACKED and ends_early(path):
        raise CapsuleError(f"{path} is incomplete", hint="fetch it again")
    incident = manifest.incident
    what = incident.kind if not incident.text else f"{incident.kind}: {incident.text}"
    evidence = "evidence that cannot be replayed: " if manifest.not_replayable else ""
    return manifest.created_ns, f"{evidence}rank {manifest.rank}, {manifest.moment_a} to {manifest.moment_b}, {what}"
