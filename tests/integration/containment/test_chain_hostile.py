"""The command line on capsules that are damaged, hostile or from the future: one error, exit 3, nothing touched."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard
from capsules import make_capsule
from chain import Said

from prismdbg.capsule import layout
from prismdbg.cli import main
from prismdbg.jobs.storage.pack import pack

Prismdbg = Callable[..., Said]
SOME_LOG = f"{layout.LOG}/events.00000.seg"


@pytest.fixture
def prismdbg(capsys: pytest.CaptureFixture[str]) -> Prismdbg:
    """The command in this process: it ends before it starts one."""

    def run(*arguments: object) -> Said:
        code = main.run([*map(str, arguments)])
        out, err = capsys.readouterr()
        return Said(code=code, out=out, err=err)

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "capsule"
    make_capsule(path)
    return path


@pytest.fixture
def capsule(whole: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "inside" / "capsule"
    shutil.copytree(whole, copy)
    return copy


@pytest.fixture
def untouched(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """What lies beside the folder that holds the capsule must stay as it is."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    before = sorted(path.name for path in tmp_path.iterdir())

    def check() -> None:
        assert victim.read_text() == "precious"
        assert {path.name for path in tmp_path.iterdir()} <= {*before, "inside", "victim"}

    yield check
    check()


def _manifest(capsule: Path, change: Callable[[dict[str, object]], object]) -> None:
    path = capsule / layout.MANIFEST
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def bad_hash(capsule: Path) -> None:
    path = capsule / SOME_LOG
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def cut_off(capsule: Path) -> None:
    os.truncate(capsule / SOME_LOG, 100)


def missing_part(capsule: Path) -> None:
    (capsule / layout.RANK).unlink()


def one_file_more(capsule: Path) -> None:
    (capsule / layout.OURS / "more.json").write_text("{}")


def link_out(capsule: Path) -> None:
    path = capsule / SOME_LOG
    path.unlink()
    path.symlink_to(capsule.parent.parent / "victim")


def newer_format(capsule: Path) -> None:
    _manifest(capsule, lambda data: data.update(format=99, oldest_reader=99))


def name_that_leads_out(capsule: Path) -> None:
    entry = {"size_bytes": 8, "sha256": "0" * 64}
    _manifest(capsule, lambda data: data["files"].update({"prismdbg/../../../victim": entry}))  # type: ignore[attr-defined]


def huge_size(capsule: Path) -> None:
    _manifest(capsule, lambda data: data["files"][SOME_LOG].update(size_bytes=1 << 60))  # type: ignore[index]


def no_json(capsule: Path) -> None:
    (capsule / layout.MANIFEST).write_bytes(b"\x80\x04pickle")


def no_manifest(capsule: Path) -> None:
    (capsule / layout.MANIFEST).unlink()


def _errors(said: Said) -> int:
    return sum(line.startswith("error: ") for line in said.err.splitlines())


DAMAGES = [
    bad_hash, cut_off, missing_part, one_file_more, link_out, newer_format, name_that_leads_out, huge_size, no_json,
    no_manifest,
]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("command", ["replay", "debug", "verify"])
def test_a_damaged_capsule(
    prismdbg: Prismdbg, capsule: Path, damage: Callable[[Path], None], command: str, untouched: Callable[[], None]
) -> None:
    damage(capsule)
    said = prismdbg(command, capsule)
    assert said.code == 3, said
    assert _errors(said) == 1
    assert "try: " in said.err


@pytest.mark.parametrize("command", ["replay", "inspect", "verify", "unpack", "pack", "build", "debug"])
def test_what_is_no_capsule_at_all(prismdbg: Prismdbg, command: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no capsule")
    target = ("-o", tmp_path / "out") if command in ("unpack", "pack") else ()
    for name in ("empty", "text", "nowhere"):
        said = prismdbg(command, tmp_path / name, *target)
        assert said.code == 3, f"{name}: {said}"
        assert _errors(said) == 1


def _repacked(packed: Path, change: Callable[[bytearray], None]) -> None:
    with packed.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
        data = bytearray(stream.read())
    change(data)
    packed.write_bytes(zstandard.ZstdCompressor().compress(bytes(data)))


def _with_member(name: str, kind: bytes, link: str = "") -> Callable[[bytearray], None]:
    def change(data: bytearray) -> None:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        end = data.rstrip(b"\0")
        data[:] = end + bytes(-len(end) % 512) + info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)

    return change


ARCHIVES = {
    "truncated": lambda packed: os.truncate(packed, packed.stat().st_size // 2),
    "one byte altered": lambda packed: _repacked(packed, lambda data: data.__setitem__(-3000, data[-3000] ^ 1)),
    "a name that leads out": lambda packed: _repacked(packed, _with_member("../../victim", tarfile.REGTYPE)),
    "an absolute name": lambda packed: _repacked(packed, _with_member("/victim", tarfile.REGTYPE)),
    "a link": lambda packed: _repacked(packed, _with_member("prismdbg/x", tarfile.SYMTYPE, "/etc/passwd")),
    "a hard link": lambda packed: _repacked(packed, _with_member("prismdbg/x", tarfile.LNKTYPE, "/etc/passwd")),
    "a device": lambda packed: _repacked(packed, _with_member("prismdbg/x", tarfile.CHRTYPE)),
    "something behind the end": lambda packed: _repacked(packed, lambda data: data.extend(b"x" * 20_000)),
    "no archive": lambda packed: packed.write_bytes(zstandard.ZstdCompressor().compress(b"x" * 100_000)),
    "another archive": lambda packed: packed.write_bytes(_plain_tar()),
}


def _plain_tar() -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("README"))
    return zstandard.ZstdCompressor().compress(stream.getvalue())


@pytest.mark.parametrize("name", ARCHIVES)
def test_a_hostile_archive(
    prismdbg: Prismdbg, whole: Path, name: str, tmp_path: Path, untouched: Callable[[], None]
) -> None:
    home = tmp_path / "inside"
    home.mkdir()
    packed = home / "capsule.tar.zst"
    pack(whole, packed)
    ARCHIVES[name](packed)
    for command in (("unpack", packed, "-o", home / "out"), ("replay", packed), ("verify", packed)):
        said = prismdbg(*command)
        assert said.code == 3, f"{command[0]}: {said}"
        assert _errors(said) == 1
        assert sorted(path.name for path in home.iterdir()) == ["capsule.tar.zst"]


def test_a_damaged_run_is_told_apart_from_a_wrong_path(prismdbg: Prismdbg, tmp_path: Path) -> None:
    """`why`, `status` and `capture` on what is no run folder: wrong usage, not a bad capsule."""
    for command in (("status",), ("why",), ("capture", "--rank", 0, "-o", tmp_path / "c")):
        said = prismdbg(command[0], tmp_path, *command[1:])
        assert said.code == 2, f"{command[0]}: {said}"
        assert _errors(said) == 1
