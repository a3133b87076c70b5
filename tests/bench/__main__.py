"""The command: `python -m tests.bench [--only SECTION] [--quick]`. All of it takes about four hours."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from prismdbg.errors import PrismError
from tests.bench.jobs import BenchError
from tests.bench.machine import Circumstances
from tests.bench.sections import (
    calls,
    checkpoints,
    clocks,
    debugger,
    emulated_kinds,
    emulated_memory,
    emulated_time,
    emulation,
    initialisation,
    many_ranks,
    old_job,
    overview,
    pause,
    predict,
    predict_collectives,
    predict_here,
    predict_jobs,
    replay,
    screen,
    searches,
    simulate,
    state_snapshots,
    steps,
    sweeps,
    telemetry,
    unseeded,
    weeks,
    whole_jobs,
)
from tests.bench.settings import FULL, QUICK, Settings
from tests.bench.table import Measured, merge, render

RESULTS = Path(__file__).with_name("RESULTS.md")
SECTIONS: Mapping[str, tuple[str, Callable[[Settings, Path], Measured]]] = {
    "steps": (steps.TITLE, steps.measure),
    "jobs": (whole_jobs.TITLE, whole_jobs.measure),
    "pause": (pause.TITLE, pause.measure),
    "checkpoints": (checkpoints.TITLE, checkpoints.measure),
    "state": (state_snapshots.TITLE, state_snapshots.measure),
    "replay": (replay.TITLE, replay.measure),
    "unseeded": (unseeded.TITLE, unseeded.measure),
    "debugger": (debugger.TITLE, debugger.measure),
    "calls": (calls.TITLE, calls.measure),
    "clocks": (clocks.TITLE, clocks.measure),
    "screen": (screen.TITLE, screen.measure),
    "simulate": (simulate.TITLE, simulate.measure),
    "telemetry": (telemetry.TITLE, telemetry.measure),
    "weeks": (weeks.TITLE, weeks.measure),
    "old": (old_job.TITLE, old_job.measure),
    "many": (many_ranks.TITLE, many_ranks.measure),
    "overview": (overview.TITLE, overview.measure),
    "initialisation": (initialisation.TITLE, initialisation.measure),
    "emulation": (emulation.TITLE, emulation.measure),
    "emulated_time": (emulated_time.TITLE, emulated_time.measure),
    "emulated_kinds": (emulated_kinds.TITLE, emulated_kinds.measure),
    "emulated_memory": (emulated_memory.TITLE, emulated_memory.measure),
    "predict": (predict.TITLE, predict.measure),
    "sweeps": (sweeps.TITLE, sweeps.measure),
    "searches": (searches.TITLE, searches.measure),
    "predict_jobs": (predict_jobs.TITLE, predict_jobs.measure),
    "predict_collectives": (predict_collectives.TITLE, predict_collectives.measure),
    "predict_here": (predict_here.TITLE, predict_here.measure),
}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="this section; may be given again")
    parser.add_argument("--quick", action="store_true", help="a small model and few runs: shows that it works, no more")
    parser.add_argument(
        "--collectives", type=int, help="of each rank, in `weeks` and `old`; their goals are for 10000000"
    )
    parser.add_argument(
        "--kind",
        choices=[*emulated_kinds.KINDS, *emulated_kinds.ASLEEP],
        action="append",
        help="of `emulated_kinds`; may be given again",
    )
    parser.add_argument("--late-runs", type=int, help="of each cause in `telemetry`; its goals are for 20")
    parser.add_argument(
        "--data", type=Path, help="the folder of measured figures that `predict` and `predict_jobs` are held against"
    )
    parser.add_argument("--kept-sweeps", type=Path, help="the folder in which `sweeps` and `searches` continue")
    parser.add_argument(
        "--output", type=Path, help=f"where the table goes; {RESULTS.name} beside this, none if --quick"
    )
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # jobs, engines and folders are cleaned up
    output = args.output or (None if args.quick else RESULTS)
    os.environ["OMP_NUM_THREADS"] = "1"
    settings = QUICK if args.quick else FULL
    settings = replace(
        settings,
        long_log=args.collectives or settings.long_log,
        kinds=tuple(args.kind or ()),
        late_runs=args.late_runs or settings.late_runs,
        data=args.data,
        kept_sweeps=args.kept_sweeps,
    )
    measured: dict[str, str] = {}
    failed = False
    for name in args.only or SECTIONS:
        title, measure = SECTIONS[name]
        print(f"bench: {title}", file=sys.stderr, flush=True)
        before = Circumstances.now()
        with tempfile.TemporaryDirectory(prefix="prismdbg-bench-") as folder:
            try:
                found = measure(settings, Path(folder))
            except (PrismError, BenchError) as error:
                print(f"bench: not measured: {error}", file=sys.stderr)
                failed = True
                continue
        measured[title] = render(title, found, before.say())
        print(measured[title], flush=True)
        if output is not None:
            merge(output, measured, [title for title, _ in SECTIONS.values()])
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
