"""How the run of a process that multiprocessing started ended: what its function raised, and with which code."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import traceback
from ast import literal_eval
from multiprocessing import util
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import warm_torch

from prismdbg.rank.agent import Agent
from prismdbg.rank.program import process_runs
from prismdbg.rank.replay.replayed_rank import Replaying

ROOT = Path(__file__).parents[3]
PROGRAM = """
import multiprocessing, os, sys, traceback
from prismdbg.rank.program import process_runs

process_runs.watch(multiprocessing.process)
def say(*words): print(*words, flush=True)
process_runs.listen(lambda error: say("raised", repr(error)), lambda code: say("ended", code))

def fails():
    raise ValueError("x")

def run():
    {body}

if __name__ == "__main__":
    process = multiprocessing.get_context(sys.argv[1]).Process(target=run)
    process.start()
    process.join()
    print("code", process.exitcode)
"""
BODIES = [
    ("pass", "", 0),
    ("fails()", "raised ValueError('x')", 1),
    ("raise KeyboardInterrupt", "raised KeyboardInterrupt()", 1),
    ("sys.exit(3)", "", 3),
    ("raise SystemExit", "", 0),
    ("try: fails()\n    except ValueError: traceback.print_exc()", "", 0),
    ("util = multiprocessing.util; util._exit_function = lambda: None; fails()", "raised ValueError('x')", 1),
]


def run(body: str, method: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "program.py"
    script.write_text(PROGRAM.replace("{body}", body))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, str(script), method]
    return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(("body", "raised", "code"), BODIES)
def test_what_a_forked_one_raises_and_its_code_are_told_once(body: str, raised: str, code: int, tmp_path: Path) -> None:
    done = run(body, "fork", tmp_path)
    assert done.stdout.splitlines() == [*filter(None, [raised]), f"ended {code}", f"code {code}"], done.stderr
    assert "prismdbg" not in done.stderr.replace(str(tmp_path), ""), "the traceback has frames of ours"


IN_AN_EXCEPTION = """
    try:
        raise OSError("no fast network here")
    except OSError:
        process = multiprocessing.get_context(sys.argv[1]).Process(target=run)
        process.start()
        process.join()
"""


def test_what_the_parent_handles_when_it_forks_is_no_exception_of_the_child(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    begin, _, _ = PROGRAM.replace("{body}", "pass").partition("    process = ")
    script.write_text(begin + IN_AN_EXCEPTION)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line = [sys.executable, str(script), "fork"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["ended 0"], done.stderr


class Odd:
    """A target that can be called, and not be asked for anything."""

    def __call__(self) -> None:
        """Does nothing."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


