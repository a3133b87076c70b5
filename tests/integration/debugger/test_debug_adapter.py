"""A captured rank debugged by a client of the Debug Adapter Protocol, forwards and backwards."""

from __future__ import annotations

import base64
import re
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psutil
import pytest
from chain import INCIDENTS, Taken
from dap_client import Editor, over_socket
from spawning import Spawn
from waiting import wait_for

pytestmark = [pytest.mark.job, pytest.mark.criu]

BOUND_S = 120
MOST_STOPS = 8
TRAIN = INCIDENTS / "nan" / "train.py"
Start = Callable[..., tuple[Editor, subprocess.Popen[bytes]]]


@pytest.fixture
def start(
    nan_early: Taken, prismdbg_command: tuple[str, ...], spawn: Spawn, child_environment: dict[str, str]
) -> Iterator[Start]:
    """An adapter and its client, as an editor starts them."""
    editors = []

    def started(*options: str) -> tuple[Editor, subprocess.Popen[bytes]]:
        line = [*prismdbg_command, "dap", str(nan_early.capsule), "--runtime", "local", *options]
        process: Any = spawn(*line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, text=False)
        editors.append(Editor(process.stdout, process.stdin))
        return editors[-1], process

    yield started
    for editor in editors:
        editor.close()


def begun(editor: Editor, **breakpoints: list[Any]) -> dict[str, Any]:
    """Where the rank stands when a session begins."""
    editor.ask("initialize", adapterID="prismdbg", supportsProgressReporting=True)
    editor.ask("launch", noDebug=False)
    editor.next_event("initialized")
    for command, given in breakpoints.items():
        name = "filters" if command == "setExceptionBreakpoints" else "breakpoints"
        editor.ask(command, **{name: given})
    return editor.stopped_by("configurationDone")


def own_frame(editor: Editor) -> dict[str, Any]:
    frames = editor.ask("stackTrace", threadId=1)["stackFrames"]
    return next(frame for frame in frames if frame.get("presentationHint") != "subtle")


def value(editor: Editor, expression: str) -> str:
    return str(editor.ask("evaluate", expression=expression, context="watch")["result"]).strip("'")


def test_a_client_finds_the_nan_and_goes_back(nan_early: Taken, start: Start) -> None:
    editor, process = start()
    assert begun(editor, setExceptionBreakpoints=["nan"])["reason"] == "entry"
    assert value(editor, "moment") == "0.1"
    assert [thread["id"] for thread in editor.ask("threads")["threads"]] == [1]

    stopped = editor.stopped_by("continue", threadId=1)
    nan = value(editor, "moment")
    assert stopped["reason"] == "exception" and "nan" in stopped["description"]
    info = editor.ask("exceptionInfo", threadId=1)
    assert (info["exceptionId"], info["description"]) == ("NaN or infinity", stopped["description"])
    frame = own_frame(editor)
    assert frame["source"]["path"] == str(TRAIN) and "sourceReference" not in frame["source"]
    scopes = {scope["name"]: scope for scope in editor.ask("scopes", frameId=frame["id"])["scopes"]}
    names = editor.ask("variables", variablesReference=scopes["Collective"]["variablesReference"])["variables"]
    sent = next(each for each in names if each["name"] == "input")
    (tensor,) = editor.ask("variables", variablesReference=sent["variablesReference"])["variables"]
    assert "nan 1" in tensor["value"]
    memory = editor.ask("readMemory", memoryReference=tensor["memoryReference"], count=4)
    (loss,) = struct.unpack("<f", base64.b64decode(memory["data"]))
    assert loss != loss
    assert "local.loss" in [
        each["evaluateName"]
        for each in editor.ask("variables", variablesReference=scopes["Locals"]["variablesReference"])["variables"]
    ]

    tensors = editor.ask("variables", variablesReference=scopes["Tensors"]["variablesReference"])["variables"]
    by_name = {each["name"]: each for each in tensors}
    assert "nan 1" in by_name["input[0]"]["value"] and by_name["input[0]"]["evaluateName"] == "input[0]"
    assert by_name["loss"]["evaluateName"] == "local.loss" and "memoryReference" in by_name["loss"]
    assert all("memoryReference" in each for each in tensors), by_name
    reference = scopes["Tensors"]["variablesReference"]
    for name, expression in (("loss", "local.loss"), ("input[0]", "input[0]")):
        assert editor.ask("dataBreakpointInfo", name=name, variablesReference=reference)["dataId"] == expression

    assert "Watch expressions" not in scopes
    editor.ask("evaluate", expression="watch loss", context="repl")
    (watches,) = [
        scope for scope in editor.ask("scopes", frameId=frame["id"])["scopes"] if scope["name"] == "Watch expressions"
    ]
    (watched,) = editor.ask("variables", variablesReference=watches["variablesReference"])["variables"]
    assert watched["name"] == "loss" and "nan 1" in watched["value"]

    editor.stopped_by("stepBack", threadId=1)
    before = value(editor, "moment")
    assert before != nan and "cannot" not in before
    assert "no variable" in editor.refused("variables", variablesReference=sent["variablesReference"])
    assert editor.stopped_by("next", threadId=1)["reason"] == "exception"
    assert value(editor, "moment") == nan
    assert editor.stopped_by("reverseContinue", threadId=1)["description"].startswith("stopped at 0.")
    editor.ask("disconnect")
    assert process.wait(BOUND_S) == 0
    began, ended = editor.events("progressStart"), editor.events("progressEnd")
    assert [each["progressId"] for each in began] == [each["progressId"] for each in ended] != []
    assert {each["progressId"] for each in editor.events("progressUpdate")} <= {each["progressId"] for each in began}


