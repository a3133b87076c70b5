"""Images taken of a rank in its own place, and the way back to them, over all places that promise it.

The rank counts on all the time, into its journal and its output: whatever does not fit together there shows.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from counting import PYTHON, ask, short_folder, with_saving
from counting_rank import COUNT_S
from runtime_places import Case, walled
from waiting import wait_for

from prismdbg.checkpoint import bundle
from prismdbg.errors import RankLost
from prismdbg.runtime.runtime import RunningRank
from prismdbg.runtime.spec import ReplaySpec
from prismdbg.runtime.started_rank import find_below
from prismdbg.runtime.starter_control import StarterControl
from prismdbg.runtime.starter_spec import clear_start

pytestmark = [pytest.mark.criu, walled]
WRITTEN = f"/tmp/prismdbg-written-{os.getpid()}"  # a folder that it writes into, in its own place
SOON = 40  # counts: what one may lose between a return and the next question


@dataclass(slots=True)
class Saved:
    """One rank in a place where images can be taken."""

    case: Case
    spec: ReplaySpec
    socket: Path
    rank: RunningRank
    control: StarterControl

    def ask(self, request: str = "status") -> dict[str, Any]:
        return ask(self.socket, request)

    @property
    def count(self) -> int:
        return int(self.ask()["count"])

    def go_on(self, counts: int = 30) -> int:
        before = self.count
        return int(wait_for(lambda: (now := self.count) >= before + counts and now, 30, "the rank to count on"))

    def journal(self) -> list[int]:
        path = self.ask("journal")["path"]
        return [int(line) for line in self.ask(f"read {path}")["text"].splitlines()]

    def printed(self) -> list[int]:
        return [int(line.split()[-1]) for line in self.spec.output.read_text().splitlines() if "counted to" in line]

    def start_anew(self, name: str, seal: str) -> None:
        """In another place, from an image."""
        assert self.spec.saving is not None
        self.rank.kill()
        clear_start(self.spec.session)
        saving = replace(self.spec.saving, start_from=name, seal=seal)
        self.rank = self.case.runtime.start(replace(self.spec, saving=saving))


@pytest.fixture
def saved(case: Case) -> Iterator[Saved]:
    with short_folder() as images:
        planned, socket = case.plan()
        planned = replace(planned, folders=(*planned.folders, WRITTEN))
        spec = with_saving(planned, bundle.find(), images)
        one = Saved(case, spec, socket, case.runtime.start(spec), StarterControl(spec.session, 60))
        try:
            yield one
        finally:
            one.rank.kill()
            assert one.rank.exit_code() is not None


def assert_consistent(one: Saved, since: int) -> None:
    """No count is missing and none is there twice, in what it writes and in what it prints."""
    wait_for(one.printed, 20, "its output")
    journal, printed = one.journal(), one.printed()
    assert journal == list(range(1, len(journal) + 1))
    assert len(journal) >= since
    assert printed == list(range(printed[0], printed[0] + 10 * len(printed), 10))


def test_it_stands_where_it_was_saved_as_often_as_one_likes(saved: Saved) -> None:
    spans = {}
    for name in ("1", "2"):
        saved.go_on(100)
        least = saved.count
        answer = saved.control.save(name)
        assert answer.refusal == ""
        spans[name] = least, saved.count, answer.seal
    for name in ("1", "1", "2", "1"):
        saved.go_on(100)
        least, most, seal = spans[name]
        began_s = time.monotonic()
        answer = saved.control.return_to(name, seal)
        assert (answer.refusal, answer.left) == ("", ())
        counted = saved.count
        assert least <= counted <= most + (time.monotonic() - began_s) / COUNT_S  # it counts no faster than that
        assert saved.rank.exit_code() is None and saved.rank.rank_pid() is not None
        assert_consistent(saved, least)


def test_it_has_no_capabilities_afterwards(saved: Saved) -> None:
    before = saved.ask()
    seal = saved.control.save("1").seal
    assert saved.control.return_to("1", seal).refusal == ""
    after = saved.ask()
    same = ("pid", "cap_eff", "cap_bnd", "no_new_privs", "interfaces", "processes", "hostname", "uid")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert after["cap_eff"] == after["cap_bnd"] == 0


def test_files_go_back_in_time_with_it(saved: Saved) -> None:
    table, later = f"{WRITTEN}/table", f"{WRITTEN}/later"
    saved.ask(f"append {table}")
    before = saved.ask(f"read {table}")["text"]
    seal = saved.control.save("1").seal
    saved.ask(f"append {table}")
    saved.ask(f"append {later}")
    assert saved.ask(f"read {table}")["text"] != before
    assert saved.control.return_to("1", seal).left == ()
    assert saved.ask(f"read {table}")["text"] == before
    assert saved.ask(f"read {later}")["text"] is None
    saved.start_anew("1", seal)
    assert saved.ask(f"read {table}")["text"] == before
    assert not Path(WRITTEN).exists()


@pytest.mark.parametrize("how", ["by itself", "killed"])
def test_one_can_go_back_after_its_end(saved: Saved, how: str) -> None:
    seal = saved.control.save("1").seal
    count = saved.count
    if how == "by itself":
        saved.ask("end 3")
    else:
        pid = saved.rank.rank_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    code = wait_for(saved.rank.exit_code, 20, "its end")
    assert code == (3 if how == "by itself" else 137)
    assert saved.control.save("2").refusal == "the rank has ended"
    assert saved.control.return_to("1", seal).refusal == ""
    assert saved.rank.exit_code() is None
    assert saved.count <= count + SOON
    assert_consistent(saved, count - SOON)


def test_its_place_can_be_made_anew(saved: Saved, place_of: Callable[[Saved], int]) -> None:
    saved.go_on()
    seal = saved.control.save("1").seal
    count = saved.count
    os.kill(place_of(saved), signal.SIGKILL)
    wait_for(lambda: saved.rank.exit_code() is not None, 20, "its end to be noticed")
    with pytest.raises(RankLost, match="sandbox"):
        saved.control.return_to("1", seal)
    saved.start_anew("1", seal)
    assert saved.count <= count + SOON
    assert_consistent(saved, count - SOON)
    saved.go_on()
    assert saved.control.return_to("1", seal).refusal == ""
    assert_consistent(saved, count - SOON)


@pytest.fixture
def place_of() -> Callable[[Saved], int]:
    """The starter's PID: the first process of the container, too."""

    def find(one: Saved) -> int:
        rank = one.rank.rank_pid()
        assert rank is not None
        pid = rank
        while os.fsencode(one.spec.control / "spec.json") in Path(f"/proc/{_parent(pid)}/cmdline").read_bytes():
            pid = _parent(pid)
        assert find_below(pid, one.ask()["pid"]) == rank
        return pid

    return find


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    ("script", "bound_s", "reason"),
    [("raise SystemExit(1)", 30, "could not save"), ("import time; time.sleep(1000)", 1, "within 1 s")],
)
def test_an_image_that_cannot_be_taken_costs_nothing(case: Case, script: str, bound_s: float, reason: str) -> None:
    with short_folder() as images:
        planned, socket = case.plan()
        spec = with_saving(planned, bundle.find(), images)
        assert spec.saving is not None
        engine = replace(spec.saving.engine, command=(PYTHON, "-c", script))
        broken = replace(spec.saving, engine=engine, timeout_s=bound_s)
        rank = case.runtime.start(replace(spec, saving=broken))
        try:
            answer = StarterControl(spec.session, 30).save("1")
            assert reason in answer.refusal
            count = ask(socket, "status")["count"]
            wait_for(lambda: ask(socket, "status")["count"] > count + 10, 20, "the rank to go on")
        finally:
            rank.kill()
