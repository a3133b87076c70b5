"""Logs of a node that come into RUN: a reader finds a whole beginning of each at any time, and nobody is robbed."""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log.reader import read_log
from prismdbg.cli import main
from prismdbg.cli.terminal import long_work
from prismdbg.errors import FacilityError, RankLost, UsageError
from prismdbg.jobs.capture.requests import refuse_lost
from prismdbg.jobs.storage import fresh_logs, local_logs
from prismdbg.jobs.storage.fresh_logs import ask_for_logs, publish_left
from prismdbg.jobs.storage.inventory import remove
from prismdbg.jobs.storage.job_nodes import NodeFolder, NodeState, node_states
from prismdbg.jobs.storage.local_logs import LocalFolder, publish_all, publish_ends, publish_logs, publish_so_far
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.jobs.storage.run_report import rank_states
from prismdbg.log import joining
from prismdbg.log.columns import read_columns
from prismdbg.log.folding import fold
from prismdbg.log.summary import summarize
from prismdbg.settings.boot import boot_id
from prismdbg.telemetry.file_format import segment_name


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder(tmp_path / "run")
    run.ranks.mkdir(parents=True)
    (run.nodes / "n1").mkdir(parents=True)
    (run.nodes / "job.json").write_text('{"id": "x"}')
    write_json(run.run_json, {"command": ["train"], "started_wall_ns": 1})
    return run


@pytest.fixture
def local(tmp_path: Path, run: RunFolder) -> LocalFolder:
    folder = LocalFolder(tmp_path / "prismdbg-abc")
    folder.ranks.mkdir(parents=True)
    folder.describe(run.path, "n1")
    write_json(run.nodes / "n1" / "node.json", {"local": str(folder.path)})
    return folder


