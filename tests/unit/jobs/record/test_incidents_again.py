"""What may happen again in a job of several nodes: each time becomes one incident, however many nodes see it and when.

The nodes' clocks differ; time passes for what is in RUN, too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismdbg.jobs.record import decisions
from prismdbg.jobs.record.decisions import PATIENCE_S, SETTLE_S, Again, Decisions, Over, Which
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_folder import write_json as write

HOUR_S = 3600.0
MOST = 3
NAME = "0-failure"


class Node:
    """A supervisor that only decides. `captured`: which of the incidents it was each time, and what was seen."""

    def __init__(self, run: RunFolder, name: str, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self.told: list[str] = []
        self.lost: set[str] = set()
        self.decisions = Decisions(run, name, self.told.append, now_s, self.lost.__contains__)
        self.captured: list[tuple[int, str]] = []
        self.whiches: list[Which] = []
        self.meanwhile: Callable[[], None] = lambda: None  # while it captures one

    def sees(
        self, what: str, *, key: int = 5, ago_s: float = 1.0, step: int | None = None, of_thread: bool = False
    ) -> None:
        def act(which: Which) -> None:
            self.captured.append((which.number, what))
            self.whiches.append(which)
            self.meanwhile()

        again = Again(time_ns=self._ns(ago_s), most=MOST, step=step, of_thread=of_thread)
        self.decisions.propose(NAME, (key,), act, again)

    def is_over(self, *, ago_s: float = 0.1, since_step: int = 0) -> None:
        self.decisions.note_over(NAME, Over(time_ns=self._ns(ago_s), since_step=since_step))

    def _ns(self, ago_s: float) -> int:
        return round((self.now_s() - ago_s) * 1e9)


class World:
    def __init__(self, path: Path) -> None:
        self.run = RunFolder(path)
        self._now_s = 50_000.0
        self.nodes: list[Node] = []
        self.one, self.other, self.third = (self._node(f"n{n}", n * 7777.0) for n in (1, 2, 3))

    def _node(self, name: str, ahead_s: float) -> Node:
        self.nodes.append(Node(self.run, name, lambda: self._now_s + ahead_s))
        return self.nodes[-1]

    def passes(self, seconds: float, *, at_once: bool = False) -> None:
        """Everybody looks each second, or only at the end."""
        while seconds > 0:
            part = seconds if at_once else min(1.0, seconds)
            seconds -= part
            self.ages(part)
            for node in self.nodes:
                node.decisions.settle()

    def ages(self, seconds: float) -> None:
        self._now_s += seconds
        for path in self.run.path.rglob("*"):
            then = path.stat().st_mtime - seconds
            os.utime(path, (then, then))

    @property
    def captured(self) -> list[list[tuple[int, str]]]:
        return [node.captured for node in self.nodes]

    @property
    def is_open(self) -> bool:
        return any(node.decisions.is_open for node in self.nodes)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def decided(world: World, node: Node, what: str, **options: Any) -> None:
    """It was captured; nobody waits any more."""
    node.sees(what, **options)
    world.passes(SETTLE_S + 2)
    assert node.captured[-1][1] == what and not world.is_open


def test_a_death_long_after_an_exception_that_was_outlived_is_another_incident(world: World) -> None:
    decided(world, world.one, "printed")
    world.one.is_over()
    world.passes(20 * HOUR_S, at_once=True)
    world.other.sees("killed")
    world.third.sees("its peer left", key=9)
    world.passes(SETTLE_S + PATIENCE_S)
    assert world.captured == [[(1, "printed")], [(2, "killed")], []] and not world.is_open


def test_whatever_comes_after_one_that_was_not_outlived_is_the_same(world: World) -> None:
    """A rank may wait half an hour for a peer that is gone. What an older prismdbg has decided says nothing of it."""
    decided(world, world.one, "raised")
    world.passes(HOUR_S / 2, at_once=True)
    world.other.sees("its peer left")
    assert world.is_open, "it may just be over"
    world.passes(SETTLE_S + 1)
    assert world.captured == [[(1, "raised")], [], []] and not world.is_open


def test_who_tells_late_of_what_was_captured_makes_no_second_incident_of_it(world: World) -> None:
    """A supervisor that captured another one before, say; the job may have gone on meanwhile."""
    decided(world, world.one, "printed")
    world.other.sees("printed there, too", ago_s=SETTLE_S + 2)
    assert not world.other.decisions.is_open, "nobody has to wait for that"
    world.one.is_over()
    world.passes(60)
    world.third.sees("printed there, too", ago_s=62 + SETTLE_S)
    assert not world.third.decisions.is_open
    world.passes(PATIENCE_S)
    assert world.captured == [[(1, "printed")], [], []]


def test_to_ask_for_the_time_may_take_long(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file server that stands still meanwhile: it makes nothing later than it was."""
    decided(world, world.one, "printed", ago_s=0)
    world.one.is_over(ago_s=2)
    world.passes(1)
    ask = decisions.now_in

    def slowly(folder: Path) -> float:
        world.ages(30)
        return ask(folder)

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "now_in", slowly)
        world.other.sees("printed there, too", ago_s=5)
    world.passes(PATIENCE_S)
    assert world.captured == [[(1, "printed")], [], []] and not world.is_open


