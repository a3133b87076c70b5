"""How an engine is looked for."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

from prismdbg.runtime.docker_engine import answers_at


def test_where_an_engine_was_ended_nothing_answers_and_nothing_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(path))
        ended.listen(1)
    assert not answers_at(f"unix://{path}")
    gc.collect()  # of a socket left open pytest makes an error here
