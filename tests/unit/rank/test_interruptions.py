"""What a signal's handler or another thread raises while the recorder runs is for the program."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.log.format import StepSource
from prismdbg.rank.program import children, interruptions
from prismdbg.rank.program.children import Command, Outcome
from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.rank.program.stderr import say
from prismdbg.rank.recording.inputs import overwritten
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
from prismdbg.rank.recording.inputs.outcomes import Outcomes
from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.recording.recorded_rank import Recording
from prismdbg.settings.rank_config import Mode, RankConfig

ROOT = Path(__file__).parents[3]
Action = Callable[..., Any]


class Preempted(Exception):
    pass


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise Preempted


def raises(number: int, frame: Any) -> None:
    raise ValueError("late")


def takes_all(*_: Any) -> None:
    raise TimeoutError(110, "Connection timed out")


def deep(number: int, frame: Any) -> None:
    json.loads("{")


@pytest.fixture(params=[raises, takes_all, Handler(), deep, lambda _number, _frame: 1 / 0])
def interrupt(request: pytest.FixtureRequest) -> Iterator[Action]:
    """Is interrupted by a signal, whose handler raises."""
    before = signal.signal(signal.SIGUSR1, request.param)
    yield lambda *_, **__: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def caught(action: Action) -> Exception:
    with pytest.raises(Exception) as raised:
        action()
    return raised.value


def test_what_a_handler_raises_is_told_apart(interrupt: Action) -> None:
    assert is_for_the_program(caught(interrupt))


def with_frame(frame: Any) -> None:
    raise KeyError


@pytest.mark.parametrize(
    "action", [lambda: 1 / 0, lambda: json.loads("{"), lambda: Path("/missing").stat(), partial(with_frame, None)]
)
def test_what_fails_by_itself_is_ours(action: Action) -> None:
    assert not is_for_the_program(caught(action))


def in_ours(action: Any) -> Action:
    """As a function of prismdbg would be."""
    moved: Action = type(action)(action.__code__.replace(co_filename=interruptions.__file__), globals())
    return moved


def test_what_another_thread_raises_in_ours_is_told_apart() -> None:
    def theirs() -> None:
        raise Preempted

    def late() -> None:
        raise TimeoutError

    def slow() -> None:
        raise TimeoutError(110, "Connection timed out")

    assert is_for_the_program(caught(in_ours(theirs))) and is_for_the_program(caught(in_ours(late)))
    assert not is_for_the_program(caught(in_ours(slow)))
    assert not is_for_the_program(caught(theirs)), "a state_dict() of the program that fails ends a snapshot"


@pytest.mark.parametrize(
    ("where", "is_it"), [("site-packages/torch/nn/a.py", True), ("site-packages/other/a.py", False), ("ast.py", True)]
)
def test_packages_are_no_part_of_python_but_torch_is_ours(where: str, is_it: bool) -> None:
    def theirs() -> None:
        raise Preempted

    path = str(Path(json.__file__).parents[1] / where)
    placed: Action = type(theirs)(theirs.__code__.replace(co_filename=path), globals())
    assert is_for_the_program(caught(placed)) == is_it


BEGAN = threading.Event()


def test_one_that_really_comes_from_another_thread() -> None:
    def wait() -> None:
        BEGAN.set()
        while True:
            pass

    main = ctypes.c_ulong(threading.get_ident())

    def send() -> None:
        BEGAN.wait()
        ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(Preempted))

    threading.Thread(target=send).start()
    assert is_for_the_program(caught(in_ours(wait)))


def recording(folder: Path, recorder: Any = None) -> Recording:
    config = RankConfig(mode=Mode.RECORD, socket_dir=str(folder), run=str(folder))
    return Recording(config, recorder or PythonRecorder(), "python", lambda *_: None)


def is_passed_on(action: Action) -> None:
    assert is_for_the_program(caught(action))


def test_the_hook_of_opened_files_passes_it_on(tmp_path: Path, interrupt: Action) -> None:
    files = OpenedFiles(str(tmp_path))
    is_passed_on(lambda: files._quietly(interrupt))
    done = []
    files._quietly(lambda: done.append(1))
    files._quietly(Path("/missing").unlink)
    assert done, "the next one is noted"


def test_a_copy_that_is_interrupted_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Action
) -> None:
    """Of a file that the program is about to write to."""
    monkeypatch.setattr(overwritten, "is_local", lambda _: True)
    (tmp_path / "file").write_text("before")
    kept, run = overwritten.Overwritten(str(tmp_path / "run")), tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(overwritten.os, "utime", interrupt)
        is_passed_on(lambda: kept.keep(str(tmp_path / "file")))
    assert not list(run.rglob("*.*"))
    kept.keep(str(tmp_path / "file"))
    assert [path.read_text() for path in run.rglob("*") if path.is_file()] == ["before"]


def test_a_started_program_s_notes_pass_it_on(interrupt: Action) -> None:
    noting = Outcomes()
    noting.listen(interrupt)
    is_passed_on(lambda: noting.start(Command(("x",), "/"), lambda: None, lambda _: None))
    noting.ended = interrupt  # type: ignore[method-assign]
    is_passed_on(lambda: children._told(noting, object(), Outcome(0)))


def test_a_recording_passes_it_on_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupt: Action
) -> None:
    class Steps(PythonRecorder):
        steps: list[int] = []

        def begin_step(self, step: int, source: int) -> None:
            self.steps.append(step)

    mine = recording(tmp_path, Steps())
    mine.folder = tmp_path
    with monkeypatch.context() as patch:
        patch.setattr(mine.recorder, "append", interrupt)
        is_passed_on(lambda: mine.note("x"))
        patch.setattr("prismdbg.rank.recording.recorded_rank.describe_group", interrupt)
        is_passed_on(lambda: mine.on_group(None))
        patch.setattr(mine, "hash_state", interrupt)
        mine.hash_at.add(3)
        is_passed_on(lambda: mine.on_step(3, StepSource.OPTIMIZER))
    assert (mine.lost, Steps.steps) == ("", [3])


def test_a_log_that_is_not_opened_for_it_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], interrupt: Action
) -> None:
    mine = recording(tmp_path)
    monkeypatch.setattr(mine, "_open", interrupt)
    is_passed_on(mine.ensure_open)
    assert "could not be opened" in mine.lost and not mine.ensure_open() and "is not recorded" in capfd.readouterr().err


def test_the_python_kernels_pass_it_on(interrupt: Action) -> None:
    recorder = PythonRecorder()
    is_passed_on(lambda: recorder._guarded(interrupt))
    assert recorder.stats()["lost"] == ""


def test_an_import_that_is_interrupted_is(interrupt: Action) -> None:
    is_passed_on(lambda: AfterImport((), lambda _: None, "")._tried(interrupt))


def test_what_is_said_passes_it_on(monkeypatch: pytest.MonkeyPatch, interrupt: Action) -> None:
    class Stream:
        write = staticmethod(interrupt)

    monkeypatch.setattr(sys, "stderr", Stream)
    is_passed_on(lambda: say("x"))


ALARMS = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from prismdbg.rank.recording.inputs.opened_files import OpenedFiles
OpenedFiles("/nowhere").install()

class Preempted(Exception):
    pass

def handler(*_):
    global raised
    raised = True
    raise Preempted

signal.signal(signal.SIGALRM, handler)
got, number = 0, 0
for alarm in range(200):
    raised = False
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0003 * (1 + alarm % 4))
        while not raised:
            number += 1
            open(f"file{number % 50}", "w").close()
            os.listdir(".")
    except Preempted:
        got += 1
print(got)
"""


def test_each_of_an_alarm_clock_s_exceptions_reaches_the_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALARMS, str(ROOT)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["200"]
