"""The command: `python -m tests.fuzz N [--seed S]`. One line for each input that was not well received, then a summary.

What fails is kept below `--keep`; `python -m tests.fuzz --seed S --only NUMBER` makes the same input again.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.harness import Fuzzer, Tally

SAID_EVERY_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inputs", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=None, help="the same inputs again")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="this input alone")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    args = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    first, beyond = (args.first, args.first + args.inputs) if args.only is None else (args.only, args.only + 1)
    with tempfile.TemporaryDirectory(prefix="prismdbg-fuzz-", dir=in_memory()) as folder:
        tally = run(Path(folder), seed, range(first, beyond), args.seconds, args.keep.absolute())
    return 1 if tally.failures else 0


def in_memory() -> str | None:
    """What is written is synced, and a disk would take most of the time."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def run(folder: Path, seed: int, numbers: range, seconds: float, keep: Path) -> Tally:
    began = said = time.monotonic()
    tally, told = Tally(), 0
    for tally in Fuzzer(folder / "f", seed, keep).run(numbers):
        for failure in tally.failures[told:]:
            print(f"{failure.line}: {failure.text}")
            print(f"    again: python -m tests.fuzz --seed {seed} --only {failure.number}", flush=True)
        told, now = len(tally.failures), time.monotonic()
        if now - began > seconds:
            break
        if now - said > SAID_EVERY_S:
            said = now
            print(f"... {tally.inputs} inputs, {now - began:.0f} s", flush=True)
    summary(tally, seed, time.monotonic() - began)
    return tally


def summary(tally: Tally, seed: int, took_s: float) -> None:
    codes = ", ".join(f"{count} x {code}" for code, count in sorted(tally.codes.items()))
    bases = ", ".join(f"{count} of {base}" for base, count in sorted(tally.by_base.items()))
    slowest, largest = tally.slowest, tally.largest
    print(f"seed {seed}: {tally.inputs} inputs ({bases}) in {took_s:.0f} s on {os.cpu_count()} CPUs")
    print(f"  exit codes: {codes}")
    print(f"  slowest: {slowest.cpu_s:.1f} s of CPU, input {slowest.number}: {slowest.line}")
    print(f"  most memory: {largest.used_bytes >> 20} MiB, input {largest.number}: {largest.line}")
    print(f"  failures: {len(tally.failures)}")


if __name__ == "__main__":
    sys.exit(main())
