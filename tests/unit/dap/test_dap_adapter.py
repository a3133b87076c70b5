"""The adapter without a rank: what it answers to clients of every kind, and that it ends when they do."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from capsules import capsule_with_nan, make_capsule
from click.testing import CliRunner
from dap_client import BOUND_S, Editor, check, over_socket
from hypothesis import given, settings
from hypothesis import strategies as st

from prismdbg.cli.commands import dap
from prismdbg.dap import replaying
from prismdbg.dap.adapter import Adapter
from prismdbg.dap.arguments import Arguments
from prismdbg.dap.client import Client, bounded_writer
from prismdbg.dap.control import Control
from prismdbg.dap.framing import BrokenStream, MessageReader, encoded
from prismdbg.dap.inbox import Inbox
from prismdbg.dap.launch import Launch, Say
from prismdbg.debugger.debugger import Debugger
from prismdbg.debugger.driver import Tell
from prismdbg.debugger.program import Unseen
from prismdbg.errors import UsageError
from tests.unit.simulated_rank import SimulatedRank

INITIALIZE = {"adapterID": "prismdbg"}
NO_CAPSULE = Launch()


class Running:
    """An adapter in a thread, and the client's end of its socket."""

    def __init__(self, launch: Launch = NO_CAPSULE) -> None:
        self.socket, own = socket.socketpair()
        self.killed, self.raised = threading.Event(), []
        control = Control(self.killed.set, close_bound_s=BOUND_S)
        client = Client(bounded_writer(own.fileno()), control.close)
        adapter = Adapter(client, Inbox(MessageReader(own.recv), client, control), control, launch)

        def serve() -> None:
            try:
                adapter.serve()
            except BrokenStream as error:
                self.raised.append(error)
            finally:
                own.shutdown(socket.SHUT_RDWR)  # the reading thread waits at it
                own.close()

        self.thread = threading.Thread(target=serve, daemon=True)
        self.thread.start()

    def editor(self) -> Editor:
        return over_socket(self.socket)

    def ended(self) -> bool:
        self.thread.join(BOUND_S)
        return not self.thread.is_alive() and not self.killed.is_set()


@pytest.fixture
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.socket.close()
    assert made.ended()


def test_a_session_without_a_replay(running: Running) -> None:
    editor = running.editor()
    assert "before initialize" in editor.refused("threads")
    capabilities = editor.ask("initialize", **INITIALIZE)
    assert capabilities["supportsStepBack"] and capabilities["supportsDataBreakpoints"]
    assert "twice" in editor.refused("initialize", **INITIALIZE)
    assert "needs a replay" in editor.refused("stackTrace", threadId=1)
    assert "not running" in editor.refused("pause", threadId=1)
    assert "no capsule" in editor.refused("launch", noDebug=False)
    editor.ask("disconnect")
    editor.until_closed()
    editor.close()


def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Any) -> Running:
    """An adapter whose launch finds a simulated rank."""
    capsule = capsule_with_nan(tmp_path, (0, 3))

    @contextlib.contextmanager
    def live(_launch: Launch, tell: Tell, _say: Say) -> Iterator[Any]:
        rank = SimulatedRank()
        debugger = Debugger(rank, tell, recorded=rank.moments)
        yield SimpleNamespace(debugger=debugger, travel=SimpleNamespace(capsule=capsule), program=program)

    monkeypatch.setattr(replaying, "live", live)
    return Running(Launch(path=capsule.path))


@pytest.mark.parametrize(("command", "window"), [("evaluate", False), ("launch", True)])
def test_an_expression_that_fails_opens_no_window(running: Running, command: str, window: bool) -> None:
    editor = running.editor()
    editor.ask("initialize", **INITIALIZE)
    response = editor.response(editor.send(command, expression="no_such_name"))
    assert response["body"]["error"]["showUser"] is window
    editor.close()


class Printing:
    """A program that prints a line before its first stop, and one in the first move."""

    def __init__(self) -> None:
        self.lines = ["step 1 of 2\n", "step 2 of 2\n"]

    def new_output(self) -> str:
        return self.lines.pop(0) if self.lines else ""


