"""A paced rank whose transfers are waits on a device: a fake one here (tests/gpu has the same program for a GPU)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from emulated import emulate

from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.capsule.log.reader import read_log
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.storage.run_folder import read_json
from prismdbg.model.schedule import Schedule

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).resolve().parents[2] / "gpu" / "programs" / "paced_overlap.py"
CLUSTER = "ranks_per_node: 2\ntiers:\n  link: {{spans: job, latency: {latency_ms} ms, bandwidth: 100 GB/s}}\n"
COMPUTE_MS = 200


@pytest.mark.parametrize("mode", ["overlap", "serial", "exchange"])
def test_a_step_takes_the_longer_of_both_or_the_sum(mode: str, tmp_path: Path) -> None:
    """What is sent to and received from a rank in one batch is under way at once."""
    is_pair = mode == "exchange"
    (tmp_path / "cluster.yaml").write_text(CLUSTER.format(latency_ms=100 if is_pair else 50))  # an all_reduce has two
    ranks, who = (["0,1"], "rank 0 and 1 more") if is_pair else (["0", "--alike", "dp"], "rank 0")
    options = ["--ranks", *ranks, "--pace", "wall", "--cluster", tmp_path / "cluster.yaml"]
    program = [sys.executable, str(PROGRAM), mode, "--device", "cpu", "--steps", "4", "--compute-ms", str(COMPUTE_MS)]
    done = emulate(tmp_path / "run", 2, "dp=2", *options, program=program)
    assert done.returncode == 0 and "pass 1" in done.stderr, done.stderr[-4000:]
    assert f"no more passes: transfers of {who} were waits on a device" in done.stderr
    assert "converge" not in done.stdout + done.stderr and "more --passes" not in done.stderr
    for line in (
        f"the two were not compared: transfers of {who} were waits on a device, and the log does not have",
        f"not reliable: how long ranks computed: tensors of {who} were on a device",
        "not reliable: the duration of a step: simulation and emulated ranks were not compared, because",
    ):
        assert line in done.stdout, done.stdout
    run = tmp_path / "run"
    schedule = Schedule.load(run / "passes" / "1" / "schedule.0.json")
    transfers_ms = [row.transfer_ns / 1e6 for row in schedule.rows if row.is_call]
    transfer_ms = transfers_ms[0]
    assert transfers_ms == [pytest.approx(100, rel=0.05)] * len(transfers_ms)
    assert len(transfers_ms) == (2 if is_pair else 1)

    said = json.loads((run / "output" / "0.txt").read_text().splitlines()[-1])
    paced = [said["steps"][step] for step in schedule.steps]
    shortest_ms = 1e3 * min(step["step_s"] for step in paced)  # other programs make steps longer
    expected_ms = max(COMPUTE_MS, transfer_ms) if mode == "overlap" else COMPUTE_MS + transfer_ms
    assert expected_ms <= shortest_ms + 0.01 and shortest_ms < expected_ms + 60
    assert min(step["issued_s"] for step in paced) * 1e3 < transfer_ms / 2, "the host stands for nothing"

    log = read_log(run / "ranks" / "0")
    calls = [call for call in log.collectives if call.moment.step in schedule.steps]
    took_ms = [(call.time_completed_ns - call.time_created_ns) / 1e6 for call in calls if call.time_completed_ns]
    assert len(took_ms) == len(calls) and transfer_ms <= min(took_ms) < transfer_ms + 60, "as the device ended it"
    groups, *_, last = (note.data for note in log.notes if note.kind == DEVICE_WAITS)
    assert groups["device"] == "cuda:0" and groups["group"] == calls[0].group
    assert (last["calls"], last["took_ns"]) == (len(calls), last["asked_ns"])

    passes = read_json(run / "passes.json")
    ((rank, *_),) = (each["ranks"] for each in passes["passes"])
    assert rank["on_stream"] and not passes["has_converged"]
    assert rank["components"] == {}, "the log does not tell how long the stream stood"
    doubts = build_graph(GraphRequest(run=run, alike=() if is_pair else ("dp",))).origin.doubts
    assert any(f"tensors of {who} were on a device" in doubt for doubt in doubts)
