"""Every command that reads what it is given, as far as it goes before anything is run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NoReturn
from unittest.mock import patch

from prismdbg.errors import FacilityError
from prismdbg.jobs.replay.later_files import later_files
from prismdbg.runtime.environment import Environment
from prismdbg.runtime.spec import ProgramOrigin, ReplaySpec
from prismdbg.runtime.starter_spec import Isolation, make_folders, write_spec
from tests.fuzz.inputs import PACKED, Made

FURTHER_COMMANDS = 4
LOOKED_THROUGH = 300
NOT_RUN = "the fuzzer runs nothing"


class NowhereRuntime:
    """Takes every plan, and starts none: what a starter would fail at, fails here."""

    name = "nowhere"

    def refuses(self, spec: ReplaySpec) -> str:
        make_folders(spec.session)
        write_spec(spec, Isolation.NONE, files=spec.files)
        for path in (*spec.folders, *spec.absent, *(file.target for file in spec.files)):
            _could_be_made(path)
        if isinstance(program := spec.origin, ProgramOrigin):
            _could_be_started(program)
        return NOT_RUN


def _could_be_made(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        Path(path).stat()  # ENAMETOOLONG is a defect
    assert path.startswith("/") and path.count("/") < 500, f"no folders that deep: {path[:80]}"


def _could_be_started(program: ProgramOrigin) -> None:
    """By the bounds of execve(2)."""
    assert program.argv, "no program to start"
    _could_be_made(program.cwd)
    _could_be_made(program.executable)
    variables = [f"{name}={value}" for name, value in program.env.items()]
    sizes = [len(os.fsencode(text)) + 1 for text in (*program.argv, *variables)]
    assert max(sizes) <= 128 << 10 and sum(sizes) <= 6 << 20, "more than a program can be started with"
    assert all(name and "=" not in name for name in program.env), "a variable without a name"


def lines_for(made: Made, corpus_script: Path, rng: Random) -> list[list[str]]:
    """Argument lists for `prismdbg`; the first there is, which reads most, and some of the rest."""
    first, *rest = _all_lines(made, corpus_script)
    return [first, *rng.sample(rest, min(len(rest), FURTHER_COMMANDS))]


def _all_lines(made: Made, corpus_script: Path) -> list[list[str]]:
    """What they write goes into `out`, beside the input."""
    path, out = str(made.path), str(made.path.parent / "out")
    match made.base:
        case "start" | "image":
            return _of_capsule(path, out, made)
        case "run" | "emulated":
            return _of_run(path, out)
        case "graph":
            return [["graph", "simulate", path], ["graph", "critical-path", path], ["open", path], ["list", path],
                    ["graph", "what-if", path, "--slow-rank", "0=2"]]  # fmt: skip
        case "cluster":
            graph = str(corpus_script.parent / "graph.npz")
            return [["graph", "simulate", graph, "--cluster", path], ["open", graph, "--cluster", path]]
    return [["replay", str(corpus_script.parent / "start"), "--script", path]]


def _of_capsule(path: str, out: str, made: Made) -> list[list[str]]:
    folder = [["pack", path, "-o", f"{out}.tar.zst"]] if made.path.name != PACKED else [["unpack", path, "-o", out]]
    return [
        ["verify", path], ["verify", "--json", path], ["inspect", "--files", path], ["inspect", "--json", path],
        ["list", str(made.path.parent)], ["why", path], ["open", path], *folder,
        ["memory", path], ["memory", path, "--by", "stack", "--export", f"{out}.pickle"],
        ["memory", path, "--at", "1.1"], ["graph", "build", path, "--no-replay", "-o", f"{out}.npz"], ["build", path],
        ["replay", path], ["replay", path, "--source", str(made.path.parent)], ["debug", path],
    ]  # fmt: skip


def _of_run(path: str, out: str) -> list[list[str]]:
    return [
        ["status", path], ["status", path, "--json"], ["why", path], ["why", path, "--json"], ["list", path],
        ["memory", path], ["inspect", path, "--rank", "0"], ["graph", "build", path, "-o", f"{out}.npz"],
        ["graph", "build", path, "--as-recorded", "-o", f"{out}.2.npz"], ["open", path], ["open", path, "--rank", "1"],
    ]  # fmt: skip


@contextlib.contextmanager
def nothing_runs(scratch: Path) -> Iterator[None]:
    """Where a rank or an engine would be started, and where sessions lie otherwise."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise FacilityError(NOT_RUN)

    def nowhere(*_: object, **__: object) -> NowhereRuntime:
        return NowhereRuntime()

    with contextlib.ExitStack() as stack:
        for name in ("prismdbg.jobs.replay.replay.choose", "prismdbg.debugger.time_travel.choose"):
            stack.enter_context(patch(name, nowhere))
        stack.enter_context(patch("prismdbg.jobs.replay.build.engine", refused))
        stack.enter_context(patch("prismdbg.jobs.storage.run_environment.scan", lambda *_: Environment(())))
        stack.enter_context(
            patch("prismdbg.jobs.replay.replay_plan.make_inject_folder", Path.mkdir)
        )  # slow, and all ours
        few = partial(later_files, most=LOOKED_THROUGH)  # a capsule may name all of this machine
        stack.enter_context(patch("prismdbg.jobs.replay.replay_plan.later_files", few))
        stack.enter_context(patch("prismdbg.jobs.capture.agent_sockets.HOMES", (scratch,)))
        for name in ("sessions_base", "images_base"):
            stack.enter_context(patch(f"prismdbg.jobs.replay.session_folder.{name}", lambda: scratch / "sessions"))
        yield
