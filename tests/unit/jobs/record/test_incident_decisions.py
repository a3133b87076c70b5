"""One of several supervisors captures an incident: the nearest to the cause, and another one where that is gone."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismdbg.jobs.record import decisions
from prismdbg.jobs.record.decisions import PATIENCE_S, SETTLE_S, Act, Decisions, Which
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_folder import write_json as write
from prismdbg.settings.state_hold import LONGEST_S


class Node:
    """A supervisor that only decides; its clock is set by hand."""

    def __init__(self, run: RunFolder, name: str) -> None:
        self.now_s = 1000.0 + len(name)
        self.told: list[str] = []
        self.lost: set[str] = set()  # of the others, to this one
        self.ended: set[str] = set()
        self.decisions = Decisions(
            run, name, self.told.append, lambda: self.now_s, self.lost.__contains__, self.ended.__contains__
        )
        self.captured: list[str] = []

    def see(self, incident: str, *key: int) -> None:
        self.decisions.propose(incident, key, self._capture(incident))

    def _capture(self, incident: str) -> Act:
        return lambda _: self.captured.append(incident)

    def dies_when_it_has_decided(self, incident: str, *key: int) -> None:
        def die(_: Which) -> None:
            raise KeyboardInterrupt

        self.decisions.propose(incident, key, die)
        with pytest.raises(KeyboardInterrupt):
            for _ in range(20):
                self.later(1)

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
    one.later(1)
    one.later(PATIENCE_S - 1)
    assert one.decisions.is_open and not one.captured, "the other one may find later that it can say it, too"
    other.later(1)
    one.later(1)
    other.later(PATIENCE_S)
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


def test_where_the_decider_is_lost_before_it_has_captured_the_nearest_of_the_others_does(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    lost, one, other = (Node(run, name) for name in ("n1", "n2", "n3"))
    one.see("0-nan", 5, 1)
    other.see("0-nan", 5, 2)
    lost.dies_when_it_has_decided("0-nan", 5, 0)
    for _ in range(30):
        other.later(1)
        one.later(1)
    assert one.decisions.is_open and other.decisions.is_open and not one.captured, "it may take long to capture it"
    for node in (other, one, other):
        node.lost.add("n1")
        for _ in range(3):
            node.later(1)
    assert (one.captured, other.captured) == (["0-nan"], [])
    assert not one.decisions.is_open and not other.decisions.is_open


def test_where_all_that_decide_are_lost_the_last_one_captures_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    first, second, last = (Node(run, name) for name in ("n1", "n2", "n3"))
    last.see("0-nan", 5, 2)
    first.dies_when_it_has_decided("0-nan", 5, 0)
    second.lost.add("n1")
    second.dies_when_it_has_decided("0-nan", 5, 1)
    last.lost.update(("n1", "n2"))
    for _ in range(10):
        last.later(1)
    assert last.captured == ["0-nan"] and not last.decisions.is_open


def test_what_another_one_captures_is_waited_for_and_not_captured_again(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    one, other, late = (Node(run, name) for name in ("n1", "n2", "n3"))
    other.see("0-nan", 5, 2)

    def capture(_: Which) -> None:
        other.later(SETTLE_S + PATIENCE_S + 1)
        late.see("0-nan", 5, 3)
        late.later(SETTLE_S + 1)
        assert other.decisions.is_open and late.decisions.is_open
        late.decisions.act_alone()
        assert not late.decisions.is_open and not late.captured, "at the end nobody acts on it either"

    one.decisions.propose("0-nan", (5, 0), capture)
    one.later(SETTLE_S + 1)
    other.later(1)
    assert not other.decisions.is_open and not other.captured


def test_what_another_one_captures_for_very_long_is_left_to_it(tmp_path: Path) -> None:
    """Meanwhile the ranks of this node would get no checkpoint."""
    run = RunFolder(tmp_path)
    one, other = Node(run, "n1"), Node(run, "n2")
    other.see("0-nan", 5, 1)

    def capture(_: Which) -> None:
        other.later(SETTLE_S + 1)
        other.later(LONGEST_S - SETTLE_S - 2)
        assert other.decisions.is_open
        other.later(2)
        assert not other.decisions.is_open

    one.decisions.propose("0-nan", (5, 0), capture)
    one.later(SETTLE_S + 1)
    assert not other.captured


def test_that_it_was_captured_is_seen_though_a_file_server_client_remembers_that_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS asks again for a name that was missing only after its folder was opened or changed, or after a minute."""
    run = RunFolder(tmp_path)
    one, other, late = (Node(run, name) for name in ("n1", "n2", "n3"))
    place = run.decisions / "0-nan" / "decided"
    for ask in ("stat", "lstat"):
        monkeypatch.setattr(os, ask, remembering(getattr(os, ask), str(place / "done.json")))

    def capture(_: Which) -> None:
        other.see("0-nan", 5, 1)
        other.later(SETTLE_S + PATIENCE_S)
        assert other.decisions.is_open

    one.decisions.propose("0-nan", (5, 0), capture)
    one.later(SETTLE_S + 1)
    other.lost.add("n1")
    other.later(1)
    late.see("0-nan", 5, 2)
    assert not other.captured and not other.decisions.is_open and not late.decisions.is_open


