"""Files of the rank: small ones come along, large ones are known by hash, and neither is believed blindly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from capsules import MANIFEST, RANK, make_capsule
from disk_space import files_of_any_size

from prismdbg.capsule import checked_json, layout, transfer
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import Place, add_files, changed, content_path, read_files
from prismdbg.capsule.manifest import FileEntry
from prismdbg.errors import CapsuleError


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "small").write_bytes(b"small")
    (folder / "twin").write_bytes(b"small")
    (folder / "large").write_bytes(b"large" * 100)
    (folder / "link").symlink_to("small")
    return folder


def capsule_of(path: Path, paths: list[str]) -> Capsule:
    with CapsuleWriter(path) as writer:
        add_files(writer, paths, small_bytes=100)
        writer.add_json(layout.RANK, RANK)
        return writer.finish(MANIFEST)


def test_each_file_has_its_place(tmp_path: Path, data: Path) -> None:
    paths = [str(data / name) for name in ("small", "twin", "large", "link", "gone", "small")]
    capsule = capsule_of(tmp_path / "capsule", paths)
    files = {Path(file.path).name: file for file in read_files(capsule)}
    assert {name: file.place for name, file in files.items()} == {
        "small": Place.INSIDE, "twin": Place.INSIDE, "link": Place.INSIDE, "large": Place.BOUND, "gone": Place.MISSING,
    }  # fmt: skip
    assert content_path(capsule, files["link"]).read_bytes() == b"small"
    assert len([name for name in capsule.manifest.files if name.startswith(layout.FILES + "/")]) == 1
    assert files["large"].size_bytes == 500


@pytest.mark.parametrize(("inside_bytes", "inside"), [(14, "abc"), (13, "ab"), (5, "ab"), (3, "a"), (1, "")])
def test_of_too_many_bytes_the_smaller_files_are_inside(tmp_path: Path, inside_bytes: int, inside: str) -> None:
    paths = [tmp_path / name for name in "abcd"]
    for path, size in zip(paths, (2, 3, 9, 101), strict=True):
        path.write_bytes(path.name.encode() * size)
    with CapsuleWriter(tmp_path / "capsule") as writer:
        files = add_files(writer, map(str, paths), small_bytes=100, inside_bytes=inside_bytes)
    assert [Path(file.path).name for file in files if file.place is Place.INSIDE] == list(inside)
    assert {file.place for file in files} <= {Place.INSIDE, Place.BOUND}


def test_source_copies_and_what_a_checkpoint_has_open_are_inside_in_any_case(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("train.py", "state.json", "log", "sample")]
    for path in paths:
        path.write_bytes(path.name.encode() * 10)
    copy = tmp_path / "copy"
    copy.write_bytes(b"as it was read")
    with CapsuleWriter(tmp_path / "capsule") as writer:
        read, always = {str(paths[1]): copy}, {str(paths[2])}
        files = add_files(writer, map(str, paths), inside_bytes=1, as_read=read, always=always)
    assert {Path(file.path).name for file in files if file.place is Place.INSIDE} == {"train.py", "state.json", "log"}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ([b"small, and more"], b"small"),
        ([b"SMALL, and more"], b"SMALL, and more"),
        ([b"sma", b"SMA"], b"SMA"),
        ([b"sma", b"SMA", b"sma"], None),
    ],
    ids=["grown", "rewritten", "rewritten twice", "rewritten each time"],
)
def test_a_file_that_is_written_while_it_is_copied_costs_no_capsule(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, written: list[bytes], kept: bytes | None
) -> None:
    """Of one that grows, the beginning is kept; one that is rewritten is tried again."""
    before, path = transfer.hash_file, data / "small"

    def hash_file(hashed: Path) -> FileEntry:
        entry = before(hashed)
        if hashed == path and written:
            path.write_bytes(written.pop(0))
        return entry

    monkeypatch.setattr(transfer, "hash_file", hash_file)
    capsule = capsule_of(tmp_path / "capsule", [str(path), str(data / "twin")])
    file, twin = read_files(capsule)
    assert content_path(capsule, twin).read_bytes() == b"small"
    if kept is None:
        assert file.place is Place.MISSING
    else:
        assert content_path(capsule, file).read_bytes() == kept and file.size_bytes == len(kept)
    inside = [path for path in (capsule.path / layout.FILES).iterdir() if path.name != Path(layout.FILES_INDEX).name]
    assert len(inside) == len({b"small", kept} - {None}), "nothing of the tries is left"


def rewrite(path: Path) -> None:
    path.write_bytes(b"LARGE" * 100)


def grow(path: Path) -> None:
    path.write_bytes(b"large" * 101)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (Path.touch, ""),
        (rewrite, "has changed"),
        (grow, "has 505 bytes; at the capture it had 500"),
        (Path.unlink, "does not exist on"),
    ],
)
def test_a_bound_file_must_be_the_same(tmp_path: Path, data: Path, change: Callable[[Path], None], says: str) -> None:
    capsule = capsule_of(tmp_path / "capsule", [str(data / "large")])
    change(data / "large")
    (file,) = read_files(capsule)
    assert says in changed(file)
    assert bool(says) == bool(changed(file))


@pytest.mark.parametrize(
    ("at", "is_noticed"),
    [(0, True), (499_999, True), (100_000, True), (500, False)],
    ids=["first", "last", "part", "gap"],
)
def test_a_very_long_file_is_compared_by_its_length_and_parts(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch, at: int, is_noticed: bool
) -> None:
    monkeypatch.setattr("prismdbg.capsule.files.WHOLE_BYTES", 400_000)
    monkeypatch.setattr(transfer, "PARTS", 6)
    monkeypatch.setattr(transfer, "PART_BYTES", 100)  # at 0, 99,980, 199,960 ...
    content = bytearray(500_000)
    (data / "large").write_bytes(content)
    (file,) = read_files(capsule_of(tmp_path / "capsule", [str(data / "large")]))
    assert changed(file) == ""
    content[at] = 1
    (data / "large").write_bytes(content)
    assert bool(changed(file)) is is_noticed
    (data / "large").write_bytes(content + b"1")
    assert "500001 bytes" in changed(file)


def test_a_redacted_file_must_be_the_same(tmp_path: Path) -> None:
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine example.org password x7")
    (file,) = read_files(capsule_of(tmp_path / "capsule", [str(netrc)]))
    assert file.place is Place.REDACTED and changed(file) == ""
    netrc.write_text("machine example.org password x8")
    assert "has changed since the capture" in changed(file)


def test_a_capsule_without_files(tmp_path: Path) -> None:
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    assert read_files(capsule) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"path": "relative"},
        {"path": "/data/../../etc/passwd"},
        {"path": "/data/./x"},
        {"path": "/data\0x"},
        {"path": 7},
        {"place": "cloud"},
        {"sha256": "0" * 64},
        {"sha256": "../../../etc/passwd"},
        {"mode": 0o4755},
        {"size_bytes": -1},
        {"size_bytes": 4},
    ],
)
def test_a_hostile_index_is_refused(tmp_path: Path, data: Path, fields: dict[str, object]) -> None:
    capsule = capsule_of(tmp_path / "capsule", [str(data / "small")])
    index = checked_json.read(capsule.path / layout.FILES_INDEX).value
    index["files"][0].update(fields)
    (capsule.path / layout.FILES_INDEX).write_text(json.dumps(index))
    with pytest.raises(CapsuleError):
        read_files(capsule)


@pytest.mark.parametrize("path", ["/home/u/.ssh/id_ed25519", "/etc/shadow", "/root/.aws/credentials", "/x/.netrc"])
def test_a_large_file_is_none_of_credentials(tmp_path: Path, data: Path, path: str) -> None:
    """What is large is named by its hash, and shown where it is the same: no place of secrets is asked that way."""
    capsule = capsule_of(tmp_path / "capsule", [str(data / "large")])
    index = checked_json.read(capsule.path / layout.FILES_INDEX).value
    index["files"][0]["path"] = path
    (capsule.path / layout.FILES_INDEX).write_text(json.dumps(index))
    with pytest.raises(CapsuleError, match="a file with credentials"):
        read_files(capsule)


def test_a_large_file_does_not_lead_to_one_of_credentials(tmp_path: Path, data: Path) -> None:
    capsule = capsule_of(tmp_path / "capsule", [str(data / "large")])
    secret = tmp_path / ".ssh" / "id_ed25519"
    secret.parent.mkdir()
    (data / "large").rename(secret)
    (data / "large").symlink_to(secret)
    (file,) = read_files(capsule)
    assert "points to a file with credentials" in changed(file)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("fifo", "not a regular file"),
        ("kernel", "belongs to the kernel"),
        ("hole", "nearly all holes"),
        ("folder", "not"),
    ],
)
def test_what_would_hold_its_reader_is_not_read(tmp_path: Path, data: Path, kind: str, says: str) -> None:
    (file,) = read_files(capsule_of(tmp_path / "capsule", [str(data / "large")]))
    large = data / "large"
    large.unlink()
    if kind == "fifo":
        os.mkfifo(large)
    elif kind == "kernel":
        large.symlink_to("/proc/kmsg")
    elif kind == "folder":
        large.mkdir()
    else:
        large.touch()
        with files_of_any_size():
            os.truncate(large, 1 << 40)
    assert says in changed(replace(file, size_bytes=1 << 40))


def test_a_path_twice_is_refused(tmp_path: Path, data: Path) -> None:
    capsule = capsule_of(tmp_path / "capsule", [str(data / "small")])
    index = checked_json.read(capsule.path / layout.FILES_INDEX).value
    (capsule.path / layout.FILES_INDEX).write_text(json.dumps({"files": index["files"] * 2}))
    with pytest.raises(CapsuleError, match="twice"):
        read_files(capsule)


@pytest.mark.parametrize("path", ["/proc/sys/vm/swappiness", "/sys/power/state", "/dev/vda", "/etc/ld.so.preload", "/"])
def test_a_path_of_the_kernel_s_is_refused_by_verify_already(tmp_path: Path, path: str) -> None:
    from prismdbg.jobs.storage.verify import Severity, findings

    entry = {"path": path, "place": "bound", "size_bytes": 2, "sha256": "0" * 64, "mode": 0o644}
    make_capsule(tmp_path / "capsule", files={"files": [entry]})
    fatal = [found.text for found in findings(tmp_path / "capsule") if found.severity is Severity.FATAL]
    assert [text for text in fatal if path in text], fatal
