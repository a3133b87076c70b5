"""`Rank.memory`: what a rank held, of a RUN and of a capsule, and the examples of its documentation."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from capsules import MANIFEST, RANK
from tiny_log import write_training
from traces import TraceBuilder

import prismdbg
from prismdbg.api import memory as api
from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.errors import UsageError
from prismdbg.jobs.storage.pack import pack
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment

LINE = Frame("/job/train.py", 7, "step")


def trace(folder: Path) -> None:
    """512 bytes all the time, and 1024 more in step 2; blocks of the backend and of a GPU beside them."""
    built = TraceBuilder(folder, from_start=True, in_use_bytes=0)
    built.allocate(512, "aten::empty", frames=(LINE,))
    built.allocate(64, "c10d::all_reduce", backend=True)
    built.now = Moment(2, 1, 3)
    freed = built.allocate(1024, "aten::mul", module="layers.0")
    built.now = Moment(2, 2)
    built.free(freed)
    built.allocate(7, device=1)
    built.write()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_training(tmp_path / "RUN" / "ranks" / "0", steps=3)
    trace(tmp_path / "RUN" / "ranks" / "0" / "memory")
    return tmp_path / "RUN"


def test_the_examples_are_right(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.parent)
    found = doctest.testmod(api, globs={"prismdbg": prismdbg})
    assert (found.attempted, found.failed) == (4, 0)


def test_the_peak_and_what_made_it(run: Path) -> None:
    peak = prismdbg.open(run)[0].memory().peak()
    assert peak is not None and peak.cause is not None
    assert (peak.size_bytes, peak.cause.size_bytes, peak.cause.site.module) == (1536, 1024, "layers.0")
    assert (len(peak.blocks), peak.blocks.program_bytes, peak.is_lower_bound) == (2, 1536, False)
    before = prismdbg.open(run)[0].memory().peak(end="2.0")
    assert before is not None and before.size_bytes == 512


def test_live_blocks_by_where_they_were_made(run: Path) -> None:
    memory = prismdbg.open(run)[0].memory()
    live = memory.live(Moment(2, 2))
    assert (live.program_bytes, live.backend_bytes, live.is_lower_bound) == (1536, 64, False)
    by_stack = {group.label: (group.size_bytes, group.blocks, group.frames) for group in live.groups()}
    assert by_stack[str(LINE)] == (512, 1, (LINE,))
    assert [block.size_bytes for block in live.largest(1)] == [1024]
    assert [group.label for group in live.groups("module")] == ["layers.0", "no module", "backend"]
    assert live.groups("operator") == live.groups("op")
    assert memory.live().program_bytes == 512, "at the end"
    with pytest.raises(UsageError, match="cannot be grouped by 'colour'"):
        live.groups("colour")
    with pytest.raises(UsageError, match="outside the trace"):
        memory.live("99.1")


def test_tables(run: Path) -> None:
    memory = prismdbg.open(run)[0].memory()
    blocks = memory.live("2.2").to_pandas()
    assert blocks.groupby("op").size_bytes.sum().to_dict() == {
        "aten::empty": 512,
        "aten::mul": 1024,
        "c10d::all_reduce": 64,
    }
    made = blocks[blocks.op == "aten::mul"].iloc[0]
    assert (made.moment, made.freed, made.source, made.is_backend) == ("2.1.3", "2.2", "", False)
    assert blocks[blocks.op == "aten::empty"].iloc[0].source == str(LINE)
    assert memory.to_pandas().high_bytes.max() == 1536


def test_each_device_alone(run: Path) -> None:
    memory = prismdbg.open(run)[0].memory()
    assert memory.devices == ("cpu", "cuda:0")
    assert memory.on("cuda:0").live().program_bytes == 7 and memory.on("cpu").device == "cpu"
    with pytest.raises(UsageError, match="no memory of cuda:1") as refused:
        memory.on("cuda:1")
    assert "cpu, cuda:0" in refused.value.hint


def test_of_a_capsule_as_long_as_it_is_open(tmp_path: Path) -> None:
    trace(tmp_path / "trace")
    with CapsuleWriter(tmp_path / "capsule") as writer:
        write_training(tmp_path / "log")
        writer.add_tree(layout.LOG, tmp_path / "log")
        writer.add_tree(layout.MEMORY, tmp_path / "trace")
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    pack(capsule.path, tmp_path / "c.tar.zst")
    with prismdbg.open(tmp_path / "c.tar.zst") as recording:
        memory = recording[0].memory()
    assert memory.live("2.2").program_bytes == 1536
    with pytest.raises(UsageError, match="no memory trace"):
        recording[0].memory()


def test_without_a_trace_it_is_said(tmp_path: Path) -> None:
    write_training(tmp_path / "run" / "ranks" / "0")
    with pytest.raises(UsageError, match="rank 0 has no memory trace") as refused:
        prismdbg.open(tmp_path / "run")[0].memory()
    assert refused.value.hint == "record the job with --memory"
