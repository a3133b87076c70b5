"""Every command that reads what it is given, as far as it goes before anything is run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import patch

from prismdbg.jobs.replay.later_files import later_files
from prismdbg.runtime.environment import Environment
from tests.fuzz.corpus import NODE, Corpus
from tests.fuzz.inputs import PACKED, Made
from tests.fuzz.places import Places

RUNS, FURTHER_COMMANDS = 2, 3
LOOKED_THROUGH = 300


def lines_for(made: Made, corpus: Corpus, rng: Random) -> list[list[str]]:
    """Argument lists for `prismdbg`: the first there is, which reads most, some that would run a rank, and some of the
    rest. Of an input that is about what the rank would see, a replay in each place."""
    (first, *rest), runs = all_lines(made, corpus)
    if made.is_of_machine:
        return [first, *runs[:RUNS], *_some(runs[RUNS:], RUNS, rng)]
    return [first, *_some(runs, RUNS, rng), *_some(rest, FURTHER_COMMANDS, rng)]


def _some(lines: list[list[str]], most: int, rng: Random) -> list[list[str]]:
    return rng.sample(lines, min(len(lines), most))


def all_lines(made: Made, corpus: Corpus) -> tuple[list[list[str]], list[list[str]]]:
    """Those that read, and those that would run a rank. What they write goes into `out`, beside the input."""
    path, out = str(made.path), str(made.path.parent / "out")
    match made.base:
        case "start" | "image" | "state":
            return _of_capsule(path, out, made), _of_a_rank(path, made, corpus)
    return _lines(made, path, out, corpus), []


def _lines(made: Made, path: str, out: str, corpus: Corpus) -> list[list[str]]:
    match made.base:
        case "run" | "emulated":
            return _of_run(path, out)
        case "graph":
            return [["graph", "simulate", path], ["graph", "critical-path", path], ["open", path], ["list", path],
                    ["graph", "what-if", path, "--slow-rank", "0=2"]]  # fmt: skip
        case "profiles" | "executions" | "nodes" | "dumps":
            return _of_traces(path, out)
        case "snapshot":
            return [["memory", path], ["memory", path, "--by", "stack", "--export", f"{out}.pickle"],
                    ["memory", path, "--at", "0.0.2", "--json", "--flame", f"{out}.json"],
                    ["memory", path, "--diff", "0.0.1", "0.0.3"]]  # fmt: skip
        case "sweep":
            return [["open", path], ["open", path, "--picture", f"{out}.svg"], ["list", path]]
        case "cluster":
            graph = str(corpus.bases["graph"])
            return [["graph", "simulate", graph, "--cluster", path], ["open", graph, "--cluster", path]]
    return [["replay", str(corpus.bases["start"]), "--script", path]]


def _of_capsule(path: str, out: str, made: Made) -> list[list[str]]:
    folder = [["pack", path, "-o", f"{out}.tar.zst"]] if made.path.name != PACKED else [["unpack", path, "-o", out]]
    return [
        ["verify", path], ["verify", "--json", path], ["inspect", "--files", path], ["inspect", "--json", path],
        ["list", str(made.path.parent)], ["why", path], ["open", path], *folder,
        ["inspect", "--secrets", path], ["inspect", "--secrets", "--json", path],
        ["pack", "--share", path, "-o", f"{out}.1.tar.zst"],
        ["pack", "--share", "--redact", path, "-o", f"{out}.2.tar.zst"],
        ["pack", "--share-anyway", path, "-o", f"{out}.3.tar.zst"],
        ["memory", path], ["memory", path, "--by", "stack", "--export", f"{out}.pickle"],
        ["memory", path, "--at", "1.1"], ["graph", "build", path, "--no-replay", "-o", f"{out}.npz"],
        ["graph", "build", path, "--mesh", "dp=2", "--alike", "dp", "--no-replay", "-o", f"{out}.npz"],
        ["telemetry", path], ["diff", path, path],
        ["export", path, "--format", "flight-recorder", "-o", f"{out}.dumps"],
        ["export", path, "--format", "perfetto", "-o", f"{out}.pftrace"], ["report", path, "-o", f"{out}.html"],
    ]  # fmt: skip


def _of_a_rank(path: str, made: Made, corpus: Corpus) -> list[list[str]]:
    source = [["replay", path, "--source", str(corpus.edited)]] if made.base in ("start", "state") else []
    return [
        ["replay", path, "--runtime", "local"], ["replay", path, "--runtime", "docker"],
        ["build", path], ["replay", path, "--runtime", "plain", "--allow-writes"], *source,
        ["replay", path, "--script", str(corpus.bases["script"])], ["replay", path, "--until", "1.1"],
        ["debug", path, "--runtime", "local"], ["debug", path, "--runtime", "docker"], ["memory", path, "--at", "1.1"],
        ["graph", "build", path, "--mesh", "dp=2", "--alike", "dp", "-o", f"{path}.npz"],
    ]  # fmt: skip


def _of_run(path: str, out: str) -> list[list[str]]:
    return [
        ["status", path], ["status", path, "--json"], ["why", path], ["why", path, "--json"], ["list", path],
        ["memory", path], ["inspect", path, "--rank", "0"], ["graph", "build", path, "-o", f"{out}.npz"],
        ["graph", "build", path, "--mesh", "dp=2", "-o", f"{out}.3.npz"], ["diff", path, "--rank", "0", "--rank", "1"],
        ["graph", "build", path, "--as-recorded", "-o", f"{out}.2.npz"], ["open", path], ["open", path, "--rank", "1"],
        ["export", path, "--format", "flight-recorder", "-o", f"{out}.dumps"],
        ["export", path, "--format", "perfetto", "-o", f"{out}.pftrace"], ["report", path, "-o", f"{out}.html"],
        ["export", path, "--format", "chakra", "-o", f"{out}.nodes"],
        ["telemetry", path], ["telemetry", path, "--export", "csv", "-o", f"{out}.csv"],
        ["doctor", "--job", path], ["doctor", "--job", path, "--json"],
    ]  # fmt: skip


def _of_traces(path: str, out: str) -> list[list[str]]:
    return [
        ["why", path], ["why", path, "--json"], ["open", path],
        ["graph", "build", path, "--mesh", "dp=2", "-o", f"{out}.npz"],
        ["graph", "build", path, "--mesh", "dp=2", "--as-recorded", "-o", f"{out}.2.npz"],
        ["export", path, "--format", "chakra", "-o", f"{out}.nodes"], ["report", path, "-o", f"{out}.html"],
        ["export", path, "--format", "perfetto", "-o", f"{out}.pftrace"], ["diff", path, "--rank", "0", "--rank", "1"],
        ["export", path, "--format", "flight-recorder", "-o", f"{out}.dumps"],
    ]  # fmt: skip


@contextlib.contextmanager
def nothing_runs(scratch: Path, bait: Path | None = None) -> Iterator[None]:
    """Where a rank or an engine would be started, and where sessions lie otherwise. `bait`: what no rank may see."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(Places(scratch, bait or scratch / "bait").replaced())
        few = partial(later_files, most=LOOKED_THROUGH)  # a capsule may name all of this machine
        for name, value in {
            "platform.node": lambda: NODE,  # a rank that is looked for is one of this machine
            "os.fsync": lambda _: None,  # most of the time, and nothing here outlives the machine
            "prismdbg.checkpoint.bundle.selftest.failure": lambda *_: "",
            "prismdbg.jobs.storage.run_environment.scan": lambda *_: Environment(()),
            "prismdbg.jobs.replay.replay_plan.make_inject_folder": Path.mkdir,  # slow, and all ours
            "prismdbg.jobs.replay.replay_plan.later_files": few,
            "prismdbg.jobs.capture.agent_sockets.HOMES": (scratch,),
            "prismdbg.jobs.replay.session_folder.sessions_base": lambda: scratch / "sessions",
            "prismdbg.jobs.replay.session_folder.images_base": lambda: scratch / "sessions",
        }.items():
            stack.enter_context(patch(name, value))
        yield
