"""A timeline as a picture and as a table."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest
from capsules import MANIFEST, make_capsule
from tiny_log import TinyLog, write_training

from prismdbg.errors import UsageError
from prismdbg.log.rank_log import read_log
from prismdbg.log.timeline_file import COLUMNS, export_timeline, write_csv, write_svg


def test_a_table_has_a_row_for_each_collective(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule", MANIFEST)
    said = export_timeline(capsule, tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    log = read_log(capsule.log)
    assert said == f"{tmp_path / 'run.csv'}: {len(log.collectives)} collectives"
    assert list(rows[0]) == list(COLUMNS)
    assert [row["moment"] for row in rows] == [str(call.moment) for call in log.collectives]
    assert {(row["rank"], row["op"], row["group"], row["bytes"]) for row in rows} == {
        ("0", "all_reduce", "world", "16")
    }
    first = log.collectives[0]
    assert int(rows[0]["began_ns"]) == first.time_created_ns + log.wall_offset_ns
    assert int(rows[0]["duration_ns"]) == (first.time_completed_ns or 0) - first.time_created_ns


def test_a_call_that_did_not_end_has_no_duration(tmp_path: Path) -> None:
    log = write_training(tmp_path / "log")
    log.issue(3, 1, op="=1+1")
    logs = {0: read_log(tmp_path / "log")}
    count = write_csv(tmp_path / "x.csv", logs)
    with (tmp_path / "x.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert count == len(logs[0].collectives) and last["duration_ns"] == ""
    assert last["op"] == "'=1+1", "no spreadsheet computes it"


def test_a_picture_shows_the_ranks_and_what_the_colours_mean(tmp_path: Path) -> None:
    for rank in (0, 3):
        write_training(tmp_path / str(rank), rank=rank)
    logs = {rank: read_log(tmp_path / str(rank)) for rank in (0, 3)}
    count = write_svg(tmp_path / "x.svg", logs)
    drawn = ElementTree.parse(tmp_path / "x.svg").getroot()
    texts = [node.text for node in drawn.iter() if node.tag.endswith("}text")]
    assert {"rank 0", "rank 3", "completed", "sent NaN or Inf"} <= set(texts)
    shown = [node for node in drawn.iter() if node.tag.endswith("}rect") and len(node)]
    assert len(shown) == count == sum(len(log.collectives) for log in logs.values())


@pytest.mark.parametrize(("steps", "every"), [(10, 1), (30, 2), (120, 10)])
def test_labels_of_steps_do_not_touch_and_are_those_of_one_stride(tmp_path: Path, steps: int, every: int) -> None:
    log = TinyLog(tmp_path / "log")
    log.group("0", (0, 1), "default_pg")
    for step in range(100, 100 + steps):
        log.step(step, time_ns=2000 + 1000 * (step - 100) // steps)  # spread from the first call to its end
    log.complete(log.issue(99 + steps, 1))
    write_svg(tmp_path / "x.svg", {0: read_log(tmp_path / "log")})
    drawn = ElementTree.parse(tmp_path / "x.svg").getroot()
    labels = [node for node in drawn.iter() if (node.text or "").startswith("step ")]
    places, numbers = ([float(node.get("x", "")) for node in labels], [int((node.text or "")[5:]) for node in labels])
    assert {after - before for before, after in pairwise(numbers)} == {every} and numbers[0] == 100
    assert all(after - before >= len("step 100") * 6 + 4 for before, after in pairwise(places))


@pytest.mark.parametrize("name", ["x.png", "x", "x.npy", "nowhere/x.svg"])
def test_what_names_no_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError):
        export_timeline(make_capsule(tmp_path / "capsule", MANIFEST), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["capsule"]


def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "x.svg").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        export_timeline(make_capsule(tmp_path / "capsule", MANIFEST), tmp_path / "x.svg")
    assert (tmp_path / "x.svg").read_text() == "mine"
