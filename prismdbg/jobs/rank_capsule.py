"""The capsule of one rank of a run: the newest that is there, or one made of what was kept since the rank's start; for
whoever only looks also one of the log alone."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import moment_of
from prismdbg.capsule.manifest import Incident, IncidentKind, Origin
from prismdbg.errors import CapsuleError, NotReplayable, PrismError, RankLost, UsageError
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.capture.rank_paths import changed_after_read
from prismdbg.jobs.record.freeze import freeze, has_past, wanted_now
from prismdbg.jobs.storage.emulated_run import OWN_NAME, SHOWN, EmulatedRun, read_emulated
from prismdbg.jobs.storage.inventory import disk_bytes
from prismdbg.jobs.storage.pack import read_manifest
from prismdbg.jobs.storage.ranks_alive import RankProcess, still_runs
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of, read_json
from prismdbg.log.columns import LAST_BYTES, read_columns
from prismdbg.log.rank_log import read_log
from prismdbg.model.sizes import size

LOG_NAME = "log-rank"
ASSUMED = "emulated: the peers' data is synthesized, so values are valid for this run only"


SHOWN_RECORDS = 100_000  # collectives of a log that is only looked at, the newest


def capsule_of(path: Path, rank: int | None, say: Say) -> Path:
    """To be replayed; `path` itself where it is no run. `UsageError` says what is there instead, and how to come by
    more."""
    return _found(path, rank, say, _replayable)


def shown_capsule_of(path: Path, rank: int | None, say: Say) -> Path:
    """As `capsule_of`, to be looked at: where nothing was kept that a replay needs, it holds the rank's log."""
    return _found(path, rank, say, _shown)


_Recorded = Callable[[RunFolder, int, Say], Path]


def _found(path: Path, rank: int | None, say: Say, recorded: _Recorded) -> Path:
    if not RunFolder(path).run_json.is_file():
        if rank is not None and path.exists():  # else whoever opens it says that it is not there
            raise UsageError(f"{path} is not a run, and --rank selects a rank of a run", hint="leave --rank out")
        return path
    run = RunFolder.existing(path)
    emulated = read_emulated(run)
    if emulated is not None:
        return (_emulated_shown if recorded is _shown else _emulated)(emulated, rank, say)
    return recorded(run, _chosen(run, all_shown=recorded is _shown) if rank is None else rank, say)


def _emulated(world: EmulatedRun, rank: int | None, say: Say) -> Path:
    rank, folder = _emulated_rank(world, rank)
    path = world.run.capsules / f"{OWN_NAME}{folder.name}"
    evidence = path.with_name(f"{path.name}.evidence")
    if _is_current(path, folder):
        return path
    if _is_current(evidence, folder):
        raise _not_kept(world, rank, evidence)
    for earlier in (path, evidence):
        _remove_earlier(earlier, folder)
    say(f"creating the capsule of rank {rank} in {path}")
    try:
        made = _made(world, rank, folder, path).path
        _say_size(f"rank {rank}", made, say)  # else a screen goes on saying that it is being created
        return made
    except NotReplayable as made:
        raise _not_kept(world, rank, _only_one(made.evidence, evidence, folder)) from made
    except UsageError:
        if not _is_current(path, folder):
            raise
        return path  # another process made it meanwhile


def _emulated_shown(world: EmulatedRun, rank: int | None, say: Say) -> Path:
    """Of a rank that cannot be replayed its log."""
    rank, folder = _emulated_rank(world, rank)
    try:
        return _emulated(world, rank, say)
    except NotReplayable as error:
        say(f"rank {rank}, its log, {read_manifest(error.evidence).not_replayable}: {error.evidence}")
        return error.evidence
    except CapsuleError as error:
        say(str(error))
        return _log_alone(world.run, rank, folder, say)


def _emulated_rank(world: EmulatedRun, rank: int | None) -> tuple[int, Path]:
    """The only one where none is chosen; with its folder. `UsageError` where it did not run, or runs."""
    if rank is None:
        rank = _only(world.ran, world.run)
    world.require_ran(rank)
    folder = world.run.latest(rank)
    if still_runs(read_json(folder / "rank.json")):
        raise UsageError(f"rank {rank} is still running", hint="wait until `prismdbg emulate` has ended")
    return rank, folder