def test_what_the_program_prints_is_output_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = serving(tmp_path, monkeypatch, Printing())
    editor = running.editor()
    editor.ask("initialize", **INITIALIZE)
    editor.ask("launch", noDebug=False)
    assert editor.printed("stdout") == "step 1 of 2\n"
    editor.stopped_by("configurationDone")
    assert editor.printed("stdout") == "step 1 of 2\nstep 2 of 2\n"
    editor.ask("disconnect")
    editor.close()
    running.socket.close()
    assert running.ended()


def test_the_filter_for_nan_begins_at_the_incident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = serving(tmp_path, monkeypatch, Unseen())
    editor = running.editor()
    editor.ask("initialize", **INITIALIZE)
    editor.ask("launch", noDebug=False)
    editor.ask("setExceptionBreakpoints", filters=["nan"])
    editor.stopped_by("configurationDone")
    assert "nan if step >= 3" in editor.ask("evaluate", expression="breakpoints", context="repl")["result"]
    editor.ask("disconnect")
    editor.close()
    running.socket.close()
    assert running.ended()


@pytest.mark.parametrize(("client", "reason"), [("vscode", "rank step"), ("other", "step")])
def test_vscode_opens_the_program_at_a_stop_not_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str, reason: str
) -> None:
    running = serving(tmp_path, monkeypatch, Unseen())
    editor = running.editor()
    editor.ask("initialize", clientID=client, **INITIALIZE)
    editor.ask("launch", noDebug=False)
    assert editor.stopped_by("configurationDone")["reason"] == "entry"
    assert editor.stopped_by("next", threadId=1)["reason"] == reason
    editor.ask("disconnect")
    editor.close()
    running.socket.close()
    assert running.ended()


def test_a_start_that_is_cancelled_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cancelled = threading.Event()

    @contextlib.contextmanager
    def live(_launch: Launch, _tell: Tell, say: Say) -> Iterator[Any]:
        assert cancelled.wait(BOUND_S)
        say("building a container image")
        yield None

    monkeypatch.setattr(replaying, "live", live)
    running = Running(Launch(path=make_capsule(tmp_path / "capsule").path))
    editor = running.editor()
    editor.ask("initialize", supportsProgressReporting=True, **INITIALIZE)
    launch = editor.send("launch", noDebug=False)
    progress = editor.next_event("progressStart")
    editor.ask("cancel", progressId=progress["progressId"])
    cancelled.set()
    assert "cancelled" in editor.response(launch)["message"]
    editor.close()
    running.socket.close()
    assert running.ended()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"capsule": 3}, "capsule must be a text; not '3'"),
        ({"capsule": "/no/such/capsule"}, "no such file or directory"),
        ({"capsule": "x", "runtime": "podman"}, "unknown runtime 'podman'"),
        ({"capsule": "x", "rank": -1}, "rank must be a whole number"),
        ({"capsule": "x", "rank": True}, "rank must be a whole number"),
        ({"capsule": "x", "at": "now"}, "is not a moment"),
        ({"capsule": "x", "stopOnEntry": "yes"}, "stopOnEntry must be true or false"),
    ],
)
def test_a_launch_that_cannot_be_is_an_error_and_another_one_may_follow(
    running: Running, given: dict[str, Any], message: str
) -> None:
    editor = running.editor()
    editor.ask("initialize", **INITIALIZE)
    assert message in editor.refused("launch", **given)
    assert "no such file" in editor.refused("attach", capsule="/nowhere")
    editor.close()