def remembering(ask: Callable[..., os.stat_result], missing: str) -> Callable[..., os.stat_result]:
    def asked(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if str(path) == missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return ask(path, *arguments, **options)

    return asked


def test_what_a_node_decided_whose_part_of_the_job_is_over_is_not_decided_anew(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    over, one = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 1)
    over.dies_when_it_has_decided("0-nan", 5, 0)
    one.ended.add("n1")
    one.later(SETTLE_S + 1)
    assert one.decisions.is_open, "nobody asks for that of one that is heard of"
    one.lost.add("n1")
    for _ in range(3):
        one.later(1)
    assert not one.captured and not one.decisions.is_open


def test_that_it_was_captured_is_told_when_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = RunFolder(tmp_path)
    one, other = Node(run, "n1"), Node(run, "n2")
    one.see("0-nan", 5, 0)
    other.see("0-nan", 5, 1)

    def full(path: Path, data: dict[str, object]) -> None:
        if path.name == "done.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(decisions, "write_json", full)
        one.later(SETTLE_S + 1)
        other.later(SETTLE_S + 1)
        assert one.captured == ["0-nan"] and other.decisions.is_open
        assert not one.decisions.is_open and one.decisions.has_to_tell
        one.see("0-nan", 5, 0)
        one.later(SETTLE_S + 1)
        assert one.captured == ["0-nan"], "it is seen again, and not captured again"
    one.later(1)
    assert not one.decisions.has_to_tell
    other.later(1)
    assert not other.decisions.is_open and not other.captured


def test_who_gets_no_reply_to_what_it_decided_captures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file server did it, and its client asks again."""
    rename_twice(monkeypatch)
    run = RunFolder(tmp_path)
    one, other = Node(run, "n1"), Node(run, "n2")
    for node in (one, other):
        node.see("0-nan", 5)
        node.later(SETTLE_S + 1)
    assert one.captured == ["0-nan"] and not other.captured


def test_who_gets_an_error_for_what_it_decided_captures_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for itself for ever."""
    run = RunFolder(tmp_path)
    one, other = Node(run, "n1"), Node(run, "n2")
    place, is_dir = run.decisions / "0-nan" / "decided", Path.is_dir
    rename_twice(monkeypatch)

    def out_of_reach(path: Path) -> bool:
        if path == place and is_dir(path):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return is_dir(path)

    one.see("0-nan", 5)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "is_dir", out_of_reach)
        one.later(SETTLE_S + 1)
    assert place.is_dir() and one.decisions.is_open and not one.captured
    other.see("0-nan", 6)
    one.later(1)
    other.later(SETTLE_S + 1)
    assert one.captured == ["0-nan"] and not one.decisions.is_open
    assert not other.captured and not other.decisions.is_open


def rename_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def twice(path: Path, target: Path) -> Path:
        rename(path, target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", twice)