@pytest.mark.parametrize("make", [Odd, lambda: functools.partial(print, end="").__call__, lambda: str.upper])
def test_an_odd_target_runs_as_it_would(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper around its run, in a process that looks forked."""
    module: Any = SimpleNamespace(BaseProcess=type("BaseProcess", (), {"_bootstrap": lambda self: 0}))
    process_runs.watch(module)
    process = module.BaseProcess()
    process._target, process._args, process._identity, process._parent_pid = make(), (), (1,), process_runs._known
    monkeypatch.setattr(process_runs, "_known", process_runs._known)
    monkeypatch.setattr(process_runs, "_watch_exceptions", lambda _: None)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    monkeypatch.setattr(process_runs, "_ended", [])
    assert process._bootstrap() == 0


def test_functions_that_are_called_in_other_ways_are_told_apart() -> None:
    def of(target: Any) -> str:
        return process_runs.runs(SimpleNamespace(_target=target, _args=()))

    one, other = [
        lambda: 1,
        lambda: 2,
    ]
    assert of(functools.partial(functools.partial(run, "pass"), "fork")) == of(run) != of(functools.partial(print))
    assert of(one) != of(other)


@pytest.mark.parametrize("call", [lambda: process_runs.tell(ValueError()), lambda: process_runs.tell_end(0)])
def test_who_listens_never_fails_the_run(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise RuntimeError("no log")

    monkeypatch.setattr(process_runs, "_raised", [fails])
    monkeypatch.setattr(process_runs, "_ended", [fails])
    call()


def test_the_end_of_a_spawned_one_is_left_to_atexit(tmp_path: Path) -> None:
    done = run("fails()", "spawn", tmp_path)
    assert done.stdout.splitlines() == ["raised ValueError('x')", "code 1"], done.stderr


OF_LATER_PYTHON = """
def _bootstrap(self):
    import traceback
    try:
        self.run()
    except BaseException:
        traceback.print_exc()
    return 1
"""


def test_a_python_that_does_not_call_its_exit_function_tells_when_it_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module, name in ((util, "_exit_function"), (traceback, "print_exc")):
        monkeypatch.setattr(module, name, getattr(module, name))
    names: dict[str, Any] = {"__name__": process_runs.MODULE}
    exec(OF_LATER_PYTHON, names)
    process = SimpleNamespace(BaseProcess=type("BaseProcess", (), {"_bootstrap": names["_bootstrap"]}))
    found: list[BaseException] = []
    monkeypatch.setattr(process_runs, "_raised", [found.append])
    error = ValueError("x")

    def fails() -> None:
        raise error

    process_runs.watch(process)
    one = process.BaseProcess()
    one.run = fails
    assert (one._bootstrap(), found) == (1, [error])
    assert "ValueError: x" in capsys.readouterr().err


FORKS = """
import multiprocessing, os
from prismdbg.rank.program import process_runs

process_runs.watch(multiprocessing.process)
class Trains(multiprocessing.Process):
    def run(self): tell()

def tell():
    print(process_runs.forked(), flush=True)

def in_process(run=tell):
    process = multiprocessing.Process(target=run)
    process.start()
    process.join()

def in_fork(run=tell):
    if os.fork():
        os.wait()
    else:
        run()
        os._exit(0)

def nested(): in_process()
def forks(): in_fork()

tell()
in_process()
in_process(nested)
one = Trains()
one.start()
one.join()
in_fork()
in_fork(in_process)
in_process(forks)
in_process([].clear)
"""


def test_the_forks_by_which_it_came_about_are_known(tmp_path: Path) -> None:
    """Unless the program forked by itself on the way."""
    (tmp_path / "program.py").write_text(FORKS)
    line, environment = [sys.executable, str(tmp_path / "program.py")], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert [*map(literal_eval, done.stdout.splitlines())] == [
        None,
        ["1 __main__.tell"],
        ["2 __main__.nested", "2.1 __main__.tell"],
        ["3 __main__.Trains"],
        [],
        [],
        [],
    ], done.stderr
    assert done.stderr == ""


HOOKED = """
import multiprocessing
import torch.multiprocessing
from prismdbg.rank.program import process_runs
from prismdbg.rank.recording import exception_hooks

class Witness:
    def exception(self, report, error): print("noted", report["type"], "thread" in report, flush=True)
    def end(self, code): print("told", code, flush=True)

process_runs.watch(multiprocessing.process)
exception_hooks.install(Witness())

def fails(number):
    raise ValueError(number)

{start}
"""
TORCHS = "try: torch.multiprocessing.start_processes(fails, nprocs=1, start_method='fork')\nexcept Exception: pass"
PLAIN = "process = multiprocessing.Process(target=fails, args=(0,)); process.start(); process.join()"


@pytest.mark.parametrize("start", [TORCHS, PLAIN])
def test_it_is_one_incident_whoever_catches_it(start: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(HOOKED.replace("{start}", start))
    [(code, printed)] = warm_torch.run([script])
    told = [line for line in printed.splitlines() if line.startswith(("noted", "told"))]
    assert (code, told) == (0, ["noted ValueError False", "told 1", "told 0"]), printed


def test_what_a_child_of_a_replayed_rank_raises_is_not_the_ranks() -> None:
    replaying = object.__new__(Replaying)
    told: list[object] = []
    replaying.agent = cast(Agent, SimpleNamespace(publish=told.append))
    replaying.is_child = True
    replaying.exception({"type": "ValueError", "text": "x"}, ValueError("x"))
    assert told == []


def test_it_is_watched_from_the_start(tmp_path: Path) -> None:
    """Of a job that is recorded, before its program's first line; torch may be imported by what the process runs."""
    (tmp_path / "config").write_text("{}")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "prismdbg" / "rank" / "inject"), str(ROOT)]),
        "PRISMDBG_CONFIG": str(tmp_path / "config"),
    }
    program = "import multiprocessing; print(multiprocessing.Process._bootstrap.__wrapped__.__name__)"
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("_bootstrap\n", "")