def test_the_capsule_may_be_an_address_which_is_fetched(running: Running, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    editor = running.editor()
    editor.ask("initialize", **INITIALIZE)
    assert f"nothing is at file://{tmp_path}/none" in editor.refused("launch", capsule=f"file://{tmp_path}/none")
    assert "not a supported address" in editor.refused("launch", capsule="ftp://host/capsule")
    editor.close()


def test_the_capsule_of_the_command_line_is_not_replaced(tmp_path: Path) -> None:
    running = Running(Launch(path=tmp_path / "mine"))
    editor = running.editor()
    editor.ask("initialize", **INITIALIZE)
    assert "was started with" in editor.refused("launch", capsule=str(tmp_path / "other"))
    assert "no such file" in editor.refused("launch", capsule=str(tmp_path / "mine"))
    editor.close()
    running.socket.close()
    assert running.ended()


def test_the_launch_configuration_may_repeat_what_the_command_line_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an address, the command line has fetched a copy; of a run, it has found the capsule of a rank."""
    pytest.importorskip("fsspec")
    capsule, started = make_capsule(tmp_path / "capsule").path, list[Launch]()
    monkeypatch.setattr(dap, "serve_stdio", started.append)
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for named in (f"file://{capsule}", "capsule"):
        assert CliRunner().invoke(dap.command, [named]).exit_code == 0
        launch = started.pop()
        for text in (named, str(launch.path), ""):
            told = launch.told(Arguments({"capsule": text}, "launch"))
            assert (told.path, told.fetch) == (launch.path, None)
        with pytest.raises(UsageError, match=f"was started with {named}, but the launch configuration has s3://B/C"):
            launch.told(Arguments({"capsule": "s3://B/C"}, "launch"))


HOSTILE: list[Any] = [
    {"type": "request", "command": "threads"},
    {"seq": 5, "type": "event", "event": "stopped"},
    {"seq": "5", "type": "request", "command": "threads"},
    {"seq": 5, "type": "request", "command": 7},
    {"seq": 5, "type": "request", "command": "threads", "arguments": []},
    {"seq": 5, "type": "request", "command": "no such command", "arguments": {}},
    {"seq": 5, "type": "request", "command": "x" * 100_000},
    {"seq": True, "type": None},
]


@pytest.mark.parametrize("message", HOSTILE)
def test_hostile_messages_are_answered_with_an_error_and_the_session_goes_on(running: Running, message: Any) -> None:
    reader = MessageReader(running.socket.recv)
    running.socket.sendall(encoded({"seq": 1, "type": "request", "command": "initialize", "arguments": INITIALIZE}))
    assert reader.next()["success"]  # type: ignore[index]
    running.socket.sendall(encoded(message) + b"Content-Length: 3\r\n\r\n{,}" + encoded({"seq": 9, **DISCONNECT}))
    first, second, last = (reader.next() for _ in range(3))
    for answer in (first, second):
        assert answer is not None and not answer["success"] and "Traceback" not in answer["message"]
    check({**second, "command": "x"})  # type: ignore[dict-item]
    assert last is not None and last["request_seq"] == 9 and last["success"]


DISCONNECT = {"type": "request", "command": "disconnect", "arguments": {}}


def test_a_stream_that_is_no_protocol_ends_the_adapter_with_an_error() -> None:
    running = Running()
    running.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
    assert running.ended() and "Content-Length" in str(running.raised[0])
    running.socket.close()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
_COMMANDS = st.sampled_from(
    ["initialize", "launch", "threads", "next", "pause", "cancel", "evaluate", "configurationDone"]
)


@settings(max_examples=40)
@given(st.lists(st.tuples(_COMMANDS, _JSON), max_size=8))
def test_any_arguments_get_an_answer_each(requests: list[tuple[str, Any]]) -> None:
    running = Running()
    for seq, (command, arguments) in enumerate(requests, 1):
        running.socket.sendall(encoded({"seq": seq, "type": "request", "command": command, "arguments": arguments}))
    running.socket.sendall(encoded({"seq": 100, **DISCONNECT}))
    reader, answered = MessageReader(running.socket.recv), []
    while (message := reader.next()) is not None:
        if message["type"] == "response":
            answered.append(message["request_seq"])
            assert "Traceback" not in json.dumps(message) and "bug in prismdbg" not in json.dumps(message)
    assert sorted(answered) == [*range(1, len(requests) + 1), 100]
    running.socket.close()
    assert running.ended()


def test_a_client_that_reads_nothing_is_gone_after_a_bound() -> None:
    left, right = socket.socketpair()
    gone = threading.Event()
    client = Client(bounded_writer(right.fileno(), 0.05), gone.set)
    for _ in range(10_000):
        client.say("x" * 4000)
        if gone.is_set():
            break
    assert gone.is_set()
    client.say("nobody is told twice")
    with contextlib.closing(left), contextlib.closing(right):
        pass


def test_a_session_that_does_not_end_in_time_is_killed() -> None:
    killed = threading.Event()
    control = Control(killed.set, close_bound_s=0.01)
    control.close()
    control.close()
    assert control.is_closing and killed.wait(BOUND_S)
    quick = Control(killed.set, close_bound_s=BOUND_S)
    quick.close()
    quick.closed()
