"""`prismdbg plan`: what an emulation will take, reckoned from one rank that is run for a few steps."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.format import EVENT_SEGMENT_BYTES
from prismdbg.emulate.emulate import Emulated, emulate
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import PrismError
from prismdbg.job_graph.builder import iteration_of
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.rank_log import read_log
from prismdbg.model import synthesis
from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.channel import Toward, parse
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.report import sandbox_plan
from prismdbg.simulate.report.sandbox_plan import Figure, Known, Probe, Sandbox

PROBED_STEPS = 2
ONLY_SENT = frozenset({synthesis.NOISE, synthesis.NOISE_LIKE, synthesis.DONOR})  # what only the sender knows


def plan(request: EmulateRequest, say: Say, *, probe: bool = True) -> tuple[Sandbox, list[Figure]]:
    """The request is checked as for `emulate`; its output folder is neither made nor looked at."""
    request.check()
    measured = _probe(request, say) if probe else None
    sandbox = _sandbox(request, measured)
    found = sandbox_plan.figures(request.mesh, sandbox, request.steps, measured)
    if request.classes is not None and sandbox.known is not Known.CERTAIN:
        found[2:2] = sandbox_plan.alternatives(request.mesh, request.checks)
    return sandbox, found


def _sandbox(request: EmulateRequest, probe: Probe | None) -> Sandbox:
    if request.classes is None:
        return sandbox_plan.chosen(request.ranks)
    return sandbox_plan.by_classes(request.mesh, request.classes, request.checks, probe)


def _probe(request: EmulateRequest, say: Say) -> Probe:
    rank = 0 if request.classes is not None else request.ranks[0]
    steps = min(request.steps, PROBED_STEPS) if request.steps else PROBED_STEPS
    folder = Path(tempfile.mkdtemp(prefix="prismdbg-plan-"))
    asked = replace(
        request, output=folder, ranks=(rank,), classes=None, steps=steps, window_bytes=0, all_on_stderr=True
    )
    is_kept = False
    try:
        say(f"trying {request.mesh.say(rank)} for {counted(steps, 'step')} in {folder}, which is removed afterwards")
        return _measured(RunFolder(folder), emulate(asked, say), rank, steps, request.mesh)
    except PrismError:
        is_kept = bool(RunFolder(folder).rank_folders())  # what is said of the failure leads there
        if is_kept:
            say(f"kept for inspection; remove it with: prismdbg rm {folder}")
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _measured(run: RunFolder, done: Emulated, rank: int, steps: int, mesh: Mesh) -> Probe:
    log = read_log(run.latest(rank))
    entries = iteration_of(log, mesh, max((c.moment.step for c in log.collectives), default=0))
    told = {note.kind: note.data for note in log.notes}
    resources, synthesized = told.get("resources", {}), told.get("synthesized", {})
    marks = [mark.time_ns for mark in log.steps]
    step_s = (marks[-1] - marks[0]) / 1e9 / (len(marks) - 1) if len(marks) > 1 else 0.0
    ran = next(each for each in done.runs if each.rank == rank)
    log_bytes = int(resources.get("log_bytes", 0))
    of_step = _share_of_last_step(log)
    return Probe(
        rank=rank,
        start_s=max(ran.wall_s - steps * step_s, 0.0),
        step_s=step_s,
        alive=len(done.runs),
        peak_bytes=int(resources.get("peak_bytes", 0)),
        shared_bytes=int(resources.get("shared_bytes", 0)),
        start_log_bytes=round(log_bytes * max(1 - steps * of_step, 0.0)),
        log_bytes=round(log_bytes * of_step),
        segment_bytes=EVENT_SEGMENT_BYTES,
        sent_bytes=sum(synthesized.get("sent", {}).values()) // steps,
        received_bytes=sum(row["bytes"] for row in synthesized.get("rows", ()) if row["how"] in ONLY_SENT) // steps,
        entries=len(entries),
        entry_bytes=entries.stored_bytes,
        messages_along=_messages_along(entries, mesh),
        displaced=ran.displaced,
    )


def _share_of_last_step(log: RankLog) -> float:
    """Of all collectives; the first step holds those of the start, too."""
    if not log.collectives:
        return 0.0
    last = log.collectives[-1].moment.step
    return sum(c.moment.step == last for c in log.collectives) / len(log.collectives)


def _messages_along(entries: Entries, mesh: Mesh) -> tuple[str, ...]:
    used = {
        entries.channels[int(entries.channel[place])]
        for place in range(len(entries))
        if entries.kind[place] in (Kind.SEND, Kind.RECV)
    }
    axes = {channel.axis for channel in (parse(text, mesh) for text in used) if isinstance(channel, Toward)}
    return tuple(name for name in mesh.names if name in axes)
