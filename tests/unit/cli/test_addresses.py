"""Commands that read a RUN or a CAPSULE take its address in an object store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capsules import RANK
from tiny_log import write_training

from prismdbg.cli import main
from prismdbg.jobs.storage.remote.object_store import Address
from prismdbg.jobs.storage.remote.upload import push

pytest.importorskip("fsspec")

READ = (
    ("status",),
    ("why",),
    ("open",),
    ("replay",),
    ("debug",),
    ("inspect",),
    ("verify",),
    ("report", "-o", "page.html"),
    ("export", "--format", "perfetto", "-o", "out"),
    ("pack",),
    ("unpack",),
    ("diff",),
    ("memory",),
    ("telemetry",),
)


@pytest.mark.parametrize("line", READ, ids=lambda line: line[0])
def test_what_is_not_at_an_address_is_said(
    line: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = f"file://{tmp_path}/none.tar.zst"
    assert main.run([line[0], at, *line[1:]]) == 2
    assert f"nothing is at {at}" in capsys.readouterr().err


def test_two_recordings_are_compared_by_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    there = []
    for name in ("before", "after"):
        folder = tmp_path / name / "ranks" / "0"
        folder.parent.mkdir(parents=True)
        write_training(folder, 3, rank=0)
        (folder / "rank.json").write_text(json.dumps(RANK))
        (tmp_path / name / "run.json").write_text("{}")
        there.append(Address(f"file://{tmp_path}/store/{name}"))
        push(tmp_path / name, there[-1], lambda _: None)
    code = main.run(["diff", *map(str, there), "--json"])
    said = capsys.readouterr()
    assert code in (0, 7) and json.loads(said.out)["difference"] is None, said.err
