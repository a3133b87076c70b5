"""Packed capsules: there and back the same; a hostile archive is one error and touches nothing."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from capsules import IMAGE, MANIFEST, RANK, make_capsule
from hypothesis import given, settings
from hypothesis import strategies as st

from prismdbg.capsule import layout
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.storage import archive_reader, pack
from prismdbg.jobs.storage.archive_reader import Limits
from prismdbg.jobs.storage.verify import verify

Member = tuple[tarfile.TarInfo, bytes]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packed")
    make_capsule(folder / "capsule", IMAGE)
    pack.pack(folder / "capsule", folder / "capsule.tar.zst")
    return folder / "capsule.tar.zst"


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where hostile archives are unpacked. Beside it lies what they would like to reach; it must stay as it is."""
    (tmp_path / "secret").write_text("not yours")
    (tmp_path / "place").mkdir()
    yield tmp_path / "place"
    assert (tmp_path / "secret").read_text() == "not yours"
    assert {path.name for path in tmp_path.iterdir()} <= {"secret", "place", "bad.tar.zst"}
    assert list((tmp_path / "place").iterdir()) == []


def members(packed: Path) -> list[Member]:
    plain = zstandard.ZstdDecompressor().stream_reader(packed.read_bytes()).read()
    with tarfile.open(fileobj=io.BytesIO(plain)) as tar:
        return [(info, (file.read() if (file := tar.extractfile(info)) else b"")) for info in tar]


def archive(items: list[Member], tail: bytes = bytes(1024), pad: bool = True) -> bytes:
    """Exactly these headers, whatever they say."""
    whole = (info.tobuf(tarfile.GNU_FORMAT) + data + (bytes(-len(data) % 512) if pad else b"") for info, data in items)
    return b"".join(whole) + tail


