"""One job on two nodes into one RUN: who saw what, who captures it, and what every node can tell of the others."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chain import assert_identical, prismdbg
from jobs import Job
from two_nodes import (
    Node,
    has_time_namespaces,
    job_line,
    record_line,
    torchrun_line,
    two_nodes,
    why_impossible,
)
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.reader import LogReader, read_log
from prismdbg.jobs.storage.job_nodes import node_of, supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made"),
]
BOUND_S = 180.0
JOBS = Path(__file__).parents[1] / "node_jobs"
AHEAD_S = 37
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="what sets a node's clock ahead needs g++")


@dataclass(frozen=True, kw_only=True)
class OnTwo:
    """A job on both nodes, each part under its own `record`."""

    run: RunFolder
    home: Path
    nodes: tuple[Node, Node]
    parts: tuple[Job, Job]
    _readers: dict[int, LogReader] = field(default_factory=dict)
    _steps: dict[int, int] = field(default_factory=dict)

    @property
    def output(self) -> str:
        return "\n".join(f"--- {n.name}\n{p.output[-4000:]}" for n, p in zip(self.nodes, self.parts, strict=True))

    def wait_for(self, condition: Callable[[], Any], what: str, bound_s: float = BOUND_S) -> None:
        wait_for(lambda: condition() or self._is_lost(), bound_s, what)
        assert condition(), f"the job ended while a test waited for {what}:\n{self.output}"

    def step(self, rank: int) -> int:
        """The last one in the log of a rank; 0 while there is none."""
        if not (self.run.ranks / str(rank) / "rank.json").exists():
            return 0
        reader = self._readers.setdefault(rank, LogReader(self.run.ranks / str(rank)))
        marks = [event.step for event in reader.poll() if isinstance(event, StepMark)]
        self._steps[rank] = max([self._steps.get(rank, 0), *marks])
        return self._steps[rank]

    def of_rank(self, rank: int) -> tuple[Node, Node]:
        """The node of a rank, and the other one."""
        one, other = self.nodes
        return (one, other) if node_of(self.run.ranks / str(rank)) == one.name else (other, one)

    def part(self, node: Node) -> Job:
        return self.parts[self.nodes.index(node)]

    @property
    def told(self) -> Path:
        return self.home / "told"

    def end_at(self, last: int) -> None:
        (self.told / "last").write_text(str(last))

    def kill_supervisor(self, node: Node) -> None:
        (supervisor,) = [process for process in node.processes("prismdbg.cli.main", "record") if _is_python(process)]
        os.kill(supervisor.pid, signal.SIGKILL)

    def end(self) -> tuple[int, ...]:
        wait_for(lambda: all(not part.alive for part in self.parts) or self._is_lost(), BOUND_S, "the job to end")
        return tuple(part.wait(60).code for part in self.parts)

    def _is_lost(self) -> bool:
        """A part that did not begin lets the other one wait for a minute."""
        return any(not part.alive and "error: " in part.output for part in self.parts)


@contextmanager
def on_two_nodes(home: Path, job: list[str], *options: object, run: str = "run", ahead_s: int = 0) -> Iterator[OnTwo]:
    """`run`: below `home / "shared"`, which both nodes see. `ahead_s`: as that of `two_nodes`."""
    shared = home / "shared"
    with two_nodes(shared, ahead_s) as nodes:
        line = record_line(shared / run, job, *options)
        parts = tuple(node.start(line, shared / f"{node.name}.txt") for node in nodes)
        try:
            yield OnTwo(run=RunFolder(shared / run), home=shared, nodes=nodes, parts=(parts[0], parts[1]))
        finally:
            for part in parts:
                part.kill()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[OnTwo]:
    """A job that goes on until the file `told/last` names its last step."""
    told = tmp_path / "shared" / "told"
    told.mkdir(parents=True)
    with on_two_nodes(tmp_path, job_line(JOBS.with_name("chain_jobs") / "until_told.py", told, 0.05)) as both:
        both.wait_for(lambda: both.step(0) > 3 and both.step(3) > 3, "four steps")
        yield both


def test_a_nan_of_one_node_becomes_one_capsule_that_any_node_replays(tmp_path: Path) -> None:
    job = torchrun_line(JOBS / "goes_wrong_on_a_rank.py", "nan", 3)
    with on_two_nodes(tmp_path, job, "--window", "all") as two:
        assert two.end() == (0, 0), two.output
        one, other = two.nodes
        report = supervisor_report(two.run)
        place = {folder.name: two.run.latest(int(folder.name)) for folder in two.run.rank_folders()}
        assert sorted(place) == ["0", "1", "2", "3"]
        (incident,) = report["incidents"]
        assert (incident["kind"], incident["ranks"]) == ("nan", [3]), report
        (capsule,) = report["capsules"]
        assert Path(capsule).parent == two.run.capsules and Capsule.open(Path(capsule)).manifest.rank == 3

        status = one.prismdbg("status", two.run.path)
        assert status.code == 0, status.err
        rows = {line.split()[0]: line.split()[1] for line in status.out.splitlines()[1:]}
        assert set(rows.values()) == {"n1", "n2"} and rows["2"] == rows["3"] != rows["0"] == rows["1"], status.out
        assert f"node {rows['3']} (rank 2, rank 3): ended" in status.err
        why = one.prismdbg("why", two.run.path)
        assert "rank 3" in why.out and "goes_wrong_on_a_rank.py:" in why.out, why.out
        assert f"node {rows['3']}: rank 3" in why.out, why.out

        for node in (one, other):
            verdict = node.prismdbg("replay", capsule, "--runtime", "local", "--json")
            assert verdict.code == 0, verdict.err
            assert_identical(verdict.json, Path(capsule))


def are_ahead(two: OnTwo, seconds: int) -> None:
    """Of node n2, in the logs of its ranks."""
    here, there = (read_log(two.run.latest(rank)) for rank in (0, 3))
    apart_ns = [log.collectives[0].time_created_ns for log in (there, here)]
    assert node_of(two.run.latest(3)) == "n2"
    assert abs(apart_ns[0] - apart_ns[1] - seconds * has_time_namespaces() * 1e9) < 10e9
    assert abs(apart_ns[0] + there.wall_offset_ns - apart_ns[1] - here.wall_offset_ns - seconds * 1e9) < 10e9


@needs_compiler
def test_a_nan_of_a_node_whose_clocks_are_ahead(tmp_path: Path) -> None:
    """Each node tells the same of a job that runs, and none takes the other one for silent."""
    told = tmp_path / "shared" / "told"
    told.mkdir(parents=True)
    job = job_line(JOBS.with_name("chain_jobs") / "until_told.py", told, 0.05, 3)
    with on_two_nodes(tmp_path, job, "--window", "all", ahead_s=AHEAD_S) as two:
        two.wait_for(lambda: two.step(0) > 3 and two.step(3) > 3, "four steps")
        (told / "nan").touch()
        two.wait_for(lambda: supervisor_report(two.run)["capsules"], "a capsule", 60)
        are_ahead(two, AHEAD_S)
        (incident,) = supervisor_report(two.run)["incidents"]
        assert (incident["kind"], incident["ranks"], incident["node"]) == ("nan", [3], "n2"), incident
        (capsule,) = two.run.capsules.iterdir()
        assert Capsule.open(capsule).manifest.rank == 3
        for node in two.nodes:
            status = node.prismdbg("status", two.run.path, "--json").json
            assert {one["node"]: one["state"] for one in status["nodes"]} == {"n1": "running", "n2": "running"}
            why = node.prismdbg("why", two.run.path).out
            assert why.startswith("certain: rank 3 sent the first NaN") and "node n2: rank 3" in why, why
            assert "heartbeat" not in why, why
        two.end_at(two.step(0) + 20)
        assert two.end() == (0, 0), two.output
        assert supervisor_report(two.run)["problems"] == []


@needs_compiler
def test_an_exception_of_a_node_whose_clocks_are_ahead(tmp_path: Path) -> None:
    """By its clocks it comes after the errors that the other node's ranks have of it."""
    job = job_line(JOBS / "goes_wrong_on_a_rank.py", "raise", 3)
    with on_two_nodes(tmp_path, job, "--window", "all", ahead_s=AHEAD_S) as two:
        assert 0 not in two.end(), two.output
        are_ahead(two, AHEAD_S)
        for node in two.nodes:
            why = node.prismdbg("why", two.run.path).out
            assert re.match(r"certain: rank 3 raised at \S+: ValueError: no such record", why), why
            assert "ranks 0, 1 and 2 failed after it" in why, why


