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
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "integration")]

from tests.faults.jobs import KINDS, PHASES, bare, inject

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
    began, done, failed = time.monotonic(), Counter[str](), 0
    chosen = [kind for kind in KINDS if args.only in (None, kind.name) and kind.name not in args.without]
    turns = itertools.cycle(itertools.product((False, True), chosen))
    for number, (python_kernels, kind) in enumerate(turns):
        if done.total() >= args.count or failed >= MOST_FAILED:
            break
        most = min(PHASES, args.count - done.total())
        outcome = inject(kind, most, args.seed + number, results, python_kernels=python_kernels)
        done[kind.name] += len(outcome.injected)
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
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
