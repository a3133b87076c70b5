"""One thread sends on a connection while another one receives: neither has the other's bound."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from waiting import wait_for

from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.protocol import wire
from prismdbg.protocol.wire import Connection

LARGE = {"text": "x" * (4 << 20)}  # more than a socket holds


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    theirs.settimeout(20)
    with ours, theirs:
        yield ours, theirs


def received(theirs: socket.socket) -> bytes:
    data = bytearray()
    while not data.endswith(b"\n"):
        data += theirs.recv(1 << 20)
    return bytes(data)


def in_thread(connection: Connection, found: list[object]) -> threading.Thread:
    """Receives without a bound."""

    def receive() -> None:
        try:
            found.append(connection.receive(None, "a request"))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    return thread


def test_the_bound_of_what_is_sent_is_not_set_on_the_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    """A thread that receives without a bound had it, and ended after it."""
    ours, theirs = pair
    connection = Connection(ours)
    before = ours.gettimeout()
    connection.send({"event": "note"})
    with pytest.raises(WaitTimeout):
        connection.receive(0.01, "a reply")
    assert received(theirs) == b'{"event":"note"}\n' and ours.gettimeout() == before


def test_sending_has_a_bound_while_another_thread_receives_without(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "SEND_S", 0.1)
    ours, theirs = pair
    connection, found, failed = Connection(ours), list[object](), list[RankLost]()

    def send() -> None:
        try:
            connection.send(LARGE)
        except RankLost as error:
            failed.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    wait_for(lambda: theirs.recv(1, socket.MSG_PEEK) == b"{", 20, "the first byte")
    receiver = in_thread(connection, found)
    sender.join(20)
    assert [str(error) for error in failed] == ["the other end of the agent's socket has not read for 0.1 s"]
    theirs.sendall(b'{"do":"hello"}\n')
    receiver.join(20)
    assert found == [{"do": "hello"}]


def test_what_is_larger_than_the_socket_holds_arrives_whole(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    connection, found = Connection(ours), list[object]()
    in_thread(Connection(theirs), found)
    connection.send(LARGE)
    wait_for(lambda: bool(found), 20, "the message")
    assert found == [LARGE]


def test_what_is_shut_down_ends_the_thread_that_receives(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, _ = pair
    connection, found = Connection(ours), list[object]()
    receiver = in_thread(connection, found)
    connection.shut_down()
    receiver.join(20)
    assert [type(error) for error in found] == [RankLost]


def test_a_closed_one_neither_sends_nor_receives(pair: tuple[socket.socket, socket.socket]) -> None:
    connection = Connection(pair[0])
    connection.close()
    with pytest.raises(RankLost):
        connection.send(LARGE)
    with pytest.raises(RankLost):
        connection.receive(1.0, "a reply")


def test_a_program_that_ends_of_a_broken_pipe_is_not_ended_by_a_client_that_left() -> None:
    program = """
import signal, socket
from prismdbg.errors import RankLost
from prismdbg.protocol.wire import Connection
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
theirs.close()
try:
    Connection(ours).send({})
except (OSError, RankLost):
    print("goes on")
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "goes on\n"), ended.stderr