@needs_compiler
def test_a_straggler_of_a_node_whose_clocks_are_behind(tmp_path: Path) -> None:
    job = job_line(JOBS.with_name("chain_jobs") / "sleeps.py")
    with on_two_nodes(tmp_path, job, ahead_s=-AHEAD_S) as two:
        assert two.end() == (0, 0), two.output
        are_ahead(two, -AHEAD_S)
        for node in two.nodes:
            (late,) = node.prismdbg("why", two.run.path, "--json").json["verdicts"]
            assert (late["kind"], late["ranks"]) == ("straggler", [3]), late


@pytest.mark.parametrize("local", ["none", "/tmp"])
def test_telemetry_of_each_node_says_why_its_rank_was_late(tmp_path: Path, local: str) -> None:
    """The last rank sleeps. Its node's readings are compared with those of the other node."""
    job = job_line(JOBS.with_name("chain_jobs") / "sleeps.py")
    with on_two_nodes(tmp_path, job, "--telemetry", "20ms", "--local", local) as two:
        assert two.end() == (0, 0), two.output
        there, other = two.of_rank(3)
        verdicts = other.prismdbg("why", two.run.path, "--json").json["verdicts"]
        (late,) = (verdict for verdict in verdicts if verdict["kind"] in ("straggler", "delay"))
        assert (late["ranks"], late["cause"]["why"]) == ([3], "asleep"), late
        shown = there.prismdbg("telemetry", two.run.path, "--node", there.name, "--json").json
        ranks = {sensor["subject"] for sensor in shown["sensors"] if sensor["sensor"] == "run_queue_wait"}
        assert ranks == {"rank 2", "rank 3"}
        both = there.prismdbg("telemetry", two.run.path, "--json").json
        hosts = {sensor["subject"] for sensor in both["sensors"] if sensor["subject"].startswith("sampler")}
        assert hosts == {"sampler on n1", "sampler on n2"}


