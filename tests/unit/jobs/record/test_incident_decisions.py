"""One of several supervisors captures an incident: the nearest to the cause, and another one where that is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from prismdbg.jobs.record import decisions
from prismdbg.jobs.record.decisions import PATIENCE_S, SETTLE_S, Decisions
from prismdbg.jobs.storage.run_folder import RunFolder


class Node:
    """A supervisor that only decides; its clock is set by hand."""

    def __init__(self, run: RunFolder, name: str) -> None:
        self.now_s = 1000.0 + len(name)
        self.told: list[str] = []
        self.decisions = Decisions(run, name, self.told.append, lambda: self.now_s)
        self.captured: list[str] = []

    def see(self, incident: str, *key: int) -> None:
        self.decisions.propose(incident, key, self._capture(incident))

    def _capture(self, incident: str) -> Callable[[], None]:
        return lambda: self.captured.append(incident)

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.decisions.settle()


def test_the_nearest_to_the_cause_captures_it_once(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    one, other = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 1, 3)
    other.see("0-nan", 5, 0, 3)
    one.later(SETTLE_S / 2)
    assert one.decisions.is_open and not one.captured
    one.later(SETTLE_S)
    assert one.decisions.is_open and not one.captured, "it waits for the nearer one"
    other.later(SETTLE_S + 1)
    one.later(1)
    assert (one.captured, other.captured) == ([], ["0-nan"])
    assert not one.decisions.is_open and not other.decisions.is_open


def test_a_nearer_one_may_come_a_little_later(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    one, other = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 1)
    one.later(SETTLE_S * 0.9)
    assert one.decisions.is_open and not one.captured
    other.see("0-nan", 5, 0)
    one.later(SETTLE_S * 0.2)
    other.later(SETTLE_S * 1.1)
    assert (one.captured, other.captured) == ([], ["0-nan"])


def test_where_the_nearest_is_gone_the_next_captures_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    one, gone = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 1)
    gone.see("0-nan", 5, 0)
    one.later(SETTLE_S + PATIENCE_S - 1)
    assert not one.captured
    one.later(2)
    assert one.captured == ["0-nan"]
    gone.later(SETTLE_S + PATIENCE_S + 1)  # it was only late
    assert not gone.captured and not gone.decisions.is_open


def test_equal_keys_are_decided_by_name(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    nodes = [Node(run, f"n{number}") for number in range(5)]
    for node in nodes:
        node.see("1-slow", 7)
    for node in reversed(nodes):
        node.later(SETTLE_S + 1)
    nodes[-1].later(1)
    assert [node.captured for node in nodes] == [["1-slow"], [], [], [], []]


def test_who_sees_it_after_it_was_decided_does_nothing(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    one, late = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 1)
    one.later(SETTLE_S + 1)
    late.see("0-nan", 5, 0)
    assert one.captured == ["0-nan"] and not late.decisions.is_open
    late.see("1-nan", 9)  # of the next attempt
    late.later(SETTLE_S + 1)
    assert late.captured == ["1-nan"]


def test_a_damaged_note_counts_for_nothing(tmp_path: Path) -> None:
    one = Node(RunFolder(tmp_path), "n1")
    one.see("hang of ('group', 1)/../x", 5)
    (folder,) = RunFolder(tmp_path).decisions.iterdir()
    (folder / "n0.saw.json").write_text('{"key": ["a"')
    one.later(SETTLE_S + 1)
    assert one.captured == ["hang of ('group', 1)/../x"]


class Blocked:
    """RUN in which nothing can be made: a file is where the folder of incidents would be."""

    def __init__(self, run: RunFolder) -> None:
        self._in_the_way = run.decisions
        self._in_the_way.touch()

    def ends(self) -> None:
        self._in_the_way.unlink()


def test_what_cannot_be_put_down_is_decided_when_it_can_be(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    blocked = Blocked(run)
    one, other = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 1, 3)
    other.see("0-nan", 5, 0, 3)
    for node in (one, other):
        node.later(SETTLE_S + PATIENCE_S + 1)
        assert node.decisions.is_open and not node.captured and node.decisions.failing_s > SETTLE_S
        said = f"{tmp_path} cannot be written to: Not a directory; an incident is captured when it can be again"
        assert set(node.told) == {said}
    blocked.ends()
    for node in (one, other):
        node.later(1)
        assert node.decisions.is_open and not node.captured, "the other one may say it, too, from now on"
    one.later(SETTLE_S + 1)
    other.later(SETTLE_S + 1)
    one.later(1)
    assert (one.captured, other.captured) == ([], ["0-nan"]) and not one.decisions.is_open
    assert one.decisions.failing_s == 0


def test_what_could_be_put_down_but_not_decided_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(RunFolder(tmp_path), "n1")
    node.see("0-nan", 5)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "write_json", full)
        node.later(SETTLE_S + 1)
    assert node.decisions.is_open and not node.captured and "No space left on device" in node.told[0]
    node.later(1)
    assert node.captured == ["0-nan"] and not node.decisions.is_open


def test_what_could_never_be_put_down_is_acted_on_alone(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    Blocked(run)
    node = Node(run, "n1")
    node.see("0-nan", 5)
    node.see("0-failure", 5)
    node.decisions.act_alone()
    assert node.captured == ["0-nan", "0-failure"] and not node.decisions.is_open
