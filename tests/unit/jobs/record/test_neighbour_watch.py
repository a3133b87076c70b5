"""Who is called lost: only who is silent while others are heard, and not for ever."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from prismdbg.jobs.capture.requests import refuse_lost
from prismdbg.jobs.record.nodes import heartbeat
from prismdbg.jobs.record.nodes.heartbeat import Heartbeat, NeighbourWatch
from prismdbg.jobs.storage.job_nodes import NodeFolder, node_states
from prismdbg.jobs.storage.run_folder import RunFolder


class Nodes:
    """`n1` and `n2`, of which the first watches the second. Time goes on by hand."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run = RunFolder(base / "run")
        self.run.nodes.mkdir(parents=True)
        (self.run.nodes / "job.json").write_text('{"id": "x"}')
        one, other = (self._node(name) for name in ("n1", "n2"))
        self.hearts = Heartbeat(one), Heartbeat(other)
        self.told: list[str] = []
        self.now_s = 0
        monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic_ns=lambda: self.now_s * 10**9))
        monkeypatch.setattr(heartbeat, "LOOK_NS", 0)
        self.watch = NeighbourWatch(self.run, one, self.hearts[0], self.told.append)
        self._monkeypatch = monkeypatch
        self._away = base / "away"

    def _node(self, name: str) -> NodeFolder:
        node = NodeFolder(self.run.nodes / name)
        node.path.mkdir()
        node.about.write_text("{}")
        return node

    def go_on(self, seconds: int, *, other_lives: bool = True) -> None:
        """The watch looks before the hearts beat, too, which is the worst order."""
        for _ in range(seconds):
            self.now_s += 1
            self.watch.look()
            for heart in self.hearts if other_lives else self.hearts[:1]:
                heart.once()
            self.watch.look()

    @contextmanager
    def full(self) -> Iterator[None]:
        def refused(*_: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with self._monkeypatch.context() as patched:
            patched.setattr(heartbeat, "write_json", refused)
            yield

    @contextmanager
    def read_only(self) -> Iterator[None]:
        def refused(*_: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        with self.full(), self._monkeypatch.context() as patched:
            patched.setattr(os, "utime", refused)
            yield

    @contextmanager
    def gone(self) -> Iterator[None]:
        self.run.path.rename(self._away)
        yield
        self._away.rename(self.run.path)


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nodes:
    return Nodes(tmp_path, monkeypatch)


@pytest.mark.parametrize("outage", ["full", "read_only", "gone"])
def test_while_nobody_can_be_heard_nobody_is_called_lost(outage: str, nodes: Nodes) -> None:
    nodes.go_on(5)
    with getattr(nodes, outage)():
        nodes.go_on(40)
    nodes.go_on(30)
    assert nodes.told == []
    nodes.go_on(20, other_lives=False)
    assert len(nodes.told) == 1 and nodes.told[0].startswith("node n2 has been silent for "), nodes.told


def test_who_dies_during_an_outage_is_called_lost_after_it(nodes: Nodes) -> None:
    nodes.go_on(5)
    with nodes.read_only():
        nodes.go_on(40, other_lives=False)
    nodes.go_on(9, other_lives=False)
    assert nodes.told == []
    nodes.go_on(5, other_lives=False)
    assert len(nodes.told) == 1, nodes.told


def test_who_is_heard_of_again_is_watched_again(nodes: Nodes) -> None:
    """Its network was away, say: it may be lost later."""
    nodes.go_on(5)
    for losses in (1, 2):
        nodes.go_on(30, other_lives=False)
        assert len(nodes.told) == 2 * losses - 1, nodes.told
        nodes.go_on(10)
        assert len(nodes.told) == 2 * losses, nodes.told
    silent, heard, again, _ = nodes.told
    assert silent == "node n2 has been silent for 11 s: it, its supervisor or its network is lost"
    assert heard == "node n2 is heard of again, after 31 seconds"
    assert again == silent.replace(":", " once more (2 times so far):"), "the ledger keeps each text once"


def test_a_node_that_comes_and_goes_leaves_room_for_other_problems(nodes: Nodes) -> None:
    """The list of problems has an end, and a network may be bad for weeks."""
    nodes.go_on(5)
    for _ in range(heartbeat.MOST_LOSSES + 4):
        nodes.go_on(13, other_lives=False)
        nodes.go_on(2)
    assert len(nodes.told) == 2 * heartbeat.MOST_LOSSES - 1, nodes.told
    assert nodes.told[-1] == (
        "node n2 has been silent for 11 s once more (8 times so far): it, its supervisor or its network is lost; "
        "further losses of this node are not reported: `prismdbg status` shows its state"
    )


def test_in_a_folder_that_is_full_a_node_is_not_lost_to_status_and_capture(nodes: Nodes) -> None:
    heart = nodes.hearts[1]
    heart.once()
    beat = nodes.run.nodes / "n2.beat.json"
    then_s = beat.stat().st_mtime - 40
    os.utime(beat, (then_s, then_s))
    with nodes.full():
        heart.once()
    state = node_states(nodes.run)[1]
    assert state.state == "running"
    refuse_lost(nodes.run.ranks / "2", state)
