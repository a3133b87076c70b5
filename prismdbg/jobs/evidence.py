"""Gathers what a run folder holds for a diagnosis. Nothing is required of it but one readable log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest
from prismdbg.capsule.stacks import JobStacks, capsule_stacks, known_until_ns
from prismdbg.diagnosis.clocks import clock_offsets, unknown_clocks
from prismdbg.diagnosis.evidence import Evidence, SeenIncident, SilentNode
from prismdbg.diagnosis.failures import raised_by_itself
from prismdbg.diagnosis.hang import hang_ns
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.errors import CapsuleError, PrismError, UsageError
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.jobs.record.deaths import ASKED, Death, likely_first, perhaps_first
from prismdbg.jobs.record.interruption import (
    deaths_of,
    interrupted_at,
    interrupted_while_running,
    perhaps_alone,
    reported_dead,
)
from prismdbg.jobs.storage.archive_crypto import NO_KEYS, Keys
from prismdbg.jobs.storage.emulated_run import read_emulated
from prismdbg.jobs.storage.fresh_logs import Say, ask_for_logs, log_folders
from prismdbg.jobs.storage.generations import as_one_attempt, last_generation, meeting_place
from prismdbg.jobs.storage.inventory import is_recording
from prismdbg.jobs.storage.job_nodes import SILENT_S, NodeState, node_states, supervisor_report
from prismdbg.jobs.storage.job_telemetry import AT_ONCE, JobTelemetry
from prismdbg.jobs.storage.kept_stacks import last_stacks
from prismdbg.jobs.storage.log_memory import require_room
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.ranks_alive import RankProcess
from prismdbg.jobs.storage.run_files import whole_incidents
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, rank_of, read_if_whole
from prismdbg.jobs.storage.run_report import MANY
from prismdbg.log.columns import LAST_BYTES, LogColumns, read_columns
from prismdbg.log.rank_log import columns_of, decoded, rank_log
from prismdbg.model.durations import duration
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.moment import Moment
from prismdbg.telemetry.series import Telemetry

_TRUSTED_NS = round(SILENT_S * 1e9)  # of silence of ranks that cannot be seen: they may only compute
READ_BYTES = 192 << 20  # of all ranks' logs together: 800,000 collectives, in 400 MiB of memory
READ_ROWS, LEAST_ROWS = 800_000, 256  # the same where there are many ranks, of all together and of each


def unsaid(_text: str) -> None:
    return None


def _unseen(_folder: Path, _log: LogColumns) -> None:
    return None


def gather(
    path: Path,
    keys: Keys = NO_KEYS,
    *,
    whole: bool = False,
    at_once: int = 1,
    say: Say = unsaid,
    each: Callable[[Path, LogColumns], None] = _unseen,
) -> Evidence:
    """Of a run folder, of a folder with logs, of a capsule, or of another tool's files. `CapsuleError` where no log is
    there. whole: read all of long logs, not their ends and the summaries of what is before; `FacilityError` where
    memory does not do for that. at_once: how many recordings are in memory together, which share what is read of each.
    say: of long waits and much memory. each: told of every log of a run folder as it is read, whatever part of it
    counts."""
    if not RunFolder(path).run_json.exists():
        from prismdbg.importers.formats import read_job  # no run needs them

        if (job := read_job(path)) is not None:
            return _of_import(job)
    if path.is_file() or (path / layout.MANIFEST).is_file():
        with opened(path, keys) as capsule:
            found = of_capsule(capsule)  # what was unpacked for it goes with it
            return replace(found, logs={rank: decoded(log) for rank, log in found.logs.items()})
    return _of_run(path, None if whole else READ_BYTES // at_once, say, each)


def _of_import(job: ImportedJob) -> Evidence:
    """Times of ranks are compared where the files say on which machines they ran."""
    clocks = clock_offsets({rank: columns_of(log) for rank, log in job.logs.items()}, job.hosts)
    ahead_ns = {rank: clocks.get(host, 0) for rank, host in job.hosts.items()}
    return Evidence(
        logs={
            rank: replace(log, wall_offset_ns=log.wall_offset_ns - ahead_ns.get(rank, 0))
            for rank, log in job.logs.items()
        },
        world_size=job.world_size,
        is_running=None,
        damaged=job.damaged,
        gaps=job.gaps,
        clocks_agree=bool(job.hosts),
        stacks=job.stacks,
        stacks_file=job.stacks_file,
    )


def of_capsule(capsule: Capsule) -> Evidence:
    """One rank's log, and the stacks of all where a hang was seen."""
    manifest, taken = capsule.manifest, capsule_stacks(capsule)
    log, damage = _read(capsule.log)
    incident = manifest.incident
    lost = frozenset({manifest.rank} if incident.kind is IncidentKind.LOST else ())
    return Evidence(
        logs={manifest.rank: log} if log is not None else {},
        world_size=manifest.world_size,
        damaged={manifest.rank: damage} if damage else {},
        silent=lost,
        died_first=manifest.rank if lost else None,
        ended_wall_ns=_end_of_capsule(manifest, log, taken),
        is_running=TRAITS[incident.kind].is_asked_for,  # of a job that goes on
        gaps=()
        if manifest.emulated
        else (f"a capsule contains only the log of its own rank, here rank {manifest.rank}",),
        emulated=manifest.emulated,
        incidents=(SeenIncident(incident=incident, ranks=(manifest.rank,), attempt=0),),
        stacks=taken.ranks if taken is not None else {},
        stacks_wall_ns=taken.taken_wall_ns if taken is not None else 0,
        of_capsule=True,
    )


