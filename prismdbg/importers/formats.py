"""Which tool wrote the files at a path, and what they say of the job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import flight_recorder, kineto
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.importers.traced_job import join

MOST_FILES = 16_384


def is_imported(path: Path) -> bool:
    """Whether files of another tool are there, which `read_job` reads."""
    return any(kineto.is_trace(file) for file in _files(path)) or bool(flight_recorder.find_dumps(path))


def read_job(path: Path) -> ImportedJob | None:
    """None where no file of another tool is there. Raises `CapsuleError` if none of them can be read, and `UsageError`
    if it is not clear which belong together."""
    if traces := [file for file in _files(path) if kineto.is_trace(file)]:
        job = _of_traces(_by_rank(traces))
    elif dumps := flight_recorder.find_dumps(path):
        job = flight_recorder.read_dumps(dumps)
    else:
        return None
    if not job.logs and job.damaged:
        raise CapsuleError(next(iter(job.damaged.values())), hint="fetch the files again, or give those of other ranks")
    return job


def _files(path: Path) -> Iterator[Path]:
    files = [path] if path.is_file() else sorted(islice(path.iterdir(), MOST_FILES)) if path.is_dir() else []
    return (file for file in files if file.is_file() and not file.is_symlink())


def _by_rank(traces: list[Path]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for file in traces:
        rank = kineto.rank_of(file)
        if rank in found:
            hint = "keep one in the folder: a trace for each cycle of the profiler's schedule is a folder of its own"
            raise UsageError(f"rank {rank} has several traces: {found[rank].name}, {file.name}", hint=hint)
        found[rank] = file
    return found


def _of_traces(traces: Mapping[int, Path]) -> ImportedJob:
    ranks, damaged = [], {}
    for rank, path in sorted(traces.items()):
        try:
            ranks.append(kineto.read_trace(path))
        except CapsuleError as error:
            damaged[rank] = str(error)
    job = join(ranks, damaged)
    return ImportedJob(
        logs=job.logs,
        damaged=job.damaged,
        gaps=(*kineto.gaps(ranks), *job.gaps),
        world_size=job.world_size,
        hosts=job.hosts,
    )