def _not_kept(world: EmulatedRun, rank: int, evidence: Path) -> NotReplayable:
    return NotReplayable(
        f"rank {rank} is {read_manifest(evidence).not_replayable}; its log is in {evidence}",
        hint=f"run it again (if it receives more than 4 GiB, with --window-bytes SIZE): {world.command_for(rank)}; "
        f"`prismdbg open {world.run.path} --rank {rank}` shows its log",
        evidence=evidence,
    )


def _made(world: EmulatedRun, rank: int, folder: Path, path: Path) -> Capsule:
    log = read_log(folder)
    if not log.collectives:
        raise UsageError(f"rank {rank} issued no collective: there is nothing to replay", hint="run it for more steps")
    if changed := changed_since(log, folder):
        raise CapsuleError(
            f"{changed} was changed after rank {rank} ran: a replay would run another program",
            hint=f"restore it, or run the rank again: {world.command_for(rank)}",
        )
    path.parent.mkdir(exist_ok=True, mode=0o700)
    parts = Ingredients(
        run=world.run,
        folder=folder,
        output=path,
        origin=Origin.START,
        incident=incident_of(log, f"{world.mesh.say(rank)} of {world.mesh}"),
        emulated=str(world.mesh),
        notes=(ASSUMED,),
    )
    return assemble(parts)


def _is_current(path: Path, folder: Path) -> bool:
    """Whether the capsule there is of what the rank's folder holds now."""
    try:
        made_ns = read_manifest(path).created_ns
    except (PrismError, OSError):
        return False
    return all(file.stat().st_mtime_ns <= made_ns for file in folder.iterdir() if file.is_file())


def _remove_earlier(path: Path, folder: Path) -> None:
    """What was made of an earlier run of this rank, or when it had not come so far. Another process may remove it, too,
    and make the new one."""
    if path.exists() and not _is_current(path, folder):
        shutil.rmtree(path, ignore_errors=True)


def _only_one(made: Path, first: Path, folder: Path) -> Path:
    """Of two folders of evidence the one that another process made meanwhile; ours goes."""
    if made == first or not _is_current(first, folder):
        return made
    shutil.rmtree(made, ignore_errors=True)
    return first


def incident_of(log: RankLog, otherwise: str) -> Incident:
    """What ended the program; a request where nothing went wrong."""
    raised = [note for note in log.notes if note.kind == "incident" and not note.data.get("thread")]
    if not raised:
        return Incident(kind=IncidentKind.REQUEST, text=otherwise)
    data = raised[-1].data
    return Incident(
        kind=IncidentKind(str(data.get("incident", IncidentKind.EXCEPTION))),
        text=f"{data.get('type')}: {data.get('text')}",
        moment=moment_of(data),
    )


def changed_since(log: RankLog, folder: Path) -> str:
    """A file that the program read and that was written to after that; empty where there is none."""
    rank = read_json(folder / "rank.json")
    if not rank:
        return ""  # which is said when the capsule is made
    began_ns = (folder / "rank.json").stat().st_mtime_ns
    return next(changed_after_read(log, rank, began_ns), "")


def _chosen(run: RunFolder, *, all_shown: bool) -> int:
    """The only rank of which there is a capsule, or else one can be made, or else a log. `UsageError` names all that
    can be chosen: every rank that left a log where `all_shown`, else those that can be replayed."""
    there = set(_newest_by_rank(run))
    if len(there) == 1:
        return there.pop()
    every = sorted(there | {rank_of(folder) for folder in run.rank_folders()})
    if all_shown or len(every) == 1:
        return _only(tuple(every), run)
    kept = (rank for rank in every if rank in there or has_past(run, run.latest(rank)))
    return _only(tuple(islice(kept, SHOWN + 1)) or tuple(every), run)


def _replayable(run: RunFolder, rank: int, say: Say) -> Path:
    if (there := _newest_by_rank(run).get(rank)) is not None:
        say(f"rank {rank}: {there}")
        return there
    folder = run.latest(rank)
    if not has_past(run, folder):
        raise _lacks(run, rank, folder)
    say(f"rank {rank} has no capsule yet: creating one in {run.capsules}")
    try:
        made = freeze(run, wanted_now(folder, Incident(kind=IncidentKind.REQUEST, text="captured on request"))).path
    except UsageError:
        if (there := _newest_by_rank(run).get(rank)) is None:
            raise
        made = there  # by another process meanwhile
    _say_size(f"rank {rank}", made, say)
    return made