def _end_of_capsule(manifest: Manifest, log: RankLog | None, taken: JobStacks | None) -> int:
    """Up to when its log tells of the rank: of a hang until that was found, for nothing came any more; else until its
    last record, for it was copied some time before the capsule was complete."""
    last_ns = _last_record_ns(log) if log is not None else 0
    if last_ns and manifest.incident.kind is not IncidentKind.HANG:
        return last_ns
    return max(last_ns, known_until_ns(manifest, taken))


def _last_record_ns(log: RankLog) -> int:
    """By the wall clock; 0 where the rank issued no collective."""
    columns = columns_of(log)
    last_ns = max(int(columns.begun_ns.max(initial=0)), int(columns.ended_ns.max(initial=0)))
    return last_ns + log.wall_offset_ns if last_ns else 0


def _of_run(path: Path, most_bytes: int | None, say: Say, each: Callable[[Path, LogColumns], None]) -> Evidence:
    run = RunFolder(path.resolve())
    nodes = node_states(run)
    before = _folders(run, nodes)
    unanswered = ask_for_logs(run, nodes, say, _newest_of_each(len(before), most_bytes))
    folders = _folders(run, nodes)
    newest_bytes = _newest_of_each(max(len(before), len(folders)), most_bytes)  # no more than was asked for
    if newest_bytes is None:
        require_room(path, folders, say)
    logs, damaged = _logs(folders, newest_bytes, each)
    places = {name: node for node in nodes for name in node.ranks}
    on_nodes = {rank_of(folder): places[folder.name].name for folder in folders if folder.name in places}
    columns = {rank: columns_of(log) for rank, log in logs.items()} if on_nodes else {}
    clocks, unknown = clock_offsets(columns, on_nodes), unknown_clocks(columns, on_nodes)
    logs = {rank: _by_one_clock(log, clocks.get(on_nodes.get(rank, ""), 0)) for rank, log in logs.items()}
    supervisor = as_one_attempt(supervisor_report(run, clocks), folders, run.rank_folders())
    if not folders:
        raise _no_log(run, supervisor)
    clock_of = {rank: node if node in unknown else "" for rank, node in on_nodes.items()}
    ends = _ends(folders, logs, supervisor, places, clock_of)
    emulated, taken, telemetry = _emulated(run), _stacks(run, ends.attempt), JobTelemetry(run, nodes)
    died_first, seen_late = _died_first(supervisor, ends)
    is_running = _is_running(ends)
    return Evidence(
        logs=ends.logs,
        world_size=max(
            (int(read_if_whole(folder / "rank.json").get("world_size", 0)) for folder in folders), default=0
        ),
        damaged={**_without_end(ends), **damaged},
        silent=ends.silent,
        unknown_clocks=unknown,
        died_first=died_first,
        deaths_seen_late=seen_late,
        is_running=is_running,
        ended_wall_ns=ends.told_to_end_ns or _ended_wall_ns(is_running, folders, ends, supervisor, taken),
        asked_only=() if emulated else tuple(read_if_whole(run.config).get("ranks", ())),
        gaps=()
        if emulated
        else (*_gaps(run, supervisor, ends, is_running, telemetry), *_not_here(run, nodes, unanswered)),
        emulated=emulated,
        attempt=ends.attempt,
        incidents=ends.incidents,
        stacks=taken.ranks if taken is not None else {},
        stacks_wall_ns=taken.taken_wall_ns if taken is not None else 0,
        interrupted=ends.told_to_end_ns is not None,
        telemetry=telemetry,
        folders={rank_of(folder): folder.name for folder in folders},
        nodes=on_nodes,
        silent_nodes=tuple(_silent(node, folders, ends.said_an_end) for node in nodes if node.is_lost),
        exit_codes={rank: code for rank, code in ends.codes.items() if rank in ends.silent},
        signals={rank: number for rank, number in ends.signals.items() if rank in ends.silent},
        gone_wall_ns=ends.gone_wall_ns,
        perhaps_told=ends.perhaps_told,
        exit_code=_exit_code(supervisor),
    )


