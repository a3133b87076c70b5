"""Where a client comes from: standard input and output, or a port of this machine."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prismdbg.dap.adapter import Adapter
from prismdbg.dap.client import Client, bounded_writer
from prismdbg.dap.control import Control
from prismdbg.dap.framing import MessageReader
from prismdbg.dap.inbox import Inbox
from prismdbg.dap.launch import Launch
from prismdbg.errors import FacilityError, WaitTimeout

HOST = "127.0.0.1"
_TABLE = Path("/proc/net/tcp")
_ESTABLISHED, _NO_INODE = "01", "0"


def serve_stdio(launch: Launch) -> None:
    """Until the client disconnects or is gone. What else is printed to standard output goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        serve(launch, partial(os.read, 0), output)
    finally:
        os.dup2(output, 1)
        os.close(output)


def serve_port(launch: Launch, port: int, say: Callable[[str], None]) -> None:
    """One client of the same user, on this machine; who comes later is refused by the kernel, and does not wait."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
        except OSError as error:
            raise FacilityError(f"port {port} cannot be used: {error.strerror}", hint="choose another port") from None
        listener.listen(1)
        listener.settimeout(launch.bound_s)
        say(f"waiting for a debug adapter client on {HOST}:{port}")
        client = _accepted(listener, launch.bound_s, say)
    with client:
        serve(launch, client.recv, client.fileno())


def _accepted(listener: socket.socket, bound_s: float, say: Callable[[str], None]) -> socket.socket:
    """The first connection of a process of this user; another user's, or one that was ended meanwhile, is closed."""
    while True:
        try:
            client, address = listener.accept()
        except TimeoutError:
            raise WaitTimeout(
                f"waited {bound_s:g} s for a debug adapter client", hint="give a longer --timeout"
            ) from None
        if _user_of(address, listener.getsockname()) in (0, os.getuid()):
            client.settimeout(None)
            return client
        say("a connection is refused: another user has it, or it has ended")
        client.close()


def _user_of(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Who has the client's end of a connection; None where the kernel does not say. Of an end that its process closed
    it says root, whosever it was."""
    wanted = [_as_in_table(client), _as_in_table(server)]
    for line in _TABLE.read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == wanted:
            is_held = fields[3] == _ESTABLISHED and fields[9] != _NO_INODE
            return int(fields[7]) if is_held else None
    return None


def _as_in_table(address: tuple[str, int]) -> str:
    host = int.from_bytes(socket.inet_aton(address[0]), "little")
    return f"{host:08X}:{address[1]:04X}"


def serve(launch: Launch, read: Callable[[int], bytes], output: int) -> None:
    """`output`: the descriptor that is written to."""
    control = Control(lambda: os.kill(os.getpid(), signal.SIGTERM))
    client = Client(bounded_writer(output), control.close)
    inbox = Inbox(MessageReader(read), client, control)
    Adapter(client, inbox, control, launch).serve()