def _lacks(run: RunFolder, rank: int, folder: Path) -> PrismError:
    process = RankProcess(folder)
    if process.is_alive() or process.is_out_of_sight:
        return UsageError(
            f"no capsule of rank {rank} in {run.capsules}",
            hint=f"capture it: prismdbg capture {os.path.relpath(run.path)} --rank {rank} -o CAPSULE",
        )
    return RankLost(
        f"rank {rank} has ended, and the run contains too little data to replay it",
        hint=f"record with --checkpoint-every STEPS{'' if run.keeps_all else ' or --window all'}; for a diagnosis: "
        "prismdbg why",
    )


def _say_size(what: str, path: Path, say: Say) -> None:
    say(f"{what}: {path}, {size(disk_bytes(path))} (`prismdbg rm` removes it)")


def _shown(run: RunFolder, rank: int, say: Say) -> Path:
    """What can be replayed, or else the newest evidence of an incident, or else the log."""
    if rank in _newest_by_rank(run):
        return _replayable(run, rank, say)
    folder, evidence = run.latest(rank), _newest_by_rank(run, is_evidence=True).get(rank)
    if evidence is None or not _is_current(evidence, folder):  # else it would be made again
        try:
            return _replayable(run, rank, say)
        except NotReplayable as error:
            say(str(error))
            return error.evidence
        except (CapsuleError, RankLost, UsageError):
            pass
    if evidence is None:
        return _log_alone(run, rank, folder, say)
    say(f"rank {rank}: {evidence}")
    return evidence


def _log_alone(run: RunFolder, rank: int, folder: Path, say: Say) -> Path:
    """The newest part of the log as evidence, as the rank's folder has it now."""
    path = run.capsules / f"{LOG_NAME}{folder.name}"
    if _is_current(kept := path.with_name(f"{path.name}.evidence"), folder):
        say(f"rank {rank}, its log, not replayable: {kept}")
        return kept
    if kept.is_symlink() or kept.is_file():
        raise CapsuleError(f"{kept} is not a capsule", hint="remove it")
    _remove_earlier(kept, folder)
    say(f"rank {rank} cannot be replayed: creating a capsule of its log in {run.capsules}")
    run.capsules.mkdir(exist_ok=True, mode=0o700)
    last = read_columns(folder, newest_rows=1)
    parts = Ingredients(
        run=run,
        folder=folder,
        output=path,
        origin=Origin.START,
        incident=incident_of(read_log(folder, LAST_BYTES), "the log alone"),
        past_records=max(last.issued - SHOWN_RECORDS, 0),
        log_only=True,
    )
    try:
        return assemble(parts).path
    except NotReplayable as made:
        evidence = _only_one(made.evidence, kept, folder)
        _say_size(f"rank {rank}, its log, not replayable", evidence, say)
        return evidence


def _newest_by_rank(run: RunFolder, *, is_evidence: bool = False) -> dict[int, Path]:
    """`is_evidence`: of an incident that cannot be replayed, without what was made to be looked at."""
    found: dict[int, tuple[int, bool, Path]] = {}  # a folder before what was packed of it: notes are beside the folder
    for path in sorted(run.capsules.iterdir()) if run.capsules.is_dir() else ():
        try:
            manifest = read_manifest(path)
        except (PrismError, OSError):
            continue  # a partial one; `list` names those
        if bool(manifest.not_replayable) is not is_evidence or path.name.startswith(LOG_NAME):
            continue
        one = (manifest.created_ns, path.is_dir(), path)
        found[manifest.rank] = max(found.get(manifest.rank, one), one)
    return {rank: path for rank, (*_, path) in found.items()}


def _only(ranks: tuple[int, ...], run: RunFolder) -> int:
    if len(ranks) == 1:
        return ranks[0]
    shown = ", ".join(map(str, ranks[:SHOWN])) + (", ..." if len(ranks) > SHOWN else "")
    if ranks:
        raise UsageError(f"{run.path} contains more than one rank", hint=f"choose one with --rank: {shown}")
    raise UsageError(f"{run.path} contains no log of any rank", hint="record the job again")
