"""Whose a park and a payload window are, and that nobody opens a file to see whether their client still lives."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from waiting import wait_for

from prismdbg.errors import FacilityError, UsageError, WaitTimeout
from prismdbg.jobs.capture import capture
from prismdbg.protocol.client import AgentError, NotWaitedFor
from prismdbg.protocol.wire import Message
from prismdbg.rank import recording_verbs
from prismdbg.rank.agent import Agent
from prismdbg.rank.recording import own_process
from prismdbg.rank.recording.own_process import OwnProcess
from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.recording.recorded_rank import describe_process
from prismdbg.rank.recording_verbs import Holder, Park, Window, verbs_of
from prismdbg.rank.tracing import tracer
from prismdbg.settings.process_stat import start_ticks

CONFIGURED = (False, 0, 7)
WANTED = (True, 0, 99)


class Recorder:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.windows: list[tuple[bool, int, int]] = []
        self.parks: list[bool] = []

    def window(self, *told: Any) -> None:
        self.windows.append(told)

    def park(self, on: bool) -> None:
        self.parks.append(on)

    def close_log(self) -> None: ...

    def reopen_log(self) -> None: ...


def recording() -> Any:
    config = SimpleNamespace(payload_window=CONFIGURED, window_bytes=5)
    recorder = Recorder()
    return SimpleNamespace(recorder=recorder, window=recorder.window, config=config, note=lambda *_, **__: None)


def holder(token: str, pid: int = 0) -> Holder:
    pid = pid or os.getpid()
    return Holder(pid=pid, ticks=start_ticks(pid), token=token)


def test_a_window_that_is_taken_is_nobody_elses() -> None:
    told = recording()
    window = Window(told)
    window.set(*WANTED, holder("first"))
    with pytest.raises(UsageError, match="taken"):
        window.set(*WANTED, holder("second"))
    with pytest.raises(UsageError, match="taken"):
        window.set(*CONFIGURED, None)
    window.give_back(holder("second"))
    assert told.recorder.windows == [WANTED]
    window.give_back(holder("first"))
    assert told.recorder.windows == [WANTED, CONFIGURED]
    window.set(*WANTED, holder("second"))
    window.give_back(holder("second"))


def test_a_window_goes_with_its_client(dying: subprocess.Popen[str]) -> None:
    told = recording()
    Window(told).set(*WANTED, holder("first", dying.pid))
    dying.kill()
    wait_for(lambda: told.recorder.windows == [WANTED, CONFIGURED], 10, "the window to be given back")
    dying.wait(10)  # until then it was a zombie


def test_the_window_of_a_client_that_is_gone_can_be_taken(dying: subprocess.Popen[str]) -> None:
    told = recording()
    window = Window(told)
    window.set(*WANTED, holder("first", dying.pid))
    dying.kill()
    wait_for(lambda: holder("first", dying.pid).is_gone, 10, "the client to be gone")
    window.set(*WANTED, holder("second"))
    assert told.recorder.windows[-1] == WANTED
    window.give_back(holder("second"))


def test_a_park_is_released_by_its_own_client_only() -> None:
    told = recording()
    park = Park(told)
    park.take(60, holder("first"))
    with pytest.raises(UsageError, match="parked already"):
        park.take(60, holder("second"))
    with pytest.raises(UsageError, match="not parked for this client"):
        park.require(holder("second"))
    park.release(holder=holder("second"))
    assert park.active and told.recorder.parks == [True]
    park.require(holder("first"))
    park.release(holder=holder("first"))
    assert not park.active and told.recorder.parks == [True, False]


def test_a_lease_that_ends_leaves_another_clients_window_alone() -> None:
    told = recording()
    window, park = Window(told), Park(told)
    window.set(*WANTED, holder("capture"))
    park.take(0.0, holder("checkpoint"))
    wait_for(lambda: not park.active, 10, "the lease to end")
    assert told.recorder.windows == [WANTED]
    window.give_back(holder("capture"))


def no_thread(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def test_nothing_is_held_for_a_client_that_nobody_can_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    told = recording()
    window, park = Window(told), Park(told)
    with monkeypatch.context() as patch:
        patch.setattr(recording_verbs, "start_own_thread", no_thread)
        with pytest.raises(FacilityError, match="cannot watch the client: can't start new thread"):
            park.take(60, holder("first"))
        with pytest.raises(FacilityError, match="cannot watch the client"):
            window.set(*WANTED, holder("first"))
    assert not park.active and told.recorder.parks == told.recorder.windows == []
    park.take(60, holder("second"))
    park.release(holder=holder("second"))
    assert told.recorder.parks == [True, False]


@pytest.mark.parametrize("part", ["log", "trace"])
@pytest.mark.parametrize("lease_s", [0.0, 60.0])
def test_a_rank_goes_on_though_its_files_cannot_be_opened_again(
    monkeypatch: pytest.MonkeyPatch, part: str, lease_s: float
) -> None:
    def gone() -> None:
        raise FileNotFoundError("the file is gone")

    told = recording()
    monkeypatch.setattr(*{"log": (told.recorder, "reopen_log"), "trace": (tracer, "reopen_files")}[part], gone)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # of the thread that ends the lease
    park = Park(told)
    park.take(lease_s, holder("first"))
    if lease_s:
        with pytest.raises(FileNotFoundError):
            park.release(holder=holder("first"))
    wait_for(lambda: told.recorder.parks == [True, False], 10, "the gate to open")


def test_a_rank_that_cannot_be_told_from_a_restored_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: OwnProcess) -> bool:
        raise UnicodeDecodeError("utf-8", b"\xc3", 0, 1, "unexpected end of data")

    told = recording()
    park = Park(told)
    park.take(60, holder("first"))
    monkeypatch.setattr(OwnProcess, "is_restored", property(failing))
    assert park.release(holder=holder("first"))
    assert told.recorder.parks == [True, False]


def test_a_rank_without_a_descriptor_left_is_released(dying: subprocess.Popen[str]) -> None:
    told = recording()
    window, asked, leased = Window(told), Park(told), Park(told)
    window.set(*WANTED, holder("first", dying.pid))
    client = holder("first")
    asked.take(60, client)
    leased.take(0.1, holder("second"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    dying.kill()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/", os.O_RDONLY)
        asked.release(holder=client)
        wait_for(lambda: told.recorder.parks.count(False) == 2, 10, "both parks to end")
        wait_for(lambda: told.recorder.windows == [WANTED, CONFIGURED], 10, "the window to be given back")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_log_that_is_gone_after_a_park_is_said_where_it_can_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorder = PythonRecorder()
    recorder.open(str(tmp_path), 0, 1 << 20, 1 << 20, True, True, True, False, True)
    recorder.close_log()
    (tmp_path / "events.00000.seg").unlink()
    recorder.reopen_log()
    assert "events are no longer recorded: FileNotFoundError" in capsys.readouterr().err


def test_a_park_whose_answer_fails_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, listened = recording(), Agent(tmp_path / "0.sock")
    verbs = verbs_of(told, listened)

    def failing(message: Message) -> Message:
        verbs["park"](message)
        raise RuntimeError("the rank is out of memory")

    listened.verbs |= {**verbs, "park": failing}
    listened.start()
    (tmp_path / "rank.json").write_text(json.dumps(describe_process(0, listened.path, "python")))
    monkeypatch.setattr(capture.choice, "find", object)
    with pytest.raises(AgentError, match="out of memory"):
        capture.take_image(tmp_path, tmp_path / "images", lambda _: None)
    assert told.recorder.parks == [True, False]


def test_a_rank_that_does_not_answer_holds_nobody_up_and_is_not_left_parked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped, or held Python's lock, when it was asked. It reads the requests when it goes on, and nobody is
    there any more."""
    told, agent = recording(), Agent(tmp_path / "0.sock")
    agent.verbs |= verbs_of(told, agent)
    (tmp_path / "rank.json").write_text(json.dumps(describe_process(0, agent.path, "python")))
    monkeypatch.setattr(capture.choice, "find", object)
    began = time.monotonic()
    with pytest.raises(NotWaitedFor):
        capture.take_image(
            tmp_path, tmp_path / "images", lambda _: None, given_up=lambda: time.monotonic() > began + 0.3
        )
    assert time.monotonic() - began < 0.3 + capture.LEAVE_S + 2
    assert told.recorder.parks == []
    agent.start()
    wait_for(lambda: told.recorder.parks == [True, False], 10, "the rank to be parked and released")


