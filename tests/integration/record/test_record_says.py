"""What `record` says of a real job, and what commands say of its ranks afterwards: each thing once, with true sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from chain import PARTS, Recording, prismdbg, recording
from jobs import Ended, forked, plain_environment
from waiting import wait_for

from prismdbg.model.sizes import size

pytestmark = pytest.mark.job

BOUND_S = 60.0


def said_of(output: str, what: str) -> list[str]:
    """The lines that `record` itself began with `what`."""
    return [line for line in output.splitlines() if line.startswith(f"prismdbg: {what}")]


def sizes(run: Path) -> dict[str, str]:
    """What `list` says of the run and of its capsules, by path."""
    return {item["path"]: size(item["size_bytes"]) for item in json.loads(prismdbg("list", run, "--json").out)}


def test_its_first_line_comes_before_the_job_does_anything(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with recording(["sh", "-c", f"until [ -e {go} ]; do sleep 0.05; done"], tmp_path) as job:
        wait_for(lambda: said_of(job.job.output, "recording into"), BOUND_S, "the first line")
        assert job.job.alive and job.job.output == f"prismdbg: recording into {job.run.path}\n"
        go.touch()
        assert job.end().code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`sizes`: as it ended."""

    recording: Recording
    ended: Ended
    is_replayable: bool
    sizes: dict[str, str]

    @property
    def run(self) -> Path:
        return self.recording.run.path


@pytest.fixture(scope="module", params=[False, True], ids=["default", "replayable"])
def out_of_memory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A job of two ranks of which rank 1 runs out of memory; without what a replay needs, or with it."""
    options = ("--window", "all") if request.param else ()
    command = forked(PARTS / "incidents.py", "oom", ranks=2)
    with recording(command, tmp_path_factory.mktemp("job"), *options) as job:
        ended = job.end()
        yield Job(recording=job, ended=ended, is_replayable=request.param, sizes=sizes(job.run.path))


def test_an_incident_and_its_capsule_are_said_once(out_of_memory: Job) -> None:
    output, capsules = out_of_memory.ended.output, out_of_memory.recording.capsules
    assert output.startswith(f"prismdbg: recording into {out_of_memory.run}\n")
    assert len(said_of(output, "incident: ")) == 1, output
    assert said_of(output, "capsule: ") == [f"prismdbg: capsule: {path}" for path in capsules]
    assert len(capsules) == out_of_memory.is_replayable


def test_the_size_of_the_run_is_that_of_the_list(out_of_memory: Job) -> None:
    run = out_of_memory.run
    (line,) = said_of(out_of_memory.ended.output, f"{run}: 2 ranks, ")
    assert line.endswith(f" collectives, {out_of_memory.sizes[str(run)]}")


def test_a_rank_is_shown_whether_it_can_be_replayed_or_not(out_of_memory: Job) -> None:
    run, is_replayable = out_of_memory.run, out_of_memory.is_replayable
    shown = prismdbg("open", run, "--rank", 0)
    assert shown.code == 0 and "all_reduce" in shown.out
    created, of_it = shown.err.splitlines()
    assert ("cannot be replayed: creating a capsule of its log" in created) is not is_replayable
    made = re.search(r": (/\S+), (\S+ \S+) \(`prismdbg rm` removes it\)$", of_it)
    assert made is not None and sizes(run)[made[1]] == made[2], of_it
    inspected = prismdbg("inspect", run, "--rank", 0)
    assert inspected.code == 0 and ("not replayable" in inspected.out) is not is_replayable
    assert prismdbg("replay", run, "--rank", 0, "--runtime", "local").code == (0 if is_replayable else 6)


@pytest.mark.parametrize("command", [["inspect"], ["debug", "--runtime", "local"]])
def test_a_capsule_that_a_command_creates_is_announced_with_its_size(out_of_memory: Job, command: list[str]) -> None:
    """Of rank 1 there is one where it can be replayed: the one that the incident has triggered."""
    run, is_replayable = out_of_memory.run, out_of_memory.is_replayable
    said = prismdbg(*command, run, "--rank", 1, typed="quit\n").err.splitlines()
    if is_replayable:
        assert said[0] == f"prismdbg: rank 1: {out_of_memory.recording.capsules[0]}"
        for path in capsules_of(run, 0):
            assert prismdbg("rm", path).code == 0
        said = prismdbg(*command, run, "--rank", 0, typed="quit\n").err.splitlines()
        (made,) = capsules_of(run, 0)
        assert said[0] == f"prismdbg: rank 0 has no capsule yet: creating one in {run / 'capsules'}"
        assert said[1] == f"prismdbg: rank 0: {made}, {sizes(run)[made]} (`prismdbg rm` removes it)"
    elif command == ["inspect"]:
        assert "rank 1 cannot be replayed: creating a capsule of its log" in said[0]
    else:
        assert "rank 1 has ended, and the run contains too little data to replay it" in "\n".join(said)


def capsules_of(run: Path, rank: int) -> list[str]:
    listed = json.loads(prismdbg("list", run, "--json").out)
    return [item["path"] for item in listed if item["kind"] == "capsule" and item["text"].startswith(f"rank {rank},")]


def test_lines_from_a_pipe_leave_no_history(out_of_memory: Job, tmp_path: Path) -> None:
    environment = {**plain_environment(), "XDG_STATE_HOME": str(tmp_path)}
    said = prismdbg("debug", out_of_memory.run, "--rank", 1, "--runtime", "local", env=environment, typed="next\n")
    assert said.code == (0 if out_of_memory.is_replayable else 6), said.err
    assert list(tmp_path.iterdir()) == []
