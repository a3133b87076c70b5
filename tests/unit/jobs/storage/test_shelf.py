"""The shelf: finds what is ours, removes nothing else, keeps the newest within a quota."""

from __future__ import annotations

import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from capsules import MANIFEST, make_capsule

from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.partial import removed_name
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import UsageError
from prismdbg.jobs.storage import inventory
from prismdbg.jobs.storage.archive_crypto import MAGIC
from prismdbg.jobs.storage.inventory import Item, ItemKind, Quota
from prismdbg.jobs.storage.pack import pack, read_manifest
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.jobs.storage.zstd_frames import ends_early
from prismdbg.settings.process_identity import this_process

HERE = this_process()
GONE = {**HERE, "started_ticks": 1}  # its number is in use again
CONTAINER = {**HERE, "pid": 1, "pid_namespace": 1}
ELSEWHERE = {**HERE, "boot_id": "another machine's"}


def make_run(path: Path, supervisor: dict[str, Any] = GONE, *, rank: dict[str, Any] | None = None) -> Path:
    """As `record` leaves it."""
    (path / "ranks" / "0").mkdir(parents=True)
    started = {"command": ["train.py"], "started_wall_ns": time.time_ns(), "supervisor": supervisor}
    (path / "run.json").write_text(json.dumps(started))
    if rank is not None:
        (path / "ranks" / "0" / "rank.json").write_text(json.dumps(rank))
    return path


def test_runs_and_capsules_are_found_oldest_first(tmp_path: Path) -> None:
    run = make_run(tmp_path / "runs" / "a")
    make_capsule(run / "capsules" / "nan")
    make_capsule(tmp_path / "old", replace(MANIFEST, created_ns=1))
    pack(tmp_path / "old", tmp_path / "old.tar.zst")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "x.txt").write_text("mine")
    found = [(item.kind, item.path.name) for item in inventory.find(tmp_path)]
    assert found == [("capsule", "old"), ("packed", "old.tar.zst"), ("capsule", "nan"), ("run", "a")]
    assert [item.path for item in inventory.find(run)] == [run / "capsules" / "nan", run]
    assert inventory.describe(tmp_path / "notes") is None