def issue(log: TinyLog, count: int = 1) -> None:
    for _ in range(count):
        log.complete(log.issue(1 + log.records // 10, 1 + log.records % 10))


def issued(run: RunFolder) -> int:
    return read_columns(run.ranks / "0").issued


def test_a_log_is_copied_again_as_it_grows_and_is_folded(run: RunFolder, local: LocalFolder) -> None:
    log = TinyLog(local.ranks / "0")
    for number in range(1, 6):
        issue(log, 5)
        publish_logs(local, run.path)
        assert issued(run) == 10 * number - 5
        issue(log, 5)
        log.next_segment()
        summarize(log.folder)
        fold(log.folder, 2 << 16)
    publish_logs(local, run.path)
    assert sorted(p.name for p in (run.ranks / "0").iterdir()) == sorted(p.name for p in log.folder.iterdir())
    assert issued(run) == read_columns(log.folder).issued


def test_what_is_written_while_a_log_is_copied_leaves_no_hole(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each file is copied the rank fills a segment, and the supervisor folds what is too much."""
    log = TinyLog(local.ranks / "0")
    for _ in range(4):
        issue(log, 5)
        log.next_segment()
    copy = local_logs._publish

    def goes_on(source: Path, target: Path, copied: local_logs.Copied) -> None:
        issue(log, 5)
        log.next_segment()
        summarize(log.folder)
        fold(log.folder, 3 << 16)
        copy(source, target, copied)
        if target.parent == run.ranks / "0" and any(target.parent.glob("events.*.seg")):
            found = read_columns(target.parent)
            ids = found.record_id.tolist()
            assert ids == list(range(ids[0], ids[0] + len(ids))) if ids else True

    monkeypatch.setattr(local_logs, "_publish", goes_on)
    for _ in range(3):
        publish_logs(local, run.path)
        found = read_columns(run.ranks / "0")
        assert found.damage is None and found.record_id.tolist() == sorted(set(found.record_id.tolist()))


def test_the_end_of_a_log_reads_in_run_as_on_its_node_before_the_rest_is_there(
    run: RunFolder, local: LocalFolder
) -> None:
    """Also where something older is there already, and where the summary lags behind."""
    log = TinyLog(local.ranks / "0")
    log.group("0", (0, 1))
    summarized_at = (3, 5)
    for number in range(10):
        issue(log, 5)
        log.next_segment()
        if number in summarized_at:
            summarize(log.folder)
        if number == 2:
            publish_logs(local, run.path)
    newest_bytes = (2 << 16) + 1
    publish_ends(local, run.path, newest_bytes)
    there = {path.name for path in (run.ranks / "0").glob("events.*.seg")}
    assert there == {f"events.{number:05}.seg" for number in (0, 1, 2, 3, 6, 7, 8, 9, 10)}
    found, known = (read_columns(folder, newest_bytes) for folder in (run.ranks / "0", log.folder))
    assert found.record_id.tolist() == known.record_id.tolist() and found.issued == known.issued == 50
    assert found.groups == known.groups and found.unknown == 0
    publish_logs(local, run.path)
    assert len(read_columns(run.ranks / "0")) == 50


def test_everything_of_a_rank_that_has_ended_comes_along(run: RunFolder, local: LocalFolder) -> None:
    log = TinyLog(local.ranks / "0")
    issue(log, 3)
    (log.folder / "payload.00000.seg").write_bytes(b"1234")
    (log.folder / "payload.spare").write_bytes(b"")
    (log.folder / "spawned.pickle").write_bytes(b"56")
    trace = local.path / "memory" / "12.34"
    trace.mkdir(parents=True)
    (trace / "memory.00000.seg").write_bytes(b"5")
    (trace.parent / "13.35").mkdir()
    (log.folder / "memory").symlink_to("../../memory/12.34")
    (local.path / "states" / "0" / "7").mkdir(parents=True)
    (local.path / "states" / "0" / "7" / "state.json").write_text("{}")
    (local.path / "states" / "0" / ".8.partial").mkdir()
    (local.path / "states" / "0" / ".8.partial" / "state.safetensors").write_text("half")
    publish_all(local, run.path)
    found = run.ranks / "0"
    assert read_log(found).collectives and (found / "payload.00000.seg").read_bytes() == b"1234"
    assert not (found / "payload.spare").exists()
    assert (found / "spawned.pickle").read_bytes() == b"56"
    assert (found / "memory" / "memory.00000.seg").read_bytes() == b"5"
    assert not (run.path / "memory" / "13.35").exists(), "of a process that is no rank"
    assert (run.states / "0" / "7" / "state.json").read_text() == "{}"
    assert [path.name for path in (run.states / "0").iterdir()] == ["7"], "nothing half-written"


def test_of_a_snapshot_that_its_rank_drops_while_it_is_copied_no_half_stays(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was copied before stays in RUN: whoever removes the folder may have begun."""
    issue(TinyLog(local.ranks / "0"))
    states = local.states / "0"
    for step in ("5", "6", "7"):
        (states / step).mkdir(parents=True)
        for name in ("state.json", "tensors.safetensors"):
            (states / step / name).write_text(name)
    copy = local_logs._publish

    def dropping(source: Path, target: Path, copied: local_logs.Copied) -> None:
        copy(source, target, copied)
        if source == states / "6" / "state.json":
            for step in ("5", "6", "7"):
                (states / step).rename(states / f".{step}.partial")

    monkeypatch.setattr(local_logs, "_publish", dropping)
    publish_so_far(local, run.path)
    (whole,) = (run.states / "0").iterdir()
    assert sorted(path.name for path in whole.iterdir()) == ["state.json", "tensors.safetensors"] and whole.name == "5"


@pytest.mark.parametrize("is_full", [False, True])
def test_a_long_log_that_has_ended_comes_along_in_few_files(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    log = TinyLog(local.ranks / "0")
    for _ in range(30):
        issue(log, 5)
        log.next_segment()
    publish_logs(local, run.path)  # at an incident: it goes on
    before = read_log(run.ranks / "0")
    if is_full:
        monkeypatch.setattr(joining, "put", full)
    publish_all(local, run.path)
    assert read_log(run.ranks / "0") == before
    assert len(list((run.ranks / "0").glob("events.*"))) == (31 if is_full else 3)


def full(_path: Path, _chunks: Iterable[bytes]) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_readings_of_the_node_come_along_and_what_was_dropped_goes(run: RunFolder, local: LocalFolder) -> None:
    here, there = local.path / "telemetry" / "n1", run.telemetry / "n1"
    here.mkdir(parents=True)
    for number in (1, 2):
        (here / segment_name(number)).write_bytes(b"x" * number)
    (run.telemetry / "n2").mkdir(parents=True)
    (run.telemetry / "n2" / segment_name(1)).write_bytes(b"of another node")
    publish_logs(local, run.path)
    assert sorted(path.name for path in there.iterdir()) == [segment_name(1), segment_name(2)]
    (here / segment_name(1)).unlink()
    (here / segment_name(2)).write_bytes(b"longer")
    publish_all(local, run.path)
    assert [(path.name, path.read_bytes()) for path in there.iterdir()] == [(segment_name(2), b"longer")]
    assert (run.telemetry / "n2" / segment_name(1)).exists()


def test_left_logs_are_copied_and_removed_once(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    issue(TinyLog(local.ranks / "0"))
    write_json(local.ranks / "0" / "rank.json", {"rank": 0, "pid": 1 << 22, "node": "n1"})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    told: list[str] = []
    monkeypatch.setattr(long_work, "LongWork", lambda *_, **__: SimpleNamespace(show=told.append, over=lambda: None))
    assert main.run(["publish", str(run.path)]) == 0
    assert told and all(text.startswith("copying the logs of node n1: 64.") and " of 64." in text for text in told)
    assert "copied the logs of rank 0" in capsys.readouterr().err
    assert issued(run) == 1 and not local.path.exists()
    with pytest.raises(UsageError, match="no log is missing"):
        publish_left(run, print)


def test_two_that_copy_the_same_logs_do_not_meet(run: RunFolder, local: LocalFolder) -> None:
    issue(TinyLog(local.ranks / "0"))
    write_json(local.ranks / "0" / "rank.json", {"rank": 0, "pid": 1 << 22, "node": "n1"})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    with local.alone(), pytest.raises(FacilityError, match="are in use") as raised:
        publish_left(run, lambda _: None)
    assert "stay" not in raised.value.hint
    assert local.path.exists() and not run.rank_folders()
    publish_left(run, lambda _: None)
    assert issued(run) == 1 and not local.path.exists()


def test_logs_that_another_process_has_copied_are_none(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue(TinyLog(local.ranks / "0"))
    write_json(local.ranks / "0" / "rank.json", {"rank": 0, "pid": 1 << 22, "node": "n1"})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    monkeypatch.setattr(local_logs, "lock", lambda _: local.remove())
    said: list[str] = []
    publish_left(run, said.append)
    assert said == [f"node n1: another process has copied its logs meanwhile, and removed {local.path}"]
    assert not NodeFolder(run.nodes / "n1").published.exists()
    local.ranks.mkdir(parents=True)
    with pytest.raises(FileNotFoundError), local.alone():
        pytest.fail("it is not there any more")


def test_nothing_is_removed_before_it_is_on_the_disk(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server may say only then that it is full."""
    issue(TinyLog(local.ranks / "0"))
    (local.path / "states" / "0" / "7").mkdir(parents=True)
    (local.path / "states" / "0" / "7" / "state.json").write_text("{}")
    write_json(local.ranks / "0" / "rank.json", {"rank": 0, "pid": 1 << 22, "node": "n1"})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    there, fsync = list[str](), os.fsync

    def full(descriptor: int) -> None:
        there.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        if "/.state.json." in there[-1]:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        fsync(descriptor)

    with monkeypatch.context() as patch, pytest.raises(FacilityError, match=r"quota"):
        patch.setattr(os, "fsync", full)
        publish_left(run, lambda _: None)
    assert any(path.startswith(str(run.ranks / "0" / ".events.00000.seg.")) for path in there)
    assert read_log(local.ranks / "0").collectives and not NodeFolder(run.nodes / "n1").published.exists()
    assert not list((run.states / "0" / "7").iterdir()), "it has its name only when it is on the disk"
    there.clear()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: there.append(str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        publish_left(run, lambda _: None)
    assert {str(run.ranks / "0"), str(run.ranks), str(run.states / "0" / "7"), str(run.states / "0")} <= {*there}


@pytest.mark.parametrize("shared", ["telemetry/n2", "states/1/7", "overwritten/1"])
def test_files_that_another_node_is_copying_meanwhile_are_its_own(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch, shared: str
) -> None:
    """All nodes copy into one RUN at the job's end."""
    theirs = run.path / shared / ".segment.ab12cd34.new"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    for folder in ("telemetry/n1", "states/0/7", "overwritten/0"):
        (local.path / folder).mkdir(parents=True)
        (local.path / folder / "segment").write_bytes(b"mine")
    opens = os.open

    def renamed(path: Any, *options: Any, **more: Any) -> int:
        if Path(path) == theirs:
            theirs.rename(theirs.with_name("segment"))
        return opens(path, *options, **more)

    monkeypatch.setattr(os, "open", renamed)
    publish_all(local, run.path)
    assert theirs.exists(), "nobody has opened it"
    assert (run.telemetry / "n1" / "segment").read_bytes() == b"mine"


@pytest.mark.parametrize("refusal", [errno.EINVAL, errno.ENOTSUP])
def test_a_file_system_that_syncs_no_folders(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    issue(TinyLog(local.ranks / "0"))
    fsync, is_of_files = os.fsync, [False]

    def refused(descriptor: int) -> None:
        if is_of_files[0] or Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(refusal, os.strerror(refusal))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refused)
    publish_all(local, run.path)
    assert issued(run) == 1
    is_of_files[0] = True
    issue(TinyLog(local.ranks / "1"))
    with pytest.raises(OSError, match=os.strerror(refusal)):
        publish_all(local, run.path)


def test_a_copy_that_is_cut_short_harms_no_other(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no lock keeps them apart: the second begins while the first is at work, and is ended then."""
    issue(TinyLog(local.ranks / "0"), 3)
    whole = (local.ranks / "0" / "events.00000.seg").read_bytes()
    write, begun = local_logs.write_sparse, list[int]()

    def meanwhile(out: Any, chunk: bytes) -> None:
        begun.append(1)
        if len(begun) == 2:
            raise KeyboardInterrupt
        if len(begun) == 1:
            with pytest.raises(KeyboardInterrupt):
                publish_logs(local, run.path)
        write(out, chunk)

    monkeypatch.setattr(local_logs, "write_sparse", meanwhile)
    publish_logs(local, run.path)
    assert (run.ranks / "0" / "events.00000.seg").read_bytes() == whole


@pytest.mark.parametrize("days", [0, 2])
def test_what_a_killed_copy_left_goes_with_a_later_one(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """A young one may be another process's."""
    issue(TinyLog(local.ranks / "0"))
    (run.ranks / "0").mkdir()
    left = run.ranks / "0" / ".events.00000.seg.ab12.new"
    left.write_bytes(b"half")
    now_s = time.time() + days * 24 * 3600
    monkeypatch.setattr(local_logs.time, "time", lambda: now_s)
    publish_logs(local, run.path)
    assert {path.name for path in (run.ranks / "0").iterdir()} == {
        "events.00000.seg",
        *([left.name] if not days else []),
    }


def test_a_copy_that_another_process_took_away_is_no_success(
    run: RunFolder, local: LocalFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue(TinyLog(local.ranks / "0"))
    write = local_logs.write_sparse

    def taken_away(out: Any, chunk: bytes) -> None:
        write(out, chunk)
        Path(f"/proc/self/fd/{out.fileno()}").resolve().unlink()

    monkeypatch.setattr(local_logs, "write_sparse", taken_away)
    with pytest.raises(FileNotFoundError):
        publish_all(local, run.path)


@pytest.mark.parametrize("claims", [None, {"run": "/another", "node": "n1"}, {"run": "RUN", "node": "n2"}, {"run": 3}])
def test_a_folder_that_does_not_say_that_it_is_ours_is_left_alone(
    claims: dict[str, object] | None, run: RunFolder, local: LocalFolder
) -> None:
    """RUN may be foreign, and name any folder."""
    (local.ranks / "0").mkdir()
    (local.path / "local.json").unlink()
    if claims is not None:
        write_json(local.path / "local.json", {**claims, **({"run": str(run.path)} if claims["run"] == "RUN" else {})})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    assert [state.visible for state in node_states(run)] == [False]
    with pytest.raises(FacilityError, match="no log was copied"):
        publish_left(run, lambda _: None)
    assert local.path.exists() and not run.rank_folders()


HERE = {"host": platform.node(), "boot_id": boot_id(), "namespaces": {"mnt": Path("/proc/self/ns/mnt").stat().st_ino}}
GONE = "the logs of rank 0 were on node n1, in {local}, which is gone: what was not copied into {run} is lost"
ELSEWHERE = "the logs of rank 0 are on node n1, in {local}: run `prismdbg publish {run}` there"

INSIDE = (
    "the logs of rank 0 are on node n1, in {local}: run `prismdbg publish {run}` in the container or the job "
    "that has this folder; if it has ended, what was not copied into {run} is lost"
)
OTHER_BOOT = (
    "the logs of rank 0 are on node n1, in {local}: if this machine was restarted since, they are gone, and what was "
    "not copied into {run} is lost; else run `prismdbg publish {run}` on the other machine called " + platform.node()
)


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({}, GONE),
        ({"boot_id": "the one before"}, OTHER_BOOT),
        ({"host": "n1.cluster"}, ELSEWHERE),
        ({"namespaces": {"mnt": 7}}, INSIDE),
    ],
)
def test_a_folder_that_went_with_the_job_is_looked_for_nowhere_else(
    about: dict[str, object],
    line: str,
    run: RunFolder,
    local: LocalFolder,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_json(run.nodes / "n1" / "node.json", {"local": str(local.path), **HERE, **about})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    issue(TinyLog(run.ranks / "0"))
    write_json(run.ranks / "0" / "rank.json", {"rank": 0, "pid": 1 << 22, "node": "n1", "world_size": 1})
    local.remove()
    text = line.format(local=local.path, run=run.path)
    assert main.run(["publish", str(run.path)]) == 4
    said = capsys.readouterr().err
    assert text in said and ("run `prismdbg publish" in said) is (line != GONE), said
    for command in ("status", "why"):
        assert main.run([command, str(run.path)]) == 0
        shown = capsys.readouterr()
        assert text in " ".join((shown.out + shown.err).split()), shown
    with pytest.raises(RankLost, match="which is gone" if line == GONE else f"in {local.path}$") as raised:
        refuse_lost(run.ranks / "0", node_states(run)[0])
    assert ("publish" in raised.value.hint) is (line != GONE)


def test_a_run_whose_logs_went_with_the_job_is_removed(run: RunFolder, local: LocalFolder) -> None:
    """Nobody could fetch them, on whatever machine."""
    write_json(run.nodes / "n1" / "node.json", {"local": str(local.path), **HERE})
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    local.remove()
    remove(run.path)
    assert not run.path.exists()


@pytest.mark.parametrize("force", [False, True])
def test_removing_a_run_removes_what_this_node_keeps_and_forgets_no_other(
    run: RunFolder, local: LocalFolder, force: bool
) -> None:
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    (run.nodes / "n2").mkdir()
    write_json(run.nodes / "n2" / "node.json", {"local": "/nowhere/prismdbg-xyz"})
    write_json(run.nodes / "n2" / "supervisor.json", {"exit_code": 0})
    if force:
        remove(run.path, force=True)
        assert not run.path.exists() and not local.path.exists()
        return
    with pytest.raises(UsageError, match="not published are on node n2 in /nowhere/prismdbg-xyz"):
        remove(run.path)
    assert run.path.exists() and not local.path.exists()
    write_json(run.nodes / "n2" / "published.json", {"by": "supervisor"})
    remove(run.path)
    assert not run.path.exists()


def test_who_reads_a_log_while_it_is_removed_from_its_node_reads_it_in_the_run(
    run: RunFolder, local: LocalFolder
) -> None:
    for ranks in (local.ranks, run.ranks):
        issue(TinyLog(ranks / "0"), 5)
    write_json(run.ranks / "0" / "rank.json", {"rank": 0, "world_size": 1, "pid": 1, "started_ticks": 1})
    node = NodeState(name="n1", ranks=("0",), exit_code=0, silent_s=None, local=str(local.path), visible=True)
    (state,) = rank_states(run, [node])
    assert (state.name, state.collectives) == ("0", 5)


def test_removing_a_run_removes_no_folder_that_is_not_its_own(run: RunFolder, local: LocalFolder) -> None:
    local.describe(run.path / "other", "n1")
    write_json(run.nodes / "n1" / "supervisor.json", {"exit_code": 0})
    remove(run.path, force=True)
    assert local.path.exists()


def test_a_folder_behind_a_link_or_of_another_name_is_none(run: RunFolder, local: LocalFolder, tmp_path: Path) -> None:
    (tmp_path / "prismdbg-link").symlink_to(local.path)
    other = local.path.rename(tmp_path / "other")
    for path in (tmp_path / "prismdbg-link", other):
        assert not LocalFolder(path).is_of(run.path, "n1")
    assert NodeFolder(run.nodes / "n1").local == local


def test_who_waits_for_logs_is_told_so_and_not_for_ever(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_logs, "ANSWER_BOUND_S", 0.5)
    monkeypatch.setattr(fresh_logs, "TOLD_AFTER_S", 0.1)
    silent = NodeState(name="n1", ranks=("0",), exit_code=None, silent_s=1.0, local="/elsewhere")
    said: list[str] = []
    assert ask_for_logs(run, [silent], said.append) == ["n1"]
    assert said == ["waiting up to 0.5 s for the logs of n1"]
    assert fresh_logs.last_asked(run).newest_bytes is None
    ask_for_logs(run, [silent], said.append, 7)
    assert fresh_logs.last_asked(run).newest_bytes == 7