def member(name: str, data: bytes = b"", **fields: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def refuse(tar: bytes, place: Path, limits: Limits | None = None) -> CapsuleError:
    bad = place.parent / "bad.tar.zst"
    bad.write_bytes(zstandard.compress(tar))
    with pytest.raises(CapsuleError) as caught:
        pack.unpack(bad, place / "capsule", limits)
    assert caught.value.exit_code == 3
    return caught.value


def with_manifest(items: list[Member], change: Callable[[dict[str, Any]], object]) -> list[Member]:
    """The same members, the manifest rewritten."""
    data = json.loads(items[0][1])
    change(data)
    return [member(layout.MANIFEST, json.dumps(data).encode()), *items[1:]]


def with_extra(items: list[Member], name: str, data: bytes) -> list[Member]:
    """A further file, with a manifest that names it as it is."""
    entry = {"size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    named = with_manifest(items, lambda manifest: manifest["files"].update({name: entry}))
    return [*named, member(name, data)]


def test_there_and_back(packed: Path, tmp_path: Path) -> None:
    done: list[int] = []
    capsule = pack.unpack(packed, tmp_path / "again", progress=done.append)
    assert sum(done) == capsule.manifest.size_bytes
    original = packed.parent / "capsule"
    for path in original.rglob("*"):
        copy = tmp_path / "again" / path.relative_to(original)
        assert copy.stat().st_mode == path.stat().st_mode
        assert path.is_dir() or copy.read_bytes() == path.read_bytes()
    verify(tmp_path / "again")
    assert {path.name for path in tmp_path.iterdir()} == {"again"}


def test_the_same_capsule_packs_to_the_same_bytes(packed: Path, tmp_path: Path) -> None:
    pack.unpack(packed, tmp_path / "again")
    pack.pack(tmp_path / "again", tmp_path / "again.tar.zst")
    assert (tmp_path / "again.tar.zst").read_bytes() == packed.read_bytes()


def test_other_programs_read_it(packed: Path) -> None:
    """What checkpointctl needs: the folder `checkpoint` as a member, and a tar that any tar reads."""
    infos = [info for info, _ in members(packed)]
    assert infos[0].name == layout.MANIFEST
    assert any(info.name == "checkpoint" and info.isdir() for info in infos)
    assert all(info.uid == info.gid == 0 and info.mode in (0o600, 0o700) for info in infos)


@pytest.mark.skipif(shutil.which("zstd") is None or shutil.which("tar") is None, reason="zstd or tar is not installed")
def test_tar_and_zstd_read_it(packed: Path) -> None:
    listed = subprocess.run(["tar", "--zstd", "-tf", packed], capture_output=True, text=True, check=True, timeout=60)
    assert "checkpoint/pages-1.img" in listed.stdout.splitlines()


def test_a_packed_capsule_is_opened_in_a_temporary_folder(packed: Path) -> None:
    with pack.opened(packed) as capsule:
        assert capsule.rank() == RANK
    assert not capsule.path.exists()
    assert pack.read_manifest(packed) == capsule.manifest


def test_a_folder_is_opened_where_it_is(packed: Path) -> None:
    with pack.opened(packed.parent / "capsule") as capsule:
        assert capsule.path == packed.parent / "capsule"


def test_nothing_is_overwritten(packed: Path, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(UsageError):
        pack.unpack(packed, tmp_path / "there")
    with pytest.raises(UsageError):
        pack.pack(packed.parent / "capsule", tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"


@pytest.mark.parametrize("harm", ["flip", "cut", "longer", "missing", "link"])
def test_a_damaged_capsule_is_not_packed(tmp_path: Path, harm: str) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    path = capsule.path / layout.RANK
    data = path.read_bytes()
    if harm in ("missing", "link"):
        path.unlink()
    if harm == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        path.symlink_to(tmp_path / "elsewhere")
    if harm in ("flip", "cut", "longer"):
        path.write_bytes({"flip": b"X" + data[1:], "cut": data[:-1], "longer": data + b"x"}[harm])
    with pytest.raises(CapsuleError):
        pack.pack(capsule.path, tmp_path / "capsule.tar.zst")
    assert {path.name for path in tmp_path.iterdir()} <= {"capsule", "elsewhere"}


def test_what_the_manifest_does_not_name_is_not_packed(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule")
    (capsule.path / "prismdbg" / "mine.txt").write_text("x")
    pack.pack(capsule.path, tmp_path / "capsule.tar.zst")
    assert "prismdbg/mine.txt" not in {info.name for info, _ in members(tmp_path / "capsule.tar.zst")}


HOSTILE_NAMES = ["../secret", "/tmp/prismdbg-hostile", "prismdbg/../../secret", "prismdbg/./x", "a", "prismdbg/.x"]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE])
def test_a_name_that_leads_out(packed: Path, place: Path, name: str, kind: bytes) -> None:
    items = members(packed)
    hostile = member(name, b"gone" if kind == tarfile.REGTYPE else b"", type=kind)
    refuse(archive([*items, hostile]), place)
    refuse(archive([items[0], hostile, *items[1:]]), place)


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_leads_out_and_stands_in_the_manifest(packed: Path, place: Path, name: str) -> None:
    refuse(archive(with_extra(members(packed), name, b"gone")), place)


@pytest.mark.parametrize(
    "kind",
    [
        tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE,
        tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE,
        tarfile.AREGTYPE, b"Z",
    ],
)  # fmt: skip
def test_only_files_and_folders(packed: Path, place: Path, kind: bytes) -> None:
    items = members(packed)
    hostile = member("prismdbg/x", type=kind, linkname="../../secret")
    error = refuse(archive([*items, hostile]), place)
    assert "neither a regular file nor a folder" in str(error)


def test_a_link_and_a_file_through_it(packed: Path, place: Path) -> None:
    items = members(packed)
    link = member("prismdbg/x", type=tarfile.SYMTYPE, linkname="../../..")
    refuse(archive([items[0], link, member("prismdbg/x/secret", b"gone"), *items[1:]]), place)


def test_a_file_that_names_a_link_target(packed: Path, place: Path) -> None:
    refuse(archive([*members(packed), member("prismdbg/x", linkname="../../secret")]), place)


def test_a_name_twice(packed: Path, place: Path) -> None:
    items = members(packed)
    assert "twice" in str(refuse(archive([*items, items[-1]]), place))
    assert "twice" in str(refuse(archive([items[0], *items]), place))


@pytest.mark.parametrize("name", ["prismdbg/log/events.00000.seg/x", "config.dump/x"])
def test_a_file_below_a_file(packed: Path, place: Path, name: str) -> None:
    refuse(archive(with_extra(members(packed), name, b"x")), place)


def test_a_folder_in_the_place_of_a_file(packed: Path, place: Path) -> None:
    items = [item for item in members(packed) if item[0].name != layout.RANK]
    refuse(archive([*items, member(layout.RANK, type=tarfile.DIRTYPE)]), place)


def test_many_folders_take_no_long_look_each(packed: Path, place: Path) -> None:
    first, *_ = members(packed)
    manifest = json.loads(first[1])
    empty = {"size_bytes": 0, "sha256": hashlib.sha256().hexdigest()}
    manifest["files"] |= {f"prismdbg/log/{number:05}/x": empty for number in range(20_000)}
    folders = [member(f"prismdbg/log/{number:05}", type=tarfile.DIRTYPE) for number in range(20_000)]
    bad = archive([member(layout.MANIFEST, json.dumps(manifest).encode()), *folders])
    before = time.process_time()
    assert "lacks" in str(refuse(bad, place))
    assert time.process_time() - before < 5


def test_an_unknown_folder(packed: Path, place: Path) -> None:
    hostile = member("prismdbg/strange", type=tarfile.DIRTYPE)
    assert "'prismdbg/strange'" in str(refuse(archive([*members(packed), hostile]), place))


def test_every_missing_member_is_named(packed: Path, place: Path) -> None:
    items = members(packed)
    for index, (info, _) in enumerate(items):
        if info.isfile():
            error = refuse(archive(items[:index] + items[index + 1 :]), place)
            assert info.name in str(error)


def test_a_member_of_another_content_or_size(packed: Path, place: Path) -> None:
    items = members(packed)
    info, data = items[-1]
    assert "does not match its manifest" in str(refuse(archive([*items[:-1], (info, b"X" * len(data))]), place))
    assert "does not match its manifest" in str(refuse(archive([*items[:-1], member(info.name, data + b"x")]), place))


def test_the_manifest_comes_first(packed: Path, place: Path) -> None:
    items = members(packed)
    assert "does not begin with" in str(refuse(archive(items[1:] + items[:1]), place))
    assert "does not begin with" in str(refuse(bytes(10240), place))


@pytest.mark.parametrize("size", [64 << 20, 1 << 50, (1 << 63) - 1, 1 << 80, -1, -(1 << 60)])
def test_a_manifest_of_an_impossible_size(packed: Path, place: Path, size: int) -> None:
    refuse(archive([member(layout.MANIFEST, size=size)], tail=b"{}"), place)


@pytest.mark.parametrize("size", [1 << 50, (1 << 63) - 1])
def test_a_member_of_a_huge_size(packed: Path, place: Path, size: int) -> None:
    """Said before a byte of it is written: the disk could not hold it."""
    entry: Any = {"size_bytes": size, "sha256": "0" * 64}
    named = with_manifest(members(packed), lambda m: m["files"].update({"prismdbg/huge": entry}))
    error = refuse(archive([*named, member("prismdbg/huge", size=size)], tail=bytes(4096)), place)
    assert "the limit is" in str(error)


def test_a_limit_on_the_total(packed: Path, place: Path) -> None:
    shutil.copy(packed, place.parent / "bad.tar.zst")
    with pytest.raises(CapsuleError, match="the limit is 100"):
        pack.unpack(place.parent / "bad.tar.zst", place / "capsule", Limits(total_bytes=100))


def test_a_disk_without_room_is_no_fault_of_the_archive(packed: Path, place: Path) -> None:
    with pytest.raises(FacilityError, match=r"no space for .*: it declares .* free, of which") as refused:
        pack.unpack(packed, place / "capsule", Limits(reserve_bytes=1 << 62))
    assert refused.value.exit_code == 4 and list(place.iterdir()) == []


def test_a_bomb(packed: Path, place: Path) -> None:
    """A few bytes that would become many are stopped by their ratio, whatever the manifest allows."""
    data = bytes(32 << 20)
    tar = archive(with_extra(members(packed), "prismdbg/bomb", data))
    error = refuse(tar, place, Limits(ratio=100, floor_bytes=1 << 20))
    assert "suspiciously" in str(error)


def test_mostly_zeros_are_no_bomb(packed: Path, tmp_path: Path) -> None:
    data = bytes(8 << 20)
    path = tmp_path / "zeros.tar.zst"
    path.write_bytes(zstandard.compress(archive(with_extra(members(packed), "prismdbg/zeros", data))))
    capsule = pack.unpack(path, tmp_path / "capsule")
    assert (capsule.path / "prismdbg/zeros").stat().st_blocks * 512 < len(data)
    verify(capsule.path)


def test_a_window_that_asks_for_too_much_memory(packed: Path, place: Path) -> None:
    """The frame header asks for a gigabyte of window; it is refused before it is allocated."""
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    bad = place.parent / "bad.tar.zst"
    bad.write_bytes(compressor.compress(archive(members(packed))) + compressor.flush())
    with pytest.raises(CapsuleError, match="cannot be decompressed"):
        pack.unpack(bad, place / "capsule")


@pytest.mark.parametrize("content", [b"a note of somebody's\n" * 1000, b"x"])
def test_a_file_of_another_kind_is_not_called_damaged(tmp_path: Path, content: bytes) -> None:
    other = tmp_path / "notes.txt"
    other.write_bytes(content)
    with pytest.raises(CapsuleError, match="is not a packed capsule") as refused:
        pack.unpack(other, tmp_path / "capsule")
    assert refused.value.hint.startswith("give a capsule")


def test_too_many_members(packed: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_reader, "MAX_FILES", 5)
    assert "more than 5 members" in str(refuse(archive(members(packed)), place))


def test_more_after_the_end(packed: Path, place: Path) -> None:
    items = members(packed)
    for tail in (bytes(1024) + b"x", bytes(1024) + archive(items), bytes(100_000)):
        assert "contains data after its end" in str(refuse(archive(items, tail), place))


@pytest.mark.parametrize("lost", [1, 2, 3, 4, 5, 12, 100, 1000])
def test_an_archive_without_its_last_bytes(packed: Path, tmp_path: Path, lost: int) -> None:
    """Also where what is lost is only zstd's checksum, and all content is there."""
    cut = tmp_path / "cut.tar.zst"
    cut.write_bytes(packed.read_bytes()[:-lost])
    with pytest.raises(CapsuleError, match=r"cannot be decompressed|is truncated"):
        pack.unpack(cut, tmp_path / "capsule")
    assert [path.name for path in tmp_path.iterdir()] == [cut.name]


def test_no_end(packed: Path, place: Path) -> None:
    assert "is truncated" in str(refuse(archive(members(packed), tail=b""), place))


@pytest.mark.parametrize(
    "data", [b"", b"x" * 100, bytes(1024), b"\x28\xb5\x2f\xfd", b"PK\x03\x04", b"\x1f\x8b\x08\x00"]
)
def test_no_zstd_at_all(place: Path, data: bytes) -> None:
    bad = place.parent / "bad.tar.zst"
    bad.write_bytes(data)
    with pytest.raises(CapsuleError):
        pack.unpack(bad, place / "capsule")
    with pytest.raises(CapsuleError):
        pack.read_manifest(bad)


def test_every_newer_manifest_is_refused_when_packed_too(packed: Path, place: Path) -> None:
    items = with_manifest(members(packed), lambda manifest: manifest.update(format=9, oldest_reader=9))
    assert "needs a reader of format 9" in str(refuse(archive(items), place))


@settings(max_examples=120)
@given(data=st.data())
def test_any_cut_is_one_error(packed: Path, place: Path, data: st.DataObject) -> None:
    whole = packed.read_bytes()
    bad = place.parent / "bad.tar.zst"
    bad.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 10))])
    with pytest.raises(CapsuleError):
        pack.unpack(bad, place / "capsule")