def test_a_hang_is_told_by_the_node_that_knows_who_never_came(tmp_path: Path) -> None:
    job = job_line(JOBS / "goes_wrong_on_a_rank.py", "hang", 3)
    with on_two_nodes(tmp_path, job, "--window", "all", "--trigger", "hang=4s") as two:
        two.wait_for(lambda: len(supervisor_report(two.run).get("capsules", [])) == 2, "both sides of the hang")
        there, other = two.of_rank(3)
        (incident,) = supervisor_report(two.run)["incidents"]
        assert (incident["kind"], incident["node"]) == ("hang", there.name), incident
        assert "rank 3 never joined it" in incident["text"] and "goes_wrong_on_a_rank.py" in incident["text"], incident
        assert {Path(name).name.split("-")[1] for name in incident["capsules"]} == {"rank2", "rank3"}
        why = other.prismdbg("why", two.run.path)
        assert "rank 3 never joined it" in why.out and f"node {there.name}" in why.out, why.out


def test_a_job_that_torchrun_restarts_on_both_nodes_has_logs_of_each_attempt(tmp_path: Path) -> None:
    job = torchrun_line(JOBS.with_name("chain_jobs") / "fails_once.py", tmp_path / "shared" / "failed")
    job.insert(job.index("--nproc-per-node"), "--max-restarts=1")
    with on_two_nodes(tmp_path, job, "--window", "all") as two:
        assert two.end() == (0, 0), two.output
        ranks = {folder.name: node_of(folder) for folder in two.run.rank_folders()}
        assert sorted(ranks) == ["0", "0.1", "1", "1.1", "2", "2.1", "3", "3.1"]
        assert {ranks[f"{rank}.1"] for rank in range(4)} == {"n1", "n2"}
        report = supervisor_report(two.run)
        (incident,) = report["incidents"]
        assert (incident["ranks"], incident["attempt"]) == ([1], 0), incident
        assert incident["text"] == "RuntimeError: the first attempt fails"
        (capsule,) = report["capsules"]
        status = two.nodes[1].prismdbg("status", two.run.path)
        assert status.out.count(" ended ") == 4 and " 1.1 " in f" {status.out} ".replace("\n", " "), status.out
        why = two.nodes[1].prismdbg("why", two.run.path)
        assert why.out.startswith("certain: exception (attempt 1): RuntimeError: the first attempt fails"), why.out
        assert "node n1: rank 1" in why.out and "this is attempt 2" in why.out, why.out
        verdict = two.nodes[1].prismdbg("replay", capsule, "--runtime", "local", "--json")
        assert verdict.json["raised"]["text"] == "the first attempt fails", verdict.err
        assert_identical(verdict.json, Path(capsule))


