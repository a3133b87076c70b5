"""Makes a capsule of one rank out of its log, its origin, and the files it needs."""

from __future__ import annotations

import platform
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, cast

from prismdbg.capsule import checked_json, layout, spawned
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import SMALL_FILE_BYTES, Place, RankFile, add_files
from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.limits import MAX_FILES_READ, MAX_NAMED
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.coverage import (
    NO_STEP_BEFORE,
    Span,
    StartPoint,
    needs_payload,
    replayable_from,
    row_of,
    span_of,
    starts_too_late,
)
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import NOT_IN_PROLOGUE
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.manifest import OLDEST_READER, OLDEST_WITH_STATE, Incident, Manifest, Origin
from prismdbg.capsule.rank_json import RankJson, required, variables_of
from prismdbg.capsule.state_snapshot import PROLOGUE
from prismdbg.capsule.transfer import FILE_MODE, Transfer
from prismdbg.checkpoint import choice
from prismdbg.checkpoint.engine import OpenFile
from prismdbg.errors import CapsuleError, NotReplayable
from prismdbg.jobs.capture import rank_package
from prismdbg.jobs.capture.followed_links import followed_links
from prismdbg.jobs.capture.listed_folders import listed
from prismdbg.jobs.capture.packed_memory import add_trace
from prismdbg.jobs.capture.packed_telemetry import add_telemetry
from prismdbg.jobs.capture.payload_parts import add_payloads
from prismdbg.jobs.capture.rank_paths import (
    COARSE_NS,
    changed_after_read,
    copies_as_read,
    opened_and_gone,
    programs_started,
    rank_paths,
)
from prismdbg.jobs.capture.redaction import Redaction, homes_of
from prismdbg.jobs.capture.secret_search import Finding, Search, to_json
from prismdbg.jobs.capture.states import add_state
from prismdbg.jobs.storage.kept_stacks import last_stacks
from prismdbg.jobs.storage.peak import peak_of
from prismdbg.jobs.storage.run_environment import environment_of
from prismdbg.jobs.storage.run_folder import RunFolder, attempt_of, read_json
from prismdbg.log.columns import NOT_ENDED, LogColumns, read_beginning, read_whole
from prismdbg.log.folding import split_before
from prismdbg.log.joining import alone
from prismdbg.log.rank_log import rank_log, read_log
from prismdbg.log.summary import preface_of_capsule
from prismdbg.model.collective import PayloadRef, runs_of
from prismdbg.model.moment import Moment
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.environment_scan import with_programs
from prismdbg.settings.rank_config import RANK_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """`past_records`: how many collectives the rank had issued at A; of these `in_flight` were not complete.
    `images`: of a checkpoint, taken over. `state`: the folder of a state snapshot. `emulated`: the mesh of a world that
    was not there. `died_with`: the exit code of a rank that died without a word, where it is known. log_only: for the
    eye alone, never to be replayed: with the program's sources, without other files and memory."""

    run: RunFolder
    folder: Path
    output: Path
    origin: Origin
    incident: Incident
    past_records: int = 0
    in_flight: tuple[int, ...] = ()
    images: Path | None = None
    keep_images: bool = False
    state: Path | None = None
    last_moment: Moment | None = None
    notes: tuple[str, ...] = ()
    emulated: str = ""
    died_with: int | None = None
    log_only: bool = False


CONTEXT_RECORDS = 5_000  # before the start moment, for whoever reads what led to it
_TRIES = 3
_BEFORE = f"{layout.STATE}/{PROLOGUE}"
_SYSTEM = ("/bin/", "/usr/")
_NO_PROGRAMS = "captured on another node: a container lacks the programs that the rank started"
_NEEDED = ("rank", "world_size", "cwd", "argv", "orig_argv", "environment", "versions", "hardware")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """What the rank's folder holds for the capsule. `rank`: its rank.json. `start` and `end`: the start and the end
    moment."""

    rank: dict[str, Any]
    log: RankLog
    span: Span
    start: Moment
    end: Moment


