"""A recorded step on a device: its log shows when calls were issued and when they ended, not what was computed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from capsules import make_capsule

from prismdbg.errors import UsageError
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.job_graph.captured_rank import CapturedRequest, captured_graph
from prismdbg.simulate.graph.mesh import Mesh
from tests.tiny_log import TinyLog

MESH = Mesh.parse("dp=2")


def run(folder: Path, device: str, **about: object) -> GraphRequest:
    """Two steps of two ranks."""
    for rank in (0, 1):
        log = TinyLog(folder / "ranks" / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        for step in range(3):
            for collective in (1, 2):
                log.complete(log.issue(step, collective, device=device))
            log.step(step + 1)
    (folder / "run.json").write_text(json.dumps({"command": ["python"], "started_wall_ns": 10**18, **about}))
    return GraphRequest(run=folder, mesh=MESH, step=1)


@pytest.mark.parametrize("as_recorded", [False, True])
def test_no_graph_claims_that_nothing_was_computed(tmp_path: Path, as_recorded: bool) -> None:
    request = run(tmp_path, "cuda:0")
    with pytest.raises(UsageError, match="rank 0 ran step 1 on cuda:0: the log does not show how long it computed"):
        build_graph(GraphRequest(run=request.run, mesh=MESH, step=1, as_recorded=as_recorded))


@pytest.mark.parametrize(("device", "about"), [("cpu", {}), ("cuda:0", {"emulated": {"world": 2, "mesh": {"dp": 2}}})])
def test_on_the_host_and_emulated_a_thread_stands_in_its_call(
    tmp_path: Path, device: str, about: dict[str, object]
) -> None:
    graph = build_graph(run(tmp_path, device, **about))
    assert graph.mesh == MESH
    doubted = any("tensors of rank 0 and 1 more were on a device" in doubt for doubt in graph.origin.doubts)
    assert doubted is (device != "cpu"), "the host's time is no time of the device"


def test_nor_does_one_of_a_captured_rank(tmp_path: Path) -> None:
    for device, fits in (("cpu", True), ("cuda:0", False)):
        capsule = make_capsule(tmp_path / device, device=device).path
        request = CapturedRequest(capsule=capsule, replay=False)
        with nullcontext() if fits else pytest.raises(UsageError, match="rank 0 ran step 2 on cuda:0"):
            assert captured_graph(request, MESH, ["dp"], print).mesh == MESH