def test_a_restored_process_is_told_by_its_start_or_else_by_its_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    process = OwnProcess()
    assert not process.is_restored
    with monkeypatch.context() as patch:
        patch.setattr(own_process, "start_ticks", lambda _: 1)
        assert process.is_restored
    with monkeypatch.context() as patch:
        patch.setattr(own_process, "start_ticks", lambda _: 0)  # no file can be opened
        assert not process.is_restored
        patch.setattr(own_process, "_pid_namespace", lambda: 1)
        assert process.is_restored


def test_who_watches_a_client_opens_nothing(monkeypatch: pytest.MonkeyPatch, dying: subprocess.Popen[str]) -> None:
    """A checkpoint may be taken at any moment of it: an open descriptor would be in it."""
    monkeypatch.setattr(recording_verbs, "WATCH_S", 0.001)
    watchers, looks, opened = {"prismdbg-lease", "prismdbg-window"}, 0, []
    original = cast(property, Holder.is_gone).fget
    assert original is not None

    def counted(self: Holder) -> bool:
        nonlocal looks
        looks += 1
        return bool(original(self))

    monkeypatch.setattr(Holder, "is_gone", property(counted))
    armed = True

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if armed and event == "open" and threading.current_thread().name in watchers:
            opened.append(arguments)

    sys.addaudithook(hook)  # stays until the process ends, and costs it nothing
    told = recording()
    window, park = Window(told), Park(told)
    window.set(*WANTED, holder("one", dying.pid))
    park.take(60, holder("one", dying.pid))
    wait_for(lambda: looks > 200, 30, "the watchers to look")
    armed = False
    park.release(holder=holder("one", dying.pid))
    window.give_back(holder("one", dying.pid))
    assert opened == []


