"""Ranks that go astray in real jobs: `why` names the line, whoever was interrupted with the job is no culprit."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pytest
from chain import PARTS, Recording, prismdbg, recording
from jobs import EXAMPLES, ROOT, forked

from prismdbg.capsule.stacks import FROM_AGENT, FROM_OUTSIDE
from prismdbg.diagnosis.evidence import parks
from prismdbg.jobs.storage.kept_stacks import last_stacks
from prismdbg.jobs.storage.run_folder import read_json
from prismdbg.log.columns import read_columns

pytestmark = pytest.mark.job

SCRIPT = PARTS / "astray.py"


def line_of(words: str) -> int:
    return next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), start=1) if words in line)


def verdicts(run: Path) -> list[dict[str, Any]]:
    said = prismdbg("why", run, "--json")
    assert said.code == 0, said.err
    found: list[dict[str, Any]] = said.json["verdicts"]
    return found


def launcher(job: Recording) -> psutil.Process:
    (found,) = job.job.process.children()
    return found


@dataclass(frozen=True, kw_only=True)
class Held:
    """`unprivileged`: what of ranks 0 and 1 is seen by who may not trace them."""

    job: Recording
    meanwhile: list[dict[str, Any]]
    unprivileged: list[dict[str, Any]]


def _without_tracing(folder: Path) -> dict[str, Any]:
    """As a supervisor without CAP_SYS_PTRACE sees it."""
    code = (
        "import json, sys; from pathlib import Path; from prismdbg.jobs.record.stacks import stacks_of;"
        "found = stacks_of(Path(sys.argv[1]));"
        "print(json.dumps([found.taken_by, found.problem, str(found.source)]))"
    )
    drop = ["setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"]
    done = subprocess.run(
        [*drop, sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, timeout=60, check=True
    )
    return dict(zip(("taken_by", "problem", "source"), json.loads(done.stdout), strict=True))


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """Rank 1 stands in native code with Python's lock. `why` is asked meanwhile; then the launcher is told to end."""
    home = tmp_path_factory.mktemp("held")
    with recording(forked(SCRIPT, "gil", ranks=3), home, "--trigger", "hang=3s,exception", "--keep", 0) as job:
        job.wait_for(lambda: job.supervisor.get("incidents"), 120, "the hang to be seen")
        meanwhile = verdicts(job.run.path)
        unprivileged = [_without_tracing(job.run.latest(rank)) for rank in (0, 1)]
        launcher(job).send_signal(signal.SIGTERM)
        assert job.end().code != 0
        yield Held(job=job, meanwhile=meanwhile, unprivileged=unprivileged)


def test_where_a_rank_stands_that_holds_the_lock(held: Held) -> None:
    job, meanwhile = held.job, held.meanwhile
    taken = last_stacks(job.run, 0)
    assert taken is not None and sorted(taken.ranks) == [0, 1, 2]
    assert {stacks.taken_by for stacks in taken.ranks.values()} == {FROM_OUTSIDE}
    culprit = taken.ranks[1]
    assert culprit.source is not None and culprit.threads[0].holds_gil
    assert (culprit.source.filename, culprit.source.line) == (str(SCRIPT), line_of("ctypes.PyDLL(None).sleep"))
    assert taken.hang is not None and taken.hang.arrived(1).startswith("never joined, last at 4.2 ")

    first, *others = [verdict["kind"] for verdict in meanwhile]
    assert first == "stopped" and set(others) <= {"straggler"}  # a busy machine may well have kept one rank late
    (absent,) = meanwhile[0]["never_came"]
    assert f"it is at {culprit.source}, holding the GIL" == absent["did"]
    assert absent["stack"][0]["line"] == culprit.source.line
    (incident,) = job.supervisor["incidents"]
    assert incident["text"].endswith(f"rank 1 is at {culprit.source}")


@pytest.mark.skipif(os.getuid() != 0, reason="drops a capability of root")
def test_without_the_right_to_trace_the_rank_answers_itself(held: Held) -> None:
    waits, holds = held.unprivileged
    assert waits["taken_by"] == holds["taken_by"] == FROM_AGENT
    assert "this user is not permitted to trace the rank" in waits["problem"]
    assert waits["source"].startswith(f"{SCRIPT}:{line_of('# gradients')} in average")
    assert holds["source"] == "None" and "its agent: waited 5 s" in holds["problem"]


def test_ranks_that_were_ended_by_their_launcher_are_no_culprits(held: Held) -> None:
    job = held.job
    deaths = read_json(job.run.supervisor_json)["how_they_died"]
    assert len(deaths) == 3
    said = prismdbg("why", job.run.path)
    assert said.out.startswith("certain: ranks 0 and 2 wait in all_reduce"), f"{deaths}\n{said.out}"
    assert said.out.count("certain: ") == 1 and "died" not in said.out
    assert "missing: the job was told to end" in said.out


def test_a_collective_that_was_left_out_is_named_where_it_was(tmp_path: Path) -> None:
    with recording(forked(SCRIPT, "skip", ranks=3), tmp_path, "--trigger", "none") as job:
        assert job.end().code != 0
    first, *others = verdicts(job.run.path)
    assert (first["kind"], first["certainty"], first["ranks"], first["moment"]) == ("slip", "certain", [1], "5.1")
    assert (first["sequence"], first["shift"], first["later"]) == (9, 1, 13)
    assert [call["line"] for call in first["calls"]] == [line_of("# gradients"), *[line_of("# norms")] * 2]
    assert "stopped" in [verdict["kind"] for verdict in others]


@pytest.mark.criu
def test_of_a_healthy_job_nothing_is_said(tmp_path: Path) -> None:
    """With a checkpoint every other step, for which the others wait; interrupted by its owner."""
    job_line = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", "100000", ranks=2)
    with recording(job_line, tmp_path, "--checkpoint-every", 2) as job:
        job.wait_for(lambda: len(job.supervisor.get("checkpoints", [])) >= 4, 180, "checkpoints")
        job.stop()
    assert job.supervisor["interrupted"]["signal"] == signal.SIGINT
    found = verdicts(job.run.path)
    assert {verdict["kind"] for verdict in found} <= {"delay", "straggler"}  # a busy machine may keep one rank late
    held_ns = [
        until_ns - since_ns
        for folder in job.run.rank_folders()
        for since_ns, until_ns in parks(read_columns(folder))
        if until_ns is not None
    ]
    assert held_ns
    for verdict in found:  # if the waits for images counted, it would be late by as much
        late_ns = verdict.get("lateness_ns") or verdict["waited_ns"] / verdict["times"]
        assert late_ns < median(held_ns), (verdict, held_ns)
    said = prismdbg("why", job.run.path)
    assert found or said.out.startswith("no problem found in "), said.out


def test_a_run_without_a_log(tmp_path: Path) -> None:
    with recording(["true"], tmp_path) as job:
        assert job.end().code == 0
    said = prismdbg("why", job.run.path)
    assert said.code == 3 and not said.out
    assert "contains no log of any rank" in said.err and "the job ended with 0" in said.err
