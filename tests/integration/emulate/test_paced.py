"""Ranks whose peers come when the simulated job says: exact on the virtual clock, and truly late on the wall clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from emulated import emulate, python

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import DRIFT
from prismdbg.capsule.log.reader import read_log
from prismdbg.emulate.pacing import run_paced, set_aside
from prismdbg.emulate.rank_group import Paced, RankGroup
from prismdbg.emulate.rank_scheduler import Event, MissingValue
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import UsageError
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import open_trace
from prismdbg.model.schedule import Schedule
from prismdbg.settings.emulation import ClockKind
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.schedule import iteration_ns
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.mesh import Mesh

pytestmark = pytest.mark.job

CLUSTER = """
ranks_per_node: 2
tiers:
  loop: {spans: job, latency: 300 us, bandwidth: 40 MB/s}
"""
STEPS = 5
MESHES = {"ddp": "dp=2", "pipeline": "pp=2"}
RANKS = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    run: RunFolder
    program: list[str]
    mesh: Mesh
    said: str
    told: str

    def log(self, rank: int, number: int | None = None) -> RankLog:
        """Of a pass; of the last one if none is given."""
        return read_log(self.ranks(number) / str(rank))

    def ranks(self, number: int | None = None) -> Path:
        return self.run.ranks if number is None else self.run.path / "passes" / str(number) / "ranks"

    def schedule(self, rank: int, number: int = 1) -> Schedule:
        return Schedule.load(self.run.path / "passes" / str(number) / f"schedule.{rank}.json")

    def again(self, schedules: dict[int, Path], clock: ClockKind, *, round_steps: int = 0) -> None:
        """Once more by such schedules, into RUN/ranks."""
        set_aside(self.run, len(list((self.run.path / "passes").iterdir())) + 1)
        request = EmulateRequest(
            output=self.run.path, command=tuple(self.program), world=2, mesh=self.mesh, bound_s=120.0
        )
        run_paced(
            request,
            self.run,
            tuple(schedules),
            Paced(clock=clock, schedules=schedules),
            lambda _: None,
            round_steps=round_steps,
        )


Pace = Callable[[str, str], Ran]


@pytest.fixture(scope="module")
def paced(tmp_path_factory: pytest.TempPathFactory) -> Pace:
    @cache
    def run(kind: str, clock: str) -> Ran:
        home = tmp_path_factory.mktemp(kind)
        (home / "cluster.yaml").write_text(CLUSTER)
        program = python("paced.py", kind, STEPS)
        options = ["-v", "--ranks", "0,1", "--pace", clock, "--cluster", home / "cluster.yaml"]
        options += ["--memory", "--passes", 1] if clock == "wall" else []
        done = emulate(home / "run", 2, MESHES[kind], *options, program=program)
        agreed = 0 if clock == "virtual" else None  # on a busy machine one pass may not be enough
        assert done.returncode == agreed or (agreed is None and "pass 1: rank 1" in done.stderr), done.stderr[-4000:]
        run = RunFolder((home / "run").resolve())
        return Ran(run=run, program=program, mesh=Mesh.parse(MESHES[kind]), said=done.stdout, told=done.stderr)

    return run


def times(log: RankLog, schedule: Schedule) -> list[list[tuple[int | None, ...]]]:
    """Of each paced step, from its begin: when each call was issued, waited for and complete, and the step's end."""
    begins = {mark.step: mark.time_ns for mark in log.steps}
    found = []
    for step in sorted(begins):
        if step in schedule.steps and step + 1 in begins:
            calls = [c for c in log.collectives if c.moment.step == step]
            rows: list[tuple[int | None, ...]] = [
                tuple(
                    None if at is None else at - begins[step]
                    for at in (c.time_created_ns, c.time_waited_ns, c.time_completed_ns)
                )
                for c in calls
            ]
            found.append([*rows, (begins[step + 1] - begins[step],)])
    return found


