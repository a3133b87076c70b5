"""What an agent cannot do ends the client's command with the exit code of the error's own kind."""

from __future__ import annotations

import itertools
import os
import resource
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for

from prismdbg import errors
from prismdbg.model.moment import Moment
from prismdbg.protocol import wire
from prismdbg.protocol.client import AgentClient, AgentError, RankRuns, UnknownRequest, connect_when_ready
from prismdbg.protocol.hello import Hello
from prismdbg.rank.agent import MAX_CLIENTS, Agent
from prismdbg.rank.debug.gate import Gate, Stop
from prismdbg.rank.debug.inspection import evaluate_at


def raises(error: Exception) -> Any:
    def verb(_: object) -> dict[str, Any]:
        raise error

    return verb


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path / "a.sock")
    agent.verbs |= {
        "usage": raises(errors.UsageError("the rank is parked already", hint="try again")),
        "capsule": raises(errors.CapsuleError("no")),
        "runtime": raises(errors.RuntimeFailure("no")),
        "defect": raises(ValueError("x")),
    }
    agent.start()
    yield agent


def test_a_defect_in_a_verb_says_what_it_is_and_what_to_do(agent: Agent) -> None:
    with AgentClient(agent.path) as client, pytest.raises(AgentError, match="failed in the rank: ValueError") as caught:
        client.ask("defect", timeout_s=20)
    assert (caught.value.kind, caught.value.exit_code) == ("Defect", 1) and "report this" in caught.value.hint


@pytest.mark.parametrize(
    ("verb", "code"), [("usage", 2), ("capsule", 3), ("runtime", 4), ("defect", 1), ("a verb of tomorrow", 2)]
)
def test_the_kind_of_an_error_decides_the_exit_code(agent: Agent, verb: str, code: int) -> None:
    with AgentClient(agent.path) as client, pytest.raises(AgentError) as caught:
        client.ask(verb)
    assert caught.value.exit_code == code


def test_the_words_are_the_agents_own(agent: Agent) -> None:
    with AgentClient(agent.path) as client, pytest.raises(AgentError, match=r"^the rank is parked already$") as caught:
        client.ask("usage")
    assert (caught.value.hint, caught.value.kind) == ("try again", "UsageError")


def test_an_error_in_an_expression_is_told_with_its_column(agent: Agent) -> None:
    agent.verbs["evaluate"] = lambda told: evaluate_at(Stop("next", Moment(1, 2), {}, None, {}), told["expression"])
    with AgentClient(agent.path) as client, pytest.raises(AgentError, match=r"^unknown name 'foo'$") as caught:
        client.ask("evaluate", expression="max(1, foo)")
    assert (caught.value.column, caught.value.exit_code) == (7, 2)


@pytest.mark.parametrize("told", [{}, {"column": "9"}, {"column": None}])
def test_an_error_without_a_column_is_its_text(agent: Agent, told: dict[str, Any], monkeypatch: Any) -> None:
    older = {"id": 1, "ok": False, "kind": "UsageError", "error": "unknown name 'foo'\n    foo\n    ^", **told}
    monkeypatch.setattr("prismdbg.rank.agent._failure", lambda *_: older)
    with AgentClient(agent.path) as client, pytest.raises(AgentError) as caught:
        client.ask("usage")
    assert caught.value.column is None and str(caught.value).startswith("unknown name 'foo'")


