"""The command: `python -m tests.fuzz N [--seed S]`. One line for each input that was not well received, then a summary.

What fails is kept below `--keep`; `python -m tests.fuzz --seed S --only NUMBER` makes the same input again.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.harness import Fuzzer, Tally

SAID_EVERY_S = 30.0
CLONE_NEWNS = 0x20000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("inputs", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=None, help="the same inputs again")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    parser.add_argument("--only", type=int, help="this input alone")
    parser.add_argument("--found", type=Path, nargs="+", default=[], help="these kept inputs, to every command")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most so long")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-failures"))
    args = parser.parse_args()
    seed = secrets.randbelow(1 << 31) if args.seed is None else args.seed
    first, beyond = (args.first, args.first + args.inputs) if args.only is None else (args.only, args.only + 1)
    numbers = range(len(args.found)) if args.found else range(first, beyond)
    with tempfile.TemporaryDirectory(prefix="prismdbg-fuzz-") as folder, in_memory(folder):
        fuzzer = Fuzzer(Path(folder) / "f", seed, args.keep.absolute())
        fuzzer.found = [path.absolute() for path in args.found]
        tally = run(fuzzer, numbers, args.seconds)
    return 1 if tally.failures else 0


@contextlib.contextmanager
def in_memory(folder: str) -> Iterator[None]:
    """A file system in memory there, which this process alone sees and which goes with it, where it may make one. Not
    below /dev/shm, which is made in another way for a rank."""
    if os.geteuid() or ctypes.CDLL(None).unshare(CLONE_NEWNS):
        yield
        return
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def run(fuzzer: Fuzzer, numbers: range, seconds: float) -> Tally:
    seed = fuzzer.seed
    began = said = time.monotonic()
    tally, told = Tally(), 0
    for tally in fuzzer.run(numbers):
        for failure in tally.failures[told:]:
            print(f"{failure.line}: {failure.text}")
            again = (
                f"--found {fuzzer.found[failure.number]}" if fuzzer.found else f"--seed {seed} --only {failure.number}"
            )
            print(f"    again: python -m tests.fuzz {again}", flush=True)
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
