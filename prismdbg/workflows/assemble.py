"""Makes a capsule of one rank out of its log, its origin, and the files it needs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prismdbg.capsule import layout
from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import SMALL_FILE_BYTES, add_files
from prismdbg.capsule.log_coverage import needs_payload
from prismdbg.capsule.log_reader import RankLog, read_log
from prismdbg.capsule.manifest import Incident, Manifest, Origin
from prismdbg.capsule.transfer import Transfer
from prismdbg.checkpoint import bundle
from prismdbg.checkpoint import images as process_images
from prismdbg.errors import CapsuleError
from prismdbg.graph.slice import build_slice
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment
from prismdbg.rank.config import RANK_MEMORY
from prismdbg.runtime.environment import Environment
from prismdbg.workflows import rank_half
from prismdbg.workflows.incidents import attempt_of
from prismdbg.workflows.kept_stacks import TAKEN_FOR, last_stacks
from prismdbg.workflows.packed_memory import add_trace
from prismdbg.workflows.rank_paths import rank_paths
from prismdbg.workflows.redaction import Redaction, homes_of
from prismdbg.workflows.run_environment import environment_of
from prismdbg.workflows.run_folder import RunFolder, read_json
from prismdbg.workflows.secret_search import Search, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingredients:
    """`past_records`: how many collectives the rank had issued at A; of these `in_flight` were not complete.
    `images`: of a process image, taken over. `emulated`: the mesh of a world that was not there."""

    run: RunFolder
    folder: Path
    output: Path
    origin: Origin
    incident: Incident
    past_records: int = 0
    in_flight: tuple[int, ...] = ()
    images: Path | None = None
    keep_images: bool = False
    last_moment: Moment | None = None
    notes: tuple[str, ...] = ()
    emulated: str = ""


def assemble(parts: Ingredients) -> Capsule:
    """Writes the capsule whole or not at all. Segments that the live rank still writes are copied as they are."""
    log = read_log(parts.folder)
    records = _records(log, parts)
    rank = read_json(parts.folder / "rank.json")
    if not rank:
        raise CapsuleError(f"{parts.folder} has no rank.json", hint="the rank ended before it could describe itself")
    with CapsuleWriter(parts.output) as writer:  # the images move last: what is open in them is read first
        origin = {"past_records": parts.past_records, "in_flight": list(parts.in_flight)}
        a, b = _span(records, log, parts)
        paths = rank_paths(log, rank, a if parts.origin is Origin.IMAGE else None)
        there = {"folders": paths.folders, "absent": paths.absent, "seeds": _seeds(rank, log)}
        environment_files = environment_of(parts.run, parts.folder)
        files = add_files(
            writer,
            [*paths.files, *_files_of_image(parts.images, environment_files)],
            homes=homes_of(rank["environment"]),
        )
        secrets = Redaction.of(rank, files, log)
        writer.add_json(layout.RANK, {**secrets.describe(rank), **origin, **there})
        segments = _add_log(writer, parts.folder, records, secrets.mask)
        of_it = parts.incident.kind in TAKEN_FOR
        if of_it and (taken := last_stacks(parts.run, attempt_of(parts.folder.name))):
            writer.add_json(layout.STACKS, taken.to_json())
        writer.add_json(layout.ENVIRONMENT, environment_files.to_json())
        writer.add_bytes(layout.RANK_HALF, rank_half.pack(parts.run.inject / "prismdbg"))
        if parts.images is not None:
            writer.add_checkpoint(parts.images, Transfer.LINK if parts.keep_images else Transfer.MOVE)
        writer.add_json(layout.SLICE, build_slice(log, a, b).to_json())
        after_b = min((r.moment for r in log.collectives if r.moment > b), default=None)
        left_out = add_trace(writer, parts.folder / RANK_MEMORY, after_b)
        notes = (*parts.notes, left_out) if left_out else parts.notes
        whole_from = replayable_from(records, log, segments) if records else a
        manifest = _manifest(replace(parts, notes=notes), log, rank, records, (a, b, whole_from))
        manifest, findings = secrets.of_manifest(manifest)
        hits = Search(writer.folder, files, replace(log, collectives=records), secrets.known).hits()
        found = [*secrets.findings, *findings, *(hit.finding for hit in hits)]
        writer.add_json(layout.SECRETS, {"findings": to_json(dict.fromkeys(found))})
        return writer.finish(manifest)


def _seeds(rank: dict[str, Any], log: RankLog) -> dict[str, Any]:
    """What random generators began with; those of modules that were imported late stand in the log."""
    return {**rank.get("seeds", {}), **{n.data["name"]: n.data["state"] for n in log.notes if n.kind == "seed"}}


def _records(log: RankLog, parts: Ingredients) -> list[Collective]:
    """The collectives from A to B."""
    last = parts.last_moment
    issued = sorted(log.collectives, key=lambda record: record.record_id)  # threads may write in another order
    return [r for r in issued if r.record_id >= parts.past_records and (last is None or r.moment <= last)]


def _span(records: list[Collective], log: RankLog, parts: Ingredients) -> tuple[Moment, Moment]:
    if records:
        return records[0].moment, records[-1].moment
    past = [r.moment for r in log.collectives if r.record_id < parts.past_records]
    here = past[-1] if past else Moment(0)
    return here, here


def _add_log(
    writer: CapsuleWriter, folder: Path, records: list[Collective], mask: Callable[[bytes], bytes]
) -> frozenset[int]:
    """All event segments, for they define each other's texts, masked; payload segments that A to B needs.

    Gives the payload segments that are in the capsule: of a live rank one may leave the window meanwhile.
    """
    for path in sorted(folder.glob("events.*.seg")):
        writer.add_edited(f"{layout.LOG}/{path.name}", path, mask)
    added = set()
    for segment in sorted({r.payload.segment for r in records if r.payload is not None}):
        path = folder / fmt.payload_segment(segment)
        with contextlib.suppress(FileNotFoundError):
            writer.add_file(f"{layout.LOG}/{path.name}", path)
            added.add(segment)
    return frozenset(added)


def _files_of_image(images: Path | None, environment: Environment) -> list[str]:
    """Files that a restore wants, each as long as it was: those open at the dump, and those mapped that are not
    installed. Of a large one that is only written to, a log for instance, nothing but the length matters, and that is
    in the image."""
    if images is None:
        return []
    installed = {file.path for file in environment.files}
    return [
        file.path
        for file in process_images.read(bundle.find(), images).files
        if file.path not in installed and not (file.is_written and file.size_bytes > SMALL_FILE_BYTES)
    ]


def replayable_from(records: list[Collective], log: RankLog, segments: Container[int]) -> Moment:
    """The first moment from which everything the rank received is in `segments`; past B where nothing is."""
    last = records[-1].moment
    start = Moment(last.step, last.collective + 1)
    for record in reversed(records):
        if needs_payload(record, log) and (record.payload is None or record.payload.segment not in segments):
            break
        start = record.moment
    return start


def kept_from_the_start(log: RankLog, folder: Path) -> bool:
    """Payloads were kept since the first collective. A byte limit drops the oldest first, so the first one tells."""
    for record in sorted(log.collectives, key=lambda record: record.record_id):
        if needs_payload(record, log):
            return record.payload is not None and (folder / fmt.payload_segment(record.payload.segment)).exists()
    return bool(log.collectives)


def _manifest(
    parts: Ingredients,
    log: RankLog,
    rank: dict[str, Any],
    records: list[Collective],
    span: tuple[Moment, Moment, Moment],
) -> Manifest:
    """`span`: A, B, and from where on it can be replayed."""
    a, b, whole_from = span
    notes = list(parts.notes)
    if whole_from > a:
        where = "" if whole_from > b else f" before {whole_from}"
        notes.append(f"not replayable{where}: what the rank received until then fell out of the window")
    devices = {t.device.split(":")[0] for r in records for t in (*r.inputs, *r.outputs)}
    return Manifest(
        created_ns=time.time_ns(),
        job=parts.run.path.name,
        rank=log.rank,
        world_size=max(int(rank["world_size"]), log.rank + 1),
        moment_a=a,
        moment_b=b,
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
    )
