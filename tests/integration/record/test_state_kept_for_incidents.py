"""A NaN in a job that goes on: the state snapshot from before it is there when the capsule is made, a second later."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, recording, replay
from jobs import ROOT, forked, plain_environment
from test_two_nodes import on_two_nodes
from two_nodes import torchrun_line, why_impossible

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.jobs.storage.job_nodes import supervisor_report
from prismdbg.settings.state_folders import states_of

pytestmark = pytest.mark.job

HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
PROGRAM = Path(__file__).parent.parent / "programs" / "stateful_mlp.py"
REST_S = 0.04  # two snapshots more take longer than it takes to see a NaN, and less long than that takes to settle


def test_it_starts_at_the_snapshot_before_it(tmp_path: Path) -> None:
    job = forked(PROGRAM, "--steps", 150, "--nan-at", 65, "--rest-s", REST_S, ranks=2)
    with recording(job, tmp_path, "--state-every", 10, env=HOOKS) as live:
        ended = live.end()
    assert ended.code == 0, ended.output
    (capsule,) = live.capsules
    manifest = Capsule.open(capsule).manifest
    assert (manifest.incident.kind, manifest.origin, manifest.rank) == (IncidentKind.NAN, Origin.STATE, 1)
    assert (manifest.moment_a.step, manifest.moment_b.step) == (60, 66), ended.output
    assert_identical(replay(capsule), capsule)
    assert not [path for path in live.run.states.iterdir() if path.is_file()], "nothing holds them any more"


def test_snapshots_are_taken_again_after_the_incident(tmp_path: Path) -> None:
    job = forked(PROGRAM, "--steps", 1_000_000, "--nan-at", 65, "--rest-s", REST_S, ranks=2)
    with recording(job, tmp_path, "--state-every", 10, env=HOOKS) as live:
        live.wait_for(lambda: live.capsules, 120, "a capsule of the NaN")
        live.wait_for_step(1, live.step(1) + 40)
        oldest = states_of(live.run.states / "1")[0]
        live.stop()
    assert oldest > 65 and len(states_of(live.run.states / "1")) == 2


def test_where_it_is_gone_already_the_log_is_kept_and_why(tmp_path: Path) -> None:
    """The supervisor sees the NaN two snapshots later: it stands still meanwhile. What was received since the start is
    gone, too."""
    job = forked(PROGRAM, "--steps", 1_000_000, "--nan-at", 100, "--rest-s", 0.02, ranks=2)
    with recording(job, tmp_path, "--state-every", 3, "--window-bytes", "8MiB", env=HOOKS) as live:
        live.wait_for_step(1, 20)
        supervisor = live.job.process
        supervisor.send_signal(signal.SIGSTOP)
        live.wait_for(lambda: states_of(live.run.states / "1")[0] > 101, 120, "the snapshot before the NaN to go")
        supervisor.send_signal(signal.SIGCONT)
        live.wait_for(lambda: live.supervisor.get("evidence"), 120, "the evidence")
        said = live.stop().output
    (evidence,) = map(Path, live.supervisor["evidence"])
    (line,) = [line for line in said.splitlines() if "no capsule of rank 1" in line]
    assert "no capsule of rank 1: the snapshots of steps 1" in line and " are after the incident" in line
    assert f"its log is kept as evidence in {evidence}; take them less often: --state-every " in line
    assert live.capsules == [] and Capsule.open(evidence).manifest.incident.kind is IncidentKind.NAN
    assert "101.1" in prismdbg("inspect", evidence).out
    assert prismdbg("replay", evidence, "--runtime", "local").code == 3


@pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made")
@pytest.mark.parametrize("local", [(), ("--local", "/dev/shm")], ids=["shared", "local"])
def test_two_nodes_take_longer_to_agree_and_it_is_still_there(tmp_path: Path, local: tuple[str, ...]) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    program, _ = (
        Path(shutil.copy(file, shared)) for file in (PROGRAM, ROOT / "examples" / "vendored" / "prismdbg_hooks.py")
    )
    job = torchrun_line(program, "--steps", 90, "--nan-at", 33, "--rest-s", 0.1)  # two snapshots more: 1.4 s, of the 3
    with on_two_nodes(tmp_path, job, "--state-every", 8, *local) as two:
        assert two.end() == (0, 0), two.output
        (capsule,) = map(Path, supervisor_report(two.run)["capsules"])
        manifest = Capsule.open(capsule).manifest
        assert (manifest.rank, manifest.origin, manifest.moment_a.step) == (1, Origin.STATE, 32), two.output
        assert not [path for path in two.run.states.iterdir() if path.is_file()], "nothing holds them any more"
        verdict = two.nodes[0].prismdbg("replay", capsule, "--runtime", "local", "--json")
        assert_identical(verdict.json, capsule)
