"""For processes under test: says on a Unix socket, to whoever connects and writes, where the process is."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path


def answer_on(path: Path, state: Callable[[], Mapping[str, object]]) -> None:
    """One JSON line a connection, by a thread that ends with the process."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(4)
    threading.Thread(target=_answer, args=(listener, state), daemon=True).start()


def _answer(listener: socket.socket, state: Callable[[], Mapping[str, object]]) -> None:
    while True:
        client, _ = listener.accept()
        with client:
            client.recv(100)
            client.sendall(json.dumps(dict(state())).encode() + b"\n")
