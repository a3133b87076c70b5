"""The main job again and again: record, capture a rank on its way, replay it. `make soak N=40`.

One line a round, and a summary; the first round that is not as it should be ends it with exit code 1, and its folder
is kept. Not collected by pytest.
"""

# ruff: noqa: E402  the tests' own modules are found only once their folders are on the path

from __future__ import annotations

import argparse
import itertools
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent / "integration"), str(Path(__file__).parents[1])]

import psutil
from chain import assert_identical, parameters, prismdbg, recording, replay
from jobs import EXAMPLES, plain_environment, run, torchrun

from prismdbg.jobs.replay.session_folder import sessions_base

TRAINING = ("--size", "1m", "--steps", "40", "--log-every", "1")
WINDOW = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", type=int, nargs="?", default=40)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--runtimes", nargs="+", default=["local", "docker"], help="taken in turn")
    args = parser.parse_args()
    expected = bare_end(args.ranks)
    print(f"bare: parameters {expected[0][1]}", flush=True)
    turns = zip(itertools.cycle(args.runtimes), itertools.cycle(range(args.ranks)), strict=False)
    took_s: list[float] = []
    for number, (runtime, rank) in enumerate(itertools.islice(turns, args.rounds), start=1):
        home = Path(tempfile.mkdtemp(prefix="prismdbg-soak-"))
        began = time.monotonic()
        title = f"{number}/{args.rounds} rank {rank} {runtime}"
        try:
            what = once(home, args.ranks, rank, runtime, expected)
        except Exception as error:
            print(f"{title} FAILED: {error}\nkept: {home}", flush=True)
            print(f"failed in round {number}; the {number - 1} before it were as they should be", flush=True)
            return 1
        shutil.rmtree(home)
        took_s.append(time.monotonic() - began)
        print(f"{title} {took_s[-1]:.1f} s: {what}", flush=True)
    print(
        f"all {len(took_s)} rounds as they should be: median {statistics.median(took_s):.1f} s, "
        f"longest {max(took_s):.1f} s",
        flush=True,
    )
    return 0


def bare_end(ranks: int) -> list[tuple[str, str]]:
    """The parameters that every run must end with."""
    with tempfile.TemporaryDirectory(prefix="prismdbg-soak-") as home:
        line = torchrun(EXAMPLES / "train_ddp.py", *TRAINING, ranks=ranks)
        ended = run(line, Path(home) / "output.txt", env=plain_environment())
    assert ended.code == 0, ended.output[-3000:]
    assert len(parameters(ended)) == ranks
    return parameters(ended)


def once(home: Path, ranks: int, rank: int, runtime: str, expected: list[tuple[str, str]]) -> str:
    capsule = home / "capsule"
    with recording(torchrun(EXAMPLES / "train_ddp.py", *TRAINING, ranks=ranks), home) as job:
        job.wait_for_step(rank, 2)
        said = prismdbg("capture", job.run.path, "--rank", rank, "--window", WINDOW, "-o", capsule)
        assert said.code == 0, f"capture exits {said.code}: {said.err}\n{job.job.output[-3000:]}"
        ended = job.end()
        processes = [psutil.Process(job.pid(number)) for number in range(ranks) if psutil.pid_exists(job.pid(number))]
    assert ended.code == 0, f"the job exits {ended.code}: {ended.output[-3000:]}"
    assert parameters(ended) == expected, f"another end than the bare run's: {parameters(ended)}"
    assert not processes, f"ranks are left: {processes}"
    verdict = replay(capsule, runtime=runtime)
    assert_identical(verdict, capsule)
    assert [state["equal"] for state in verdict["states"]] == [True], verdict["states"]
    left = [path for path in sessions_base().iterdir() if path.is_dir() and _mentions(path, capsule)]
    assert not left, f"sessions are left: {left}"
    manifest_span = f"{verdict['tally']['compared']} collectives to {verdict['moment']}"
    return f"{manifest_span}, replayed in {verdict['elapsed_ns'] / 1e9:.2f} s"


def _mentions(session: Path, capsule: Path) -> bool:
    spec = session / "control" / "spec.json"
    return spec.is_file() and str(capsule) in spec.read_text()


if __name__ == "__main__":
    sys.exit(main())
