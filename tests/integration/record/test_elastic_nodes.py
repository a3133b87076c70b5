"""A job whose nodes torchrun restarts one by one, or which may shrink (`torchrun --nnodes 1:2`): a node that is told to
end is no reason to watch the others less."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from test_two_nodes import BOUND_S, JOBS, OnTwo, _is_python, on_two_nodes
from two_nodes import Node, torchrun_line, why_impossible
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import StepMark
from prismdbg.capsule.log.reader import LogReader
from prismdbg.jobs.storage.job_nodes import supervisor_report

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made"),
]


def line(told: Path) -> list[str]:
    """The first node has the store where the nodes meet. Both wait for one another at the start; who is left waits for
    the other one as long."""
    found = torchrun_line(JOBS / "shrinks.py", told)
    at = found.index("--nnodes")
    found[at + 1] = "1:2"
    return [*found[:at], "--max-restarts=3", "--rdzv-conf=last_call_timeout=15", *found[at:]]


def tell_to_end(node: Node) -> None:
    (supervisor,) = [process for process in node.processes("prismdbg.cli.main", "record") if _is_python(process)]
    os.kill(supervisor.pid, signal.SIGTERM)


def last_step_alone(two: OnTwo) -> int:
    """Of rank 0, since it was started without the other node."""
    folder = two.run.latest(0)
    if folder.name == "0" or not (folder / "rank.json").exists():
        return 0
    return max((event.step for event in LogReader(folder).poll() if isinstance(event, StepMark)), default=0)


def test_a_nan_after_a_node_was_told_to_end_and_the_other_went_on_is_captured(tmp_path: Path) -> None:
    told = tmp_path / "shared" / "told"
    told.mkdir(parents=True)
    with on_two_nodes(tmp_path, line(told), "--window", "all") as two:
        two.wait_for(lambda: two.step(0) > 3 and two.step(3) > 3, "four steps")
        stays, leaves = two.nodes
        tell_to_end(leaves)
        assert two.part(leaves).wait(BOUND_S).code, two.output
        wait_for(lambda: last_step_alone(two) > 3 or not two.part(stays).alive, BOUND_S, "steps without it")
        assert two.part(stays).alive, two.output
        (told / "nan").touch()
        wait_for(lambda: supervisor_report(two.run)["capsules"], BOUND_S, "a capsule")
        (incident,) = supervisor_report(two.run)["incidents"]
        assert (incident["kind"], incident["ranks"], incident["node"]) == ("nan", [0], stays.name), two.output
        two.end_at(0)
        assert two.part(stays).wait(BOUND_S).code == 0, two.output
        (capsule,) = two.run.capsules.iterdir()
        assert Capsule.open(capsule).manifest.rank == 0
        why = stays.prismdbg("why", two.run.path)
        assert why.out.startswith("certain: rank 0 sent the first NaN"), why.out
        assert "told to end" not in why.out and "job was terminated" not in why.out, why.out


def test_ranks_that_ran_together_are_read_together_whatever_torchrun_counts_on_their_nodes(tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "starts"
    folder.mkdir(parents=True)
    command = torchrun_line(JOBS / "fails_before_it_communicates.py", folder)
    command.insert(command.index("--nproc-per-node"), "--max-restarts=1")
    with on_two_nodes(tmp_path, command, "--window", "all") as two:
        assert two.end() == (0, 0), two.output
        assert [folder.name for folder in two.run.rank_folders()] == ["0.1", "1.1", "2", "3"], two.output
        (incident,) = supervisor_report(two.run)["incidents"]
        assert (incident["kind"], incident["ranks"], incident["node"]) == ("nan", [3], "n2"), incident
        why = two.nodes[0].prismdbg("why", two.run.path)
        assert why.out.startswith("certain: rank 3 sent the first NaN"), why.out
        assert "no log of" not in why.out and "(attempt" not in why.out, why.out