def test_a_rank_that_runs_is_an_error_of_its_own(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a.sock")
    agent.verbs["stack"] = lambda _: Gate(lambda event, **data: None).ask(lambda _: {})
    agent.start()
    with AgentClient(agent.path) as client, pytest.raises(RankRuns, match="the rank is running"):
        client.ask("stack")


def test_a_kind_of_a_newer_agent_is_a_failure() -> None:
    assert AgentError("x", kind="ErrorOfTomorrow").exit_code == 1


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ({}, "is older than this prismdbg: it has no 'microscope'"),
        ({"protocol": 1, "version": "0.0.9"}, "is older (0.0.9) than this prismdbg: it has no 'microscope'"),
        ({"protocol": 9, "version": "2.0"}, "is newer (2.0) than this prismdbg"),
        ({"protocol": "nonsense", "version": ["x"]}, "is older than this prismdbg"),
        (Hello().to_json(), "unknown request to the agent: 'microscope'"),
    ],
)
def test_a_verb_that_the_recorder_of_a_capsule_does_not_know(agent: Agent, says: dict[str, Any], words: str) -> None:
    agent.verbs["hello"] = lambda _: dict(says)
    with connect_when_ready(agent.path, bound_s=10.0, still_alive=lambda: True) as client:
        with pytest.raises(UnknownRequest) as caught:
            client.ask("microscope", nan_only=True)
        assert words in str(caught.value) and caught.value.exit_code == 2
        assert "capture the job again" in caught.value.hint or says == Hello().to_json()
        with pytest.raises(AgentError, match="parked already"):
            client.ask("usage")


def test_both_ends_say_of_which_time_they_are(agent: Agent) -> None:
    with connect_when_ready(agent.path, bound_s=10.0, still_alive=lambda: True) as client:
        assert client.hello == Hello() and client.hello.age == ""


def test_a_process_without_descriptors_is_asked_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`accept` fails while there are none; who has connected waits, and is served when there are some again."""
    agent = Agent(tmp_path / "a.sock")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with AgentClient(agent.path) as client:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            agent.start()
            failed = threading.Event()
            monkeypatch.setattr(
                "prismdbg.rank.agent.time.sleep", lambda _: failed.set() or threading.Event().wait(0.01)
            )
            assert failed.wait(20), "accept did not fail"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert client.ask("hello")["protocol"]


def test_it_says_why_nobody_can_connect_any_more(tmp_path: Path) -> None:
    said: list[Exception] = []
    agent = Agent(tmp_path / "a.sock", said.append)
    agent._socket.close()
    agent.start()
    wait_for(lambda: bool(said), 20, "its last words")
    assert isinstance(said[0], OSError)


def test_a_socket_that_the_program_has_in_its_place_is_the_programs(tmp_path: Path) -> None:
    """It has closed all descriptors, as a daemon does: no client of its own is taken away, in no child is it closed."""
    said: list[Exception] = []
    agent = Agent(tmp_path / "a.sock", said.append)
    number = agent._socket.fileno()
    with socket.create_server(("127.0.0.1", 0)) as programs:
        os.dup2(programs.fileno(), number)
        with socket.create_connection(programs.getsockname()) as client:
            agent.start()
            wait_for(lambda: bool(said), 20, "its last words")
            assert "closed its socket" in str(said[0])
            programs.settimeout(10)
            programs.accept()[0].close()
            assert client.recv(1) == b""
        agent._let_go()
        os.close(number)  # fails where it was closed


def test_an_agent_that_waits_for_clients_leaves_the_last_descriptor(agent: Agent, tmp_path: Path) -> None:
    """A thread in accept(2) has taken the lowest free number already, though nothing shows it."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with AgentClient(agent.path) as client:
        assert client.ask("hello")["protocol"]  # from here on it waits for the next one
        taken = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        free = next(number for number in itertools.count() if number not in taken)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, before[1]))
        try:
            (tmp_path / "of the program").touch()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_clients_leave_the_program_files_to_open(agent: Agent, tmp_path: Path) -> None:
    """A crowd of clients must not take the last descriptors: the program's next `open` would fail."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [(tmp_path / str(number)).open("w") for number in range(4)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1].fileno() + 20, before[1]))
    clients = []
    try:
        for _ in range(6):
            clients.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            clients[-1].settimeout(10)
            clients[-1].connect(str(agent.path))
        assert b"leaves the last 16 to the program" in clients[-1].recv(1 << 16)
        assert clients[-1].recv(1) == b"", "the last one is shown out"
        (tmp_path / "of the program").touch()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for client in clients:
            client.close()
        for opened in taken:
            opened.close()


def test_a_client_without_a_descriptor_learns_why_at_once(agent: Agent, tmp_path: Path) -> None:
    """Whoever waits for an agent must not wait for one that will never accept a client."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (tmp_path / "highest").open("w") as highest:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno() + 8, before[1]))
        try:
            with pytest.raises(AgentError, match="open files") as caught:
                connect_when_ready(agent.path, bound_s=60.0, still_alive=lambda: True)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert caught.value.exit_code == 4 and "ulimit -n" in caught.value.hint


