"""Two nodes record into one folder as a user who may do nothing and has no CRIU: a NaN becomes a capsule that starts at
a state snapshot, and the other node replays it, and captures a rank of the first one when the job has ended."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chain import CLI
from jobs import ROOT, Ended, run
from other_user import NOBODY, as_nobody, home_of_nobody, readable
from two_nodes import Node, job_line, node_environment, record_line, two_nodes, why_impossible

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.jobs.storage.job_nodes import node_of, supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made"),
]
PROGRAM = Path(__file__).parents[1] / "programs" / "stateful_mlp.py"
NAN_AT = 20


def asked(node: Node, shared: Path, *arguments: object) -> Ended:
    line = node.line(as_nobody(shared, [*CLI, *arguments]))
    return run(line, shared / f"{arguments[0]}.txt", env=dict(node_environment()), cwd=ROOT)


def test_a_nan_of_one_node_becomes_a_state_capsule_that_the_other_node_replays(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    home_of_nobody(shared)
    with two_nodes(shared) as nodes:
        for node in nodes:
            subprocess.run(node.line(["sh", "-c", readable(Path("/tmp/of-root"))]), check=True, timeout=30)
        line = record_line(
            shared / "run", job_line(PROGRAM, "--steps", 26, "--nan-data-at", NAN_AT), "--state-every", 8
        )
        parts = [node.start(as_nobody(shared, line), shared / f"{node.name}.txt") for node in nodes]
        ended = [part.wait(180) for part in parts]
        assert [one.code for one in ended] == [0, 0], "\n".join(one.output for one in ended)

        found = RunFolder(shared / "run")
        assert found.path.stat().st_uid == NOBODY
        (incident,) = supervisor_report(found)["incidents"]
        assert (incident["kind"], incident["ranks"]) == ("nan", [3]), incident
        (capsule,) = found.capsules.iterdir()
        manifest = Capsule.open(capsule).manifest
        assert (manifest.origin, manifest.incident.kind, manifest.rank) == (Origin.STATE, IncidentKind.NAN, 3)
        assert manifest.moment_a.step in (8, 16) and manifest.moment_b.step == NAN_AT

        (other,) = (node for node in nodes if node.name != node_of(found.ranks / "3"))
        why = asked(other, shared, "why", found.path).output
        assert f"node {node_of(found.ranks / '3')}: rank 3" in why and f"{PROGRAM.name}:" in why, why
        taken = asked(other, shared, "capture", found.path, "--rank", 3, "-o", shared / "taken")
        assert taken.code == 0, taken.output
        assert Capsule.open(shared / "taken").manifest.origin is Origin.STATE, "the rank's part of the job has ended"
        replayed = asked(other, shared, "replay", capsule, "--runtime", "plain", "--allow-writes", "--json")
        assert replayed.code == 0 and '"outcome": "identical"' in replayed.output, replayed.output