def test_what_happens_while_one_is_captured_is_another_where_its_rank_had_gone_on(world: World) -> None:
    def meanwhile() -> None:
        world.one.meanwhile = lambda: None
        world.passes(20)
        world.other.sees("killed")
        world.passes(20)

    world.one.meanwhile = meanwhile
    world.one.sees("printed")
    world.passes(SETTLE_S + 1)
    assert world.other.decisions.is_open and not world.other.captured
    world.one.is_over(ago_s=35)
    world.passes(SETTLE_S + 3)
    assert world.captured == [[(1, "printed")], [(2, "killed")], []] and not world.is_open


def test_what_happens_while_one_is_captured_is_the_same_where_nobody_went_on(world: World) -> None:
    def meanwhile() -> None:
        world.passes(20)
        world.other.sees("its peer left")
        world.passes(20)

    world.one.meanwhile = meanwhile
    world.one.sees("raised")
    world.passes(SETTLE_S + 1)
    world.passes(1)
    assert world.other.decisions.is_open, "it may just be over"
    for node in world.nodes:
        node.decisions.act_alone()
    assert world.captured == [[(1, "raised")], [], []] and not world.is_open


def test_what_was_over_before_it_was_decided_is_told_with_the_decision(world: World) -> None:
    world.one.sees("printed", key=1)
    world.passes(1)
    world.one.is_over()
    world.passes(0.5)
    world.other.sees("killed", key=9, ago_s=0.2)
    world.passes(SETTLE_S + PATIENCE_S)
    assert world.captured == [[(1, "printed")], [(2, "killed")], []] and not world.is_open


def test_who_captures_another_ones_incident_knows_nothing_of_its_end(world: World) -> None:
    world.other.sees("printed there, too", key=9)
    decided(world, world.one, "printed", key=1)
    world.other.is_over()
    world.passes(1)
    world.third.sees("killed")
    world.passes(SETTLE_S + 1)
    assert world.captured == [[(1, "printed")], [], []]
    world.one.is_over()
    world.passes(1)
    world.third.sees("killed", ago_s=0.5)
    world.passes(SETTLE_S + 1)
    assert world.captured == [[(1, "printed")], [], [(2, "killed")]]


def test_what_a_thread_raised_hides_nothing_but_what_threads_raise(world: World) -> None:
    world.one.sees("raised by a thread", of_thread=True)
    world.passes(SETTLE_S + 2)
    world.passes(HOUR_S, at_once=True)
    world.other.sees("raised by a thread", of_thread=True)
    assert not world.other.decisions.is_open
    world.third.sees("killed")
    world.passes(SETTLE_S + 1)
    world.passes(HOUR_S, at_once=True)
    world.other.sees("its peer left")
    world.passes(SETTLE_S + 1)
    assert world.captured == [[(1, "raised by a thread")], [], [(2, "killed")]] and not world.is_open


def test_what_a_thread_raised_a_moment_before_is_the_same(world: World) -> None:
    world.one.sees("raised by a thread", key=1, of_thread=True, ago_s=1.5)
    world.other.sees("killed", key=9, ago_s=1.0)
    world.passes(SETTLE_S + 2)
    assert world.captured == [[(1, "raised by a thread")], [], []] and not world.is_open


def test_only_some_are_captured_but_for_one_of_a_thread(world: World) -> None:
    world.one.sees("raised by a thread", of_thread=True)
    world.passes(SETTLE_S + 2)
    for number in range(MOST + 1):
        node = world.nodes[number % 3]
        node.sees(f"printed {number}")
        world.passes(SETTLE_S + 1)
        node.is_over()
        world.passes(HOUR_S, at_once=True)
    numbers = sorted(number for captured in world.captured for number, _ in captured)
    assert numbers == list(range(1, MOST + 2)) and not world.is_open


