"""How an engine is looked for."""

from __future__ import annotations

import gc
import json
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest

from prismdbg.errors import FacilityError, RuntimeFailure
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import Engine, answers_at, unavailable


def test_where_an_engine_was_ended_nothing_answers_and_nothing_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(path))
        ended.listen(1)
    assert not answers_at(f"unix://{path}")
    gc.collect()  # of a socket left open pytest makes an error here


def test_what_is_wrong_and_what_to_do_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(FacilityError, match=r"none can be started: Docker is not installed$") as refused:
        Daemon(tmp_path).start(lambda: False)
    assert refused.value.hint == "run apt-get install docker.io"


def test_a_cache_behind_a_link_has_the_engine_of_what_it_leads_to(tmp_path: Path) -> None:
    """runc starts nothing below a symbolic link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    real, link = Daemon(tmp_path / "real"), Daemon(tmp_path / "link")
    assert (link.url, link.cache, link.log) == (real.url, real.cache, real.log)


class _Docker(BaseHTTPRequestHandler):
    """Docker's answers about one container that takes a while to end."""

    kills: ClassVar[list[int]] = []
    security: ClassVar[list[str] | None] = []

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        return None

    def _answer(self, code: int, body: Mapping[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        about = {"Version": "20.10", "ApiVersion": "1.41", "Id": "x"}
        self._answer(200, about | ({"SecurityOptions": self.security} if self.path.endswith("/info") else {}))

    def do_DELETE(self) -> None:
        code = self.kills.pop(0)
        words = "could not kill: tried to kill container, but did not receive an exit event"
        self._answer(code, {"message": words if code == 500 else "removal is already in progress"})


@pytest.fixture
def docker() -> Iterator[Engine]:
    with tempfile.TemporaryDirectory(prefix="pd") as name:  # pytest's own paths are too long for a socket
        server = socketserver.ThreadingUnixStreamServer(f"{name}/d.sock", _Docker)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        engine = Engine(f"unix://{name}/d.sock")
        yield engine
        engine.close()
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_container_of_very_many_processes_is_waited_for(docker: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker gives up after ten seconds; the kernel has not ended a fork bomb by then."""
    _Docker.kills[:] = [500, 500, 409]
    docker.remove("x")
    assert _Docker.kills == []
    _Docker.kills[:] = [500]
    monkeypatch.setattr("prismdbg.runtime.docker.engine._ENDS_S", -1.0)
    with pytest.raises(RuntimeFailure, match="did not receive an exit event"):
        docker.remove("x")


@pytest.mark.parametrize(
    ("security", "maps"),
    [
        (["name=seccomp,profile=builtin", "name=userns"], True),
        (["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"], True),
        (["name=seccomp,profile=builtin", "name=cgroupns"], False),
        (None, False),
    ],
)
def test_an_engine_that_maps_users_is_not_taken(
    docker: Engine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, security: list[str] | None, maps: bool
) -> None:
    """In its containers no user is the one who owns the replay's session, and a rank of root owns nothing."""
    monkeypatch.setattr(_Docker, "security", security)
    monkeypatch.setenv("DOCKER_HOST", docker.url)
    reason = unavailable(Daemon(tmp_path))
    assert (reason is not None) == maps
    if reason is not None:
        assert "maps users" in reason and reason.endswith(": use --runtime local")