@settings(max_examples=150)
@given(data=st.data())
def test_any_altered_byte_of_the_archive_is_harmless(packed: Path, place: Path, data: st.DataObject) -> None:
    """Either one error, or the very same capsule: time stamps and owners of members mean nothing. The manifest has no
    digest of its own: that it names another rank than the log does is found by `verify`.
    """
    tar = bytearray(archive(members(packed)))
    index = data.draw(st.integers(0, len(tar) - 1))
    tar[index] ^= data.draw(st.integers(1, 255))
    bad = place.parent / "bad.tar.zst"
    bad.write_bytes(zstandard.compress(bytes(tar)))
    try:
        capsule = pack.unpack(bad, place / "capsule")
    except CapsuleError:
        return
    try:
        assert capsule.manifest.files == pack.read_manifest(packed).files
        if capsule.manifest.rank == pack.read_manifest(packed).rank:
            verify(capsule.path)
        else:
            with pytest.raises(CapsuleError, match="is of rank"):
                verify(capsule.path)
    finally:
        shutil.rmtree(capsule.path)


@settings(max_examples=100)
@given(block=st.binary(min_size=512, max_size=2048))
def test_any_bytes_as_members_are_one_error(packed: Path, place: Path, block: bytes) -> None:
    items = members(packed)
    refuse(archive(items[:1], tail=block + bytes(1024)), place)


