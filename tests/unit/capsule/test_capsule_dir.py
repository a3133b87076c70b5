"""A capsule folder: whole or not there at all, private, and as other people's tools expect it."""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import IMAGE, MANIFEST, RANK, make_capsule
from spawning import Spawn

from prismdbg.capsule import layout, transfer
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import FileEntry
from prismdbg.capsule.partial import is_abandoned, is_partial
from prismdbg.capsule.transfer import Transfer
from prismdbg.errors import CapsuleError, FacilityError, UsageError


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_written_and_opened_again(tmp_path: Path) -> None:
    made = make_capsule(tmp_path / "capsule", secrets={"findings": []})
    capsule = Capsule.open(tmp_path / "capsule")
    assert capsule == made
    assert capsule.rank() == RANK
    secrets = capsule.part(layout.SECRETS)
    assert secrets is not None and secrets.value == {"findings": []}
    assert capsule.part(layout.ENVIRONMENT) is None
    assert len(read_log(capsule.log).collectives) == 6
    assert tree(capsule.path) == {*capsule.manifest.files, *layout.FOLDERS, layout.MANIFEST}
    assert tree(tmp_path) == {"capsule", *(f"capsule/{name}" for name in tree(capsule.path))}


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    for path in (capsule.path, *capsule.path.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_root_is_as_podman_writes_a_checkpoint(tmp_path: Path) -> None:
    """What checkpointctl reads: names, fields and the annotation that says whose format it is."""
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    config = json.loads((capsule.path / "config.dump").read_text())
    spec = json.loads((capsule.path / "spec.dump").read_text())
    assert config["name"] == "rank0-at-0.1"
    assert config["createdTime"] == config["checkpointedTime"] == "2023-11-14T22:13:20.123456789Z"
    assert len(config["id"]) == 64
    assert config["rootfsImageName"] and config["runtime"]
    assert spec["annotations"]["io.container.manager"] == "libpod"
    assert spec["process"]["args"] == RANK["orig_argv"]
    assert (capsule.path / "stats-dump").read_bytes() == b"statistics"
    assert not (capsule.checkpoint / "stats-dump").exists()


@pytest.mark.parametrize("failure", [ValueError("no"), KeyboardInterrupt(), CapsuleError("no")])
def test_nothing_is_left_after_a_failure(tmp_path: Path, failure: BaseException) -> None:
    with pytest.raises(type(failure)), CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_json(layout.RANK, RANK)
        raise failure
    assert tree(tmp_path) == set()


def test_nothing_is_left_without_finish(tmp_path: Path) -> None:
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_json(layout.RANK, RANK)
    assert tree(tmp_path) == set()


def test_an_incomplete_capsule_cannot_be_finished(tmp_path: Path) -> None:
    with pytest.raises(CapsuleError, match=r"rank\.json was not added"), CapsuleWriter(tmp_path / "capsule") as writer:
        writer.finish(MANIFEST)
    assert tree(tmp_path) == set()


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    with pytest.raises(FacilityError, match="disk is full"), CapsuleWriter(tmp_path / "capsule"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    before = tree(tmp_path)
    with pytest.raises(UsageError, match="already exists"), CapsuleWriter(tmp_path / "capsule"):
        pass
    assert tree(tmp_path) == before


def test_of_two_writers_of_a_capsule_the_second_says_that_it_exists(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="already exists"), CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_json(layout.RANK, {})
        make_capsule(tmp_path / "capsule")
        before = tree(tmp_path / "capsule")
        writer.finish(MANIFEST)
    assert tree(tmp_path / "capsule") == before
    assert [path.name for path in tmp_path.iterdir()] == ["capsule"]


def test_a_name_is_added_once(tmp_path: Path) -> None:
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_bytes("prismdbg/x", b"1")
        for name in ("prismdbg/x", layout.MANIFEST, layout.LOG):
            with pytest.raises(CapsuleError):
                writer.add_bytes(name, b"2")


def test_the_folder_of_a_killed_writer_is_known_as_abandoned(tmp_path: Path, spawn: Spawn) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom prismdbg.capsule.capsule_dir import CapsuleWriter\n"
        "with CapsuleWriter(Path(sys.argv[1])):\n    print('writing', flush=True)\n    sys.stdin.read()\n"
    )
    writer = spawn(sys.executable, "-c", program, str(tmp_path / "capsule"), stdout=-1, stdin=-1)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "writing\n"
    (partial,) = tmp_path.iterdir()
    assert is_partial(partial) and not is_abandoned(partial)
    writer.kill()
    writer.wait(timeout=30)
    assert is_abandoned(partial)


@pytest.mark.parametrize("how", Transfer)
def test_a_file_arrives_with_its_hash_and_mode(tmp_path: Path, how: Transfer) -> None:
    source, data = tmp_path / "source", b"x" * 10 + bytes(3 * transfer.CHUNK_BYTES) + b"y"
    source.write_bytes(data)
    source.chmod(0o644)
    entry = transfer.bring(source, tmp_path / "target", how)
    assert (tmp_path / "target").read_bytes() == data
    assert entry == transfer.hash_file(tmp_path / "target")
    assert entry.size_bytes == len(data)
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == 0o600
    assert source.exists() == (how is not Transfer.MOVE)
    if how is not Transfer.MOVE:  # others may read a capsule that is shared, of which a masked copy is packed
        assert stat.S_IMODE(source.stat().st_mode) == 0o644


def test_a_file_that_has_the_mode_already_is_linked(tmp_path: Path) -> None:
    transfer.write_new(tmp_path / "source", b"x")
    transfer.bring(tmp_path / "source", tmp_path / "target", Transfer.LINK)
    assert (tmp_path / "target").samefile(tmp_path / "source")


def test_zeros_take_no_room(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(bytes(8 << 20))
    transfer.bring(source, tmp_path / "target", Transfer.COPY)
    assert (tmp_path / "target").stat().st_blocks * 512 < (8 << 20)
    assert (tmp_path / "target").read_bytes() == bytes(8 << 20)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
@pytest.mark.parametrize("how", Transfer)
def test_only_plain_files_are_taken(tmp_path: Path, kind: str, how: Transfer) -> None:
    secret, source = tmp_path / "secret", tmp_path / "source"
    secret.write_text("not yours")
    if kind == "link":
        source.symlink_to(secret)
    elif kind == "fifo":
        os.mkfifo(source)
    else:
        source.mkdir()
    with pytest.raises(CapsuleError, match="not a regular file"):
        transfer.bring(source, tmp_path / "target", how)
    assert not (tmp_path / "target").exists()


def test_a_target_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        transfer.write_new(tmp_path / "target", b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_sockets_are_passed_over_in_a_tree(tmp_path: Path) -> None:
    import socket

    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "a").write_bytes(b"1")
    with socket.socket(socket.AF_UNIX) as listening, CapsuleWriter(tmp_path / "capsule") as writer:
        listening.bind(str(tmp_path / "log" / "s.sock"))
        writer.add_tree(layout.LOG, tmp_path / "log")
        assert writer.holds("prismdbg/log/a") and not writer.holds("prismdbg/log/s.sock")
        assert writer.size_bytes == 1


@pytest.mark.parametrize("kind", ["missing", "file", "empty", "link to nothing", "folder as manifest"])
def test_what_is_no_capsule_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "capsule"
    if kind == "file":
        path.write_text("x")
    elif kind != "missing":
        (path / "prismdbg").mkdir(parents=True)
    if kind == "link to nothing":
        (path / layout.MANIFEST).symlink_to("/nothing/there")
    if kind == "folder as manifest":
        (path / layout.MANIFEST).mkdir()
    with pytest.raises(CapsuleError):
        Capsule.open(path)


def test_a_manifest_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    (capsule.path / layout.MANIFEST).rename(tmp_path / "manifest.json")
    (capsule.path / layout.MANIFEST).symlink_to(tmp_path / "manifest.json")
    with pytest.raises(CapsuleError, match="not a regular file"):
        Capsule.open(capsule.path)


def test_a_manifest_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    wrong = replace(MANIFEST, rank=7)
    with pytest.raises(CapsuleError, match="rank is 7"):
        make_capsule(tmp_path / "capsule", wrong)
    assert tree(tmp_path) == set()


def test_given_files_of_the_manifest_do_not_count(tmp_path: Path) -> None:
    made = make_capsule(tmp_path / "capsule", replace(MANIFEST, files={"prismdbg/x": FileEntry(1, "0" * 64)}))
    assert "prismdbg/x" not in made.manifest.files


def test_in_place_of_a_capsule_that_is_not_there_those_beside_it_are_named(tmp_path: Path) -> None:
    """A pattern that the shell did not expand, for example."""
    make_capsule(tmp_path / "hang-rank0-20.1")
    make_capsule(tmp_path / "hang-rank2-20.1")
    (tmp_path / "other").mkdir()
    with pytest.raises(CapsuleError, match="no such file or directory") as missing:
        Capsule.open(tmp_path / "hang-rank1-??????")
    assert missing.value.hint == f"give one of the capsules in {tmp_path}: hang-rank0-20.1, hang-rank2-20.1"
    with pytest.raises(CapsuleError) as missing:
        Capsule.open(tmp_path / "other" / "hang")
    assert "give a capsule" in missing.value.hint
