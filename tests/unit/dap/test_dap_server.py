"""Where clients come from: a port of this machine, of this user alone, and for a bounded time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from prismdbg.dap import server
from prismdbg.dap.launch import Launch
from prismdbg.errors import FacilityError, WaitTimeout


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((server.HOST, 0)) as made:
        made.settimeout(30)
        yield made


def test_whose_a_connection_is(listener: socket.socket) -> None:
    with socket.create_connection(listener.getsockname()) as mine:
        accepted, address = listener.accept()
        with accepted:
            assert address == mine.getsockname()
            assert server._user_of(address, listener.getsockname()) == os.getuid()
    assert server._user_of((server.HOST, 1), listener.getsockname()) is None


def test_another_users_connection_is_refused_and_the_next_one_is_served(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = [os.getuid() + 1, None, os.getuid()]
    monkeypatch.setattr(server, "_user_of", lambda _client, _server: users.pop(0))
    said: list[str] = []
    clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    with server._accepted(listener, 30, said.append) as accepted:
        assert accepted.getpeername() == clients[2].getsockname()
        assert [client.recv(1) for client in clients[:2]] == [b"", b""]
    assert said == ["a connection is refused: another user has it, or it has ended"] * 2
    for client in clients:
        client.close()


def test_a_connection_that_has_ended_is_nobodys_whatever_it_sent(listener: socket.socket) -> None:
    """The kernel lists the closed end as root's: another user's requests would be taken for this user's."""
    said: list[str] = []
    with socket.create_connection(listener.getsockname()) as ended:
        ended.sendall(b"Content-Length: 2\r\n\r\n{}")
    mine = socket.create_connection(listener.getsockname())
    with mine, server._accepted(listener, 30, said.append) as accepted:
        assert accepted.getpeername() == mine.getsockname()
    assert said == ["a connection is refused: another user has it, or it has ended"]


def test_nobody_connects() -> None:
    with socket.create_server((server.HOST, 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(WaitTimeout, match=r"waited 0.05 s for a debug adapter client"):
        server.serve_port(Launch(bound_s=0.05), port, lambda _: None)


def test_a_port_that_is_taken_is_an_error(listener: socket.socket) -> None:
    with pytest.raises(FacilityError, match="cannot be used"):
        server.serve_port(Launch(), listener.getsockname()[1], lambda _: None)