@pytest.mark.parametrize("kind", ["ddp", "pipeline"])
class TestVirtualClock:
    def test_an_iteration_takes_what_was_simulated_to_the_nanosecond(self, kind: str, paced: Pace) -> None:
        ran = paced(kind, "virtual")
        passes = read_json(ran.run.path / "passes.json")
        (only,) = passes["passes"]

        assert passes["has_converged"]
        assert [each["emulated_ns"] - each["simulated_ns"] for each in only["ranks"]] == [0, 0]
        for each in only["ranks"]:
            parts = each["components"]
            assert set(parts) == {"computation", "exposed communication", "waiting"}
            assert all(part["emulated_ns"] == part["simulated_ns"] for part in parts.values()), parts
            assert sum(part["emulated_ns"] for part in parts.values()) == each["emulated_ns"]
        for rank in RANKS:
            schedule = ran.schedule(rank)
            steps = times(ran.log(rank), schedule)
            assert len(steps) == len(schedule.steps)
            assert all(step == steps[0] for step in steps)
            assert steps[0][-1] == (schedule.iteration_ns,)

    def test_it_says_so_and_nothing_of_the_machine_s_processors(self, kind: str, paced: Pace) -> None:
        ran = paced(kind, "virtual")
        assert "on a virtual clock; it and the ranks agree to the nanosecond" in ran.said
        assert "waiting for a CPU" not in ran.told and "waited for a CPU" not in ran.told

    def test_a_graph_of_it_simulates_the_same(self, kind: str, paced: Pace) -> None:
        ran = paced(kind, "virtual")
        graph = build_graph(GraphRequest(run=ran.run.path))
        timeline = simulate(graph, cluster_file.parse(CLUSTER), keep=Keep.ALL)
        for rank in RANKS:  # how much slower one of a class computes is kept in millionths
            assert iteration_ns(timeline.of(rank)) == pytest.approx(ran.schedule(rank).iteration_ns, rel=1e-5)


def test_again_it_is_the_same(paced: Pace) -> None:
    ran = paced("pipeline", "virtual")
    schedules = {rank: ran.run.path / "passes" / "1" / f"schedule.{rank}.json" for rank in RANKS}
    before = {rank: times(ran.log(rank), ran.schedule(rank)) for rank in RANKS}
    ran.again(schedules, ClockKind.VIRTUAL)
    assert {rank: times(ran.log(rank), ran.schedule(rank)) for rank in RANKS} == before


