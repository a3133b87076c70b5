"""Gathers what a run folder holds for a diagnosis. Nothing is required of it but one readable log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from prismdbg.capsule.log_reader import LogReader, RankLog, fold
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.workflows.emulated_run import read_emulated
from prismdbg.workflows.incidents import attempt_of
from prismdbg.workflows.ranks_alive import RankProcess
from prismdbg.workflows.run_folder import RunFolder, rank_of, read_json


def gather(path: Path) -> Evidence:
    """`UsageError` where there is neither a log nor a run folder."""
    run = RunFolder(path.resolve())
    folders = _last_attempt(run.rank_folders())
    logs: dict[int, RankLog] = {}
    damaged: dict[int, str] = {}
    for folder in folders:
        log, damage = _read(folder)
        if log is not None:
            logs[rank_of(folder)] = log
        if damage:
            damaged[rank_of(folder)] = damage
    if not folders and not run.run_json.exists():
        raise UsageError(f"{path} holds no log", hint="give the folder that `prismdbg record -o` made")
    supervisor = _json(run.supervisor_json)
    emulated = _emulated(run)
    alive = {rank_of(folder) for folder in folders if "exit_code" not in supervisor and _may_be_alive(folder)}
    silent = frozenset(rank for rank, log in logs.items() if rank not in alive and not _has_said_its_end(log))
    return Evidence(
        logs=logs,
        world_size=max((int(_json(folder / "rank.json").get("world_size", 0)) for folder in folders), default=0),
        damaged=damaged,
        silent=silent,
        died_first=_died_first(supervisor, silent, max((attempt_of(folder.name) for folder in folders), default=0)),
        is_running=bool(alive),
        ended_wall_ns=time.time_ns() if alive else int(supervisor.get("ended_wall_ns", 0)),
        asked_only=() if emulated else tuple(_json(run.config).get("ranks", ())),
        gaps=() if emulated else tuple(_gaps(run, supervisor, bool(folders), bool(alive))),
        emulated=emulated,
    )


def _emulated(run: RunFolder) -> str:
    """The mesh; empty for a run that was recorded, or of which that is not known."""
    try:
        found = read_emulated(run)
    except UsageError:
        return "a world that was not there"
    return str(found.mesh) if found is not None else ""


def _gaps(run: RunFolder, supervisor: dict[str, Any], has_logs: bool, is_running: bool) -> Iterator[str]:
    """Of a folder that `record` made; logs alone, from wherever, are as whole as they are."""
    if not run.run_json.exists():
        return
    if not has_logs:
        ended = f"; the job ended with {supervisor['exit_code']}" if "exit_code" in supervisor else ""
        yield f"no rank has issued a collective or an optimizer step{ended}"
    if before := max((attempt_of(folder.name) for folder in run.rank_folders()), default=0):
        yield f"this is attempt {before + 1}: those before it are not looked at"
    if not supervisor:
        yield "what the supervisor saw (supervisor.json) is missing or damaged: who died first is not known"
    elif "exit_code" not in supervisor and not is_running and has_logs:
        yield "the supervisor did not see the job's end: who died first is not known"
    if has_logs and not _json(run.config).get("nan_check", True):
        yield "NaN and Inf were not looked for: recorded without the trigger nan"


def _last_attempt(folders: Iterable[Path]) -> list[Path]:
    """A launcher restarts all ranks together: those without a folder of the last attempt were not recorded in it."""
    attempts: dict[int, list[Path]] = {}
    for folder in folders:
        attempts.setdefault(attempt_of(folder.name), []).append(folder)
    return attempts[max(attempts)] if attempts else []


def _read(folder: Path) -> tuple[RankLog | None, str]:
    """What there is up to the first damage, and the damage."""
    reader = LogReader(folder)
    try:
        events = reader.poll()
    except CapsuleError as error:
        return None, str(error)
    if reader.rank < 0:
        return None, "it is empty"
    log = RankLog(reader.rank, reader.pid, reader.wall_offset_ns)
    fold(log, events)
    return log, str(reader.damage or "")


def _may_be_alive(folder: Path) -> bool:
    """Also where nobody can see from here whether it is."""
    try:
        process = RankProcess(folder)
        return process.is_out_of_sight or process.is_alive()
    except (KeyError, UsageError):  # no rank.json, or half of one
        return False


def _has_said_its_end(log: RankLog) -> bool:
    return any(n.kind == "exit" or (n.kind == "incident" and not n.data.get("thread")) for n in log.notes)


def _died_first(supervisor: dict[str, Any], silent: frozenset[int], attempt: int) -> int | None:
    """Whom the supervisor saw die before any other: in the order of deaths, else as the attempt's first incident."""
    for name in map(str, supervisor.get("deaths", [])):
        if attempt_of(name) == attempt and (rank := int(name.partition(".")[0])) in silent:
            return rank
    incidents = [entry for entry in supervisor.get("incidents", []) if entry.get("attempt", 0) == attempt]
    for entry in incidents[:1]:
        if entry.get("kind") == "lost" and (ranks := entry.get("ranks")) and ranks[0] in silent:
            return int(ranks[0])
    return None


def _json(path: Path) -> dict[str, Any]:
    """Empty where it is missing or damaged: the logs speak without it."""
    try:
        return read_json(path)
    except UsageError:
        return {}
