"""Which of this machine's files a capsule's list can have shown to its program."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.capsule.rank_path import problem
from prismdbg.errors import CapsuleError
from prismdbg.runtime.environment import Environment, InstalledFile, of_files
from prismdbg.runtime.image_layers import _leads_to
from prismdbg.runtime.visible import installation_of, require_installed, visible


def listed(*paths: Path) -> Environment:
    return of_files(file for path in paths if (file := InstalledFile.at(str(path))) is not None)


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    package = tmp_path / "venv" / "lib" / "python3.11" / "site-packages" / "a"
    package.mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin")
    (package / "b.py").touch()
    return tmp_path / "venv"


def test_an_installation_is_shown_whole(venv: Path) -> None:
    module = venv / "lib" / "python3.11" / "site-packages" / "a" / "b.py"
    assert installation_of(str(module)) == str(venv)
    assert str(venv) in visible(listed(module), "").folders


@pytest.mark.parametrize("name", ["secret", ".ssh/id_ed25519", "notes.txt"])
def test_another_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("private")
    for look in (require_installed, lambda environment: visible(environment, "")):
        with pytest.raises(CapsuleError, match="no installation"):
            look(listed(path))


def test_secrets_of_the_system_are_refused() -> None:
    with pytest.raises(CapsuleError, match="/etc/shadow"):
        require_installed(of_files([InstalledFile("/etc/shadow", 0o640, 100, 1)]))
    seen = visible(of_files([InstalledFile("/etc/shadow", 0o640, 100, 1)]), "")
    assert not [path for path in (*seen.folders, *seen.files) if path in ("/etc", "/etc/shadow", "/", "/root", "/home")]


def test_a_library_that_was_built_elsewhere_is_shown_alone(tmp_path: Path) -> None:
    library = tmp_path / "extension.so"
    library.write_bytes(b"\x7fELF and more")
    assert str(library) in visible(listed(library), "").files
    assert visible(listed(library), "", laid=[str(library)]).files == ()


def test_a_core_dump_is_no_library(tmp_path: Path) -> None:
    core = tmp_path / "core.4711"
    core.write_bytes(b"\x7fELF" + bytes(12) + b"\x04\x00" + b"what a process knew")
    for look in (require_installed, lambda environment: visible(environment, "")):
        with pytest.raises(CapsuleError, match="no installation"):
            look(listed(core))


def test_a_home_is_no_installation() -> None:
    assert installation_of(f"{Path.home()}/.bashrc") == ""
    assert installation_of("/etc/shadow") == ""


@pytest.mark.parametrize(
    "path",
    [
        "/proc/sys/vm/swappiness",
        "/proc",
        "/sys/x",
        "/dev/sda",
        "/dev",
        "/a/../b",
        "a",
        "/",
        "/a/",
        "/etc/ld.so.preload",
    ],
)
def test_where_no_file_of_a_rank_can_lie(path: str) -> None:
    assert problem(path)


@pytest.mark.parametrize("path", ["/dev/shm/a", "/home/u/data", "/process", "/sysroot/x", "/devel"])
def test_where_one_can(path: str) -> None:
    assert problem(path) == ""


def test_links_are_followed_to_where_a_container_would_unpack() -> None:
    links = {"/data": "/session", "/a/b": "../session/x"}
    assert _leads_to("/data/file", links) == "/session/file/"
    assert _leads_to("/a/b/c", links) == "/session/x/c/"
    with pytest.raises(CapsuleError, match="link loop"):
        _leads_to("/x/y", {"/x": "/x"})
