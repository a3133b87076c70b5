"""`python -m tests.faults N [--seed S] [--only KIND] [--without KIND]`: injects N faults into jobs. `make faults`.

One line a job and a summary; exit code 1 where a job ended otherwise than bare. A seed gives the same choice again.
"""

# ruff: noqa: E402  the tests' own modules are found only once their folders are on the path

from __future__ import annotations

import argparse
import itertools
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "integration")]

from tests.faults.jobs import KINDS, PHASES, Kind, bare, inject

LEAST_OF_A_JOB = 2  # faults: a job takes longer than they do
MOST_FAILED = 8  # jobs: then it is no use to go on


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("--only", choices=[kind.name for kind in KINDS])
    parser.add_argument("--without", choices=[kind.name for kind in KINDS], action="append", default=[])
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # its jobs end with it
    print(f"seed {args.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="faults-bare-") as home:
        results = bare(Path(home))
    began, done, failed, aborted = time.monotonic(), Counter[str](), 0, 0
    chosen = [kind for kind in KINDS if args.only in (None, kind.name) and kind.name not in args.without]
    turns = in_turn(chosen, args.seed)
    share = max(LEAST_OF_A_JOB, min(PHASES, args.count // len(turns)))
    for number, (kind, python_kernels) in enumerate(itertools.cycle(turns)):
        if done.total() >= args.count or failed >= MOST_FAILED:
            break
        most = min(share, args.count - done.total())
        outcome = inject(kind, most, args.seed + number, results, python_kernels=python_kernels)
        done[kind.name] += len(outcome.injected)
        aborted += outcome.aborted
        kernels = "Python" if python_kernels else "native"
        print(f"{done.total()}/{args.count} {kind.name} ({kernels}): {', '.join(outcome.injected)}", flush=True)
        for wrong in outcome.wrong:
            print(f"  WRONG: {wrong}", flush=True)
        if outcome.wrong:
            failed += 1
            print("  " + outcome.output[-3000:].replace("\n", "\n  "), flush=True)
    counts = ", ".join(f"{name} {count}" for name, count in done.items())
    print(
        f"{done.total()} faults in {time.monotonic() - began:.0f} s ({counts}): {failed} jobs ended otherwise than bare"
    )
    if aborted:
        print(f"{aborted} jobs were run again: torch's gloo ended a process of theirs, as it does with bare ones")
    return 1 if failed else 0


def in_turn(chosen: Sequence[Kind], seed: int) -> list[tuple[Kind, bool]]:
    """Each kind with each kernels (True: the Python ones), so that however many come first are of all kinds and of both
    kernels alike."""
    shuffled = random.Random(seed).sample(chosen, len(chosen))
    return [(kind, (at + again) % 2 == 1) for again in range(2) for at, kind in enumerate(shuffled)]


if __name__ == "__main__":
    sys.exit(main())