def test_ranks_that_take_turns_stand_outside_of_their_time(paced: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps each. What the other one takes is in nobody's log."""
    ran = paced("pipeline", "virtual")
    turns: list[int] = []
    go = RankGroup.go

    def told(group: RankGroup, number: int, until: str, since: MissingValue | None) -> Event:
        turns.append(number)
        return go(group, number, until, since)

    monkeypatch.setattr(RankGroup, "go", told)
    schedules = {rank: ran.run.path / "passes" / "1" / f"schedule.{rank}.json" for rank in RANKS}
    before = {rank: times(ran.log(rank), ran.schedule(rank)) for rank in RANKS}
    ran.again(schedules, ClockKind.VIRTUAL, round_steps=2)
    assert turns == [0, 1, 1, 0, 0, 1], "there and back: 2, 4 and the 5 that there are"
    assert {rank: times(ran.log(rank), ran.schedule(rank)) for rank in RANKS} == before


class TestWallClock:
    def test_the_drift_of_each_step_is_in_the_log_and_that_of_the_pass_beside_it(self, paced: Pace) -> None:
        ran = paced("ddp", "wall")
        (only,) = read_json(ran.run.path / "passes.json")["passes"]
        for each in only["ranks"]:
            schedule = ran.schedule(each["rank"])
            notes = [note.data for note in ran.log(each["rank"]).notes if note.kind == DRIFT]
            assert [note["step"] for note in notes] == list(schedule.steps)
            assert notes[0]["ppm"] == 10**6, "nothing is known before the first paced step has ended"
            assert each["drift"] == median(note["ppm"] for note in notes) / 10**6

    def test_nothing_goes_on_before_its_peers_are_there(self, paced: Pace) -> None:
        """Whoever waits for a call issues the next one, or ends the step, after it is complete, and soon."""
        ran = paced("ddp", "wall")
        for rank in RANKS:
            schedule = ran.schedule(rank)
            transfers = [row.transfer_ns for row in schedule.rows if row.is_call]
            for step in times(ran.log(rank), schedule):
                *calls, (end,) = step
                for (issued, _, done), transfer_ns in zip(calls, transfers, strict=True):
                    assert issued is not None and done is not None
                    assert done - issued >= transfer_ns
                buckets, total = calls[:-1], calls[-1]
                dones = [done for _, _, done in buckets if done is not None]
                assert dones == sorted(dones)
                assert total[0] is not None and total[0] >= dones[-1]  # after the backward pass: all buckets were there
                assert end is not None and total[2] is not None and end >= total[2]

    def test_it_computes_what_it_did_unpaced(self, paced: Pace) -> None:
        ran = paced("ddp", "wall")
        norms = [line for line in ran.said.splitlines() if line.startswith("norm ")]
        assert len(norms) == 4
        paces = read_json(ran.run.path / "passes.json")
        assert ("have not converged: after 1 pass" in ran.said) is not paces["has_converged"]
        assert len(set(norms)) == 1

    def test_its_memory_is_the_same(self, paced: Pace) -> None:
        ran = paced("ddp", "wall")
        for rank in RANKS:
            before, now = (peak(open_trace(ran.ranks(n) / str(rank) / RANK_MEMORY)).size_bytes for n in (0, None))
            assert now == before

    def test_the_log_says_when_the_reducer_waited(self, paced: Pace) -> None:
        log = paced("ddp", "wall").log(0)
        paced_calls = [c for c in log.collectives if c.moment.step >= 2 and c.is_async]
        assert paced_calls
        for before, after in pairwise(paced_calls):
            assert after.time_waited_ns is not None and before.time_waited_ns is not None
            assert before.time_waited_ns <= after.time_waited_ns
            assert after.time_waited_ns >= after.time_created_ns


def test_ranks_compute_as_slowly_as_on_shared_processors(tmp_path: Path) -> None:
    """Each rank runs on a processor of its own, and is made to take three times as long. The graph that is built of it
    is not slowed again."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER + "contention: {processors: {2: 3}}\n")
    (tmp_path / "plain.yaml").write_text(CLUSTER)
    options = ("--ranks", "0,1", "--pace", "wall", "--cluster", tmp_path / "cluster.yaml", "--passes", 1)
    emulate(tmp_path / "run", 2, "dp=2", *options, program=python("paced.py", "ddp", 8))
    passes = read_json(tmp_path / "run" / "passes.json")
    assert passes["is_contended"]
    for rank in RANKS:
        schedule = Schedule.load(tmp_path / "run" / "passes" / "1" / f"schedule.{rank}.json")
        assert schedule.slower_ppm == 3_000_000
    for each in passes["passes"][0]["ranks"]:
        computation = each["components"]["computation"]
        assert computation["emulated_ns"] > 0.6 * computation["simulated_ns"], "a third, if it had not waited"
    graph = build_graph(GraphRequest(run=tmp_path / "run"))
    shared, plain = (
        simulate(graph, cluster_file.read(tmp_path / name)).computed_ns.tolist()
        for name in ("cluster.yaml", "plain.yaml")
    )
    assert graph.origin.is_contended and shared == plain


def test_a_slice_of_another_program_is_refused(paced: Pace, tmp_path: Path) -> None:
    ran = paced("ddp", "virtual")
    schedule = ran.run.path / "passes" / "1" / "schedule.0.json"
    changed = json.loads(schedule.read_text())
    size = changed["columns"].index("size_bytes")
    last = [row for row in changed["rows"] if row[0] == "collective"][-1]
    last[size] += 4
    (tmp_path / "changed.json").write_text(json.dumps(changed))

    with pytest.raises(
        UsageError,
        match=r"rank 0 issues all_reduce of 4 bytes, 2 ranks, at .*paced.py:\d+ in data_parall"
        r"el in step 2, where the slice of step \d has all_reduce of 8 bytes on dp at .*paced.py",
    ) as caught:
        ran.again({0: tmp_path / "changed.json"}, ClockKind.VIRTUAL)
    assert "build the graph again" in caught.value.hint


def test_steps_of_one_kind_are_paced_also_where_others_lie_between(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    options = ("--ranks", "0,1", "--pace", "virtual", "--cluster", tmp_path / "cluster.yaml", "--passes", 1)
    done = emulate(tmp_path / "run", 2, "dp=2", *options, program=python("emulated_every_third.py", 12))
    assert done.returncode == 0, done.stderr
    assert "8 of 11 complete steps issue the same calls: these are paced" in done.stderr
    (only,) = read_json(tmp_path / "run" / "passes.json")["passes"]
    assert [each["steps"] for each in only["ranks"]] == [8, 8]
    assert [each["emulated_ns"] - each["simulated_ns"] for each in only["ranks"]] == [0, 0]


def test_too_few_ranks_for_a_graph(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    options = ["--ranks", "0", "--pace", "virtual", "--cluster", tmp_path / "cluster.yaml"]
    done = emulate(tmp_path / "run", 2, "pp=2", *options, program=python("paced.py", "ddp", 3))
    assert done.returncode == 2
    assert "cannot build the graph of the whole job from the ranks that ran" in done.stderr
    assert "--classes" in done.stderr