def assemble(parts: Ingredients) -> Capsule:
    """Writes the capsule whole or not at all. Segments that the live rank still writes are copied as they are.

    `NotReplayable` where a replay from the start moment is impossible: what there is stands under another name then.
    """
    rank = _described(parts.folder)
    with CapsuleWriter(parts.output) as writer:  # the images move last: what is open in them is read first
        recorded = _add_log(writer, parts, rank)
        environment = environment_of(parts.run, parts.folder)
        programs = programs_started(recorded.log)
        is_here = _node(rank) == platform.node()
        if is_here and not parts.log_only:
            environment = with_programs(environment, programs)
        lacking = {path for path in programs if path.startswith(_SYSTEM)} - {file.path for file in environment.files}
        files, about_files, unlisted = _add_files(writer, parts, recorded, environment)
        before = {} if parts.state is None else {_BEFORE: add_state(writer, parts.state)}
        secrets = Redaction.of(rank, files, (recorded.log, *before.values()))
        writer.add_json(layout.RANK, {**secrets.describe(rank), **_about(parts), **about_files})
        _add_spawned(writer, parts, secrets)
        _mask(writer, secrets, f"{layout.LOG}/events.*.seg")
        _mask(writer, secrets, f"{_BEFORE}/events.*.seg")
        payloads = add_payloads(writer, layout.LOG, parts.folder, recorded.log, _segments(recorded.span))
        _add_stacks(writer, parts)
        writer.add_bytes(layout.ENVIRONMENT, checked_json.dumps(environment.to_json(), indent=None))
        writer.add_bytes(layout.RANK_PACKAGE, rank_package.pack(parts.run.inject / "prismdbg"))
        _add_images(writer, parts)
        left_out = "" if parts.log_only else _add_memory(writer, parts, recorded)
        add_telemetry(writer, parts.run, parts.folder, recorded.log)
        elsewhere = _NO_PROGRAMS if lacking and not is_here else ""
        lacks = [str(n.data.get("text", "")) for log in before.values() for n in log.notes if n.kind == NOT_IN_PROLOGUE]
        parts = replace(parts, notes=(*parts.notes, *filter(None, [left_out, unlisted, elsewhere, *lacks])))
        manifest, in_manifest = secrets.of_manifest(_manifest(parts, recorded, _whole_from(parts, recorded, payloads)))
        logs = {layout.LOG: _searched(recorded, payloads), **before}
        _add_findings(writer, logs, files, secrets, in_manifest)
        capsule = writer.finish(manifest, _evidence_names(parts.output) if manifest.not_replayable else ())
    return _require_replayable(capsule)


def _node(rank: dict[str, Any]) -> object:
    return hardware.get("node") if isinstance(hardware := rank["hardware"], dict) else None


def _described(folder: Path) -> dict[str, Any]:
    """The rank's own description. `CapsuleError` where it lacks what a capsule needs."""
    rank = read_json(folder / "rank.json")
    if not rank:
        raise CapsuleError(
            f"{folder} has no rank.json",
            hint="capture another rank: this one ended before it could describe itself",
        )
    required(cast(RankJson, rank), *_NEEDED)
    return rank


def _add_log(writer: CapsuleWriter, parts: Ingredients, rank: dict[str, Any]) -> _Recorded:
    start = StartPoint(past_records=parts.past_records, in_flight=parts.in_flight)
    log = _add_events(writer, parts.folder, start)
    span = span_of(log, start, parts.last_moment)
    a, b = _ends(log, span)
    return _Recorded(rank=rank, log=log, span=span, start=a, end=b)


def _add_files(
    writer: CapsuleWriter, parts: Ingredients, recorded: _Recorded, environment: Environment
) -> tuple[tuple[RankFile, ...], dict[str, Any], str]:
    """The files that the rank read, as they were then where that is known; what rank.json says of them; a note."""
    rank, log = recorded.rank, recorded.log
    paths = rank_paths(log, rank, recorded.start if parts.origin is Origin.IMAGE else None)
    read = [path for path in paths.files if path.endswith(".py") or not parts.log_only]
    as_read, changed = _as_read(parts, recorded, read)
    of_image = _files_of_image(parts.images, environment)
    wanted = [*read, *of_image]
    variables = variables_of(rank)
    homes = tuple(dict.fromkeys((*homes_of(rank["environment"]), *homes_of(variables))))
    files = add_files(writer, wanted, homes=homes, as_read=as_read, always=frozenset(of_image))
    seen = listed(log, tuple(wanted), paths.absent, variables.get("HOME", ""))
    folders = tuple(dict.fromkeys((*paths.folders, *seen.folders)))[:MAX_NAMED]
    absent, notes = paths.absent[:MAX_NAMED], [seen.note]
    if left_out := len(paths.absent) - len(absent):
        notes.append(f"the program made so many files that a replay does not hide {left_out:,}")
    if sum(note.kind == "file" for note in log.notes) >= MAX_FILES_READ and not parts.log_only:
        notes.append(f"the rank read more than {MAX_FILES_READ:,} files: the capsule knows of none of the later")
    if outside := sum(file.place is Place.BOUND and file.size_bytes <= SMALL_FILE_BYTES for file in files):
        notes.append(
            f"{outside:,} files that the rank read are not in the capsule, for they are too many bytes together"
        )
    note = "; ".join(filter(None, notes))
    about: dict[str, Any] = {"folders": folders, "listed": seen.names, "absent": absent, "changed": changed[:MAX_NAMED]}
    about["links"] = followed_links(file.path for file in files if file.place is not Place.MISSING)
    about["gone"] = opened_and_gone(log, rank)[:MAX_NAMED] if parts.origin.starts_program else []
    return files, {**about, "seeds": _seeds(rank, log)}, note


