"""A rank whose agent is hostile: it answers requests with whatever a test gives it, bytes included."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Reply = bytes | dict[str, Any] | list[Any] | None
Says = Callable[[dict[str, Any]], "Reply | Iterator[bytes]"]

TALLY = {"compared": 6, "fingerprints": 6, "synthesized": 0, "missing": 0}
STANDS = {"moment": "1.1", "stopped": "start", "number": 1, "collective": {}, "tally": TALLY}


def line(message: Any) -> bytes:
    return json.dumps(message).encode() + b"\n"


class HostileRank:
    """Listens at `path`. says: what is sent for each request: a message, bytes, or several of both."""

    def __init__(self, path: Path, says: Says) -> None:
        self.path = path
        self._says = says
        self.connections = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        self._socket.listen(8)
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                self.connections += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, client.makefile("rb") as lines:
            for text in lines:
                request = json.loads(text)
                for part in _parts(self._says(request)):
                    client.sendall(part if isinstance(part, bytes) else line(part))


def _parts(said: Any) -> Iterator[Any]:
    if isinstance(said, bytes | dict):
        yield said
    elif said is not None:
        yield from said


def answers(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": request["id"], "ok": True, **more}