def test_a_manifest_alone_is_no_capsule(place: Path) -> None:
    path = place.parent / "bad.tar.zst"
    path.write_bytes(zstandard.compress(archive([member(layout.MANIFEST, MANIFEST.to_bytes())])))
    with pack.opened(path) as capsule, pytest.raises(CapsuleError, match="every capsule has it"):
        verify(capsule.path)


KILLED = """
import os, signal, sys
from pathlib import Path
from prismdbg.jobs.storage.pack import opened
with opened(Path(sys.argv[1])) as capsule:
    print(capsule.path, flush=True)
    if sys.argv[2:]:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_command_unpacked_goes_with_the_next_one(packed: Path, tmp_path: Path) -> None:
    """Of an encrypted capsule it is all that the encryption hides."""

    def run(*more: str) -> Path:
        command = [sys.executable, "-c", KILLED, str(packed), *more]
        done = subprocess.run(command, env={**os.environ, "TMPDIR": str(tmp_path)}, capture_output=True, check=False)
        assert done.returncode == (-signal.SIGKILL if more else 0), done.stderr
        return Path(done.stdout.decode().strip())

    (tmp_path / "of the user").mkdir()
    left = run("and dies")
    assert left.is_relative_to(tmp_path) and left.is_dir() and left.parent.stat().st_mode & 0o777 == 0o700
    assert run() != left
    assert [path.name for path in tmp_path.iterdir()] == ["of the user"]
