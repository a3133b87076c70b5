"""Whatever is sent to a rank's agent, and whatever a starter answers: nothing breaks, and each says what is wrong."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from waiting import wait_for

from prismdbg.errors import PrismError, RankLost
from prismdbg.protocol.client import AgentClient
from prismdbg.rank.agent import MAX_CLIENTS, Agent
from prismdbg.rank.recording_verbs import LONGEST_LEASE_S, verbs_of
from prismdbg.runtime.spec import CONTROL_FOLDER
from prismdbg.runtime.starter_control import StarterControl
from prismdbg.runtime.starter_spec import CONTROL

EXAMPLES = int(os.environ.get("PRISMDBG_SOCKET_EXAMPLES", "150"))  # by hand as many as one has time for
BOUND_S = 20.0


class Recorder:
    """Takes what a native recorder takes: numbers of 64 bits, booleans."""

    def __init__(self) -> None:
        self.parks: list[bool] = []

    def window(self, on: bool, steps: int, size_bytes: int) -> None:
        assert type(on) is bool and 0 <= steps < 1 << 63 and 0 <= size_bytes < 1 << 63

    def keep_from(self, step: int) -> None:
        assert 0 <= step < 1 << 63

    def park(self, on: bool) -> None:
        self.parks.append(on)

    def stats(self) -> dict[str, Any]:
        return {"step": 1, "collective": 1, "events": 1, "entering": 0, "lost": ""}

    def parked(self) -> bool:
        return False

    def in_flight(self) -> list[int]:
        return []

    def close_log(self) -> None: ...

    def reopen_log(self) -> None: ...


def _recording() -> Any:
    config = SimpleNamespace(payload_window=(False, 0, 7), window_bytes=5)
    recorder = Recorder()
    return SimpleNamespace(
        recorder=recorder, window=recorder.window, config=config,
        note=lambda *_, **__: None, hash_at=set(), rank=0, pid=os.getpid(),
        moment="1.1", kind="test", lost="", give_up=lambda _: None,
    )  # fmt: skip


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    made = Agent(tmp_path / "a.sock")
    recording = _recording()
    made.verbs |= verbs_of(recording, made)
    made.start()
    yield made
    with AgentClient(made.path) as client:
        client.ask("release")
    assert recording.recorder.parks[-1:] != [True]


VERBS = [
    "hello", "status", "stacks", "detach", "clock", "park", "close_log", "release", "replay", "window", "keep_from",
    "hash_at",
]  # fmt: skip
FIELDS = [
    "id", "do", "holder", "holder_ticks", "token", "lease_s", "on", "steps", "size_bytes", "back", "step", "log",
    "in_flight", "redacted_files",
]  # fmt: skip
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.just(os.getpid()),
        st.sampled_from([2**63, -1, 10**30, "1/../self", "\ud800", "a\0b"]),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)  # fmt: skip
REQUESTS = st.builds(
    lambda verb, fields: {**fields, "do": verb},
    st.one_of(st.sampled_from(VERBS), VALUES),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
).map(lambda request: json.dumps(request).encode() + b"\n")
FRAMES = st.lists(st.one_of(REQUESTS, st.binary(max_size=200), VALUES.map(lambda v: json.dumps(v).encode() + b"\n")),
                  min_size=1, max_size=6)  # fmt: skip


def _answers(path: Path, data: bytes) -> list[bytes]:
    """What comes back until the agent has closed its end."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(BOUND_S)
        sock.connect(str(path))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
        found = b""
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(1 << 16):
                found += part
    return found.splitlines()


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FRAMES)
@example([b'{"do":"window","on":true,"steps":-1}\n', b'{"do":"keep_from","step":1e400}\n'])
@example([b'{"do":"park","lease_s":' + b"9" * 400 + b',"holder":1,"holder_ticks":1}\n'])
@example([b"[" * 100_000 + b"\n", b'{"id":' + b"[" * 50 + b"]" * 50 + b',"do":[]}\n'])
@example([b'{"do":"hello","id":1}' * 3 + b"\n"])
def test_the_agent_answers_or_ends_the_connection_and_goes_on(agent: Agent, frames: list[bytes]) -> None:
    for line in _answers(agent.path, b"".join(frames)):
        reply = json.loads(line)
        assert type(reply["ok"]) is bool
        if not reply["ok"]:
            assert "Traceback" not in reply["error"] and "failed in the rank: AssertionError" not in reply["error"]
    with AgentClient(agent.path) as client:
        assert client.ask("status", timeout_s=BOUND_S)["rank"] == 0
        client.ask("release", timeout_s=BOUND_S)