def _as_read(parts: Ingredients, recorded: _Recorded, files: Collection[str]) -> tuple[dict[str, Path], list[str]]:
    """Copies of files from before the program wrote to them, by path; and files that changed since, without a copy."""
    rank, log = recorded.rank, recorded.log
    since_ns = _began_ns(log, recorded.span) if parts.origin is Origin.IMAGE else None
    began_ns = (parts.folder / "rank.json").stat().st_mtime_ns
    maybe = [path for path in changed_after_read(log, rank, began_ns, COARSE_NS) if path in files]
    as_read = copies_as_read(log, parts.run.overwritten, maybe, since_ns)
    changed = (path for path in changed_after_read(log, rank, began_ns) if path in files)
    return as_read, [path for path in changed if path not in as_read and Path(path).exists()]


def _about(parts: Ingredients) -> dict[str, Any]:
    """What rank.json says beside the rank's own description."""
    about: dict[str, Any] = {"past_records": parts.past_records, "in_flight": list(parts.in_flight)}
    about |= {"peak_bytes": peak} if (peak := peak_of(parts.folder)) else {}
    return about | ({"died_with": parts.died_with} if parts.died_with is not None else {})


def _add_spawned(writer: CapsuleWriter, parts: Ingredients, secrets: Redaction) -> None:
    """What multiprocessing gave the rank, without what is a secret elsewhere: its arguments are those of the job."""
    path = parts.folder / spawned.FILE
    if parts.origin.starts_program and not parts.log_only and path.exists():
        writer.add_file(layout.SPAWNED, path)
        writer.edit(layout.SPAWNED, secrets.in_pickles)


def _mask(writer: CapsuleWriter, secrets: Redaction, segments: str) -> None:
    for path in sorted(writer.folder.glob(segments)):  # a live rank begins further ones
        writer.edit(path.relative_to(writer.folder).as_posix(), secrets.mask)


def _add_stacks(writer: CapsuleWriter, parts: Ingredients) -> None:
    """Of an incident for which they were taken."""
    of_it = TRAITS[parts.incident.kind].takes_stacks
    if of_it and (taken := last_stacks(parts.run, attempt_of(parts.folder.name))):
        writer.add_json(layout.STACKS, taken.to_json())


def _add_images(writer: CapsuleWriter, parts: Ingredients) -> None:
    """Images that stay are linked, which costs nothing, once they have the mode of a capsule's files: the engine
    lets others read them."""
    if parts.images is None:
        return
    for path in parts.images.rglob("*") if parts.keep_images else ():
        if path.is_file() and not path.is_symlink():
            with suppress(OSError):  # another user's are copied
                path.chmod(FILE_MODE)
    writer.add_checkpoint(parts.images, Transfer.LINK if parts.keep_images else Transfer.MOVE)


def _add_memory(writer: CapsuleWriter, parts: Ingredients, recorded: _Recorded) -> str:
    """The memory trace up to the call after the end moment. Gives a note where it is too large for a capsule."""
    rest = recorded.log.collectives[row_of(recorded.log, recorded.span.end_record + 1) :]
    after = min((record.moment for record in rest if record.moment > recorded.end), default=None)
    return add_trace(writer, parts.folder / RANK_MEMORY, after)


