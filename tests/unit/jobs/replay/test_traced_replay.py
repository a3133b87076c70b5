"""The memory trace of a replay is read once the rank has written all of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from traces import TraceBuilder

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.jobs.replay import memory_trace
from prismdbg.jobs.replay.memory_trace import traced_replay
from prismdbg.jobs.replay.replay_plan import ReplayRequest
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import open_trace


class Rank:
    """Holds its last records back until it is asked how many there are, as the tracer does."""

    def __init__(self, folder: Path) -> None:
        self._trace = TraceBuilder(folder / "trace")
        self.own = SimpleNamespace(path=folder, copied=lambda name, into: shutil.copytree(folder / name, into))

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        assert verb == "trace"
        if arguments.get("on"):
            self._trace.write()
            self._trace.allocate(100)
            return {"path": str(self._trace.folder)}
        self._trace.write()
        return {"records": 1}


def test_the_records_that_the_rank_held_back_are_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    rank = Rank(tmp_path / "own")

    @contextmanager
    def opened(*_: object) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(client=rank, own=rank.own)

    monkeypatch.setattr(memory_trace, "open_replay", opened)
    monkeypatch.setattr(memory_trace, "run_to_end", lambda *_, **__: SimpleNamespace(summary="identical"))
    request = ReplayRequest(capsule=cast(Capsule, None))
    kept = tmp_path / "kept"
    found = traced_replay(request, lambda _: None, until=None, timeout_s=1.0, keep=kept)
    assert list(open_trace(kept, 1).address) == list(found.trace.address)
    highest = peak(found.trace)
    assert highest is not None and highest.size_bytes == 100
