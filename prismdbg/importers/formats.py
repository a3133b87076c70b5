"""Which tool wrote the files at a path, and what they say of the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from prismdbg.capsule import layout
from prismdbg.capsule.log.reader import iter_logs
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import chakra, debug_server, execution_trace, flight_recorder, kineto
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.importers.job_groups import JobGroups
from prismdbg.importers.traced_job import TracedRank, join

MOST_FILES = 16_384
_PROFILES, _EXECUTIONS = "traces of torch.profiler", "PyTorch execution traces"
_KINDS: dict[str, Callable[[Path], bool]] = {  # the first that is there is read
    _PROFILES: kineto.is_trace,
    _EXECUTIONS: execution_trace.is_trace,
    "Chakra traces": chakra.is_trace,
    "Flight Recorder dumps": flight_recorder.is_dump,
}


def is_imported(path: Path) -> bool:
    """Whether calls of a job are there in files of another tool, which `read_job` reads. Raises `UsageError` if there
    are only texts of torch's debug server."""
    if any(is_of(file) for file in _files(path) for is_of in _KINDS.values()):
        return True
    if (stacks := _only_stacks(path)) is not None:
        raise debug_server.no_calls(stacks.stacks_file)
    return False


def read_job(path: Path) -> ImportedJob | None:
    """None where no file of another tool is there. Raises `CapsuleError` if none of them can be read, and `UsageError`
    if it is not clear which belong together, or if there are only text tables of torch's debug server. Of its stacks
    alone it gives a job without logs."""
    job = _with_calls(path)
    if job is None:
        return _only_stacks(path)
    if not job.logs and job.damaged:
        raise CapsuleError(next(iter(job.damaged.values())), hint="fetch the files again, or give those of other ranks")
    texts = debug_server.read_texts(_files(path))
    return replace(
        job, gaps=(*job.gaps, *_passed_over(path), *texts.gaps), stacks=texts.stacks, stacks_file=texts.stacks_file
    )


def _with_calls(path: Path) -> ImportedJob | None:
    traces = _by_rank([file for file in _files(path) if kineto.is_trace(file)], kineto.rank_of)
    executions = _by_rank([file for file in _files(path) if execution_trace.is_trace(file)], execution_trace.rank_of)
    if traces:
        return _of_traces(traces, executions)
    if executions:
        return _joined(*_read(executions, execution_trace.read_trace), tuple(execution_trace.gaps()))
    if nodes := _by_rank([file for file in _files(path) if chakra.is_trace(file)], chakra.rank_of):
        ranks, damaged = _read(nodes, chakra.read_trace)
        return _joined(ranks, damaged, (*chakra.gaps(), *chakra.name_world(ranks, nodes)))
    if dumps := flight_recorder.find_dumps(path):
        return flight_recorder.read_dumps(dumps)
    return None


def _passed_over(path: Path) -> Iterator[str]:
    """Only one kind of files is read of a folder; execution traces may complete those of torch.profiler."""
    files = list(_files(path))
    read, *others = (title for title, is_of in _KINDS.items() if any(map(is_of, files)))
    if not_read := [title for title in others if (read, title) != (_PROFILES, _EXECUTIONS)]:
        yield f"not read beside {read}: {', '.join(not_read)}; give each kind in a folder of its own"


def _only_stacks(path: Path) -> ImportedJob | None:
    """None where a log of ours is there, which is read instead."""
    ranks = path / "ranks"
    if (path / layout.MANIFEST).is_file() or (ranks.is_dir() and any(iter_logs(ranks))):
        return None
    texts = debug_server.read_texts(_files(path))
    if not texts.stacks:
        debug_server.refuse_tables(_files(path))
        return None
    return debug_server.only_stacks(texts)


def _files(path: Path) -> Iterator[Path]:
    files = [path] if path.is_file() else sorted(islice(path.iterdir(), MOST_FILES)) if path.is_dir() else []
    return (file for file in files if file.is_file() and not file.is_symlink())


def _by_rank(files: list[Path], rank_of: Callable[[Path], int]) -> dict[int, Path]:
    found: dict[int, Path] = {}
    for file in files:
        rank = rank_of(file)
        if rank in found:
            hint = "put each run, and each cycle of the profiler's schedule, into a folder of its own"
            raise UsageError(f"rank {rank} has several traces: {found[rank].name}, {file.name}", hint=hint)
        found[rank] = file
    return found


def _of_traces(traces: Mapping[int, Path], executions: Mapping[int, Path]) -> ImportedJob:
    """With the sizes of all tensors from execution traces of the same run, where they are there."""
    ranks, damaged = _read(traces, kineto.read_trace)
    more, unread = _read(executions, execution_trace.read_trace)
    told = {each.rank: each for each in more}
    for traced in ranks:
        if traced.rank in told:
            _complete(traced, told[traced.rank])
    lines = [f"the execution trace of rank {rank} cannot be read: {why}" for rank, why in unread.items()]
    return _joined(ranks, damaged, (*kineto.gaps(ranks), *lines))


def _read(
    paths: Mapping[int, Path], read: Callable[[Path, int, JobGroups], TracedRank]
) -> tuple[list[TracedRank], dict[int, str]]:
    """What can be read, and why the rest cannot."""
    ranks, damaged, of_job = [], {}, JobGroups(paths.values())
    for rank, path in sorted(paths.items()):
        try:
            ranks.append(read(path, rank, of_job))
        except CapsuleError as error:
            damaged[rank] = str(error)
    return ranks, damaged


def _joined(ranks: list[TracedRank], damaged: Mapping[int, str], gaps: tuple[str, ...]) -> ImportedJob:
    job = join(ranks, damaged)
    return replace(job, gaps=(*gaps, *job.gaps))


def _complete(traced: TracedRank, told: TracedRank) -> None:
    """Both observers number the calls alike, if they ran together."""
    by_number = {call.function_id: call for call in told.calls if call.function_id is not None}
    for call in traced.calls:
        same = by_number.get(call.function_id) if call.function_id is not None else None
        if same is not None and same.op == call.op:
            call.inputs = same.inputs or call.inputs
            call.outputs = same.outputs or call.outputs
