"""The rank's half of prismdbg in a capsule: whole, importable as it was, and nothing else comes out of a bad one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import zstandard

from prismdbg.errors import CapsuleError
from prismdbg.jobs.capture import rank_package
from prismdbg.jobs.injection import PACKAGE, RANK_HALF


def test_what_comes_out_is_imported_and_has_no_host_side(tmp_path: Path) -> None:
    rank_package.unpack(rank_package.pack(PACKAGE), tmp_path / "prismdbg")
    program = "import prismdbg.model.moment, prismdbg.capsule.log.reader as m; print(m.__file__)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == str(tmp_path / "prismdbg" / "capsule" / "log" / "reader.py"), done.stderr
    assert {path.name for path in (tmp_path / "prismdbg").iterdir() if path.name != "__pycache__"} == set(RANK_HALF)


def test_it_needs_nothing_that_it_does_not_hold(tmp_path: Path) -> None:
    """A restored rank may import any of it later, and has nothing else."""
    rank_package.unpack(rank_package.pack(PACKAGE), tmp_path / "prismdbg")
    paths = [path for path in (tmp_path / "prismdbg").rglob("*.py") if path.stem not in ("__init__", "sitecustomize")]
    names = [".".join(path.relative_to(tmp_path).with_suffix("").parts) for path in paths]
    program = (
        "import importlib, sys; modules = [importlib.import_module(name) for name in sys.argv[1:]]; "
        "print(modules[0].__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *names], cwd=tmp_path, capture_output=True, text=True, timeout=240
    )
    assert done.stdout.strip() == str(paths[0]), done.stderr


def test_byte_code_knows_its_source(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "model" / "__pycache__").mkdir(parents=True)
    source, compiled = package / "model" / "a.py", package / "model" / "__pycache__" / "a.cpython-311.pyc"
    source.write_text("x = 1\n")
    compiled.write_bytes(b"code")
    rank_package.unpack(rank_package.pack(package), tmp_path / "out")
    assert int((tmp_path / "out/model/a.py").stat().st_mtime) == int(source.stat().st_mtime)
    assert (tmp_path / "out/model/__pycache__/a.cpython-311.pyc").read_bytes() == b"code"


def test_every_user_reads_it_whatever_the_umask(tmp_path: Path) -> None:
    """The restored rank may be another user than the one who replays it."""
    before = os.umask(0o077)
    try:
        rank_package.unpack(rank_package.pack(PACKAGE), tmp_path / "prismdbg")
    finally:
        os.umask(before)
    made = [tmp_path / "prismdbg", *(tmp_path / "prismdbg").rglob("*")]
    assert {(path.is_dir(), path.stat().st_mode & 0o777) for path in made} == {(True, 0o755), (False, 0o644)}


def archive(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        tar.addfile(info, io.BytesIO(b""))
    return zstandard.ZstdCompressor().compress(buffer.getvalue())


@pytest.mark.parametrize(
    "data",
    [
        archive("../outside.py"),
        archive("/etc/outside.py"),
        archive("rank/../../outside.py"),
        archive("rank/a.so"),
        archive("rank/a.py", tarfile.SYMTYPE, "/etc/passwd"),
        b"no archive",
        zstandard.ZstdCompressor().compress(bytes(40 << 20)),
    ],
    ids=["above", "absolute", "hidden", "library", "link", "noise", "huge"],
)
def test_nothing_else_comes_out(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CapsuleError):
        rank_package.unpack(data, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "outside.py").exists()
