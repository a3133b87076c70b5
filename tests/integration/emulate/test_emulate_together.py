"""Ranks that run at once within a world of virtual ones: what they send each other is what it is in the whole job."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chain import prismdbg
from emulated import PROGRAMS, emulate, emulated, log_of, printed, python
from jobs import Recorded, forked, record, recorded_by_command_line

from prismdbg.capsule.log.events import RankLog

pytestmark = pytest.mark.job

CALLS, FAULTS = "hybrid_calls.py", "hybrid_faults.py"
STEPS = 3
Lines = dict[int, dict[str, Any]]
Whole = Callable[[int, str], tuple[Recorded, Lines]]
SMALL_BYTES = 600 << 20


def job(pp: int, dp: int, tp: int, batches: str = "same") -> tuple[str, ...]:
    return "hybrid_parallel.py", str(pp), str(dp), str(tp), str(STEPS), batches


def lines_of(text: str) -> Lines:
    said = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {line["rank"]: line for line in said}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """A job of four ranks, dp=2, that really runs, all of it recorded, and what each rank printed."""
    done: dict[tuple[int, str], tuple[Recorded, Lines]] = {}

    def run(tp: int, batches: str) -> tuple[Recorded, Lines]:
        if (tp, batches) not in done:
            name, *arguments = job(2 // tp, 2, tp, batches)
            folder = tmp_path_factory.mktemp("whole")
            command = forked(PROGRAMS / name, *arguments, ranks=4)
            really = recorded_by_command_line(command, folder / "real", "--window", "all")
            assert really.ended.code == 0, really.ended.output
            done[tp, batches] = really, lines_of(really.ended.output)
        return done[tp, batches]

    return run


def losses_and_parameters(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["losses"], line["parameters"], line["parts"]


def sent_within(log: RankLog, ranks: tuple[int, ...]) -> list[tuple[str, int | None]]:
    """In the groups of exactly these ranks: each call, and the fingerprint of what it sends."""
    names = {name for name, group in log.groups.items() if tuple(group.ranks) == ranks}
    return [(call.op, call.fingerprint) for call in log.collectives if call.group in names]


def test_values_are_those_of_the_whole_job(whole: Whole, tmp_path: Path) -> None:
    """Where the replicas do the same: bit by bit, and call by call in the groups that are real."""
    real, lines = whole(2, "same")
    name, *arguments = job(1, 2, 2)
    circle = (2, 3)
    out = emulated(
        tmp_path / "run", 4, "pp=1,dp=2,tp=2", "--together", "tp", "--ranks", 2, program=python(name, *arguments)
    )
    said = lines_of(out)
    assert sorted(said) == list(circle)
    for rank in circle:
        assert losses_and_parameters(said[rank]) == losses_and_parameters(lines[rank])
        log = log_of(tmp_path / "run", rank)
        inside = sent_within(log, circle)
        assert inside == sent_within(real.log(rank), circle)
        assert any(fingerprint is not None for _, fingerprint in inside)
        groups = {name for name, group in log.groups.items() if tuple(group.ranks) == circle}
        assert all(call.synthesized is (call.group not in groups) for call in log.collectives)


def test_along_two_axes_at_once_values_are_those_of_the_whole_job(tmp_path: Path) -> None:
    """Stages and parts are real, 16 equal replicas virtual: as many as a power of two give the same bits."""
    name, *arguments = job(2, 1, 2)
    real = recorded_by_command_line(forked(PROGRAMS / name, *arguments, ranks=4), tmp_path / "real")
    assert real.ended.code == 0, real.ended.output
    lines = lines_of(real.ended.output)
    name, *arguments = job(2, 16, 2)
    folder = tmp_path / "run"
    out = emulated(folder, 64, "pp=2,dp=16,tp=2", "--together", "pp,tp", "--ranks", 7, program=python(name, *arguments))
    said = lines_of(out)
    circle = (6, 7, 38, 39)  # replica 3 of either stage
    assert tuple(sorted(said)) == circle
    for alike, rank in enumerate(circle):
        mine, theirs = said[rank], lines[alike]
        assert (mine["parameters"], mine["parts"]) == (theirs["parameters"], theirs["parts"])
        of_replica = [16 * float.fromhex(loss) for loss in theirs["losses"]]  # summed over the world
        assert list(map(float.fromhex, mine["losses"])) == of_replica
        log = log_of(folder, rank)
        inside = {n: g.ranks for n, g in log.groups.items() if len(g.ranks) > 1 and set(g.ranks) <= set(circle)}
        assert sorted(map(len, inside.values())) == [2, 2, 4], "its parts, its stages, and all of its replica"
        assert all(call.synthesized is (call.group not in inside) for call in log.collectives)
        for ranks in (tuple(ranks) for ranks in inside.values() if len(ranks) == 2):
            sent = sent_within(log, ranks)
            assert sent == sent_within(real.log(alike), tuple(map(circle.index, ranks)))
            assert any(fingerprint is not None for _, fingerprint in sent)


def test_with_what_the_replicas_really_sent_all_values_are_those_of_the_whole_job(whole: Whole, tmp_path: Path) -> None:
    """Also where each replica has other batches: an earlier run of the job says what the virtual axis sends."""
    real, lines = whole(2, "different")
    name, *arguments = job(1, 2, 2, "different")
    rules = ("--donor", real.run.path, "--peers", "dp=donor", "--peers", "world:all_reduce=donor")
    out = emulated(
        tmp_path / "run", 4, "pp=1,dp=2,tp=2", "--together", "tp", "--ranks", "2", *rules,
        program=python(name, *arguments),
    )  # fmt: skip
    said = lines_of(out)
    assert [losses_and_parameters(said[rank]) for rank in (2, 3)] == [
        losses_and_parameters(lines[rank]) for rank in (2, 3)
    ]


def test_two_real_ranks_of_8192_and_they_are_replayed(whole: Whole, tmp_path: Path) -> None:
    """TP2 real x DP4096 virtual. With as many equal replicas, a power of two, the parameters are the same bits."""
    _, lines = whole(2, "same")
    name, *arguments = job(1, 4096, 2)
    run = tmp_path / "run"
    out = emulated(
        run, 8192, "pp=1,dp=4096,tp=2", "--together", "tp", "--ranks", 5000, program=python(name, *arguments)
    )
    said = lines_of(out)
    assert sorted(said) == [5000, 5001]
    assert [said[5000 + part]["parameters"] for part in (0, 1)] == [lines[part]["parameters"] for part in (0, 1)]
    for rank in said:
        (resources,) = (note.data for note in log_of(run, rank).notes if note.kind == "resources")
        assert resources["peak_bytes"] < SMALL_BYTES
    verdict = prismdbg("replay", run, "--rank", 5001, "--runtime", "local", "--json").json
    assert verdict["outcome"] == "identical"
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])


# groups of which some members run at once


def test_in_a_group_with_virtual_members_the_real_ones_get_what_they_get_in_the_whole_job(tmp_path: Path) -> None:
    """Each virtual one does as the real one at its tp. What a virtual root sends is synthesized, once for both."""
    name = f"{PROGRAMS / CALLS}"
    real = record(forked(Path(name), ranks=4), tmp_path / "real", native=True)
    assert real.ended.code == 0, real.ended.output
    out = emulated(tmp_path / "run", 4, "dp=2,tp=2", "--together", "tp", "--ranks", "3", program=python(CALLS))
    expected, said = (_by_call(text) for text in (real.ended.output, out))
    assert sorted({rank for rank, _ in said}) == [2, 3]
    synthesized = "broadcast from a virtual one"
    assert said.pop((2, synthesized)) == said.pop((3, synthesized))
    assert said == {place: value for place, value in expected.items() if place in said}
    assert len(said) == 2 * (len({call for _, call in expected}) - 1)


def _by_call(text: str) -> dict[tuple[int, str], Any]:
    lines = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return {(line["rank"], line["call"]): line["value"] for line in lines}


@pytest.mark.parametrize(
    ("how", "said", "ran"),
    [
        ("lacks what a virtual one knows", ["2 of 0 None", "3 of 0 by 1"], "rank 1 (dp=0 tp=1) of 4, because rank 3"),
        ("lacks its partner's key", ["2 of 3", "3 of 3"], ""),
    ],
)
def test_what_only_another_rank_knows_comes_from_it(how: str, said: list[str], ran: str, tmp_path: Path) -> None:
    done = emulate(
        tmp_path / "run", 4, "dp=2,tp=2", "-v", "--together", "tp", "--ranks", 2, program=python(FAULTS, how)
    )
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in printed(done).splitlines() if line[:1].isdigit()) == said
    assert ran in done.stderr


# what goes wrong


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("is killed", "rank 3's program was killed by SIGKILL in step 1"),
        ("raises", "rank 3's program failed with code 1 in step 1: ValueError: batch 7 is broken"),
        ("leaves", "rank 3's program ended after 1 of 2 steps"),
        (
            "receives from any",
            "a receive from any rank cannot be answered in a group of which some members run at once",
        ),
    ],
    ids=["is killed", "raises", "leaves", "receives from any"],
)
def test_a_partner_that_is_lost_is_named(how: str, named: str, tmp_path: Path) -> None:
    options = ("--together", "tp", "--ranks", 2, "--steps", 2)
    done = emulate(tmp_path / "run", 4, "dp=2,tp=2", *options, program=python(FAULTS, how))
    assert done.returncode == 6, done.stderr
    assert f"error: {named}" in done.stderr or named in done.stderr.partition("error: rank ")[2]
    assert not _left_running(str(tmp_path))


def _left_running(text: str) -> list[str]:
    """Processes whose environment names this folder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if text.encode() in environment and int(folder.name) != os.getpid():
            found.append((folder / "comm").read_text())
    return found