def test_a_supervisor_that_takes_the_place_of_a_lost_one_tells_when_it_is_over(world: World) -> None:
    def die() -> None:
        world.nodes.remove(world.one)
        raise KeyboardInterrupt

    world.one.meanwhile = die
    world.one.sees("printed", key=1)
    world.other.sees("printed there, too", key=2)
    with pytest.raises(KeyboardInterrupt):
        world.passes(SETTLE_S + 1)
    for node in world.nodes:
        node.lost.add("n1")
    world.passes(5)
    assert world.other.captured == [(1, "printed there, too")]
    world.other.is_over()
    world.passes(HOUR_S, at_once=True)
    world.third.sees("killed")
    world.passes(SETTLE_S + 1)
    assert world.third.captured == [(2, "killed")] and not world.is_open


def test_that_it_is_over_is_told_when_it_can_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    decided(world, world.one, "printed")

    def full(path: Path, data: dict[str, object]) -> None:
        if path.name == "over.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "write_json", full)
        world.one.is_over()
        world.passes(10)
        world.other.sees("killed", ago_s=0.5)
        world.passes(1)
    world.passes(SETTLE_S + 2)
    assert world.captured == [[(1, "printed")], [(2, "killed")], []], "it was told of the time before"


def test_what_follows_is_not_lost_while_it_cannot_be_told_that_the_first_was_captured(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: dict[str, object]) -> None:
        if path.name in ("over.json", "done.json"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "write_json", full)
        world.one.sees("printed")
        world.passes(SETTLE_S + 1)
        world.one.is_over()
        world.passes(60)
        world.one.sees("killed")
        world.passes(SETTLE_S + PATIENCE_S)
        assert world.captured == [[(1, "printed")], [], []] and world.one.decisions.is_open
    world.passes(SETTLE_S + 2)
    assert world.captured == [[(1, "printed"), (2, "killed")], [], []] and not world.is_open


def test_a_damaged_note_of_its_end_counts_for_nothing(world: World) -> None:
    decided(world, world.one, "printed")
    (world.run.decisions / NAME / "over.json").write_text('{"age_s": "long"}')
    world.other.sees("killed")
    world.passes(SETTLE_S + 2)
    assert world.captured == [[(1, "printed")], [], []] and not world.is_open


def test_what_a_node_sees_again_while_another_captures_the_first_is_not_lost(world: World) -> None:
    def meanwhile() -> None:
        world.one.meanwhile = lambda: None
        world.other.is_over()
        world.passes(5)
        world.other.sees("printed again", ago_s=1.0)
        assert world.other.decisions.is_open and not world.other.captured
        world.passes(1)

    world.one.meanwhile = meanwhile
    world.other.sees("printed there, too", key=9)
    world.one.sees("printed", key=1)
    world.passes(SETTLE_S + 1)
    world.one.is_over(ago_s=5)
    world.passes(SETTLE_S + 3)
    assert world.captured == [[(1, "printed")], [(2, "printed again")], []] and not world.is_open


def test_the_first_from_a_step_on_is_told_from_which(world: World) -> None:
    """The same for a NaN, which has a step on all ranks."""
    decided(world, world.one, "nan", step=5)
    world.one.is_over(since_step=40)
    world.passes(10)
    world.other.sees("nan of before", step=39)
    assert not world.other.decisions.is_open
    world.third.sees("nan", step=40)
    world.passes(SETTLE_S + 1)
    assert world.captured == [[(1, "nan")], [], [(2, "nan")]]
    assert world.third.whiches == [Which(number=2, since_step=40)]


def test_what_was_dropped_or_cannot_be_agreed_upon_is_captured_alone_in_its_order(world: World) -> None:
    world.run.decisions.write_text("in the way")
    world.one.sees("printed")
    world.one.sees("killed")
    world.one.decisions.settle()
    assert not world.one.captured and "cannot be written to" in world.one.told[0]
    world.one.decisions.act_alone()
    assert world.one.captured == [(1, "printed"), (1, "killed")] and not world.is_open
    world.one.sees("more")
    world.one.sees("and more")
    world.one.decisions.drop()
    assert not world.is_open
