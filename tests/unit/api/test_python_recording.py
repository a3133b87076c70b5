"""A recording in Python: what is in the log, and an error that says what to do where something is not."""

from __future__ import annotations

import doctest
import subprocess
import sys
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from capsules import MANIFEST, make_capsule
from rich.console import Console
from tiny_log import TinyLog, write_training

import prismdbg
from prismdbg.api import recording as api
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.storage.pack import pack
from prismdbg.model.collective import State, TensorMeta
from prismdbg.model.moment import Moment


@pytest.fixture
def capsule(tmp_path: Path) -> Path:
    make_capsule(tmp_path / "capsule")
    return tmp_path / "capsule"


def test_the_examples_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2):
        write_training(tmp_path / "RUN" / "ranks" / str(number), rank=number)
    monkeypatch.chdir(tmp_path)
    found = doctest.testmod(api, globs={"prismdbg": prismdbg})
    assert (found.attempted, found.failed) == (6, 0)


def test_a_capsule(capsule: Path) -> None:
    with prismdbg.open(capsule) as recording:
        assert recording.manifest is not None and recording.manifest.moment_b == MANIFEST.moment_b
        assert list(recording.ranks) == [0]
        assert [seen.incident for seen in recording.incidents] == [MANIFEST.incident]
        rank = recording[0]
        assert [str(call.moment) for call in rank.collectives] == ["0.1", "0.2", "1.1", "1.2", "2.1", "2.2"]
        assert rank.groups["0"].ranks == (0, 1)
        assert rank.at("1.2").state is State.COMPLETED
        (values,) = rank.received(rank.at(Moment(1, 2)))
        assert values.shape == (4,) and values.tobytes() == bytes([1, 2]) * 8
        assert repr(recording) == "<recording capsule: 1 rank, 1 incident>" and "6 collectives" in repr(rank)


def test_a_packed_capsule_is_there_until_it_is_closed(capsule: Path, tmp_path: Path) -> None:
    pack(capsule, tmp_path / "c.tar.zst")
    recording = prismdbg.open(str(tmp_path / "c.tar.zst"))
    rank = recording[0]
    assert rank.received(rank.at("0.1"))[0].tobytes() == bytes([0, 1]) * 8
    recording.close()
    with pytest.raises(UsageError, match="was not kept"):
        rank.received(rank.at("0.1"))
    assert len(rank.collectives) == 6


def test_who_receives_nothing_is_not_told_to_keep_more(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "run" / "ranks" / "0.0")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1, op="barrier", outputs=()))
    rank = prismdbg.open(tmp_path / "run")[0]
    with pytest.raises(UsageError, match=r"^rank 0 receives nothing in 0\.1$"):
        rank.received(rank.at("0.1"))


def test_a_folder_of_logs_has_a_rank_each(tmp_path: Path) -> None:
    for number in range(2):
        write_training(tmp_path / "run" / "ranks" / f"{number}.0", rank=number)
    with prismdbg.open(tmp_path / "run") as recording:
        assert list(recording.ranks) == [0, 1]
        assert recording[1].received(recording[1].at("0.1"))[0].tobytes() == bytes([0, 1]) * 8
        assert recording.why().ranks == (0, 1)
        page = recording._repr_html_()
        assert "rank 1</text>" in page and page.count("<rect") == 12


def test_a_notebook_shows_the_timeline_of_one_rank(tmp_path: Path) -> None:
    for number in range(2):
        write_training(tmp_path / "run" / "ranks" / f"{number}.0", rank=number)
    page = prismdbg.open(tmp_path / "run")[1]._repr_html_()
    assert page.startswith("<p>&lt;rank 1: 6 collectives&gt;</p><svg"), page
    assert "rank 1</text>" in page and "rank 0</text>" not in page and page.count("<rect") == 6


def test_a_terminal_shows_the_same_without_pictures(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "run" / "ranks" / "0")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1, stack=log.stack(("/job/[bold]\x1b.py", 4, "step"))))
    recording = prismdbg.open(tmp_path / "run")
    said = StringIO()
    console = Console(file=said, width=200, force_terminal=False)
    console.print(recording)
    console.print(recording[0])
    assert "<recording run: 1 rank, 0 incidents>" in said.getvalue()
    assert "likely: rank 0 died without an error message" in said.getvalue()
    assert "0.1" in said.getvalue() and "/job/[bold]\ufffd.py:4 in step" in said.getvalue()


def test_columns_have_a_value_for_each_collective(capsule: Path) -> None:
    columns = prismdbg.open(capsule)[0].columns()
    assert {len(values) for values in columns.values()} == {6}
    assert columns["moment"][0] == "0.1" and columns["name"][0] == "all_reduce"
    assert list(columns["duration_ns"]) == [1000] * 6


def test_a_table_has_a_row_for_each_collective(capsule: Path) -> None:
    table = prismdbg.open(capsule)[0].to_pandas()
    assert len(table) == 6 and table.groupby("step").size().to_dict() == {0: 2, 1: 2, 2: 2}


def test_without_pandas_it_is_said(capsule: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FacilityError, match="pandas is not installed"):
        prismdbg.open(capsule)[0].to_pandas()


@pytest.mark.parametrize("moment", ["9.9", "0.3", "x"])
def test_moments_that_are_none(capsule: Path, moment: str) -> None:
    with pytest.raises(UsageError, match=moment):
        prismdbg.open(capsule)[0].at(moment)


def test_ranks_and_paths_that_are_none(capsule: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no log of rank 7"):
        prismdbg.open(capsule)[7]
    with pytest.raises(UsageError, match="no such file or directory"):
        prismdbg.open(tmp_path / "nowhere")
    (tmp_path / "text").write_text("no archive")
    with pytest.raises(CapsuleError):
        prismdbg.open(tmp_path / "text")


def test_what_was_not_kept_is_an_error(tmp_path: Path) -> None:
    log = TinyLog(tmp_path / "run" / "ranks" / "0.0")
    log.group("0", (0,))
    log.complete(log.issue(0, 1))
    rank = prismdbg.open(tmp_path / "run")[0]
    with pytest.raises(UsageError, match=r"payload of 0\.1 was not kept"):
        rank.received(rank.at("0.1"))


def test_every_bfloat16_is_a_float32() -> None:
    data = np.arange(1 << 16, dtype=np.uint16).tobytes()
    array = api._array(data, TensorMeta((256, 256), "bfloat16"))
    assert array.dtype == np.float32 and array.shape == (256, 256)
    assert (array.view(np.uint32) >> 16).astype(np.uint16).tobytes() == data
    with pytest.raises(UsageError, match="float8_e5m2"):
        api._array(b"\0", TensorMeta((1,), "float8_e5m2"))


@pytest.mark.parametrize(("size", "dtype"), [(12, "float32"), (6, "bfloat16"), (7, "bfloat16")])
def test_a_payload_that_does_not_fit_is_an_error(size: int, dtype: str) -> None:
    with pytest.raises(CapsuleError, match="does not fit"):
        api._array(b"\0" * size, TensorMeta((4,), dtype))


def test_reading_loads_no_torch(capsule: Path, child_environment: dict[str, str]) -> None:
    program = f"import prismdbg, sys; prismdbg.open({str(capsule)!r})[0].columns(); print('torch' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=child_environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert ran.stdout.strip() == "False"
