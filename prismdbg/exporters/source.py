"""What an export reads: the logs of a RUN or of a capsule, and memory and telemetry that were recorded with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from prismdbg.capsule import layout
from prismdbg.capsule.manifest import Manifest
from prismdbg.capsule.memory_reader import is_trace
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.errors import CapsuleError
from prismdbg.importers.formats import is_imported
from prismdbg.jobs.capture.packed_memory import whole_trace
from prismdbg.jobs.capture.packed_telemetry import packed_telemetry
from prismdbg.jobs.evidence import gather, of_capsule
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.telemetry.series import Telemetry


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """`manifest`: of a capsule. `memory`: by rank, as far as it was traced. `telemetry`: by node. `damaged`: sentences
    on what cannot be read."""

    evidence: Evidence
    manifest: Manifest | None = None
    memory: Mapping[int, MemoryTrace] = field(default_factory=dict)
    telemetry: Mapping[str, Telemetry] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()


@contextmanager
def source_at(path: Path, keys: Keys) -> Iterator[Source]:
    """Of a RUN, a folder of logs, a capsule (a folder or packed) or another tool's files. `CapsuleError` where
    there is no log that can be read. What was unpacked is there until the block ends."""
    is_foreign = not RunFolder(path).run_json.exists() and is_imported(path)
    if not is_foreign and (path.is_file() or (path / layout.MANIFEST).is_file()):
        with opened(path, keys) as capsule:
            traces, damaged = {}, []
            try:
                trace = whole_trace(capsule)
            except CapsuleError as error:
                damaged.append(_unread(capsule.manifest.rank, error))
            else:
                traces = {capsule.manifest.rank: trace} if trace is not None else {}
            readings = packed_telemetry(capsule)
            telemetry = {"": readings} if readings is not None else {}
            source = _source(path, of_capsule(capsule), traces, telemetry, capsule.manifest)
            yield replace(source, damaged=(*damaged, *source.damaged))
        return
    evidence, run = gather(path, keys), RunFolder(path.resolve())
    folders = {rank: run.latest(rank) / RANK_MEMORY for rank in evidence.logs} if run.ranks.is_dir() else {}
    traces = {rank: folder for rank, folder in folders.items() if is_trace(folder)}
    yield _source(path, evidence, traces, evidence.telemetry)


def _source(
    path: Path,
    evidence: Evidence,
    traces: Mapping[int, Path],
    telemetry: Mapping[str, Telemetry],
    manifest: Manifest | None = None,
) -> Source:
    if not evidence.logs:
        raise CapsuleError(f"{path} has no log that can be read", hint=f"see why: prismdbg why {path}")
    memory, damaged = {}, []
    for rank, folder in traces.items():
        try:
            memory[rank] = open_trace(folder)
        except CapsuleError as error:
            damaged.append(_unread(rank, error))
    return Source(evidence=evidence, manifest=manifest, memory=memory, telemetry=telemetry, damaged=tuple(damaged))


def _unread(rank: int, error: CapsuleError) -> str:
    return f"the memory trace of rank {rank} cannot be read: {error}"