def test_each_is_described(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    item = inventory.describe(tmp_path / "capsule")
    assert item is not None
    assert item.text == "rank 0, 0.1 to 2.2, nan: all_reduce in world"
    assert 0 < item.size_bytes < 1 << 20
    run = inventory.describe(make_run(tmp_path / "run"))
    assert run is not None and run.text == "1 rank: train.py"


def test_what_is_damaged_is_still_listed(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    (tmp_path / "capsule" / "prismdbg" / "manifest.json").write_text("{")
    (tmp_path / "x.tar.zst").write_bytes(b"no")
    make_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("{")
    assert [item.text.startswith("damaged") for item in inventory.find(tmp_path)] == [True] * 3


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_links_are_not_followed(tmp_path: Path, depth: int) -> None:
    make_capsule(tmp_path / "elsewhere" / "capsule")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "here" / "direct").symlink_to(tmp_path / "elsewhere" / "capsule")
    assert inventory.find(tmp_path / "here", depth) == []


def test_removing_removes_only_what_is_ours(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    pack(tmp_path / "capsule", tmp_path / "capsule.tar.zst")
    make_run(tmp_path / "run")
    (tmp_path / "notes").mkdir()
    (tmp_path / "link").symlink_to("notes")
    for name in ("notes", "link", "missing"):
        with pytest.raises(UsageError):
            inventory.remove(tmp_path / name)
    for name in ("capsule", "capsule.tar.zst", "run"):
        inventory.remove(tmp_path / name)
    assert {path.name for path in tmp_path.iterdir()} == {"notes", "link"}


def test_a_run_that_still_records_is_kept(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", HERE)
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(info | {"started_wall_ns": 1}))  # the clock was set since
    with pytest.raises(UsageError, match=f"process {os.getpid()}"):
        inventory.remove(run)
    assert run.exists()
    inventory.remove(run, force=True)
    assert not run.exists()


@pytest.mark.parametrize(
    ("supervisor", "rank"), [(GONE, None), (GONE, GONE), (CONTAINER, CONTAINER), (ELSEWHERE, ELSEWHERE)]
)
def test_no_other_process_keeps_a_run(tmp_path: Path, supervisor: dict[str, Any], rank: dict[str, Any] | None) -> None:
    """A container's first process has the number 1, which lives everywhere."""
    run = make_run(tmp_path / "run", supervisor, rank=rank)
    if supervisor is not GONE:
        (run / "supervisor.json").write_text('{"exit_code": 0}')
    assert not inventory.is_recording(RunFolder(run), read_json(run / "supervisor.json"))
    inventory.remove(run)
    assert not run.exists()


@pytest.mark.parametrize(
    ("supervisor", "rank"), [(CONTAINER, None), (ELSEWHERE, None), (GONE, CONTAINER), (GONE, ELSEWHERE)]
)
def test_a_run_whose_processes_cannot_be_seen_is_kept(
    tmp_path: Path, supervisor: dict[str, Any], rank: dict[str, Any] | None
) -> None:
    """It may be recorded at this moment, in a container or on another node."""
    run = make_run(tmp_path / "run", supervisor, rank=rank)
    assert inventory.is_recording(RunFolder(run), {})
    with pytest.raises(UsageError, match="cannot be seen from here") as refused:
        inventory.remove(run)
    assert run.exists() and "--force" in refused.value.hint
    inventory.remove(run, force=True)
    assert not run.exists()


def test_a_living_rank_keeps_its_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", rank=HERE)
    assert inventory.is_recording(RunFolder(run), {})
    with pytest.raises(UsageError, match=f"process {os.getpid()}"):
        inventory.remove(run)


@pytest.mark.parametrize(("started_s", "lives"), [(0.0, True), (-1e6, False)])
def test_a_living_supervisor_of_which_a_run_has_only_the_number_keeps_it(
    tmp_path: Path, started_s: float, lives: bool
) -> None:
    """As older versions wrote it. A process that began after the run has used the number again."""
    run = make_run(tmp_path / "run")
    info = {"command": ["train.py"], "started_wall_ns": time.time_ns() + int(started_s * 1e9)}
    (run / "run.json").write_text(json.dumps(info | {"supervisor_pid": os.getpid()}))
    assert inventory.living_processes(RunFolder(run)) == ([os.getpid()] if lives else [])
    assert inventory.is_recording(RunFolder(run), {}) is lives
    if lives:
        with pytest.raises(UsageError, match=f"process {os.getpid()}"):
            inventory.remove(run)
    assert run.exists()
    (run / "run.json").write_text(json.dumps(info | {"supervisor_pid": 1 << 30}))
    inventory.remove(run)
    assert not run.exists()


def item(number: int, size: int, kind: ItemKind = ItemKind.CAPSULE) -> Item:
    return Item(kind=kind, path=Path(f"/{number}"), size_bytes=size, created_ns=number, text="")


@pytest.mark.parametrize(
    ("quota", "gone"),
    [
        (Quota(), []),
        (Quota(count=2), [1, 2]),
        (Quota(count=9), []),
        (Quota(size_bytes=25), [1, 2]),
        (Quota(size_bytes=40), []),
        (Quota(count=3, size_bytes=10), [1, 2, 3]),
        (Quota(size_bytes=1), [1, 2, 3]),
        (Quota(count=1), [1, 2, 3]),
    ],
)
def test_the_oldest_go_and_the_newest_stays(quota: Quota, gone: list[int]) -> None:
    items = [item(3, 10), item(1, 10), item(2, 10, ItemKind.PACKED), item(4, 10), item(0, 1000, ItemKind.RUN)]
    assert [doomed.created_ns for doomed in inventory.excess(items, quota)] == gone


def test_what_a_killed_writer_left_is_found_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    removed_name(tmp_path / "dead").write_bytes(b"x")
    with CapsuleWriter(tmp_path / "living"):
        assert len(list(tmp_path.glob(".living*"))) == 1
        (left,) = inventory.find(tmp_path)
    assert (left.kind, left.path.name.startswith(".dead")) == (ItemKind.PARTIAL, True)
    inventory.remove(left.path)
    assert not left.path.exists()


def test_what_is_no_capsule_neither_goes_nor_counts(tmp_path: Path) -> None:
    """Foreign archives and half of a copy: by their age they would be the first to go, or the one that stays."""
    for number in (1, 2):
        make_capsule(tmp_path / f"good{number}", replace(MANIFEST, created_ns=number))
    (tmp_path / "imagenet.tar.zst").write_bytes(b"foreign")
    os.utime(tmp_path / "imagenet.tar.zst", ns=(0, 0))
    with zstandard.open(tmp_path / "other.tar.zst", "wb") as file:
        file.write(bytes(1 << 16))
    pack(tmp_path / "good1", tmp_path / "half.tar.zst")
    whole = (tmp_path / "half.tar.zst").read_bytes()
    (tmp_path / "half.tar.zst").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "most.tar.zst").write_bytes(whole[:-1])
    read_manifest(tmp_path / "most.tar.zst")  # which lies at the start
    items = inventory.find(tmp_path)
    damaged = {"imagenet.tar.zst", "other.tar.zst", "half.tar.zst", "most.tar.zst"}
    assert {item.path.name for item in items if item.damage} == damaged
    assert [item.path.name for item in inventory.excess(items, Quota(count=1))] == ["good1"]


def test_an_archive_cut_anywhere_is_incomplete(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    pack(capsule.path, tmp_path / "a.tar.zst")
    whole = (tmp_path / "a.tar.zst").read_bytes()
    more = b"\x50\x2a\x4d\x18\x02\x00\x00\x00ab"  # a frame that readers skip
    for frames in (
        zstandard.compress(b""),
        zstandard.compress(bytes(1 << 20)),
        zstandard.compress(os.urandom(1 << 18)),
    ):
        whole += more + frames
    cut = tmp_path / "cut"
    ends = set()
    for length in (*range(0, len(whole), 1 if len(whole) < 5000 else 997), len(whole) - 1, len(whole)):
        cut.write_bytes(whole[:length])
        if not ends_early(cut):
            ends.add(length)
    assert len(whole) in ends and len(whole) - 1 not in ends
    cut.write_bytes(whole + b"x")
    assert ends_early(cut)


@pytest.mark.parametrize("name", ["x.tar.zst", "capsule", "run", "other"])
def test_what_cannot_be_read_is_removed_only_if_forced(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.tar.zst").write_bytes(b"no")
    make_capsule(tmp_path / "capsule")
    (tmp_path / "capsule" / "prismdbg" / "manifest.json").write_text("{")
    (make_run(tmp_path / "run") / "run.json").write_text("{")
    (make_run(tmp_path / "other") / "run.json").write_text('{"name": "of another program"}')
    with pytest.raises(UsageError, match="cannot be read as a") as refused:
        inventory.remove(tmp_path / name)
    assert "--force" in refused.value.hint and (tmp_path / name).exists()
    assert main.run(["rm", str(tmp_path / name), "--dry-run"]) == 2
    inventory.remove(tmp_path / name, force=True)
    assert not (tmp_path / name).exists()


def test_a_folder_with_another_programs_run_json_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "run.json").write_text(json.dumps({"command": ["x"], "started_wall_ns": 1}))
    assert inventory.find(tmp_path) == []
    with pytest.raises(UsageError, match="neither a run nor a capsule"):
        inventory.remove(tmp_path / "results", force=True)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_signature_goes_with_its_archive(tmp_path: Path, is_ours: bool) -> None:
    """A new archive of that name would be taken for an altered one."""
    capsule = make_capsule(tmp_path / "capsule")
    archive, signature = tmp_path / "a.tar.zst", tmp_path / "a.tar.zst.sig"
    pack(capsule.path, archive)
    data = archive.read_bytes()
    signature.write_text("-----BEGIN SSH SIGNATURE-----\n" if is_ours else "signed by gpg")
    archive.unlink()
    with pytest.raises(UsageError, match=r"a\.tar\.zst\.sig already exists"):
        pack(capsule.path, archive)
    assert not archive.exists()
    archive.write_bytes(data)
    inventory.remove(archive, force=True)
    assert signature.exists() is not is_ours and not archive.exists()


def test_a_folder_that_may_not_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("listed", "entered"):
        (tmp_path / name).mkdir()
    for number in (1, 2):
        make_capsule(tmp_path / f"capsule{number}", replace(MANIFEST, created_ns=number))
    stat, iterdir = Path.stat, Path.iterdir

    def refused_below(path: Path, **how: bool) -> os.stat_result:
        if "entered" in path.parent.parts:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **how)

    def refused(path: Path) -> Any:
        if path.name in ("listed", "entered"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "stat", refused_below)
    monkeypatch.setattr(Path, "iterdir", refused)
    assert [item.path.name for item in inventory.find(tmp_path)] == ["capsule1", "capsule2"]
    assert main.run(["rm", str(tmp_path), "--keep", "1"]) == 0
    assert [item.path.name for item in inventory.find(tmp_path)] == ["capsule2"]


@pytest.mark.parametrize(("number", "hint"), [(errno.ESTALE, "check the file server"), (errno.EIO, "check the disk")])
@pytest.mark.parametrize("asked", ["iterdir", "stat"])
def test_a_folder_of_a_file_system_that_fails_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    asked: str,
    number: int,
    hint: str,
) -> None:
    """What cannot be counted there may be what is to be kept."""
    failing = tmp_path / "failing"
    failing.mkdir()
    capsules = [make_capsule(tmp_path / f"capsule{at}", replace(MANIFEST, created_ns=at)).path for at in (1, 2)]
    answer = getattr(Path, asked)

    def failed(path: Path, **how: bool) -> Any:
        if path == failing:
            raise OSError(number, os.strerror(number), str(path))
        return answer(path, **how)

    monkeypatch.setattr(Path, asked, failed)
    for line in (["list"], ["rm", "--keep", "1"]):
        assert main.run([*line, str(tmp_path)]) == ExitCode.LACKING
        assert capsys.readouterr().err == f"error: {failing}: {os.strerror(number)}\n  try: {hint}\n"
    assert all(capsule.exists() for capsule in capsules)


def test_an_encrypted_archive_is_listed_and_removed_only_if_forced(tmp_path: Path) -> None:
    """Nobody knows without the key whether it is a capsule."""
    for number in (1, 2):
        make_capsule(tmp_path / f"good{number}", replace(MANIFEST, created_ns=number))
    archive, signature = tmp_path / "a.tar.zst.age", tmp_path / "a.tar.zst.age.sig"
    archive.write_bytes(MAGIC + b"\n-> X25519 x\n")
    signature.write_text("-----BEGIN SSH SIGNATURE-----\n")
    (tmp_path / "b.tar.zst.age").write_bytes(b"not encrypted by age")
    items = inventory.find(tmp_path)
    (item,) = (item for item in items if item.kind is ItemKind.PACKED)
    assert (item.path, item.text) == (archive, "encrypted")
    assert [item.path.name for item in inventory.excess(items, Quota(count=1))] == ["good1"]
    with pytest.raises(UsageError, match="cannot be read as a capsule: it is encrypted"):
        inventory.remove(archive)
    inventory.remove(archive, force=True)
    assert not archive.exists() and not signature.exists()
