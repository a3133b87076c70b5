"""How long the job stands in a capture, against a bare `criu dump` of the same process."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.reader import read_log
from prismdbg.checkpoint import bundle
from prismdbg.checkpoint.criu import dump
from prismdbg.checkpoint.engine import DumpReport
from tests.bench.jobs import RANKS, LiveJob, live_job, prismdbg, run
from tests.bench.settings import Settings
from tests.bench.spread import ratios
from tests.bench.table import Measured, Row

TITLE = "Pause of the job in a capture"
GOAL = 1.2
DUMP_BOUND_S = 90.0
RANK = 1
WARM_UPS = 1


@dataclass(frozen=True, slots=True)
class Span:
    """From and to, on the clock of the logs."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Gap:
    """Between two collectives of one rank; `place` is where in a step."""

    span: Span
    place: int

    @property
    def length_ns(self) -> int:
        return self.span.end_ns - self.span.start_ns

    def meets(self, span: Span) -> bool:
        return self.span.start_ns < span.end_ns and span.start_ns < self.span.end_ns


def measure(settings: Settings, folder: Path) -> Measured:
    criu = bundle.find()
    captures: list[Span] = []
    dumps: list[Span] = []
    reports: list[DumpReport] = []
    with live_job(folder, "--size", settings.size, "--batch", settings.batch) as job:
        for _ in range(WARM_UPS + settings.captures):
            job.train(4)
            captures.append(_capture(job, folder))
            job.train(4)
            images = folder / "images"
            began = time.monotonic_ns()
            reports.append(dump(criu, job.pid(RANK), images, leave_running=True, timeout_s=DUMP_BOUND_S))
            dumps.append(Span(began, time.monotonic_ns()))
            _remove(images)
        job.train(4)
        logs = [read_log(job.run.latest(rank)) for rank in range(RANKS)]
    return _table(logs, captures, dumps, reports)


def _capture(job: LiveJob, folder: Path) -> Span:
    capsule = folder / "capsule"
    began = time.monotonic_ns()
    command = prismdbg("capture", job.run.path, "--rank", RANK, "--window", 1, "-o", capsule)
    run(command, folder / "capture.txt")
    span = Span(began, time.monotonic_ns())
    _remove(capsule)
    return span


def _remove(path: Path) -> None:
    """Every dump starts with nothing left to write."""
    shutil.rmtree(path)
    os.sync()


def _gaps(log: RankLog) -> list[Gap]:
    issued = sorted(log.collectives, key=lambda record: record.time_created_ns)
    return [
        Gap(Span(a.time_created_ns, b.time_created_ns), a.moment.collective)
        for a, b in pairwise(issued)
        if a.moment.step > 1
    ]


def _pauses(gaps: Sequence[Gap], spans: Sequence[Span], all_spans: Sequence[Span]) -> list[float]:
    """In each span the longest gap of any rank, less the median gap at that place of a step, in seconds."""
    quiet: dict[int, list[int]] = {}
    for gap in gaps:
        if not any(gap.meets(span) for span in all_spans):
            quiet.setdefault(gap.place, []).append(gap.length_ns)
    pauses = []
    for span in spans:
        longest = max((gap for gap in gaps if gap.meets(span)), key=lambda gap: gap.length_ns)
        pauses.append((longest.length_ns - median(quiet[longest.place])) / 1e9)
    return pauses


def _held(log: RankLog, captures: Sequence[Span]) -> list[float]:
    """Seconds from the parked rank's last word to its first after the release."""
    notes = {kind: [n.time_ns for n in log.notes if n.kind == kind] for kind in ("parked", "released")}

    def inside(kind: str, span: Span) -> int:
        return next(time_ns for time_ns in notes[kind] if span.start_ns < time_ns < span.end_ns)

    return [(inside("released", span) - inside("parked", span)) / 1e9 for span in captures]


def _table(
    logs: Sequence[RankLog], captures: Sequence[Span], dumps: Sequence[Span], reports: Sequence[DumpReport]
) -> Measured:
    gaps = [gap for log in logs for gap in _gaps(log)]
    spans = [*captures, *dumps]
    paused = _pauses(gaps, captures, spans)
    by_dump = _pauses(gaps, dumps, spans)
    held = _held(logs[RANK], captures)
    walls = [(span.end_ns - span.start_ns) / 1e9 for span in dumps]
    frozen = [report.frozen_ns / 1e9 for report in reports]
    paused, by_dump, held, walls, frozen = (v[WARM_UPS:] for v in (paused, by_dump, held, walls, frozen))

    def row(what: str, values: Sequence[float], against: str = "", base: Sequence[float] = (), **more: float) -> Row:
        return Row(
            what=what,
            against=against,
            values=values,
            unit="s",
            digits=3,
            ratios=ratios(values, base) if base else (),
            goal=more.get("goal"),
        )

    rows = [
        row("bare `criu dump`, the command", walls),
        row("bare `criu dump`, frozen as criu counts it", frozen),
        row("bare `criu dump`, pause of the job", by_dump),
        row("capture: pause of the job", paused, "bare `criu dump`, the command", walls, goal=GOAL),
        row("capture: pause of the job", paused, "bare `criu dump`, frozen", frozen),
        row("capture: pause of the job", paused, "bare `criu dump`, pause of the job", by_dump),
        row("capture: from parked to released", held, "bare `criu dump`, the command", walls),
    ]
    size = median(report.images_bytes for report in reports) / (1 << 20)
    notes = [
        "Pause: the longest gap between two collectives of a rank, over all ranks, from the request to the capsule, "
        "less the median gap at that place of a step. Waiting for the rank's next collective and for works in flight "
        "is in it; the row from parked to released is without it.",
        f"Captures and bare dumps of the same process in turn, the first of each not counted; an image has {size:.0f} "
        "MiB.",
    ]
    return Measured(rows=rows, notes=notes)