@pytest.mark.parametrize(("refused", "is_gone"), [(PermissionError, False), (ProcessLookupError, True), (None, True)])
def test_a_client_of_another_user_that_proc_hides_is_there(
    monkeypatch: pytest.MonkeyPatch, refused: type[OSError] | None, is_gone: bool
) -> None:
    """Root's, where /proc is mounted with `hidepid=2`. One of the rank's own user has no program once it is dead."""

    def hidden(_: Path) -> Path:
        raise FileNotFoundError

    def signalled(*asked: int) -> None:
        assert asked == (4321, 0)
        if refused is not None:
            raise refused

    monkeypatch.setattr(Path, "readlink", hidden)
    monkeypatch.setattr(os, "kill", signalled)
    assert Holder(pid=4321, ticks=1, token="one").is_gone == is_gone


def test_a_number_that_no_process_has_is_a_client_that_is_gone() -> None:
    assert Holder(pid=1 << 70, ticks=1, token="one").is_gone


@pytest.fixture
def dying() -> Any:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait(10)
    assert process.stdin is not None
    process.stdin.close()


class Asked:
    """An agent whose rank says, one after another, what is parked, in flight and on its way."""

    def __init__(self, *answers: tuple[int, list[int], int]) -> None:
        self._answers = list(answers)

    def ask(self, verb: str, *, given_up: object) -> dict[str, Any]:
        assert given_up is None
        assert verb == "status"
        parked, in_flight, entering = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return {"parked": parked, "in_flight": in_flight, "entering": entering}

    def wait(self, park_s: float = 5.0, drain_s: float = 0.0) -> Any:
        said: list[str] = []
        patience = capture.Patience(park_s=park_s, drain_s=drain_s)
        return capture._wait_parked(self, said.append, patience)  # type: ignore[arg-type]


