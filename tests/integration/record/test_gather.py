"""Nodes without a common folder: each records into a RUN of its own, and these become one, over a real sshd."""

from __future__ import annotations

from pathlib import Path

import own_sshd
import pytest
from chain import assert_identical, prismdbg, replay
from two_nodes import job_line, record_line, two_nodes, why_impossible

from prismdbg.jobs.storage.job_nodes import node_of
from prismdbg.jobs.storage.run_folder import RunFolder

_WHY = why_impossible() or own_sshd.why_impossible()
pytestmark = [pytest.mark.job, pytest.mark.skipif(bool(_WHY), reason=_WHY or "nodes and an sshd can be had")]
JOBS = Path(__file__).parents[1] / "node_jobs"


def test_runs_of_two_nodes_become_one_over_ssh(tmp_path: Path) -> None:
    shared = tmp_path.resolve() / "shared"
    with two_nodes(shared) as nodes:
        job = job_line(JOBS / "goes_wrong_on_a_rank.py", "nan", 3)
        lines = [record_line(shared / f"of-{node.name}", job, "--window", "all") for node in nodes]
        parts = [node.start(line, shared / f"{node.name}.txt") for node, line in zip(nodes, lines, strict=True)]
        try:
            codes = [part.wait(180).code for part in parts]
        finally:
            for part in parts:
                part.kill()
        assert codes == [0, 0], "\n".join(part.output[-3000:] for part in parts)
    sources = [f"127.0.0.1:{shared}/of-n1", f"127.0.0.1:{shared}/of-n2/"]
    with own_sshd.own_sshd(tmp_path / "ssh") as ssh:
        said = prismdbg("gather", *sources, "-o", tmp_path / "whole", "--ssh", ssh)
        assert said.code == 0, said.err
        assert "2 nodes, 4 ranks" in said.err and said.out.strip() == str(tmp_path / "whole")
        missing = prismdbg("gather", f"127.0.0.1:{shared}/none", "-o", tmp_path / "other", "--ssh", ssh)
        assert missing.code == 4 and "cannot be copied" in missing.err and "No such file" in missing.err, missing.err
        assert not list(tmp_path.glob("*other*")) and not list(tmp_path.glob(".*other*"))

    run = RunFolder(tmp_path / "whole")
    node = node_of(run.ranks / "3")
    why = prismdbg("why", run.path)
    assert "rank 3" in why.out and f"node {node}: rank 3" in why.out and "no log of" not in why.out, why.out
    status = prismdbg("status", run.path, "--json").json
    assert {one["state"] for one in status["nodes"]} == {"ended"} and len(status["ranks"]) == 4
    (capsule,) = run.capsules.glob("nan-rank3-*")
    assert f"capsule: {capsule}" in prismdbg("status", run.path).err
    assert_identical(replay(capsule), capsule)
