"""`export --format timeline`: all ranks of a run, as a picture or a table."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from click.testing import CliRunner
from tiny_log import write_training

from prismdbg.cli.main import cli


def two_ranks(run: Path) -> Path:
    for rank in range(2):
        write_training(run / "ranks" / str(rank), rank=rank)
    return run


def exported(run: Path, output: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["export", str(run), "--format", "timeline", "-o", str(output), *options])
    return done.exit_code, done.output + str(done.exception or "")


def test_a_table_of_all_ranks(tmp_path: Path) -> None:
    code, said = exported(two_ranks(tmp_path / "run"), tmp_path / "x.csv")
    assert code == 0 and "2 ranks, 12 collectives" in said
    with (tmp_path / "x.csv").open(newline="") as file:
        assert [row["rank"] for row in csv.DictReader(file)] == ["0"] * 6 + ["1"] * 6


def test_a_picture_of_all_ranks(tmp_path: Path) -> None:
    code, said = exported(two_ranks(tmp_path / "run"), tmp_path / "x.svg")
    assert code == 0, said
    drawn = (tmp_path / "x.svg").read_text()
    assert drawn.startswith("<svg ") and ">rank 0<" in drawn and ">rank 1<" in drawn


def test_a_table_has_the_last_collectives_of_each_rank(tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "run")
    for name, options in (("all", ()), ("last", ("--last", "2"))):
        code, said = exported(run, tmp_path / f"{name}.csv", *options)
        assert code == 0, said
    assert "2 ranks, 4 collectives" in said
    header, *rows = (tmp_path / "all.csv").read_text().splitlines()
    assert (tmp_path / "last.csv").read_text().splitlines() == [header, *rows[4:6], *rows[10:]]


def test_a_picture_has_the_last_collectives_of_each_rank(tmp_path: Path) -> None:
    run = two_ranks(tmp_path / "run")
    code, said = exported(run, tmp_path / "x.svg", "--last", "2")
    assert code == 0 and "2 ranks, 4 collectives" in said
    drawn = ElementTree.parse(tmp_path / "x.svg").getroot()
    assert len([node for node in drawn.iter() if node.tag.endswith("}rect") and len(node)]) == 4


def test_a_picture_of_more_than_it_can_show_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    code, said = exported(tmp_path, tmp_path / "x.svg", "--last", "2001")
    assert code != 0 and "at most 2000 collectives of a rank, but --last is 2001" in said
    assert list(tmp_path.iterdir()) == []


def test_another_end_of_the_name_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    code, said = exported(tmp_path, tmp_path / "x.png")
    assert code != 0 and ".svg, .csv" in said
    assert list(tmp_path.iterdir()) == []