def _folders(run: RunFolder, nodes: Sequence[NodeState]) -> list[Path]:
    found = log_folders(run, nodes)
    return _of_one_job(last_generation(found), found)


def _newest_of_each(ranks: int, most_bytes: int | None) -> int | None:
    """`most_bytes`: of all together; None: all of it."""
    return None if most_bytes is None else max(most_bytes // max(ranks, 1), LAST_BYTES)


def _logs(
    folders: Sequence[Path], newest_bytes: int | None, each_read: Callable[[Path, LogColumns], None]
) -> tuple[dict[int, RankLog], dict[int, str]]:
    """Of each rank what can be read, and why that is not all. newest_bytes: of each; None: all of it."""
    is_whole = newest_bytes is None
    newest_rows = max(READ_ROWS // len(folders), LEAST_ROWS) if len(folders) > MANY and not is_whole else None
    each = one_by_one(folders, "reading the logs of ranks")
    logs, damaged = {}, {}
    for folder in each:
        log, damage = _read(folder, newest_bytes, newest_rows)
        if log is not None:
            each_read(folder, columns_of(log))
            logs[rank_of(folder)] = log
        if damage:
            damaged[rank_of(folder)] = damage
    return logs, damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ends:
    """How ranks ended. `logs`: up to `told_to_end_ns`, where the job was told to. codes: of those that ended by
    themselves, and signals of the others, as far as it was seen. clock_of: by rank, in a job of several nodes; times of
    one clock can be compared. alive: those that may be; is_unseen: of none of them it can be told."""

    attempt: int
    logs: Mapping[int, RankLog]
    alive: Set[int]
    is_unseen: bool
    said_an_end: Set[int]
    silent: frozenset[int]
    codes: Mapping[int, int]
    signals: Mapping[int, int]
    incidents: tuple[SeenIncident, ...]
    told_to_end_ns: int | None
    perhaps_told: bool
    gone_wall_ns: Mapping[int, int]
    clock_of: Mapping[int, str]

    @property
    def last_record_ns(self) -> int:
        return max(map(_last_record_ns, self.logs.values()), default=0)

    def share_a_clock(self, one: Death, other: Death) -> bool:
        return self.clock_of.get(_rank(one.name)) == self.clock_of.get(_rank(other.name))


def _ends(
    folders: Sequence[Path],
    logs: Mapping[int, RankLog],
    supervisor: Mapping[str, Any],
    places: Mapping[str, NodeState],
    clock_of: Mapping[int, str],
) -> _Ends:
    attempt = max((attempt_of(folder.name) for folder in folders), default=0)
    said_an_end = frozenset(rank for rank, log in logs.items() if _says_its_end(log))
    seen_alive = {
        rank_of(folder): _is_alive(folder, places.get(folder.name), rank_of(folder) in said_an_end)
        for folder in folders
        if "exit_code" not in supervisor
    }
    alive = {rank for rank, is_alive in seen_alive.items() if is_alive is not False}
    apart = _apart(supervisor, clock_of)
    told_ns = (interrupted_while_running if alive else interrupted_at)(supervisor, logs, attempt, apart)
    if told_ns is not None:
        logs = {rank: _before(log, told_ns) for rank, log in logs.items()}
    deaths, incidents = deaths_of(supervisor, attempt), tuple(_incidents(supervisor))
    ended_well, alone = supervisor.get("exit_code") == 0, None
    silent = frozenset(
        rank
        for rank, log in logs.items()
        if rank not in alive and _ended_without_a_word(log, deaths.get(rank), ended_well)
    )
    if told_ns is not None:
        gone_before = {rank for rank, death in deaths.items() if death.wall_ns < told_ns and rank not in apart}
        if alive or supervisor.get("interrupted"):  # then a death that was reported is no consequence of the end
            gone_before |= reported_dead(supervisor, attempt)
        silent &= gone_before
        alone = perhaps_alone(supervisor, deaths)
        alone = alone if alone in logs.keys() - said_an_end else None
        silent |= {alone} if alone is not None else set()
        incidents = tuple(seen for seen in incidents if not _was_told(seen, attempt, gone_before))
    return _Ends(
        attempt=attempt,
        logs=logs,
        alive=alive,
        is_unseen=bool(alive) and not any(seen_alive.values()),
        said_an_end=said_an_end,
        silent=silent,
        codes={rank: death.code for rank, death in deaths.items() if death.signal == 0 and death.code is not None},
        signals={rank: death.signal for rank, death in deaths.items() if death.signal},
        incidents=incidents,
        told_to_end_ns=told_ns,
        perhaps_told=alone is not None,
        gone_wall_ns={rank: death.wall_ns for rank, death in deaths.items()},
        clock_of=clock_of,
    )


def _apart(supervisor: Mapping[str, Any], clock_of: Mapping[int, str]) -> Set[int]:
    """Ranks whose times cannot be compared with when the job was told to end."""
    told = supervisor.get("interrupted")
    node = told.get("node", "") if isinstance(told, Mapping) else ""
    clock = node if node in clock_of.values() else ""
    return {rank for rank, other in clock_of.items() if other != clock}


def _is_running(ends: _Ends) -> bool | None:
    """None where that cannot be told from here: no rank is seen, and none has recorded anything for as long as a hang
    takes. A step, an evaluation or a training checkpoint may take long, and the clock of their node may differ."""
    silent_ns = abs(time.time_ns() - ends.last_record_ns)
    if ends.is_unseen and silent_ns > hang_ns([columns_of(log) for log in ends.logs.values()]):
        return None
    return bool(ends.alive)


def _ended_wall_ns(
    is_running: bool | None,
    folders: Sequence[Path],
    ends: _Ends,
    supervisor: Mapping[str, Any],
    taken: JobStacks | None,
) -> int:
    """Where it is unknown whether the job runs: until when its ranks are known to have been there. How long a hang
    lasted before it was reported is not noted, unless stacks were taken."""
    if is_running is not None:
        return _now_ns(folders, ends) if is_running else int(supervisor.get("ended_wall_ns", 0))
    if taken is not None:
        return max(ends.last_record_ns, taken.taken_wall_ns)
    hangs = (seen for seen in ends.incidents if seen.incident.kind is IncidentKind.HANG)
    return 0 if any(seen.attempt == ends.attempt for seen in hangs) else ends.last_record_ns


def _now_ns(folders: Sequence[Path], ends: _Ends) -> int:
    """By the clock of a rank that can be seen from here: whoever set the machine's clock since it began lets nobody
    wait longer. Where none can be seen, the silence since the last record is hardly counted: the ranks may be gone."""
    for folder in folders:
        log = ends.logs.get(rank_of(folder))
        if log is not None and rank_of(folder) in ends.alive and not RankProcess(folder).is_out_of_sight:
            return time.monotonic_ns() + log.wall_offset_ns
    now_ns = time.time_ns()
    return min(now_ns, ends.last_record_ns + _TRUSTED_NS) if ends.is_unseen else now_ns


def _silent(node: NodeState, folders: Sequence[Path], said_an_end: Set[int]) -> SilentNode:
    ranks = tuple(rank_of(folder) for folder in folders if folder.name in node.ranks)
    lost = tuple(rank for rank in ranks if rank not in said_an_end)
    return SilentNode(
        name=node.name,
        ranks=lost,
        silent_s=node.silent_s or 0.0,
        goes_on=node.goes_on,
        recorded_s=node.recorded_s,
        keeps_logs=bool(node.left) and not node.visible,
    )


def _by_one_clock(log: RankLog, ahead_ns: int) -> RankLog:
    """As if the rank's node had the clock of the first one."""
    if not ahead_ns:
        return log
    columns = columns_of(log)
    return rank_log(replace(columns, wall_offset_ns=columns.wall_offset_ns - ahead_ns))


def _no_log(run: RunFolder, supervisor: Mapping[str, Any]) -> PrismError:
    if not run.run_json.exists():
        hint = "give a RUN (the folder that `prismdbg record -o` wrote), a capsule, or a folder of TRACES"
        what = f"{run.path} contains no log" if run.path.exists() else f"no such file or directory: {run.path}"
        return UsageError(what, hint=hint)
    if is_recording(run, supervisor):
        return CapsuleError(
            f"{run.path} contains no log of any rank so far: the job is running, but no rank has issued a collective "
            "or an optimizer step yet",
            hint="wait until it does; only processes that import torch.distributed are recorded",
        )
    ended = f", and the job ended with {supervisor['exit_code']}" if "exit_code" in supervisor else ""
    return CapsuleError(
        f"{run.path} contains no log of any rank: none issued a collective or an optimizer step{ended}",
        hint="read the job's own output; only processes that import torch.distributed are recorded",
    )


def _stacks(run: RunFolder, attempt: int) -> JobStacks | None:
    """None where they are damaged: the logs speak without them."""
    try:
        return last_stacks(run, attempt)
    except CapsuleError:
        return None


def _before(log: RankLog, wall_ns: int) -> RankLog:
    """As it was then: what was complete, and what the rank had said."""
    return rank_log(columns_of(log).before(wall_ns - log.wall_offset_ns))


def _was_told(seen: SeenIncident, attempt: int, gone_before: Set[int]) -> bool:
    """Of a rank that is said to have died, but only when the job was told to end. One that was captured stays: whoever
    has its capsule asks what it is of."""
    is_of_it = seen.incident.kind is IncidentKind.LOST and seen.attempt == attempt and not seen.is_captured
    return is_of_it and gone_before.isdisjoint(seen.ranks)


def _incidents(supervisor: Mapping[str, Any]) -> Iterator[SeenIncident]:
    """Those that can be read."""
    for entry in whole_incidents(supervisor):
        try:
            moment = Moment.parse(str(entry["moment"])) if entry.get("moment") else None
            incident = Incident(kind=IncidentKind(entry["kind"]), text=str(entry.get("text", "")), moment=moment)
            ranks = tuple(map(int, entry["ranks"]))
            attempt, kept = int(entry.get("attempt", 0)), bool(entry.get("capsules") or entry.get("evidence"))
            yield SeenIncident(incident=incident, ranks=ranks, attempt=attempt, is_captured=kept)
        except (KeyError, ValueError, TypeError, AttributeError, UsageError):
            continue


def _emulated(run: RunFolder) -> str:
    """The mesh; empty for a run that was recorded, or of which that is not known."""
    try:
        found = read_emulated(run)
    except (UsageError, CapsuleError):
        return "an emulated job"
    return str(found.mesh) if found is not None else ""


def _exit_code(supervisor: Mapping[str, Any]) -> int | None:
    code = supervisor.get("exit_code")
    return code if isinstance(code, int) else None


def _gaps(
    run: RunFolder,
    supervisor: dict[str, Any],
    ends: _Ends,
    is_running: bool | None,
    telemetry: Mapping[str, Telemetry],
) -> Iterator[str]:
    """Of a folder that `record` made; logs alone, from wherever, are as whole as they are."""
    if not run.run_json.exists():
        return
    found = run.rank_folders()
    last = last_generation(found)
    if _of_one_job(last, found) != last:
        yield "several jobs ran at the same time: only one of them is diagnosed; give each a RUN of its own"
    elif before := max((attempt_of(folder.name) for folder in found), default=0):
        yield f"this is attempt {before + 1}: earlier attempts are not diagnosed"
    if ends.perhaps_told:
        yield (
            "perhaps the job was told to end (Ctrl-C, kill, or its scheduler): "
            "the ends of its other ranks are not diagnosed"
        )
    elif ends.told_to_end_ns is not None:
        yield "the job was told to end (Ctrl-C, kill, or its scheduler): the ends of its ranks are not diagnosed"
    if is_running is None:
        where = f"its ranks cannot be seen from here{_and_since(ends)}"
        yield f"it is unknown whether the job runs or how it ended: {where}"
    if not supervisor:
        yield "the supervisor's report (supervisor.json) is missing or damaged: the rank that died first is unknown"
    elif "exit_code" not in supervisor and not ends.alive:
        yield "the supervisor did not see the job's end: the rank that died first is unknown"
    if len(telemetry) <= AT_ONCE:  # else those of a node are read when a rank of it is late
        damaged = {node: damage for node, found in telemetry.items() if (damage := found.damage)}
        for node, damage in damaged.items():
            yield f"telemetry{f' of node {node}' if node else ''} is damaged, and read only in part: {damage}"
    if not read_if_whole(run.config).get("nan_check", True):
        yield "NaN and Inf were not checked: recorded without the trigger nan"


def _and_since(ends: _Ends) -> str:
    silent_ns = time.time_ns() - ends.last_record_ns
    is_known = ends.last_record_ns and silent_ns > 0  # the clock of their node may be ahead
    return f", and have recorded nothing for {duration(silent_ns / 1e9)}" if is_known else ""


def _not_here(run: RunFolder, nodes: Sequence[NodeState], unanswered: Sequence[str]) -> Iterator[str]:
    """What is damaged of nodes, and logs that they keep, and did not bring into RUN."""
    for node in nodes:
        if node.damage:
            yield f"node {node.name}: {node.damage}"
        if node.left and not node.visible:
            yield node.left_line(run.path)
    for name in unanswered:
        yield f"the logs of node {name} in RUN may be out of date: the node did not copy them when requested"


def _of_one_job(attempt: list[Path], found: Sequence[Path]) -> list[Path]:
    """The folders of an attempt, unless jobs ran side by side (two torchruns of a script): their ranks have the same
    numbers and took the folders as they came. Then those of the first one's job, in whatever attempt they are."""
    if len(attempt) == len(found):
        return attempt
    places = {folder: meeting_place(folder) for folder in found}
    if len({places[folder] for folder in attempt} - {""}) < 2:
        return attempt
    place = next(places[folder] for folder in attempt if places[folder])
    return list({rank_of(folder): folder for folder in found if places[folder] == place}.values())


def _read(folder: Path, newest_bytes: int | None = None, newest_rows: int | None = None) -> tuple[RankLog | None, str]:
    """What there is up to the first damage, and the damage."""
    try:
        columns = read_columns(folder, newest_bytes, newest_rows)
    except CapsuleError as error:
        return None, str(error)
    if columns.rank < 0:
        return None, "it is empty"
    return rank_log(columns), str(columns.damage or "")


def _is_alive(folder: Path, node: NodeState | None, said_an_end: bool) -> bool | None:
    """None where that cannot be seen from here. `node`: of a job with several supervisors."""
    try:
        process = RankProcess(folder)
        if node is not None and process.is_out_of_sight:
            return node.has(folder.name) and not said_an_end
        return None if process.is_out_of_sight else process.is_alive()
    except CapsuleError:  # a damaged rank.json, or half of one
        return False


def _says_its_end(log: RankLog) -> bool:
    """An exit, or an exception that nobody caught. That of a thread ends no process."""
    return any(n.kind == "exit" or (n.kind == "incident" and not n.data.get("thread")) for n in log.notes)


def _ended_without_a_word(log: RankLog, death: Death | None, ended_well: bool) -> bool:
    """`death`: as the supervisor saw it. `ended_well`: the job did. A rank whose recording ended before it, for want of
    disk say, had no word left to say: it counts only where it is known to have failed. Exit code 0 is a failure where
    the job failed: the rank may have left its peers."""
    if _says_its_end(log):
        return False
    code = death.code if death is not None else None
    if any(n.kind == "lost" for n in log.notes):
        return code not in (None, 0)
    return not (ended_well and code == 0)


def _without_end(ends: _Ends) -> dict[int, str]:
    """Ranks that ended by themselves, with no fault of the job, and of which the log does not say so: it was closed by
    the program, say."""
    open_logs = {
        rank for rank, log in ends.logs.items() if not any(n.kind in ("exit", "incident", "lost") for n in log.notes)
    }
    ended = "it ended with exit code {}, but its log has no end record"
    why = f"{ended} (the program called os._exit, or closed the log's file)"
    return {rank: why.format(ends.codes[rank]) for rank in (open_logs & ends.codes.keys()) - ends.silent - ends.alive}


def _died_first(supervisor: dict[str, Any], ends: _Ends) -> tuple[int | None, bool]:
    """Whom the supervisor saw die before any other, else as the attempt's first incident; and whether it saw that too
    late to be sure."""
    silent, attempt = ends.silent, ends.attempt
    seen_dead = deaths_of(supervisor, attempt)
    deaths = [death for rank, death in seen_dead.items() if rank in silent]
    if deaths and supervisor.get("deaths"):
        deaths = [death for death in deaths if not _left_with_0(death)] or deaths
        first = likely_first(deaths, {})
        other_ranks = [death for death in seen_dead.values() if death.name != first.name]
        others = [death for death in other_ranks if ends.share_a_clock(death, first)]
        is_unsure = len(others) < len(other_ranks)
        if first.signal not in ASKED and not _left_with_0(first):  # who has come to its end ended nobody
            others = [death for death in others if not _left_with_0(death)]
        if any(death.wall_ns <= first.alive_wall_ns for death in others):  # the same look: dead, and alive after that
            return None, False  # one that had its word died before it: a launcher ends the others, or kills them
        if any(_had_failed(death, first, ends.logs) for death in others):
            return None, False  # as a worker of Ray has, whose process lives on until Ray kills all of them
        if first.signal in ASKED and any(_may_be_the_cause(death, first, ends.logs) for death in others):
            return None, False
        # One that was told to end, as a launcher tells the others of one that failed, may follow one not known.
        follows = first.signal in ASKED and any(death.signal is None for death in deaths)
        return _rank(first.name), first.signal is None or follows or is_unsure or len(perhaps_first(deaths)) > 1
    for name in map(str, supervisor.get("deaths", [])):
        if attempt_of(name) == attempt and _rank(name) in silent:
            return _rank(name), False
    seen = next((seen for seen in _incidents(supervisor) if seen.attempt == attempt), None)
    if seen is not None and seen.incident.kind is IncidentKind.LOST and seen.ranks and seen.ranks[0] in silent:
        return seen.ranks[0], False
    return None, False


def _may_be_the_cause(death: Death, first: Death, logs: Mapping[int, RankLog]) -> bool:
    """Whether a launcher may have ended `first` because of it: it raised something of its own, no failed collective,
    before `first` was seen dead."""
    log = logs.get(_rank(death.name))
    if log is None or death.alive_wall_ns >= first.wall_ns:
        return False
    raised = [note for note in log.notes if note.kind == "incident" and not note.data.get("thread")]
    before = [note for note in raised if note.time_ns + log.wall_offset_ns <= first.wall_ns]
    columns = columns_of(log)
    return any(raised_by_itself(columns, note) and not was_outlived(columns, note) for note in before)


def _had_failed(death: Death, first: Death, logs: Mapping[int, RankLog]) -> bool:
    """Whether by its log the rank was done, with a failure, when `first` was last seen alive."""
    log = logs.get(_rank(death.name))
    ends = [note for note in log.notes if note.kind == "exit" and note.data.get("code")] if log is not None else []
    return any(note.time_ns + log.wall_offset_ns < first.alive_wall_ns for note in ends if log is not None)


def _left_with_0(death: Death) -> bool:
    return death.signal == 0 and death.code == 0


def _rank(name: str) -> int:
    return int(name.partition(".")[0])