@pytest.mark.parametrize(
    "request_of",
    [
        {"do": "window"},
        {"do": "window", "on": "yes"},
        {"do": "window", "on": True, "steps": -1},
        {"do": "window", "on": True, "size_bytes": 2**63},
        {"do": "keep_from", "step": "3"},
        {"do": "hash_at"},
        {"do": "park", "holder": "1", "holder_ticks": 1},
        {"do": "park", "holder": 1},
        {"do": "park", "holder": 1, "holder_ticks": 1, "lease_s": []},
    ],
)
def test_a_wrong_argument_is_named(agent: Agent, request_of: dict[str, Any]) -> None:
    (line,) = _answers(agent.path, json.dumps(request_of).encode() + b"\n")
    reply = json.loads(line)
    assert reply["kind"] == "UsageError" and "failed in the rank" not in reply["error"]


def test_steps_to_hash_at_are_not_without_end(agent: Agent) -> None:
    lines = b"".join(json.dumps({"do": "hash_at", "step": step}).encode() + b"\n" for step in range(1001))
    assert [json.loads(line)["ok"] for line in _answers(agent.path, lines)] == [True] * 1000 + [False]


def test_a_lease_has_a_bound_and_no_client_has_all_descriptors(agent: Agent) -> None:
    before = threading.active_count()
    clients = [socket.socket(socket.AF_UNIX) for _ in range(3 * MAX_CLIENTS)]
    for client in clients:
        with contextlib.suppress(BlockingIOError):
            client.settimeout(BOUND_S)
            client.connect(str(agent.path))
    assert threading.active_count() <= before + MAX_CLIENTS
    for client in clients:
        client.close()

    def answers() -> bool:
        with contextlib.suppress(PrismError), AgentClient(agent.path) as client:
            return bool(client.ask("status", timeout_s=BOUND_S))
        return False

    wait_for(answers, BOUND_S, "a client to be served again")
    assert LONGEST_LEASE_S <= 300


def _starter(folder: Path, answer: bytes) -> threading.Thread:
    """Answers one request so."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / CONTROL))
    listening.listen(1)

    def serve() -> None:
        with listening, listening.accept()[0] as client:
            client.recv(1 << 16)
            with contextlib.suppress(OSError):
                client.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.one_of(st.binary(max_size=100), VALUES.map(lambda v: json.dumps(v).encode()),
                 st.fixed_dictionaries({"ok": VALUES}, optional={"left": VALUES, "seal": VALUES, "what": VALUES})
                 .map(lambda v: json.dumps(v).encode())), st.booleans())  # fmt: skip
@example(b"[" * 100_000, True)
@example(b'{"ok":false,"what":"x","log":"/etc/passwd"}', True)
def test_an_answer_of_the_starter_is_read_or_one_error(tmp_path: Path, answer: bytes, ended: bool) -> None:
    folder = tmp_path / CONTROL_FOLDER
    folder.mkdir(exist_ok=True)
    (folder / CONTROL).unlink(missing_ok=True)
    thread = _starter(folder, answer + b"\n" * ended)
    try:
        said = StarterControl(tmp_path, 1.0).save("one")
        assert type(said.refusal) is str and type(said.seal) is str
    except RankLost as error:
        assert "\n" not in str(error)
    finally:
        thread.join(BOUND_S)
