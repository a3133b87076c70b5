"""What a starter says on its connection: the first one is the only one."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from counting import short_folder

from prismdbg.runtime.spec import CONTROL_FOLDER
from prismdbg.runtime.starter_spec import STATUS, STATUS_SOCKET, read_progress
from prismdbg.runtime.status_socket import StatusSocket


@pytest.fixture
def session() -> Iterator[Path]:
    with short_folder() as folder:
        (folder / CONTROL_FOLDER).mkdir()
        yield folder


@pytest.fixture
def status(session: Path) -> Iterator[StatusSocket]:
    one = StatusSocket(session / CONTROL_FOLDER, (os.getuid(), os.getgid()))
    yield one
    one.close()


def connected(session: Path) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.connect(str(session / CONTROL_FOLDER / STATUS_SOCKET))
    except OSError:
        sock.close()
        raise
    return sock


def test_what_is_said_is_in_the_status_file(session: Path, status: StatusSocket) -> None:
    status.take()
    with connected(session) as starter:
        status.take()
        starter.sendall(b'{"event": "started", "pid": 7}\n')
        status.take()
        assert read_progress(session).pid == 7
        starter.sendall(b'{"event": "exited", "code": 3}\n')
    status.take()
    status.take()
    assert read_progress(session).exit_code == 3


def test_nobody_else_is_heard(session: Path, status: StatusSocket) -> None:
    with connected(session) as starter, connected(session) as rank:
        rank.sendall(b'{"event": "exited", "code": 0}\n')
        starter.sendall(b'{"event": "started", "pid": 7}\n')
        status.take()
        with pytest.raises(OSError):
            connected(session)
    status.take()
    assert (read_progress(session).pid, read_progress(session).exit_code) == (7, None)


def test_nothing_is_left_once_it_is_closed(session: Path, status: StatusSocket) -> None:
    status.close()
    status.close()
    status.take()
    assert not (session / CONTROL_FOLDER / STATUS_SOCKET).exists()
    assert not (session / CONTROL_FOLDER / STATUS).exists()