def test_the_words_of_an_agent_that_has_closed_already_arrive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "b.sock"))
        listening.listen()
        with AgentClient(tmp_path / "b.sock") as client:
            accepted, _ = listening.accept()
            accepted.sendall(b'{"id":1,"ok":false,"kind":"FacilityError","error":"full","hint":"wait"}\n')
            accepted.close()
            with pytest.raises(AgentError, match=r"^full$"):
                client.ask("hello")
            with pytest.raises(errors.RankLost, match="closed while waiting"):
                client.ask("hello")


def test_one_client_too_many_is_told(agent: Agent) -> None:
    clients: list[AgentClient] = []
    try:
        for _ in range(MAX_CLIENTS):
            clients.append(AgentClient(agent.path))
            clients[-1].greet(10.0)
        with pytest.raises(AgentError, match=f"^{MAX_CLIENTS} clients are connected"), AgentClient(agent.path) as more:
            more.greet(10.0)
    finally:
        for client in clients:
            client.close()


def test_a_client_that_reads_nothing_is_left_with_half_an_event_and_holds_up_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next event behind half a line would be no message: whoever debugs would call the rank hostile."""
    monkeypatch.setattr(wire, "SEND_S", 1.0)
    agent = Agent(tmp_path / "a.sock")
    agent.start()
    with (
        socket.socket(socket.AF_UNIX) as stuck,
        connect_when_ready(agent.path, bound_s=10.0, still_alive=lambda: True) as well,
    ):
        stuck.settimeout(20)
        stuck.connect(str(agent.path))
        wait_for(lambda: len(agent._clients) == 2, 20, "both clients")
        texts = "x" * (4 << 20), "later"
        told = threading.Thread(target=lambda: [agent.publish("note", text=text) for text in texts])
        told.start()
        assert [len(well.next_event(20, "a note")["text"]) for _ in range(2)] == [4 << 20, 5]
        told.join(20)
        assert len(agent._clients) == 1
        data = b"".join(iter(lambda: stuck.recv(1 << 20), b""))
    assert data.startswith(b'{"event":"note"') and b"\n" not in data and b"later" not in data


def test_a_replayed_rank_waits_for_a_client_that_reads_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone reads a page of what the debugger has printed; the rank is there for that alone."""
    monkeypatch.setattr(wire, "SEND_S", 0.1)
    agent = Agent(tmp_path / "a.sock")
    agent.waits = True
    agent.start()
    texts = ["x" * (2 << 20), "later"]
    with connect_when_ready(agent.path, bound_s=10.0, still_alive=lambda: True) as client:
        wait_for(lambda: bool(agent._clients), 20, "the client")
        told = threading.Thread(target=lambda: [agent.publish("note", text=text) for text in texts], daemon=True)
        told.start()
        told.join(0.5)
        assert told.is_alive()
        assert [client.next_event(20, "a note")["text"] for _ in texts] == texts
        told.join(20)


def test_a_replayed_rank_does_not_wait_for_a_client_that_is_gone(tmp_path: Path) -> None:
    agent = Agent(tmp_path / "a.sock")
    agent.waits = True
    agent.start()
    with socket.socket(socket.AF_UNIX) as stuck:
        stuck.connect(str(agent.path))
        wait_for(lambda: bool(agent._clients), 20, "the client")
        told = threading.Thread(target=lambda: agent.publish("note", text="x" * (4 << 20)), daemon=True)
        told.start()
        wait_for(lambda: stuck.recv(1, socket.MSG_PEEK) == b"{", 20, "a part of the event")
    told.join(20)
    assert not told.is_alive()
    wait_for(lambda: not agent._clients, 20, "the client to be forgotten")
