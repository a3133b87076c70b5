"""Runs of several nodes become one, or are refused, and nothing is left of what was refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from prismdbg.cli import main
from prismdbg.errors import FacilityError, PrismError, UsageError
from prismdbg.jobs.storage import gather as gathering
from prismdbg.jobs.storage.gather import gather
from prismdbg.jobs.storage.job_nodes import node_folders, supervisor_report
from prismdbg.jobs.storage.job_restarts import latest_restart
from prismdbg.model.meanwhile import looked_on_by

needs_rsync = pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")


def of_node(home: Path, name: str, *ranks: str, job: str = "x", shared: bool = True) -> str:
    run = home / f"of-{name}"
    for rank in ranks:
        (run / "ranks" / rank).mkdir(parents=True)
        (run / "ranks" / rank / "rank.json").write_text(json.dumps({"rank": int(rank.split(".")[0]), "node": name}))
    (run / "run.json").write_text('{"command": ["torchrun"]}')
    capsule = run / "capsules" / "nan"
    capsule.mkdir(parents=True)
    (capsule / "by").write_text(name)
    if shared:
        (run / "telemetry" / name).mkdir(parents=True)
        (run / "telemetry" / name / "readings.00000.seg").write_text(name)
        (run / "nodes" / name).mkdir(parents=True)
        (run / "nodes" / "job.json").write_text(json.dumps({"id": job}))
        (run / "nodes" / name / "node.json").write_text("{}")
        seen = {"exit_code": 0, "capsules": [f"/tmp/run/capsules/{capsule.name}"], "problems": ["/tmp/x is full"]}
        (run / "nodes" / name / "supervisor.json").write_text(json.dumps(seen))
    return str(run)


@needs_rsync
def test_all_of_each_node_is_in_the_whole(tmp_path: Path) -> None:
    told: list[str] = []
    run = gather(
        [of_node(tmp_path, "n1", "0", "1"), of_node(tmp_path, "n2", "2", "3.1")], tmp_path / "all", told.append
    )
    assert [folder.name for folder in run.rank_folders()] == ["0", "1", "2", "3.1"]
    assert [node.name for node in node_folders(run)] == ["n1", "n2"]
    assert {path.name: (path / "by").read_text() for path in run.capsules.iterdir()} == {"nan": "n1", "nan-2": "n2"}
    readings = {path.parent.name: path.read_text() for path in run.telemetry.glob("*/readings.*.seg")}
    assert readings == {"n1": "n1", "n2": "n2"}
    report = supervisor_report(run)
    assert report["capsules"] == [str(run.capsules / "nan"), str(run.capsules / "nan-2")]
    assert "node n1: /tmp/x is full" in report["problems"]
    assert [text.split("/")[-1] for text in told] == ["of-n1", "of-n2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all", "of-n1", "of-n2"]


@needs_rsync
def test_a_job_without_folders_of_nodes_is_of_one_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = of_node(tmp_path, "n1", "0", "1", shared=False)
    assert main.run(["gather", source, "-o", str(tmp_path / "all")]) == 0
    assert "1 node, 2 ranks" in capsys.readouterr().err


@needs_rsync
@pytest.mark.parametrize("name", ["memory", "states", "capsules"])
def test_a_node_with_a_file_for_a_folder_is_named(tmp_path: Path, name: str) -> None:
    sources = [of_node(tmp_path, "n1", "0"), of_node(tmp_path, "n2", "1")]
    shutil.rmtree(Path(sources[0]) / name, ignore_errors=True)
    (Path(sources[0]) / name).write_text("no folder")
    (Path(sources[1]) / name).mkdir(exist_ok=True)
    with pytest.raises(UsageError, match=f"{name} of {sources[0]} is not a folder"):
        gather(sources, tmp_path / "all", lambda _: None)
    assert not (tmp_path / "all").exists()


@needs_rsync
def test_a_job_that_was_requeued_is_gathered_as_any_other(tmp_path: Path) -> None:
    """Each node's supervisor has begun the restart in its own RUN."""
    sources = [of_node(tmp_path, name, rank, f"{rank}.1") for name, rank in (("n1", "0"), ("n2", "1"))]
    for source in sources:
        (Path(source) / "nodes" / ".restart.1").mkdir()
    run = gather(sources, tmp_path / "all", print)
    assert [folder.name for folder in run.rank_folders()] == ["0", "0.1", "1", "1.1"]
    assert latest_restart(run) == 1


@needs_rsync
@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"job": "y"}, "of another job"),
        ({"shared": False}, "as a job of one node"),
        ({"name": "n1"}, "nodes/n1 is in"),
        ({"ranks": ("1",)}, "ranks/1 is in"),
    ],
)
def test_what_does_not_belong_together_is_refused(other: dict[str, object], why: str, tmp_path: Path) -> None:
    one = of_node(tmp_path / "one", "n1", "0", "1")
    name, ranks = str(other.pop("name", "n2")), other.pop("ranks", ("2",))
    another = of_node(tmp_path / "other", name, *ranks, **other)  # type: ignore[misc, arg-type]
    with pytest.raises(UsageError, match=why):
        gather([one, another], tmp_path / "all", print)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "other"]