def test_a_dump_waits_for_who_is_on_its_way() -> None:
    assert Asked((1, [], 1), (1, [], 1), (1, [4], 0), (1, [], 0)).wait(drain_s=5.0) == ([], True)


def test_what_does_not_drain_is_in_flight_only_once_nobody_is_on_its_way() -> None:
    assert Asked((1, [3], 1), (1, [3], 1), (1, [3, 4], 0)).wait() == ([3, 4], True)


def test_a_dump_is_refused_while_somebody_is_on_its_way() -> None:
    with pytest.raises(WaitTimeout, match="1 thread still computed the fingerprint"):
        Asked((1, [], 1)).wait(park_s=0.05)


def test_a_rank_of_an_older_version_does_not_say_who_is_on_its_way() -> None:
    class Older(Asked):
        def ask(self, verb: str, *, given_up: object) -> dict[str, Any]:
            answer = super().ask(verb, given_up=given_up)
            return {"parked": answer["parked"], "in_flight": answer["in_flight"]}

    assert Older((1, [], 0)).wait() == ([], True)


def test_the_python_recorder_counts_who_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder, goes_on = PythonRecorder(), threading.Event()
    recorder._mode = 1

    def hashing(_: object) -> None:
        assert goes_on.wait(30)

    monkeypatch.setattr(recorder, "_issue", hashing)
    call: Any = object()
    threads = [threading.Thread(target=recorder.collective, args=(call, lambda: None)) for _ in range(2)]
    threads[0].start()
    wait_for(lambda: recorder.stats()["entering"] == 1, 10, "the first thread to hash")
    recorder.park(True)
    threads[1].start()
    wait_for(lambda: recorder.parked() == 1, 10, "the second thread to be parked")
    assert recorder.stats()["entering"] == 1
    goes_on.set()
    wait_for(lambda: recorder.stats()["entering"] == 0, 10, "the first thread to come past its record")
    recorder.park(False)
    for thread in threads:
        thread.join(10)


def test_who_is_interrupted_while_it_waits_is_not_parked_any_more() -> None:
    """By a signal's handler that raises."""

    def handler(_number: int, _frame: object) -> None:
        raise ValueError("preempted")

    recorder = PythonRecorder()
    recorder.park(True)
    before = signal.signal(signal.SIGUSR1, handler)
    main = threading.get_ident()
    waiting = threading.Thread(
        target=lambda: (
            wait_for(lambda: recorder.parked() == 1, 10, "the thread to be parked"),
            signal.pthread_kill(main, signal.SIGUSR1),
        )
    )
    try:
        waiting.start()
        with pytest.raises(ValueError, match="preempted"):
            recorder.collective(cast(Any, object()), lambda: None)
    finally:
        waiting.join(10)
        signal.signal(signal.SIGUSR1, before)
    assert recorder.parked() == 0


def test_status_asks_who_is_on_its_way_before_what_is_in_flight() -> None:
    """In the other order a call could be in neither."""
    asked: list[str] = []
    told = recording()
    told.rank, told.pid, told.moment, told.kind, told.lost = 0, 1, "1.1", "python", ""
    for name, answer in (("stats", {"entering": 0}), ("in_flight", []), ("parked", 1)):
        setattr(told.recorder, name, lambda name=name, answer=answer: asked.append(name) or answer)
    agent: Any = None
    assert verbs_of(told, agent)["status"]({})["entering"] == 0
    assert asked.index("stats") < asked.index("in_flight")