@pytest.mark.criu
def test_a_rank_is_captured_from_the_other_node(two: OnTwo, tmp_path: Path) -> None:
    """And from a place that is no node of the job, as a login node is: this process has other namespaces."""
    there, here = two.of_rank(3)
    capsule = two.run.path.parent / "taken"
    reach = {rank["folder"]: rank for rank in here.prismdbg("doctor", "--job", two.run.path, "--json").json["ranks"]}
    assert {name for name, rank in reach.items() if rank["checked_there"]} == {"2", "3"}, reach
    assert {rank["checkpoint"] for rank in reach.values()} == {""} and reach["3"]["node"] == there.name, reach
    said = here.prismdbg("capture", two.run.path, "--rank", 3, "--window", 2, "-o", capsule)
    assert said.code == 0, f"{said.err}\n{two.output}"
    assert f"node {there.name}: rank 3: checkpoint of" in said.err, said.err
    assert list(two.run.requests.iterdir()) == [] and list(two.run.capsules.iterdir()) == []
    outside = capsule.with_name("outside")
    said = prismdbg("capture", two.run.path, "--rank", 3, "--window", 2, "-o", outside)
    assert said.code == 0 and f"node {there.name}: rank 3: checkpoint of" in said.err, f"{said.err}\n{two.output}"
    assert Capsule.open(outside).manifest.moment_b > Capsule.open(capsule).manifest.moment_b
    reached = two.step(3)
    two.wait_for(lambda: two.step(3) > reached, "the job to go on")

    refused = here.prismdbg("capture", two.run.path, "--rank", 7, "-o", capsule.with_name("none"))
    assert refused.code == 2 and "no data of rank 7" in refused.err, refused.err
    two.end_at(two.step(0) + 20)
    assert two.end() == (0, 0), two.output
    ended = here.prismdbg("capture", two.run.path, "--rank", 3, "-o", capsule.with_name("none"))
    assert ended.code == 6 and "has ended" in ended.err, ended.err
    verdict = there.prismdbg("replay", capsule, "--runtime", "local", "--json")
    assert verdict.code == 0, verdict.err
    assert_identical(verdict.json, capsule)


