"""What `record` would do and cost, as far as that is known before the job runs. Nothing is started and nothing made."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from shlex import join

from prismdbg.capsule.memory_format import RECORD
from prismdbg.capsule.secrets.masking import (
    redact_arguments,
)
from prismdbg.checkpoint import choice
from prismdbg.errors import PrismError, UsageError
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.record import checkpoints
from prismdbg.jobs.record.launch_line import parse
from prismdbg.jobs.record.record import RecordRequest, home_of
from prismdbg.jobs.record.time_cost import time_cost
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size
from prismdbg.model.sketch import SIZE_BYTES as SKETCH_BYTES
from prismdbg.settings.state_folders import KEPT
from prismdbg.telemetry.file_format import MOST_BYTES

_BYTES_PER_COLLECTIVE = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """`rows`: names and values. `doubts`: sentences on what will not work as it was asked for."""

    rows: tuple[tuple[str, str], ...]
    doubts: tuple[str, ...]


def dry_run(request: RecordRequest) -> DryRun:
    """`UsageError` where `record` would raise one before the job starts."""
    run = RunFolder.require_new(request.output)
    there = next(parent for parent in (run.path, *run.path.parents) if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        why = "permission denied" if there.is_dir() else "not a directory"
        raise UsageError(
            f"{request.output} cannot be created: {why}: {there}", hint="choose a new folder that you can write to"
        )
    if shutil.which(request.command[0]) is None:
        raise UsageError(
            f"{request.command[0]} cannot be started: no such program",
            hint="give the path of a program after `--`, as in -- python train.py",
        )
    ranks = _ranks(request)
    free_bytes = shutil.disk_usage(there).free
    return DryRun(
        rows=(
            ("command", join(redact_arguments(request.command).words)),
            ("ranks", "as many as the command starts" if not ranks else f"{ranks}, of one node"),
            ("recorder", _recorder(request)),
            ("ranks write into", _home(request)),
            ("log", _log(request)),
            ("received data", _window(request)),
            (
                "sketches",
                f"{SKETCH_BYTES} bytes of the floating-point data of each collective" if request.sketches else "none",
            ),
            ("checkpoints", _checkpoints(request)),
            ("state snapshots", _states(request)),
            ("memory", _memory(request)),
            ("telemetry", _telemetry(request)),
            ("captures on", _captures(request)),
            ("capsules start", _origin(request)),
            ("at an incident", request.policy.on_incident or "no command is run"),
            ("time", time_cost(request, is_native=request.native and _is_native_built())),
            ("disk", _disk(request, ranks, free_bytes)),
        ),
        doubts=tuple(_doubts(request, ranks, free_bytes)),
    )


def _ranks(request: RecordRequest) -> int:
    """That are recorded; 0 where the command does not say how many there are."""
    if request.ranks:
        return len(request.ranks)
    return parse(request.command).per_node


def _is_native_built() -> bool:
    return any((cache_dir() / "native").glob("**/*.so"))


def _recorder(request: RecordRequest) -> str:
    if not request.native:
        return "Python kernels (--python-kernels)"
    return "native" if _is_native_built() else "Python kernels: the native recorder is not built"


def _home(request: RecordRequest) -> str:
    below = home_of(request)
    return "RUN" if below is None else f"a new folder in {below}; copied into RUN at incidents and at the end"


def _log(request: RecordRequest) -> str:
    if not request.policy.log_bytes:
        return "every collective; nothing is dropped"
    collectives = request.policy.log_bytes // (_BYTES_PER_COLLECTIVE + request.sketches * SKETCH_BYTES)
    return f"the last {size(request.policy.log_bytes)} of each rank, about {collectives:,} collectives"


def _window(request: RecordRequest) -> str:
    if not request.keeps_received:
        return "none"
    parts = []
    if steps := request.window_steps:
        parts.append("all" if steps < 0 else f"at least the last {counted(steps, 'step')}")
    if request.policy.checkpoint_every:
        parts.append("what follows the older checkpoint that is kept")
    if request.state_every:
        parts.append("what follows the older state snapshot")
    most = f"at most {size(request.window_bytes)} per rank" if request.window_bytes else "however much that is"
    return f"{' and '.join(parts)}, {most}"


def _checkpoints(request: RecordRequest) -> str:
    if not (every := request.policy.checkpoint_every):
        return "none"
    each = f"every {counted(every, 'step')}; all ranks wait while one is saved"
    return f"{each}; the newest {checkpoints.KEPT} of each rank are kept, each about as large as the rank's memory"


def _states(request: RecordRequest) -> str:
    if not (every := request.state_every):
        return "none"
    each = f"every {counted(every, 'step')}"
    return f"{each}; the newest {KEPT} of each rank are kept, and what it received before its restore point"


def _memory(request: RecordRequest) -> str:
    parts = [f"every allocation is traced, {RECORD.size} bytes for each event" if request.memory else "not traced"]
    if request.memory_cap:
        parts.append(f"beyond {size(request.memory_cap)} an allocation raises OutOfMemoryError")
    if request.zero_memory:
        parts.append("new CPU allocations are filled with zeros, which slows them down")
    return "; ".join(parts)


def _telemetry(request: RecordRequest) -> str:
    if not (every_ns := request.policy.telemetry_ns):
        return "none"
    return f"every {every_ns / 1e6:g} ms, by a process of its own; the newest {size(MOST_BYTES)} of each node are kept"


def _captures(request: RecordRequest) -> str:
    if not request.policy.triggers:
        return "nothing"
    events = [f"{name}={value}" if value else name for name, value in request.policy.triggers.items()]
    return f"{', '.join(events)}; at most {counted(request.policy.keep, 'capsule')}"


def _origin(request: RecordRequest) -> str:
    if request.policy.checkpoint_every:
        return "at the newest checkpoint before the incident"
    if request.state_every:
        return "at the newest state snapshot before the incident"
    return "at the program's start" if request.window_steps < 0 else "nowhere: most incidents cannot be replayed"


def _disk(request: RecordRequest, ranks: int, free_bytes: int) -> str:
    if not (each := request.most_bytes):
        most = "what is written grows with the job"
    else:
        most = f"at most {size(each)} per rank" + (f", {size(each * ranks)} in all" if ranks else "")
    kinds = {
        "checkpoints": request.policy.checkpoint_every,
        "state snapshots": request.state_every,
        f"{request.prologue} from before its restore point": request.state_every,
        "memory traces": request.memory,
        f"{size(MOST_BYTES)} of telemetry per node": request.policy.telemetry_ns,
    }
    more = [name for name, taken in kinds.items() if taken]
    besides = ", ".join([*more, "capsules"])
    return f"{most}, besides {besides}; {size(free_bytes)} are free"


def _doubts(request: RecordRequest, ranks: int, free_bytes: int) -> Iterator[str]:
    if request.native and not _is_native_built():
        yield "the native recorder is not built, so recording is slower: run prismdbg setup"
    if request.policy.checkpoint_every:
        try:
            choice.find()
        except PrismError as error:
            yield f"no checkpoint can be taken on this machine: {error}"
    if (most := request.most_bytes * max(ranks, 1)) > free_bytes:
        yield f"the disk may become full: {size(most)} may be written, {size(free_bytes)} are free"
    if request.policy.triggers and _origin(request).startswith("nowhere"):
        yield "most incidents will not be replayable: add --checkpoint-every, --state-every or --window all"
