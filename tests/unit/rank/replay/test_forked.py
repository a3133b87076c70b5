"""A program that is started again goes on as the process that became the rank, where it would fork it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from prismdbg.capsule.spawned import NOT_RECORDED
from prismdbg.jobs.injection import PACKAGE
from prismdbg.settings import seeds
from prismdbg.settings.rank_config import FORKED_VARIABLE

PROGRAM = """
import multiprocessing, os, random, sys
from multiprocessing.connection import wait

first = os.getpid()

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # whole, though others write at the same time

def train(number):
    say("rank", number, os.getpid() == first, multiprocessing.current_process().name, "PRISMDBG_FORKED" in os.environ)
    say("drew", random.random(), random.Random().random(), multiprocessing.parent_process().is_alive())
    worker = multiprocessing.Process(target=other, name="worker")
    worker.start()
    worker.join()
    if number == 1:
        raise ValueError("a shard is missing")
    sys.exit(number)

def other():
    say(multiprocessing.current_process().name, os.getpid() != first)

def start(function, *arguments, **options):
    process = multiprocessing.Process(target=function, args=arguments, **options)
    process.start()
    return process

if __name__ == "__main__":
    multiprocessing.set_start_method("fork")
    random.random()
    start(other, name="logger").join()
    {ranks}
"""
RANKS = """
    ranks = [start(train, number) for number in range(4)]
    for rank in ranks: rank.join()
    say([rank.exitcode for rank in ranks])
"""
Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The lines that a program prints and its exit code, as a replay starts it, with these forks if it is one."""
    (tmp_path / "inject").mkdir()
    hooks = (PACKAGE / "rank" / "inject" / "sitecustomize.py").read_text()
    (tmp_path / "inject" / "sitecustomize.py").write_text(hooks)
    (tmp_path / "inject" / "prismdbg").symlink_to(PACKAGE)
    (tmp_path / "config").write_text(json.dumps({"seeds": seeds.of_number(1)}))

    def started(ranks: str, *forks: str) -> list[str]:
        (tmp_path / "train.py").write_text(PROGRAM.replace("{ranks}", ranks.strip()))
        environment = {
            **os.environ,
            "PYTHONPATH": str(tmp_path / "inject"),
            "PRISMDBG_CONFIG": str(tmp_path / "config"),
            seeds.WANTED: "1",
            FORKED_VARIABLE: "\n".join(forks),
        }
        line = [sys.executable, "train.py"]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        errors = [line for line in done.stderr.splitlines() if line.startswith(("ValueError", "prismdbg"))]
        return [*done.stdout.splitlines(), *errors, f"code {done.returncode}"]

    return started


@pytest.mark.parametrize(("number", "end"), [(0, "code 0"), (1, "code 1"), (3, "code 3")])
def test_it_goes_on_as_its_child(run: Run, number: int, end: str) -> None:
    """Its siblings are not started. What else the program or the rank starts is."""
    again = run(RANKS, f"{number + 2} __main__.train")
    raised = ["ValueError: a shard is missing"] if number == 1 else []
    assert again[1] == f"rank {number} True Process-{number + 2} False"
    assert [again[0], *again[3:]] == ["logger True", "worker True", *raised, end]
    first = run(RANKS)
    assert f"rank {number} False Process-{number + 2} False" in first
    assert again[2] in first and again[2].endswith(" True")


def test_of_a_process_in_a_process_all_are_gone_through(run: Run) -> None:
    ranks = "def outer(): start(train, 0); start(train, 2).join()\n    start(outer); start(outer).join()"
    first, again = run(ranks), run(ranks, "3 __main__.outer", "3.2 __main__.train")
    assert [again[0], again[1], *again[3:]] == [
        "logger True", "rank 2 True Process-3:2 False", "worker True", "code 2",
    ]  # fmt: skip
    assert first.count(again[2]) == 1


WAITS = """
    go, met, stop = multiprocessing.Event(), multiprocessing.Barrier(2), multiprocessing.Event()
    def waits(number):
        own = multiprocessing.Event()
        say(number, type(go).__name__, isinstance(go, type(own)), go.wait(), met.wait() in (0, 1))
        say(stop.is_set(), stop.wait(0.01))
        say(own.wait(0.01), own.set(), own.wait())
    ranks = [start(waits, number) for number in range(2)]
    go.set()
    for rank in ranks: rank.join()
"""


def test_the_rank_waits_for_no_sibling_and_no_parent(run: Run) -> None:
    assert run(WAITS, "3 __main__.waits") == [
        "logger True", "1 Event True True True", "False False", "False None True", "code 0",
    ]  # fmt: skip


HEARS = """
    mine, theirs = multiprocessing.Pipe()
    def hears(connection, others):
        others.close()
        try:
            say(connection.recv())
        except RuntimeError as error:
            say(error)
    rank = start(hears, theirs, mine)
    mine.send(4)
    rank.join()
"""


def test_what_only_its_parent_would_send_is_not_known(run: Run) -> None:
    """Else the rank would take it for the end of the others, and the replay would diverge."""
    found = run(HEARS, "2 __main__.hears")
    assert [line for line in found if NOT_RECORDED in line], found


def test_siblings_live_until_somebody_waits_for_their_end(run: Run) -> None:
    ranks = (
        "one, two, three = (start(train, number) for number in range(3))\n"
        "    say(one.is_alive(), one.exitcode, one.join(0), one.exitcode, one.join(5), one.exitcode)\n"
        "    two.terminate()\n"
        "    say(two.is_alive(), two.exitcode, len(wait([three.sentinel])), three.join(), three.exitcode)\n"
        "    one.close()\n"
        "    start(train, 3)"
    )
    again = run(ranks, "5 __main__.train")
    assert again[:3] == ["logger True", "True None None None None 0", "False -15 1 None 0"]
    assert again[3].startswith("rank 3 True ") and again[-1] == "code 3"


def test_a_program_that_does_not_come_to_it_is_told_so(run: Run) -> None:
    listen = "from prismdbg.rank.program import process_runs; process_runs.listen(say, say)\n    "
    text = f"{NOT_RECORDED}: why the program did not start its process 3, which ran __main__.train"
    for listens, told in (("", []), (listen, [text])):
        said = run(f"{listens}start(other, name='else').join()", "3 __main__.train")
        assert said == ["logger True", "else True", *(["0"] if listens else []), *told, text, "code 0"]