def _whole_from(parts: Ingredients, recorded: _Recorded, payloads: Mapping[int, int]) -> Moment:
    """From where on it can be replayed. `payloads`: the size of each segment in the capsule."""

    def is_kept(ref: PayloadRef) -> bool:
        return payloads.get(ref.segment, 0) >= ref.offset + ref.size_bytes

    whole_from = replayable_from(recorded.log, recorded.span, recorded.start, is_kept)
    lacks_all = not payloads or whole_from <= recorded.start
    return Moment(recorded.end.step, recorded.end.collective + 1) if parts.log_only and lacks_all else whole_from


def _add_findings(
    writer: CapsuleWriter,
    logs: Mapping[str, RankLog],
    files: tuple[RankFile, ...],
    secrets: Redaction,
    in_manifest: Iterable[Finding],
) -> None:
    """Secrets that were found, masked or not, each once."""
    hits = Search(writer.folder, files, logs, secrets.known, tell=writer.tell).hits()
    found = [*secrets.findings, *in_manifest, *(hit.finding for hit in hits)]
    writer.add_json(layout.SECRETS, {"findings": to_json(dict.fromkeys(found))})


def _searched(recorded: _Recorded, payloads: Collection[int]) -> RankLog:
    """The collectives whose payloads are in the capsule: those of the span first, for a search ends somewhere."""
    span = recorded.span
    held = [r for r in recorded.log.collectives if r.payload is not None and r.payload.segment in payloads]
    held.sort(key=lambda r: not span.past_records <= r.record_id <= span.end_record)
    return replace(recorded.log, collectives=held)


def _require_replayable(capsule: Capsule) -> Capsule:
    lack = capsule.manifest.not_replayable
    if not lack:
        return capsule
    raise NotReplayable(
        f"the capsule is {lack}; it is kept as evidence in {capsule.path}",
        hint="record with a larger --window or --window-bytes, or with --checkpoint-every; "
        "`prismdbg open` shows the available data",
        evidence=capsule.path,
    )


def _seeds(rank: dict[str, Any], log: RankLog) -> dict[str, Any]:
    """What random generators began with; those of modules that were imported late stand in the log."""
    return {**rank.get("seeds", {}), **{n.data["name"]: n.data["state"] for n in log.notes if n.kind == "seed"}}


def _evidence_names(path: Path) -> Iterator[Path]:
    """Never that of a capsule, not even for a moment: somebody may look for one just then."""
    yield path.with_name(f"{path.name}.evidence")
    for number in count(2):
        yield path.with_name(f"{path.name}.evidence-{number}")


def _ends(log: RankLog, span: Span) -> tuple[Moment, Moment]:
    """The start and the end moment."""
    if span.records:
        return span.records[0].moment, span.records[-1].moment
    row = row_of(log, span.past_records)
    here = log.collectives[row - 1].moment if row else Moment(0)
    return here, here


def _began_ns(log: RankLog, span: Span) -> int:
    """The start moment since the epoch."""
    first = min((record.time_created_ns for record in span.records), default=0)
    return first + log.wall_offset_ns if first else 0


def _add_events(writer: CapsuleWriter, folder: Path, start: StartPoint) -> RankLog:
    """The event segments from a while before the start moment on, and in place of older ones what the rest refers to.
    What they hold then is the capsule's log: a live rank writes on."""
    first = max(min((start.past_records, *start.in_flight)) - CONTEXT_RECORDS, 0)
    for left in reversed(range(_TRIES)):
        added: list[str] = []
        try:
            for name in _add_segments(writer, folder, first):
                added.append(name)
            break
        except FileNotFoundError:  # the supervisor drops old segments of a live rank, and joins those of one that ended
            if not left:
                raise
            for name in added:
                writer.drop(name)
    return read_log(writer.folder / layout.LOG)


def _add_segments(writer: CapsuleWriter, folder: Path, first: int) -> Iterator[str]:
    """Gives the name of each part as soon as it is added. `first`: the collective from which on all are."""
    before, rest = split_before(folder, first)
    if before:
        name = f"{layout.LOG}/{fmt.event_segment(0)}"
        writer.add_bytes(name, preface_of_capsule(folder, before, rest[0].number))
        yield name
    for segment in rest:
        if segment.is_file:
            name = f"{layout.LOG}/{segment.path.name}"
            writer.add_file(name, segment.path)
        else:
            name = f"{layout.LOG}/{fmt.event_segment(segment.number)}"
            writer.add_bytes(name, alone(segment))
        yield name


