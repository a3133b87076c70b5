"""A rank out of a job that runs: the job goes on as if nothing had been, the rank runs again alone, bit for bit."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from chain import Taken, assert_identical, parameters, prismdbg, recording, replay, span
from jobs import EXAMPLES, Ended, forked

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import IncidentKind, Origin

pytestmark = [pytest.mark.job, pytest.mark.criu]

LONGEST_PAUSE_S = 15.0  # two busy cores; alone it is half a second
RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]


def test_the_job_goes_on_to_the_same_end(live: Taken, bare_gpt: Ended) -> None:
    assert bare_gpt.code == live.ended.code == 0, live.ended.output[-3000:]
    assert len(parameters(bare_gpt)) == 4
    assert parameters(live.ended) == parameters(bare_gpt)
    assert _losses(live.ended) == _losses(bare_gpt)


def _losses(ended: Ended) -> list[str]:
    return sorted(re.findall(r"step \d+ loss \S+", ended.output))


def test_the_job_stands_still_only_while_the_image_is_taken(live: Taken) -> None:
    for rank in range(4):
        log = live.recording.log(rank)
        gap_ns = max(_gaps(log))
        assert gap_ns < LONGEST_PAUSE_S * 1e9, f"rank {rank} issued nothing for {gap_ns / 1e9:.2f} s"
    notes = [note.kind for note in live.recording.log(1).notes if note.kind in ("parked", "released")]
    assert notes == ["parked", "released"]


def _gaps(log: RankLog) -> list[int]:
    times = [c.time_created_ns for c in log.collectives if c.moment.step > 0]
    return [b - a for a, b in pairwise(times)]


def test_the_capsule_holds_the_window_that_was_asked_for(live: Taken) -> None:
    manifest = live.manifest
    records = span(live.capsule)
    assert (manifest.origin, manifest.contains_raw_memory) == (Origin.IMAGE, True)
    assert (manifest.rank, manifest.world_size, manifest.incident.kind) == (1, 4, IncidentKind.REQUEST)
    assert manifest.replayable_from == manifest.moment_a == records[0].moment
    assert {r.moment.step for r in records} >= set(range(manifest.moment_a.step + 1, manifest.moment_a.step + 3))
    assert all(r.payload is not None for r in records if r.op == "all_reduce")
    verified = prismdbg("verify", live.capsule)
    assert verified.code == 0, verified.out


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_rank_runs_again_alone(live: Taken, runtime: str) -> None:
    verdict = replay(live.capsule, runtime=runtime)
    assert_identical(verdict, live.capsule)
    assert verdict["runtime"] == runtime
    assert [state["equal"] for state in verdict["states"]] == [True]
    assert verdict["states"][0]["moment"].startswith(f"{live.manifest.moment_b.step}.")


def test_the_same_capsule_twice_at_once_and_again(captured_live_native: Taken) -> None:
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda _: replay(captured_live_native.capsule), range(2)))
    verdicts.append(replay(captured_live_native.capsule))
    for verdict in verdicts:
        assert_identical(verdict, captured_live_native.capsule)
        assert [state["equal"] for state in verdict["states"]] == [True]
    assert len({verdict["states"][0]["actual"] for verdict in verdicts}) == 1


def test_a_packed_capsule_is_replayed(captured_live_native: Taken, tmp_path: Path) -> None:
    packed = tmp_path / "rank1.tar.zst"
    said = prismdbg("pack", captured_live_native.capsule, "-o", packed)
    assert said.code == 0, said.err
    assert packed.stat().st_size < captured_live_native.manifest.size_bytes / 2
    assert_identical(replay(packed), captured_live_native.capsule)


def test_what_cannot_be_replayed_is_no_capsule(tmp_path: Path) -> None:
    """The window is too small for the steps that were asked for: the evidence is kept under another name."""
    job_line = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", "100000", ranks=2)
    with recording(job_line, tmp_path, "--window-bytes", "2MiB") as job:
        job.wait_for_step(1, 2)
        said = prismdbg("capture", job.run.path, "--rank", 1, "--window", 12, "-o", tmp_path / "capsule")
        job.wait_for_step(1, job.step(1) + 2)
        job.stop()
    evidence = tmp_path / "capsule.evidence"
    assert said.code == 3 and said.out == ""
    assert "error: the capsule is not replayable" in said.err and f"; it is kept as evidence in {evidence}" in said.err
    assert not (tmp_path / "capsule").exists() and evidence.is_dir()
    assert prismdbg("inspect", evidence).code == 0
    assert prismdbg("verify", evidence).code == prismdbg("replay", evidence, "--runtime", "local").code == 3
