"""How an engine is looked for."""

from __future__ import annotations

import gc
import shutil
import socket
from pathlib import Path

import pytest

from prismdbg.errors import FacilityError
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import answers_at


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