@pytest.fixture
def port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


@pytest.fixture
def connected(
    nan_early: Taken, prismdbg_command: tuple[str, ...], spawn: Spawn, port: int
) -> Iterator[tuple[Editor, subprocess.Popen[str]]]:
    """An editor that connects to the port of an adapter."""
    line = [*prismdbg_command, "debug", str(nan_early.capsule), "--runtime", "local", "--dap", str(port)]
    process = spawn(*line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert f"127.0.0.1:{port}" in process.stdout.readline()  # type: ignore[union-attr]
    with (
        closing(socket.create_connection(("127.0.0.1", port))) as connection,
        closing(over_socket(connection)) as editor,
    ):
        yield editor, process


def test_an_editor_connects_to_a_port_and_sets_breakpoints_of_every_kind(
    connected: tuple[Editor, subprocess.Popen[str]], port: int
) -> None:
    editor, process = connected
    assert begun(editor)["reason"] == "entry"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    source = {"path": "/elsewhere/nan/train.py"}
    lines = editor.ask("breakpointLocations", source=source, line=1, endLine=1000)["breakpoints"]
    assert {"line": 61} in lines
    first, logged, nowhere, wrong = editor.ask(
        "setBreakpoints",
        source=source,
        breakpoints=[
            {"line": 61, "condition": "step >= 2", "hitCondition": ">= 2"},
            {"line": 61, "logMessage": "step {moment}: {op}, loss={loss}", "condition": "step == 1"},
            {"line": 1},
            {"line": 61, "logMessage": "{no_such_name}"},
        ],
    )["breakpoints"]
    assert first["verified"] and logged["verified"] and first["source"]["path"] == str(TRAIN)
    assert not nowhere["verified"] and "this file issues collectives at lines" in nowhere["message"]
    assert not wrong["verified"] and "no_such_name" in wrong["message"] and "id" not in wrong
    stopped = editor.stopped_by("continue", threadId=1)
    assert (stopped["reason"], stopped["hitBreakpointIds"]) == ("breakpoint", [first["id"]])
    assert value(editor, "step") == "3"
    assert re.search(r"^step 1\.\d+: \w*all_?reduce, loss=\d+\.\d+$", editor.printed("console"), re.MULTILINE)

    editor.ask("setBreakpoints", source=source, breakpoints=[])
    one, refused = editor.ask(
        "setFunctionBreakpoints",
        breakpoints=[{"name": "all_reduce", "condition": "bytes > 1KB"}, {"name": "al_reduce"}],
    )["breakpoints"]
    assert one["verified"] and "all_reduce" in refused["message"]
    assert editor.stopped_by("continue", threadId=1)["reason"] == "function breakpoint"
    assert int(value(editor, "bytes")) > 1024
    editor.ask("setFunctionBreakpoints", breakpoints=[])

    info = editor.ask("dataBreakpointInfo", name="nan(input[0])")
    assert editor.ask("dataBreakpointInfo", name="1 + 1")["dataId"] is None
    (watched,) = editor.ask("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])["breakpoints"]
    stopped = editor.stopped_by("continue", threadId=1)
    assert (stopped["reason"], stopped["hitBreakpointIds"]) == ("data breakpoint", [watched["id"]])
    assert value(editor, "nan(input[0])") == "True"
    editor.ask("disconnect")
    editor.until_closed()
    assert process.wait(BOUND_S) == 0


def test_moments_commands_and_what_the_rank_is_asked(start: Start) -> None:
    editor, process = start("--at", "2.1")
    assert begun(editor)["reason"] == "goto" and value(editor, "moment") == "2.1"
    targets = editor.ask("gotoTargets", source={"path": str(TRAIN)}, line=61)["targets"]
    target = next(each for each in targets if each["label"].startswith("4.1 "))
    assert editor.stopped_by("goto", threadId=1, targetId=target["id"])["reason"] == "goto"
    assert value(editor, "step") == "4"

    assert "rank" in editor.ask("evaluate", expression="peers", context="repl")["result"]
    editor.ask("evaluate", expression="goto 3.1", context="repl")
    editor.next_event("stopped")
    assert value(editor, "step") == "3"
    refused = editor.refused("evaluate", expression="no_such_name", context="repl")
    assert refused.startswith("unknown name 'no_such_name'") and "^" not in refused
    assert "3.1" in editor.ask("evaluate", expression="moment", context="hover")["result"]

    timeline = editor.ask("prismdbgTimeline", start=1, count=2)
    assert timeline["here"] == "3.1" and len(timeline["collectives"]) == 2 < timeline["total"]
    assert {call["group"] for call in timeline["collectives"]} == {"world"}
    assert "peak" in editor.ask("prismdbgMemory", query="peak")["text"]
    assert "stopped at 3.1" in editor.next_event("stopped")["description"]  # it was run again, with tracing
    assert "writes no files" in editor.refused("prismdbgMemory", query="export x")
    content = editor.ask("source", source={"path": str(TRAIN)}, sourceReference=0)["content"]
    assert content == TRAIN.read_text()

    editor.stopped_by("stepIn", threadId=1)
    assert "Op" in [scope["name"] for scope in editor.ask("scopes", frameId=own_frame(editor)["id"])["scopes"]]
    assert editor.stopped_by("restart")["reason"] == "entry"
    editor.ask("terminate")
    editor.next_event("terminated")
    editor.ask("disconnect")
    assert process.wait(BOUND_S) == 0


def test_a_running_rank_is_paused_and_nothing_is_left_when_the_client_vanishes(start: Start) -> None:
    editor, process = start()
    begun(editor)
    assert "not running" in editor.refused("pause", threadId=1)
    running = editor.send("continue", threadId=1)
    editor.response(editor.send("pause", threadId=1))
    assert editor.response(running)["success"]
    assert editor.next_event("stopped")["reason"] in ("pause", "step")
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    editor.send("continue", threadId=1)
    editor.close()
    assert process.wait(BOUND_S) == 0
    wait_for(lambda: not any(child.is_running() for child in children), BOUND_S, "the replay's processes to end")


def test_the_end_of_the_program_is_not_the_end_of_the_session(start: Start) -> None:
    editor, _ = start("--at", "11.1")
    begun(editor)
    for _ in range(MOST_STOPS):  # the end of the recording is one, and going on from there is asked for twice
        stopped = editor.stopped_by("continue", threadId=1)
        if "the program ended" in stopped["description"]:
            break
    else:
        raise AssertionError(stopped)
    assert editor.ask("stackTrace", threadId=1) == {"stackFrames": [], "totalFrames": 0}
    assert "the program has ended" in editor.refused("next", threadId=1)
    assert not editor.events("terminated")
    editor.stopped_by("stepBack", threadId=1)
    assert own_frame(editor)["line"]
    editor.ask("disconnect")
