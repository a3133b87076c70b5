"""The command of examples/kubernetes/job.yaml, in two nodes that are what its pods are: names of their own, one volume.
No Kubernetes runs here."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from chain import assert_identical
from jobs import ROOT, Job
from two_nodes import Node, two_nodes, why_impossible

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.jobs.storage.job_nodes import node_of
from prismdbg.jobs.storage.run_folder import RunFolder

pytestmark = [
    pytest.mark.job,
    pytest.mark.skipif(bool(why_impossible()), reason=why_impossible() or "nodes can be made"),
]
MANIFEST = ROOT / "examples" / "kubernetes" / "job.yaml"
PROGRAM = Path(__file__).parents[1] / "node_jobs" / "goes_wrong_on_a_rank.py"
UID = "0b6b8a0e-7a3a-4d0c-9d0f-2f3c1a6f2e11"
NAMES = "10.77.0.1 train-0 train-0.train\\n10.77.0.2 train-1 train-1.train\\n"


def command(shared: Path) -> list[str]:
    """As Kubernetes would give it to both pods, with the volume where the nodes see it and another program."""
    (job,) = [one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "Job"]
    container: dict[str, Any] = job["spec"]["template"]["spec"]["containers"][0]
    words = [word.replace("$(RUN)", UID) for word in container["command"]]
    assert words.pop() == "/app/train.py"
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tui")])
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    found = [word.replace("/runs/", f"{shared}/") for word in words]
    return ["env", f"PYTHONPATH={paths}", f"PATH={programs}", *found, str(PROGRAM), "nan", "3"]


def pod(node: Node, number: int, shared: Path) -> Job:
    named = f"hostname train-{number}; printf '{NAMES}' >> /etc/hosts"
    return node.start(["sh", "-c", f'{named}; exec "$@"', "sh", *command(shared)], shared / f"{number}.txt")


def test_two_pods_record_into_one_folder_and_the_nan_is_captured(tmp_path: Path) -> None:
    shared = tmp_path / "runs"
    with two_nodes(shared) as nodes:
        pods = [pod(node, number, shared) for number, node in enumerate(nodes)]
        ended = [one.wait(180) for one in pods]
        assert [one.code for one in ended] == [0, 0], "\n".join(one.output for one in ended)
        run = RunFolder(shared / UID)
        assert {node_of(folder) for folder in run.rank_folders()} == {"train-0", "train-1"}
        (capsule,) = run.capsules.iterdir()
        assert Capsule.open(capsule).manifest.rank == 3
        why = nodes[0].prismdbg("why", run.path)
        assert f"node {node_of(run.ranks / '3')}: rank 3" in why.out, why.out
        verdict = nodes[0].prismdbg("replay", capsule, "--runtime", "local", "--json")
        assert verdict.code == 0, verdict.err
        assert_identical(verdict.json, capsule)
