"""`make gpu`: all that needs one GPU, in less than ten minutes; the outcome is docs/gpu-results.md.

Needs torch with CUDA and prismdbg's own dependencies; no network, CRIU or Docker. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import torch

from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.native import build
from tests.gpu import machine
from tests.gpu.checks import CHECKS, TIMED, Rows, Skipped
from tests.gpu.jobs import Failed, Jobs
from tests.gpu.results import Outcome, as_page

PAGE = machine.ROOT / "docs" / "gpu-results.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=[check.__name__ for check in CHECKS], default=[])
    parser.add_argument("--pairs", type=int, default=3, help="of bare and recorded jobs that are timed (default: 3)")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, with a tiny model; writes no page")
    parser.add_argument("-o", "--output", type=Path, default=PAGE, help="the page that is written")
    asked = parser.parse_args()
    if not torch.cuda.is_available() and not asked.rehearse:
        print(f"skipped: torch {torch.__version__} finds no GPU here")
        return 0
    sized = ("--device", "cpu", "--width", "64", "--layers", "2", "--batch", "2") if asked.rehearse else ()
    chosen = [check for check in CHECKS if not asked.only or check.__name__ in asked.only]
    outcomes: dict[str, Outcome] = {}

    def done(outcome: Outcome) -> None:
        outcomes[outcome.name] = outcome
        if not asked.rehearse:  # what is known so far: the machine may be wanted back
            found = [outcomes[check.__name__] for check in chosen if check.__name__ in outcomes]
            asked.output.write_text(as_page(found, machine.describe(), datetime.now(UTC), time.monotonic() - began))

    began = time.monotonic()
    build.build(cache_dir())  # before any check needs it
    with tempfile.TemporaryDirectory(prefix="prismdbg-gpu-") as folder:
        jobs = {check: Jobs(Path(folder) / check.__name__, asked.pairs, sized) for check in chosen}
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
            side_by_side = [check for check in chosen if check not in TIMED]
            for outcome in pool.map(outcome_of, side_by_side, [jobs[check] for check in side_by_side]):
                done(outcome)
        for check in chosen:
            if check in TIMED:
                done(outcome_of(check, jobs[check]))
    return int(any(outcome.failure for outcome in outcomes.values()))


def outcome_of(check: Callable[[Jobs], Rows], jobs: Jobs) -> Outcome:
    began = time.monotonic()
    rows: Rows = []
    failure = skipped = ""
    try:
        rows = check(jobs)
    except Skipped as error:
        skipped = str(error)
    except Failed as error:
        failure = str(error)
    except Exception as error:  # of one check; the others are still worth the machine's time
        traceback.print_exc()
        failure = repr(error)
    how = f"FAILED: {failure}" if failure else f"skipped: {skipped}" if skipped else "passed"
    head = f"{check.__name__}: {how} ({time.monotonic() - began:.0f} s)"
    print("\n".join([head, *(f"  {name}: {value}" for name, value in rows)]), flush=True)
    return Outcome(name=check.__name__, what=check.__doc__ or "", rows=rows, failure=failure, skipped=skipped)


if __name__ == "__main__":
    sys.exit(main())
