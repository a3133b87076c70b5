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
    ("build",),
    ("dap",),
    ("graph build",),
    ("emulate --world 2 -o out --donor", "--", "true"),
)
HERE = ("record -o", "capture", "publish", "list", "rm", "doctor --job")


@pytest.mark.parametrize("line", READ, ids=lambda line: line[0])
def test_what_is_not_at_an_address_is_said(
    line: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = f"file://{tmp_path}/none.tar.zst"
    assert main.run([*line[0].split(), at, *line[1:]]) == 2
    assert f"nothing is at {at}" in capsys.readouterr().err


@pytest.mark.parametrize("line", HERE)
def test_a_command_that_needs_a_folder_says_so_of_an_address(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run([*line.split(), "s3://bucket/run"]) == 2
    said = capsys.readouterr().err
    assert f"`{line.split()[0]}` needs a folder of this machine, and s3://bucket/run is an address" in said
    assert "gather" in said


def test_a_graph_of_what_was_fetched_is_written_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy stays as the store has it, and the next command does not fetch it again."""
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    _recorded(tmp_path / "run")
    push(tmp_path / "run", Address(f"file://{tmp_path}/store/run"), lambda _: None)
    assert main.run(["graph", "build", f"file://{tmp_path}/store/run", "--mesh", "dp=2", "--alike", "dp"]) == 0, (
        capsys.readouterr().err
    )
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["run.graph.npz"]
    assert not list((tmp_path / "cache").rglob("graph.npz"))


def test_a_graph_of_a_run_of_this_machine_needs_no_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISMDBG_CACHE", "/dev/null/none")
    _recorded(tmp_path / "run")
    assert main.run(["graph", "build", str(tmp_path / "run"), "--mesh", "dp=2", "--alike", "dp"]) == 0
    assert (tmp_path / "run" / "graph.npz").is_file()


def _recorded(run: Path) -> None:
    folder = run / "ranks" / "0"
    folder.parent.mkdir(parents=True)
    write_training(folder, 3, rank=0)
    (folder / "rank.json").write_text(json.dumps(RANK))
    (run / "run.json").write_text("{}")


def test_two_recordings_are_compared_by_their_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRISMDBG_CACHE", str(tmp_path / "cache"))
    there = []
    for name in ("before", "after"):
        _recorded(tmp_path / name)
        there.append(Address(f"file://{tmp_path}/store/{name}"))
        push(tmp_path / name, there[-1], lambda _: None)
    code = main.run(["diff", *map(str, there), "--json"])
    said = capsys.readouterr()
    assert code in (0, 7) and json.loads(said.out)["difference"] is None, said.err
