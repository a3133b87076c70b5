"""`make gpu`: all that needs one GPU, in less than ten minutes; the outcome is docs/gpu-results.md.

Needs torch with CUDA and prismdbg's own dependencies; no network, CRIU or Docker. Without a GPU it says so and ends.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import torch

from tests.gpu import machine
from tests.gpu.checks import CHECKS, Rows, Skipped
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
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="prismdbg-gpu-") as folder:
        for check in CHECKS:
            if not asked.only or check.__name__ in asked.only:
                outcomes.append(outcome_of(check, Jobs(Path(folder) / check.__name__, asked.pairs, sized)))
    if not asked.rehearse:
        asked.output.write_text(as_page(outcomes, machine.describe(), datetime.now(UTC)))
    return int(any(outcome.failure for outcome in outcomes))


def outcome_of(check: Callable[[Jobs], Rows], jobs: Jobs) -> Outcome:
    began = time.monotonic()
    print(f"{check.__name__} ...", flush=True)
    rows: Rows = []
    failure = skipped = ""
    try:
        rows = check(jobs)
    except Skipped as error:
        skipped = str(error)
    except Failed as error:
        failure = str(error)
    outcome = Outcome(
        what=check.__doc__ or "", rows=rows, failure=failure, skipped=skipped, seconds=time.monotonic() - began
    )
    for name, value in rows:
        print(f"  {name}: {value}")
    print(
        f"  {'FAILED: ' + failure if failure else 'skipped: ' + skipped if skipped else 'passed'}"
        f" ({outcome.seconds:.0f} s)",
        flush=True,
    )
    return outcome


if __name__ == "__main__":
    sys.exit(main())