def _segments(span: Span) -> set[int]:
    """The payload segments that a replay needs."""
    return {record.payload.segment for record in (*span.in_flight, *span.records) if record.payload is not None}


def _files_of_image(images: Path | None, environment: Environment) -> list[str]:
    """Files that a restore wants, each as long as it was: those open at the dump, and those mapped that are not
    installed. Of a large one that is only written to, a log for instance, nothing but the length matters, and that is
    in the image."""
    if images is None:
        return []
    installed = {file.path for file in environment.files}
    return [
        file.path
        for file in choice.find().read(images).files
        if file.path not in installed and not (file.is_written and _size_bytes(file) > SMALL_FILE_BYTES)
    ]


def _size_bytes(file: OpenFile) -> int:
    """What it had at the dump, or has now, where that is more: the job may go on writing to it."""
    try:
        return max(file.size_bytes, Path(file.path).stat().st_size)
    except OSError:
        return file.size_bytes


def kept_from_the_start(folder: Path) -> bool:
    """Payloads were kept since the first collective. A byte limit drops the oldest first, so the first segment with a
    payload tells. One payload does not: before a restore point, larger ones go before small ones."""
    if [number for number, _ in event_segments(folder)][:2] not in ([0], [0, 1]):
        return False  # older ones were dropped
    for read in (read_beginning, read_whole):
        columns = read(folder)
        log, alike = rank_log(columns), _one_of_each_kind(columns)
        kept = {number for number in alike if (folder / fmt.payload_segment(number)).exists()}
        without = [row for number, rows in alike.items() if number not in kept for row in rows]
        if log.dropped or any(needs_payload(log.collectives[row], log) for row in without):
            return False
        if kept:
            return True
    return len(columns) > 0


def _one_of_each_kind(columns: LogColumns) -> dict[int, list[int]]:
    """By payload segment, -1 where there is none: rows of which `needs_payload` may not say the same. Asking it of each
    row of a long log takes seconds."""
    is_open, alone = columns.ended_ns == NOT_ENDED, columns.synthesized * (1 + columns.record_id)
    told = (columns.payload_segment, columns.op, columns.group, columns.root, columns.tensors, columns.failed)
    kinds = zip(*(column.tolist() for column in (*told, is_open, alone)), strict=True)
    rows: dict[int, list[int]] = {}
    for kind, row in {kind: row for row, kind in enumerate(kinds)}.items():
        rows.setdefault(kind[0], []).append(row)
    return rows


def _manifest(parts: Ingredients, recorded: _Recorded, whole_from: Moment) -> Manifest:
    """`whole_from`: from where on it can be replayed."""
    rank, log = recorded.rank, recorded.log
    notes = list(parts.notes)
    if whole_from > recorded.start:
        where = "" if whole_from > recorded.end else f" before {whole_from}"
        notes.append(f"not replayable{where}: data that the rank received was not kept")
    notes += [str(note.data.get("text", "")) for note in log.notes if note.kind == "not_kept"][-1:]
    if starts_too_late(parts.incident.kind, parts.origin, recorded.span, recorded.end):
        notes.append(NO_STEP_BEFORE)
    notes += [
        f"the program calls c10d::{note.data['op']}, which prismdbg does not record, so a replay has no answer for it: "
        f"{note.data['text']}"
        for note in log.notes
        if note.kind == "unknown"
    ]
    devices = {
        t.device.split(":")[0] for r in recorded.span.records for t, _ in (*runs_of(r.inputs), *runs_of(r.outputs))
    }
    return Manifest(
        created_ns=time.time_ns(),
        job=parts.run.path.name,
        rank=log.rank,
        world_size=max(int(rank["world_size"]), log.rank + 1),
        moment_a=recorded.start,
        moment_b=recorded.end,
        incident=parts.incident,
        origin=parts.origin,
        contains_raw_memory=parts.origin is Origin.IMAGE,
        replayable_from=whole_from,
        groups=tuple(log.groups.values()),
        device_kinds=tuple(sorted(devices)) or ("cpu",),
        versions={k: str(v) for k, v in rank["versions"].items()},
        hardware={k: str(v) for k, v in rank["hardware"].items()},
        notes=tuple(notes),
        emulated=parts.emulated,
        oldest_reader=OLDEST_WITH_STATE if parts.origin is Origin.STATE else OLDEST_READER,
    )
