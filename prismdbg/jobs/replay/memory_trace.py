"""Finds a memory trace, alone or in a run, or makes one by replaying a capsule with the tracer on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from prismdbg.capsule.memory_reader import is_trace
from prismdbg.capsule.partial import publish_copy
from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay.compare import Verdict, run_to_end
from prismdbg.jobs.replay.replay import ReplayRequest, Say, open_replay
from prismdbg.jobs.replay.verdict import End
from prismdbg.jobs.storage.emulated_run import read_emulated
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.log.rank_log import read_log
from prismdbg.memory.backend import BackendModel, modelled
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.model.deadline import Deadline
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentClient
from prismdbg.protocol.wire import Message
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.settings.rank_config import RANK_MEMORY


def recorded_trace(path: Path, rank: int | None) -> Path | None:
    """The trace at `path`, which may be one, or a run in which that rank has one; None for neither, and for a rank that
    was emulated without one: it can be run again."""
    if is_trace(path):
        return path
    if not RunFolder(path).run_json.is_file():
        return None
    traced = {rank_of(folder): folder / RANK_MEMORY for folder in RunFolder(path).rank_folders()}
    traced = {number: folder for number, folder in traced.items() if is_trace(folder)}
    wanted = min(traced, default=None) if rank is None else rank
    if wanted not in traced and read_emulated(RunFolder.existing(path)) is not None:
        return None
    if wanted not in traced:
        raise UsageError(
            f"{path} has no memory trace" + (f" of rank {rank}" if traced else ""),
            hint=f"choose a rank with a trace: {', '.join(map(str, sorted(traced)))}"
            if traced
            else "record with --memory, or use a capsule of the rank, which is replayed with tracing",
        )
    return traced[wanted]


def require_emulated(path: Path, option: str) -> None:
    """`UsageError` for `option`, which asks for a replay, unless `path` is an emulated run: its ranks can be replayed
    without a capsule."""
    run = RunFolder(path)
    if not run.run_json.is_file() or read_emulated(run) is None:
        raise UsageError(
            f"{option} needs a capsule: {path} has a recorded trace, which is shown as it is",
            hint=f"give a capsule of the rank, or leave {option} out",
        )


def modelled_backend(path: Path, rank: int | None) -> BackendModel | None:
    """Of an emulated rank, in whose trace there is no backend; None for every other trace."""
    folder = recorded_trace(path, rank)
    if folder is None or folder == path:
        return None
    log = read_log(folder.parent)
    if not any(record.synthesized for record in log.collectives):
        return None
    return modelled(log.collectives, log.groups, log.rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedReplay:
    trace: MemoryTrace
    verdict: Verdict

    @property
    def stands(self) -> Moment | None:
        """Where the rank was stopped on its way."""
        return Moment.parse(self.verdict.moment) if self.verdict.end is End.UNTIL else None


def traced_replay(
    request: ReplayRequest,
    say: Say,
    *,
    until: Moment | None,
    timeout_s: float,
    keep: Path | None = None,
    waits: bool = False,
) -> TracedReplay:
    """Runs the rank from A on, past B to its next call, or to `until`, with the tracer on. `keep`: where the trace is
    copied to. `waits`: the trace also tells where works were waited for."""
    if keep is not None and keep.exists():
        raise UsageError(f"{keep} already exists", hint="choose another name, or remove it first")
    deadline = Deadline.after(timeout_s)
    with open_replay(replace(request, deadline=deadline), say) as live:
        began = live.client.ask("trace", on=True, waits=waits, cache=str(cache_dir()))
        verdict = run_to_end(live, until=until, strict=False, deadline=deadline)
        say(verdict.summary)
        records = _records(live.client)  # asked first: the rank then writes what it holds back
        folder = trace_folder(live.own, began)
        trace = open_trace(folder, records)
        if keep is not None:
            publish_copy(folder, keep)
    return TracedReplay(trace=trace, verdict=verdict)


def trace_folder(own: RankFolder, status: Message) -> Path:
    """A copy of the trace of which the rank's `trace` verb tells: it lies beside the agent's socket. It goes with the
    session."""
    name = PurePosixPath(str(status.get("path", ""))).name
    return own.copied(name, own.path.with_name("copies"))


def _records(client: AgentClient) -> int | None:
    """As the rank says, if it still lives."""
    try:
        return client.ask("trace").get("records")
    except PrismError:
        return None