def test_a_supervisor_that_is_killed_harms_no_job_and_is_named(two: OnTwo) -> None:
    lost, other = two.of_rank(3)
    two.kill_supervisor(lost)
    name = lost.name
    two.wait_for(lambda: f"node {name}" in other_problems(two, other), f"node {name} to be named", 60)
    status = other.prismdbg("status", two.run.path, "--json").json
    states = {node["node"]: node["state"] for node in status["nodes"]}
    assert states == {name: "supervisor lost", other.name: "running"}, states
    assert {rank["state"] for rank in status["ranks"]} == {"running"}
    text = other.prismdbg("status", two.run.path).err
    assert f"node {name} (rank 2, rank 3): supervisor lost, no heartbeat for" in text, text
    refused = other.prismdbg("capture", two.run.path, "--rank", 3, "-o", two.run.path.parent / "none")
    assert refused.code == 6 and f"node {name}, whose supervisor has given no heartbeat" in refused.err, refused.err
    reached = two.step(3)
    two.wait_for(lambda: two.step(3) > reached, "the job to go on")
    last = two.step(0) + 20
    two.end_at(last)
    assert two.part(other).wait(BOUND_S).code == 0, two.output
    two.wait_for(lambda: two.step(3) >= last, "rank 3 to come to the end")
    why = other.prismdbg("why", two.run.path)
    assert why.code == 0 and "is lost: no heartbeat" not in why.out, why.out
    assert f"missing: the supervisor of node {name} is lost" in why.out, why.out


@pytest.mark.parametrize("is_seen_first", [False, True])
def test_what_a_killed_supervisor_cannot_capture_the_other_one_does(is_seen_first: bool, tmp_path: Path) -> None:
    """Rank 0 sends a NaN, so its supervisor is the nearest to the cause: it is killed before, or once it has said that
    it saw the incident."""
    told = tmp_path / "shared" / "told"
    told.mkdir(parents=True)
    line = job_line(JOBS.with_name("chain_jobs") / "until_told.py", told, 0.05, 0)
    with on_two_nodes(tmp_path, line, "--window", "all") as two:
        two.wait_for(lambda: two.step(0) > 3 and two.step(3) > 3, "four steps")
        lost, other = two.of_rank(0)
        if not is_seen_first:
            two.kill_supervisor(lost)
        (told / "nan").touch()
        if is_seen_first:
            two.wait_for((two.run.decisions / "0-nan" / f"{lost.name}.saw.json").is_file, "the note of an incident")
            two.kill_supervisor(lost)
        two.wait_for(lambda: supervisor_report(two.run)["capsules"], "a capsule", 60)
        (incident,) = supervisor_report(two.run)["incidents"]
        assert (incident["kind"], incident["node"]) == ("nan", other.name), incident
        last = two.step(3) + 20
        two.end_at(last)
        assert two.part(other).wait(BOUND_S).code == 0, two.output
        two.wait_for(lambda: two.step(0) >= last, "rank 0 to come to the end")
        (capsule,) = two.run.capsules.iterdir()
        assert Capsule.open(capsule).manifest.rank in (2, 3) and supervisor_report(two.run)["capsules"] == [
            str(capsule)
        ]
        wait_for(lambda: _state(two, other, lost) == "supervisor lost", 60, "silence that is long enough")
        why = other.prismdbg("why", two.run.path)
        assert why.out.startswith("certain: rank 0 sent the first NaN") and f"node {lost.name}: rank 0" in why.out, (
            why.out
        )
        assert f"missing: the supervisor of node {lost.name} is lost" in why.out, why.out


def other_problems(two: OnTwo, node: Node) -> str:
    """What the supervisor of that node has found."""
    return "\n".join(text for text in supervisor_report(two.run)["problems"] if text.startswith(f"node {node.name}: "))


def _is_python(process: Any) -> bool:
    return "python" in process.name()


def test_a_node_that_is_lost_whole_is_told_as_lost(two: OnTwo) -> None:
    lost, other = two.of_rank(3)
    lost.kill()  # the ranks of the other node lose their connections at once, and end before its supervisor can tell
    wait_for(lambda: _state(two, other, lost) == "lost", 60, f"node {lost.name} to count as lost")
    status = other.prismdbg("status", two.run.path)
    assert f"node {lost.name} (rank 2, rank 3): lost, no heartbeat for" in status.err, status.err
    why = other.prismdbg("why", two.run.path)
    assert why.code == 0 and f"node {lost.name}" in why.out.splitlines()[0], why.out


def _state(two: OnTwo, asked: Node, node: Node) -> str:
    nodes = asked.prismdbg("status", two.run.path, "--json").json["nodes"]
    return str({one["node"]: one["state"] for one in nodes}[node.name])
