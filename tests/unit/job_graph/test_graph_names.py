"""A graph is known by what it contains: `graph build -o FILE` takes any name."""

from __future__ import annotations

from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule

from prismdbg.job_graph.job_view import is_job, job_view
from prismdbg.jobs.storage.pack import pack
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh


@pytest.mark.parametrize("name", ["graph.npz", "graph", "graph.json"])
def test_a_graph_opens_under_any_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    graph_file.save(gpt_job(Mesh.parse("dp=4"), GptShape(layers=2, hidden=8)), path)
    assert is_job(path)
    assert job_view(path, None, lambda _: None).graph.mesh.world == 4


def test_a_packed_capsule_and_an_empty_file_are_none(tmp_path: Path) -> None:
    packed, empty = tmp_path / "capsule.tar.zst", tmp_path / "empty"
    pack(make_capsule(tmp_path / "capsule", MANIFEST).path, packed)
    empty.touch()
    recorded = tmp_path / "recorded"
    recorded.mkdir()
    for name in ("run.json", "graph.npz"):
        (recorded / name).write_text("{}")
    assert not is_job(recorded), "it opens as the table of its ranks"
    assert not is_job(packed) and not is_job(empty) and not is_job(tmp_path / "missing")