@needs_rsync
@pytest.mark.parametrize("source", ["--rsh=touch x", "missing", "."])
def test_what_is_no_run_is_one_error(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PrismError) as raised:
        gather([source], tmp_path / "all", print)
    assert raised.value.hint and list(tmp_path.iterdir()) == []


# As rsync tells it with --info=progress2: a line takes the place of the one before it.
RSYNC = r"""#!/bin/sh
for folder; do :; done
printf "     32,768   9%%    0.00kB/s    0:00:00\r\r    360,448 100%%  343.75MB/s    0:00:00 (xfr#1, to-chk=0/1)\n"
echo "{}" > "$folder/run.json"
"""


def test_how_far_each_copy_is_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rsync = tmp_path / "rsync"
    rsync.write_text(RSYNC)
    rsync.chmod(0o755)
    monkeypatch.setattr(gathering.shutil, "which", lambda _name: str(rsync))
    told: list[str] = []
    with looked_on_by(SimpleNamespace(show=told.append, over=lambda: told.append("over"))):
        gather(["n1:/run"], tmp_path / "all", print)
    assert told == ["copying n1:/run (1 of 1): 32.0 KiB, 9 %", "copying n1:/run (1 of 1): 352.0 KiB, 100 %", "over"]


@needs_rsync
def test_rsync_tells_how_far_it_is(tmp_path: Path) -> None:
    told: list[str] = []
    source = of_node(tmp_path, "n1", "0")
    with looked_on_by(SimpleNamespace(show=told.append, over=lambda: None)):
        gather([source], tmp_path / "all", print)
    assert told[-1].startswith(f"copying {source} (1 of 1): ") and told[-1].endswith(" %")


@needs_rsync
def test_what_does_not_fit_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = of_node(tmp_path, "n1", "0")
    (Path(source) / "large").write_bytes(bytes(5 << 20))
    free = shutil.disk_usage(tmp_path)._replace(free=4 << 20)
    monkeypatch.setattr(gathering.shutil, "disk_usage", lambda _: free)
    with pytest.raises(FacilityError, match=r"of-n1 has 5\.0 MiB, and .* has room for 4\.0 MiB"):
        gather([source], tmp_path / "all", print)
    assert [path.name for path in tmp_path.iterdir()] == ["of-n1"]


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_is_complete_is_uploaded_from_where_it_is(
    ended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fsspec")
    source = of_node(tmp_path, "n1", "0", "1")
    if not ended:
        (Path(source) / "nodes" / "n1" / "supervisor.json").write_text("{}")
        (Path(source) / "nodes" / "n1.beat.json").write_text('{"beat": 1}')
    monkeypatch.setattr(gathering.shutil, "which", lambda _name: None)
    code = main.run(["gather", source, "-o", f"file://{tmp_path}/store/run"])
    said = capsys.readouterr()
    if ended:
        assert code == 0 and "1 node, 2 ranks" in said.err and said.out.strip() == f"file://{tmp_path}/store/run"
        there = {path.relative_to(source) for path in Path(source).rglob("*") if path.is_file()}
        assert there < {path.relative_to(tmp_path / "store" / "run") for path in tmp_path.glob("store/run/**/*")}
    else:
        assert code == 4 and "rsync is not installed" in said.err, "what still changes is copied first"


def test_nothing_there_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        gather([of_node(tmp_path, "n1", "0")], tmp_path / "all", print)


def test_without_rsync_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering.shutil, "which", lambda _name: None)
    with pytest.raises(FacilityError, match="rsync is not installed"):
        gather([of_node(tmp_path, "n1", "0")], tmp_path / "all", print)


@needs_rsync
def test_what_leads_out_of_the_whole_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rsync before 3.4 looks at each link alone, and a link may lead through another one, or through another node's."""
    shim = tmp_path / "bin" / "rsync"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/bash\nexec {shutil.which("rsync")} "${{@/--safe-links/--times}}"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}:{os.environ['PATH']}")
    first, second = of_node(tmp_path, "n1", "0"), of_node(tmp_path, "n2", "1")
    (tmp_path / "secret").write_text("of the user")
    trace = Path(first) / "memory" / "1.0"
    trace.mkdir(parents=True)
    (trace / "part").write_text("x")
    (Path(first) / "ranks" / "0" / "memory").symlink_to("../../memory/1.0")
    deep = Path(first, *"abcdef")
    deep.mkdir(parents=True)
    (deep / "k").symlink_to("../../../../../../z")
    (Path(first) / "z").mkdir()
    (deep / "l").symlink_to("k/../../secret")
    (Path(first) / "ranks" / "0" / "other").symlink_to("../1/k/../../secret")
    (Path(second) / "ranks" / "1" / "k").symlink_to("..")
    told: list[str] = []
    run = gather([first, second], tmp_path / "all", told.append)
    assert (run.path / "ranks" / "0" / "memory" / "part").read_text() == "x"
    left = [path for path in run.path.rglob("*") if path.is_symlink()]
    assert all(path.resolve(strict=True).is_relative_to(run.path) for path in left), left
    assert any("left out" in text and "lead out of the run or nowhere" in text for text in told), told
