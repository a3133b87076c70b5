"""Logs that lie on the nodes: what RUN has of them while the job runs, when it ends, and when something is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chain import assert_identical
from test_two_nodes import BOUND_S, JOBS, OnTwo, _is_python, on_two_nodes
from two_nodes import Node, job_line, why_impossible
from waiting import wait_for

from prismdbg.capsule.log.reader import event_segments, read_log
from prismdbg.jobs.storage.job_nodes import node_folders, supervisor_report
from prismdbg.jobs.storage.run_folder import read_json

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made"),
]
LOCAL = Path("/dev/shm")  # each node has its own


@contextmanager
def goes_on(home: Path, *options: object) -> Iterator[OnTwo]:
    """A job that goes on until the file `told/last` names its last step."""
    told = home / "shared" / "told"
    told.mkdir(parents=True)
    line = job_line(JOBS.with_name("chain_jobs") / "until_told.py", told, 0.05)
    with on_two_nodes(home, line, "--local", LOCAL, *options) as both:
        both.wait_for(lambda: set(steps(both)) == {"0", "1", "2", "3"} and min(steps(both).values()) > 3, "four steps")
        yield both


def steps(two: OnTwo) -> dict[str, int]:
    """As the heartbeats say."""
    beats = [read_json(node.beat).get("progress", {}) for node in node_folders(two.run)]
    return {name: int(told["moment"].partition(".")[0]) for progress in beats for name, told in progress.items()}


def segments(two: OnTwo) -> dict[str, int]:
    return {folder.name: len(event_segments(folder)) for folder in two.run.rank_folders()}


def kept(two: OnTwo, node: Node) -> list[str]:
    """What lies on the node."""
    return sorted(path.name for path in Path(f"/proc/{node.first.pid}/root{LOCAL}").glob("prismdbg-*"))


def kill_supervisor(node: Node) -> None:
    (supervisor,) = [process for process in node.processes("prismdbg.cli.main", "record") if _is_python(process)]
    os.kill(supervisor.pid, signal.SIGKILL)


def states(two: OnTwo, node: Node) -> dict[str, str]:
    return {one["node"]: one["state"] for one in node.prismdbg("status", two.run.path, "--json").json["nodes"]}


def test_a_nan_comes_into_the_shared_folder_from_logs_on_the_nodes(tmp_path: Path) -> None:
    job = job_line(JOBS / "goes_wrong_on_a_rank.py", "nan", 3)
    with on_two_nodes(tmp_path, job, "--window", "all", "--local", LOCAL) as two:
        assert two.end() == (0, 0), two.output
        assert two.output.count("this is memory, as much as the job writes") == 2
        (capsule,) = supervisor_report(two.run)["capsules"]
        assert Path(capsule).parent == two.run.capsules
        for node in two.nodes:
            assert kept(two, node) == [], "what was copied stays nowhere else"
            verdict = node.prismdbg("replay", capsule, "--runtime", "local", "--json")
            assert verdict.code == 0, verdict.err
            assert_identical(verdict.json, Path(capsule))
        assert all(read_log(folder).collectives for folder in two.run.rank_folders())
        assert segments(two).keys() == {"0", "1", "2", "3"}
        why = two.nodes[0].prismdbg("why", two.run.path)
        assert "rank 3" in why.out and "goes_wrong_on_a_rank.py:" in why.out, why.out
        later = two.nodes[0].prismdbg("capture", two.run.path, "--rank", 1, "--origin", "start", "-o", tmp_path / "one")
        assert later.code == 0, later.err


def test_others_see_how_far_ranks_came_and_may_ask_for_their_logs(tmp_path: Path) -> None:
    with goes_on(tmp_path) as two:
        there, here = two.of_rank(3)
        assert set(segments(two).values()) == {0}, "nothing is copied while nobody asks"
        status = here.prismdbg("status", two.run.path, "--json").json["ranks"]
        assert {rank["state"] for rank in status} == {"running"} and all(rank["collectives"] > 3 for rank in status)
        why = here.prismdbg("why", two.run.path)
        assert why.code == 0 and "missing" not in why.out, why.out
        two.wait_for(lambda: min(segments(two).values()) > 0, "both nodes, who were asked")
        two.end_at(max(steps(two).values()) + 20)
        assert two.end() == (0, 0), two.output
        assert min(segments(two).values()) > 0 and not kept(two, here) and not kept(two, there)


def test_the_logs_of_a_killed_supervisor_are_named_and_copied_by_hand(tmp_path: Path) -> None:
    with goes_on(tmp_path) as two:
        lost, other = two.of_rank(3)
        (folder,) = kept(two, lost)
        kill_supervisor(lost)
        two.wait_for(lambda: states(two, other)[lost.name] == "lost", "the node to count as lost", 60)
        assert states(two, lost)[lost.name] == "supervisor lost", "its ranks are seen there"
        status = other.prismdbg("status", two.run.path)
        left = f"are on node {lost.name}, in {LOCAL / folder}: run `prismdbg publish"
        assert left in status.err, status.err
        elsewhere = other.prismdbg("publish", two.run.path)
        assert elsewhere.code != 0 and f"node {lost.name}: " in elsewhere.err, elsewhere.err
        early = lost.prismdbg("publish", two.run.path)
        assert early.code == 0 and "rank 2, rank 3 still run: RUN has" in early.err and kept(two, lost) == [folder], (
            early.err
        )
        last = max(steps(two).values()) + 20
        two.end_at(last)
        assert two.part(other).wait(BOUND_S).code == 0, two.output
        why = other.prismdbg("why", two.run.path)
        assert f"missing: the logs of rank 2, rank 3 {left}" in why.out, why.out
        wait_for(lambda: not lost.processes("until_told.py"), 60, "the ranks of the node to end")
        done = lost.prismdbg("publish", two.run.path)
        assert done.code == 0 and "copied the logs of rank 2, rank 3" in done.err and not kept(two, lost), done.err
        assert read_log(two.run.ranks / "3").notes[-1].kind == "exit"
        whole = other.prismdbg("why", two.run.path)
        assert "prismdbg publish" not in whole.out, whole.out
        again = lost.prismdbg("publish", two.run.path)
        assert again.code == 2 and "no log is missing" in again.err, again.err


def test_a_node_that_is_lost_whole_takes_its_logs_along_and_is_named(tmp_path: Path) -> None:
    with goes_on(tmp_path) as two:
        lost, other = two.of_rank(3)
        lost.kill()
        wait_for(lambda: states(two, other)[lost.name] == "lost", 60, f"node {lost.name} to count as lost")
        status = other.prismdbg("status", two.run.path)
        assert f"node {lost.name} (rank 2, rank 3): lost, no heartbeat for" in status.err, status.err
        why = other.prismdbg("why", two.run.path)
        first = f"likely: node {lost.name} with ranks 2 and 3 is lost: no heartbeat for"
        assert why.code == 0 and why.out.startswith(first), why.out


@pytest.mark.criu
def test_a_rank_with_its_log_on_a_node_is_captured_from_anywhere(tmp_path: Path) -> None:
    with goes_on(tmp_path) as two:
        for number, node in enumerate(two.nodes):
            capsule = two.run.path.parent / f"taken{number}"
            said = node.prismdbg("capture", two.run.path, "--rank", 3, "--window", 2, "-o", capsule)
            assert said.code == 0, f"{said.err}\n{two.output}"
        two.end_at(max(steps(two).values()) + 20)
        assert two.end() == (0, 0), two.output
        verdict = two.of_rank(3)[0].prismdbg("replay", capsule, "--runtime", "local", "--json")
        assert verdict.code == 0, verdict.err
        assert_identical(verdict.json, capsule)
