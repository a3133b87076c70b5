"""What a task of an array is given, and what it tells."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.sweep.evaluate import evaluate
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.place import HERE, Engine, Place
from prismdbg.sweep.request import How, SweepRequest
from prismdbg.sweep.space import Space
from prismdbg.sweep.workers import array_task, ray_tasks
from prismdbg.sweep.workers.order import Order
from prismdbg.sweep.workers.ray_tasks import RayTasks
from prismdbg.sweep.workers.slurm import Slurm
from prismdbg.sweep.workers.slurm_array import SlurmArray
from prismdbg.sweep.workers.workers import workers

PROGRAM = "import sys; sys.exit(sys.argv[1] if sys.argv[1] != 'good' else 0)"


def request(path: Path) -> SweepRequest:
    """Of two real jobs of one process each."""
    return SweepRequest(
        output=path / "s",
        space=Space.parse(1, "dp,tp=1", ["say=good,bad"]),
        command=(sys.executable, "-c", PROGRAM, "{say}"),
        how=How.RECORD,
        bound_s=60.0,
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("local", HERE),
        ("slurm", Place(Engine.SLURM)),
        ("ray:10.0.0.1:6379", Place(Engine.RAY, ("10.0.0.1:6379",))),
        ("slurm:-p gpu --comment='a b'", Place(Engine.SLURM, ("-p", "gpu", "--comment=a b"))),
    ],
)
def test_a_place_is_named_with_options(text: str, place: Place) -> None:
    assert Place.parse(text) == place


@pytest.mark.parametrize("text", ["", "pbs", "slurm:--comment='a", "local:-p gpu", "local,slurm"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        Place.parse(text)
    assert raised.value.hint


def test_an_order_is_read_as_it_was_written(tmp_path: Path) -> None:
    asked = replace(request(tmp_path), steps=7, classes=("pp", "tp"), memory=True, telemetry_ns=5)
    text = Order(asked, ("say=bad",)).to_json()
    assert "\n" not in text
    assert Order.from_json(text) == Order(replace(asked, output=asked.output.absolute()), ("say=bad",))
    with pytest.raises(CapsuleError, match="unknown way"):
        Order.from_json(json.dumps({**json.loads(text), "how": "guess"}))


def test_a_task_runs_the_configuration_of_its_number_and_tells_why_it_failed(tmp_path: Path) -> None:
    asked = request(tmp_path)
    with SweepFolder.opened(asked) as folder:
        order = Order(asked, ("say=bad", "say=good")).to_json()
        bad, good = (_task(order, number) for number in range(2))
        assert (good.returncode, bad.returncode) == (0, 1)
        assert folder.is_complete("say=good") and not folder.is_complete("say=bad")
        assert bad.stdout.splitlines()[-1].startswith("error: ") and "bad" in bad.stdout.splitlines()[-1]
        with pytest.raises(UsageError, match="no rank was recorded"):
            evaluate(next(folder.trial(one) for one in asked.space.configurations() if one.name == "say=good"))


def test_a_slurm_that_is_not_installed_is_an_error_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = replace(request(tmp_path), place=Place(Engine.SLURM))
    with SweepFolder.opened(asked) as folder, pytest.raises(FacilityError, match="sbatch does not exist"):
        workers(folder, print).run([folder.trial(one) for one in asked.space.configurations()])
    with SweepFolder.opened(request(tmp_path)) as folder:
        workers(folder, print)


def test_a_ray_that_is_not_installed_is_an_error_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        SweepFolder.opened(replace(request(tmp_path), place=Place(Engine.RAY))) as folder,
        pytest.raises(FacilityError, match="Ray is not installed"),
    ):
        workers(folder, print)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a program that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def tried(tmp_path: Path, address: str, answers_s: float) -> str:
    """What a sweep on that cluster fails with, before anything ran."""
    asked = request(tmp_path)
    with SweepFolder.opened(asked) as folder, pytest.raises(FacilityError) as raised:
        RayTasks(folder, address, print, answers_s).run([folder.trial(one) for one in asked.space.configurations()])
    assert "ray start --head" in raised.value.hint
    return str(raised.value)


def test_a_ray_that_does_not_answer_is_an_error_in_time(tmp_path: Path, silent: str) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'prismdbg[ray]')")
    assert tried(tmp_path, silent, 10) == f"Ray cannot be reached: {silent} did not answer within 10 seconds"


@pytest.mark.parametrize(
    ("init", "says"),
    [
        ("import threading; threading.Event().wait()", "did not answer within 2 seconds"),
        ("raise ConnectionError('version 2.1 there, 2.2 here')", "ConnectionError: version 2.1 there, 2.2 here"),
    ],
)
def test_a_connection_is_tried_by_a_process_that_can_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, init: str, says: str
) -> None:
    """With a module in Ray's place, whose connection takes for ever or is refused."""
    (tmp_path / "ray.py").write_text(f"def init(**_):\n    {init}\ndef shutdown(): ...\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delitem(sys.modules, "ray", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert tried(tmp_path, "", 2).endswith(says)
    monkeypatch.delitem(sys.modules, "ray")


def test_a_slurm_that_does_not_answer_is_an_error_that_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sbatch").write_text(f"#!{sys.executable}\nimport threading; threading.Event().wait()\n")
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(FacilityError, match="sbatch did not answer within 1 seconds") as raised:
        Slurm((), 1.0).submit("", ())
    assert "run the same line again" in raised.value.hint


def test_while_an_array_may_run_nothing_runs_here(tmp_path: Path) -> None:
    with SweepFolder.opened(request(tmp_path)) as folder:
        (folder.path / "slurm").mkdir()
        (folder.path / "slurm" / "array.json").write_text('{"job": 17, "names": ["say=good"]}')
        with pytest.raises(UsageError, match="array 17 of Slurm may still run"):
            workers(folder, print)
        SlurmArray(folder, Slurm(()), print)


class FakeSlurm(Slurm):
    """`fails`: what its controller does after it took an array. `queued`: arrays, by name."""

    def __init__(self, folder: SweepFolder, fails: BaseException | None) -> None:
        super().__init__(())
        self.folder, self.fails = folder, fails
        self.queued: dict[str, int] = {}
        self.cancels = True

    def submit(self, script: str, options: Sequence[str]) -> int:
        (name,) = [option.partition("=")[2] for option in options if option.startswith("--job-name=")]
        assert json.loads(record(self.folder).read_text())["called"] == name, "it is on record before"
        self.queued[name] = 17 + len(self.queued)
        if self.fails is not None:
            raise self.fails
        return self.queued[name]

    def find(self, name: str) -> int:
        return self.queued.get(name, 0)

    def states(self, job: int) -> Mapping[int, str]:
        """All of its tasks have run."""
        for configuration in self.folder.request.space.configurations():
            self.folder.ran(self.folder.trial(configuration))
        return {}

    def cancel_named(self, name: str) -> None:
        if not self.cancels:
            raise FacilityError("scancel did not answer")
        del self.queued[name]


def record(folder: SweepFolder) -> Path:
    return folder.path / "slurm" / "array.json"


@pytest.mark.parametrize("fails", [FacilityError("no answer"), ValueError("no number"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("cancels", [True, False])
def test_an_array_whose_number_is_never_learned_is_not_lost(
    tmp_path: Path, fails: BaseException, cancels: bool
) -> None:
    """It is cancelled; where that fails as well, a later start joins it."""
    said: list[str] = []
    with SweepFolder.opened(request(tmp_path)) as folder:
        slurm, trials = FakeSlurm(folder, fails), list(map(folder.trial, folder.request.space.configurations()))
        slurm.cancels = cancels
        with pytest.raises(type(fails)):
            SlurmArray(folder, slurm, said.append).run(trials)
        assert (list(slurm.queued.values()), record(folder).exists()) == ([] if cancels else [17], True)
        slurm.fails = None
        assert SlurmArray(folder, slurm, said.append).run(trials) == {}
    assert len(slurm.queued) == 1 and not record(folder).exists()
    assert said[0].startswith("2 configurations: array 17 of Slurm" if cancels else "joining array 17 of Slurm")


def test_an_array_whose_number_is_not_known_is_asked_for_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "squeue", f'echo "$@" > {tmp_path}/asked; cat {tmp_path}/queued')
    program(tmp_path / "scancel", f'echo "$@" > {tmp_path}/cancelled')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with SweepFolder.opened(request(tmp_path)) as folder:
        record(folder).parent.mkdir()
        record(folder).write_text('{"job": 0, "names": ["say=good"], "called": "prismdbg-sweep-1"}')
        with pytest.raises(UsageError, match="array prismdbg-sweep-1 of Slurm may still run") as raised:
            workers(folder, print)
        assert "`scancel --name=prismdbg-sweep-1`" in raised.value.hint, "Slurm does not answer"
        (tmp_path / "queued").write_text("17\n17\n")
        with pytest.raises(UsageError, match="array 17 of Slurm may still run"):
            workers(folder, print)
        assert (tmp_path / "asked").read_text() == "--noheader --name=prismdbg-sweep-1 --format=%F\n"
        record(folder).write_text('{"job": 0, "names": ["say=good"], "called": "prismdbg-sweep-1"}')
        (tmp_path / "queued").write_text("")
        workers(folder, print)
        assert not record(folder).exists()
    Slurm(()).cancel_named("prismdbg-sweep-1")
    assert (tmp_path / "cancelled").read_text() == "--name=prismdbg-sweep-1\n"


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def _task(order: str, number: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", array_task.__name__],
        input=order,
        env={**os.environ, array_task.NUMBER: str(number)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_task_of_ray_that_failed_names_what_it_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = request(tmp_path), list[str]()
    ray = SimpleNamespace(get=str, exceptions=SimpleNamespace(RayError=KeyError))
    monkeypatch.setattr(ray_tasks, "_imported", lambda: ray)
    tasks = RayTasks(SweepFolder(asked.output, asked), "", said.append)
    assert tasks._ended("say=bad", "exit code 1", 1) == {"say=bad": "exit code 1"}
    assert tasks._ended("say=good", "", 0) == {}
    output = tmp_path / "s" / "trials" / "say=bad" / "output.txt"
    assert said == [f"say=bad failed; 1 to go: exit code 1; all it printed: {output}", "say=good: ended; 0 to go"]
