"""A rank of root in a user namespace: it sees and does what root without capabilities does, and is nobody outside."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from counting import ask, program_spec, short_folder, with_saving

from prismdbg.checkpoint import bundle
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.runtime.local_runtime import LocalRuntime
from prismdbg.runtime.spec import RANK, Bind, LaidFile, ReplaySpec
from prismdbg.runtime.starter_spec import STARTER_LOG

DOES = """
    import os, pwd, stat, tempfile
    def of(path):
        status = os.stat(path, follow_symlinks=False)
        return path, status.st_uid, status.st_gid, oct(status.st_mode)
    def tried(what, *words, **more):
        try:
            what(*words, **more)
            return "done"
        except OSError as error:
            return os.strerror(error.errno)
    library = os.__file__
    beside = os.path.dirname(library) + "/made-by-the-rank"
    os.mkdir("/tmp/made")
    open("/tmp/made/file", "w").close()
    open(beside, "w").close()
    open("/dev/shm/made", "w").close()
    found = [
        os.getresuid(), os.getresgid(), os.getgroups(), pwd.getpwuid(os.getuid()).pw_name, os.path.expanduser("~"),
        open(secret).read(), open(data).read(), open(data, "a").write("more"), open(secret, "a").write("more"),
        [of(path) for path in ("/", "/tmp", "/tmp/made", "/tmp/made/file", "/usr", "/etc", "/etc/passwd", "/dev",
                               "/dev/shm", "/dev/shm/made", "/run", library, beside, secret, data, home, ".")],
        os.fstat(1)[4:6],
        tried(os.chown, "/tmp/made/file", 0, 0), tried(os.chmod, "/tmp/made/file", 0o4755),
        tried(os.chown, "/tmp/made/file", 1000, 1000), tried(os.chown, library, 0, 0), tried(os.chmod, library, 0o600),
        tried(os.setuid, 0), tried(os.setuid, 1000), tried(os.setgroups, [1000]), tried(os.mknod, "/tmp/fifo"),
        tried(os.kill, 1, 0) if False else "", tried(os.remove, beside), tried(os.rename, "/tmp/made", "/tmp/moved"),
        tried(os.link, "/tmp/moved/file", "/tmp/hard"), tried(os.mkdir, "/opt"), tried(os.rmdir, "/opt"),
        os.access(secret, os.W_OK), os.access("/usr", os.W_OK), tempfile.mkdtemp()[:5],
        len(os.openpty()), tried(os.setxattr, "/tmp/hard", "user.x", b"1"),
    ]
"""


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Path]:
    """A virtual environment of root's with a file that nobody else may read."""
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    secret = tmp_path / "venv" / "license"
    secret.write_text("root's own")
    secret.chmod(0o600)
    yield secret


@pytest.fixture
def spec(installation: Path) -> Iterator[tuple[ReplaySpec, Path]]:
    if os.geteuid() != 0 or LocalRuntime().available():
        pytest.skip("only root has a rank of root in namespaces")
    with short_folder() as session:
        yield _planned(session, installation)


def _planned(session: Path, installation: Path) -> tuple[ReplaySpec, Path]:
    spec, socket = program_spec(session)
    assert spec.environment is not None
    listed = [
        file for path in (installation, installation.with_name("pyvenv.cfg")) if (file := InstalledFile.at(str(path)))
    ]
    data = session / "data"
    data.write_text("of the capsule")
    laid = LaidFile(source=data, target="/data/of/rank", mode=0o600)
    environment = of_files([*spec.environment.files, *listed])
    return replace(spec, environment=environment, files=(*spec.files, laid), folders=("/data/empty",)), socket


@contextmanager
def _running(spec: ReplaySpec) -> Iterator[None]:
    rank = LocalRuntime().start(spec)
    try:
        yield
    finally:
        rank.kill()


def _does(spec: ReplaySpec, socket: Path, code: str, names: dict[str, str]) -> Any:
    head = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    with _running(spec):
        answer = ask(socket, f"run {(head + textwrap.dedent(code)).encode().hex()}")
    assert "found" in answer and answer["found"] is not None, answer
    return answer["found"]


def test_it_sees_and_does_what_it_would_without(spec: tuple[ReplaySpec, Path], installation: Path) -> None:
    names = {"secret": str(installation), "data": "/data/of/rank", "home": "/data/empty"}
    mapped = _does(*spec, DOES, names)
    with short_folder() as session, short_folder() as images:
        planned, socket = _planned(session, installation)
        plain = _does(with_saving(planned, bundle.find(), images), socket, DOES, names)
    assert mapped == plain and mapped[0] == [0, 0, 0]
    assert installation.read_text() == "root's own"


def test_it_is_nobody_of_this_machine(spec: tuple[ReplaySpec, Path]) -> None:
    planned, socket = spec
    rank = LocalRuntime().start(planned)
    try:
        ask(socket, "status")
        status = Path(f"/proc/{rank.rank_pid()}/status").read_text()
        uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
        assert len(set(uids)) == 1 and int(uids[0]) > 1 << 30
        ask(socket, f"write {planned.session / RANK}/written")
        assert (planned.session / RANK / "written").stat().st_uid == 0, "what it leaves is its user's"
    finally:
        rank.kill()


def test_where_a_file_system_shows_no_other_owners_it_is_root_and_the_log_says_why(
    spec: tuple[ReplaySpec, Path],
) -> None:
    planned, socket = spec
    bind = Bind(source=Path("/sys/devices/system/cpu"), target="/cpus")
    found = _does(replace(planned, binds=(bind,)), socket, "found = open('/proc/self/uid_map').read().split()", {})
    assert found == ["0", "0", str((1 << 32) - 1)]
    said = (planned.control / STARTER_LOG).read_text()
    assert "root of this machine, without capabilities: the file system of /sys/devices/system/cpu" in said
