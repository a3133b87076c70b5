"""How far long work is: told to who looks on, by reading a capsule's files, a run's logs, and a diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from capsules import IMAGE, make_capsule
from incident_run import write_run

from prismdbg.capsule import transfer
from prismdbg.diagnosis.why import diagnose
from prismdbg.errors import UsageError
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.storage.pack import opened, pack
from prismdbg.jobs.storage.verify import findings
from prismdbg.model.meanwhile import looked_on_by, one_by_one, unheard, working
from prismdbg.model.sizes import size
from prismdbg.simulate.graph.mesh import Mesh


class Onlooker:
    def __init__(self) -> None:
        self.told: list[str] = []

    def show(self, text: str) -> None:
        self.told.append(text)

    def over(self) -> None:
        self.told.append("over")


@pytest.fixture
def told() -> Iterator[list[str]]:
    onlooker = Onlooker()
    with looked_on_by(onlooker):
        yield onlooker.told


def test_another_thread_tells_nobody(told: list[str]) -> None:
    def halves() -> bool:
        with working() as tell:
            tell("half")
            return tell is unheard

    with ThreadPoolExecutor(1) as other:
        assert other.submit(halves).result()
    assert told == []
    assert not halves() and told == ["half", "over"]


def test_what_ends_early_is_taken_back(told: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        for item in one_by_one([1, 2, 3], "reading"):
            if item == 2:
                raise KeyboardInterrupt
    assert told[:2] == ["reading: 1 of 3", "reading: 2 of 3"]


def test_a_capsule_is_checked_by_bytes(tmp_path: Path, told: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "CHUNK_BYTES", 64)
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    told.clear()  # how far the writing was
    list(findings(capsule.path))
    total = size(capsule.manifest.size_bytes)
    assert told[0].endswith(f" of {total}") and told[-2:] == [f"checking files: {total} of {total}", "over"]
    assert len(told) > len(capsule.manifest.files) + 1


def test_an_archive_is_unpacked_by_bytes(tmp_path: Path, told: list[str]) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    pack(capsule.path, tmp_path / "capsule.tar.zst")
    told.clear()
    with opened(tmp_path / "capsule.tar.zst"):
        assert told[-2:] == [f"unpacking: {size(capsule.manifest.size_bytes)}", "over"]


def test_a_diagnosis_tells_which_ranks_were_read(tmp_path: Path, told: list[str]) -> None:
    run = write_run(tmp_path / "run")
    ranks = len(run.rank_folders())
    diagnose(gather(run.path))
    assert told[: ranks + 1] == [*(f"reading the logs of ranks: {n} of {ranks}" for n in range(1, ranks + 1)), "over"]
    assert told[ranks + 1] == "comparing the ranks' calls" and told[-1] == "over"


def test_a_graph_tells_which_ranks_were_read(tmp_path: Path, told: list[str]) -> None:
    run = write_run(tmp_path / "run")
    with suppress(UsageError):  # of what these two did together
        build_graph(GraphRequest(run=run.path, mesh=Mesh.parse("dp=2")))
    assert told[:3] == ["reading the logs of ranks: 1 of 2", "reading the logs of ranks: 2 of 2", "over"]
