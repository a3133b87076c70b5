"""Which of this machine's files a capsule's list can have shown to its program."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.rank_path import is_usual, problem, require_outside_kernel
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.runtime import visible as visible_module
from prismdbg.runtime.docker.image_layers import _leads_to, add_environment
from prismdbg.runtime.environment import Environment, InstalledFile, of_files
from prismdbg.runtime.visible import installation_of, open_installed, require_installed, visible


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
    assert visible(listed(library), "", laid=[str(library)]).files == {}


@pytest.mark.parametrize("change", [{"size_bytes": 99}, {"mtime_ns": 1}, {"mode": 0o700}])
def test_a_library_that_is_not_the_one_of_the_capture_is_not_shown(tmp_path: Path, change: dict[str, Any]) -> None:
    library = tmp_path / "tool"
    library.write_bytes(b"\x7fELF and more")
    library.chmod(0o755)
    (file,) = listed(library).files
    assert visible(of_files([file]), "").files.keys() == {str(library)}
    assert visible(of_files([replace(file, **change)]), "").files == {}


def test_a_core_dump_is_no_library(tmp_path: Path) -> None:
    core = tmp_path / "core.4711"
    core.write_bytes(b"\x7fELF" + bytes(12) + b"\x04\x00" + b"what a process knew")
    for look in (require_installed, lambda environment: visible(environment, "")):
        with pytest.raises(CapsuleError, match="no installation"):
            look(listed(core))


def refused_by_all(environment: Environment) -> None:
    for look in (require_installed, lambda one: visible(one, ""), built):
        with pytest.raises(CapsuleError, match=r"no installation|belongs to the kernel"):
            look(environment)


def built(environment: Environment) -> None:
    """As a container image holds it."""
    with tarfile.open(fileobj=io.BytesIO(), mode="w") as tar:
        add_environment(tar, environment)


def file_at(path: Path) -> Environment:
    status = path.stat()
    return of_files([InstalledFile(str(path), status.st_mode & 0o7777, status.st_size, status.st_mtime_ns)])


@pytest.mark.parametrize("name", ["site-packages", "dist-packages", "lib/site-packages"])
def test_a_link_that_is_called_an_installation_leads_nowhere(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "home" / "token"
    secret.parent.mkdir()
    secret.write_text("of the user")
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).symlink_to(secret.parent)
    refused_by_all(file_at(tmp_path / name / "token"))
    assert str(tmp_path / name) not in visible(None, str(tmp_path / name / "token" / "python")).folders


def test_a_link_out_of_an_installation_leads_nowhere(tmp_path: Path, venv: Path) -> None:
    """The installation is shown, and the link in it, which leads to nothing there."""
    secret = tmp_path / "home" / "token"
    secret.parent.mkdir()
    secret.write_text("of the user")
    (venv / "notes").symlink_to(secret.parent)
    environment = file_at(venv / "notes" / "token")
    with pytest.raises(CapsuleError, match="no installation"):
        require_installed(environment)
    with pytest.raises(CapsuleError, match="no installation"):
        built(environment)
    assert [known.path for known in visible(environment, "").folders.values() if str(tmp_path) in known.path] == [
        str(venv)
    ]


def test_a_link_out_of_the_systems_folders_leads_nowhere() -> None:
    out = Path("/usr/lib/ssl/private")  # to /etc/ssl/private, on Debian
    if not out.is_symlink():
        pytest.skip("no such link here")
    with pytest.raises(CapsuleError, match="no installation"):
        open_installed(f"{out}/server.key")


def test_byte_code_behind_a_link_is_not_taken_along(tmp_path: Path) -> None:
    """A link may be listed wherever it lies."""
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.secret").write_text("of the user")
    (tmp_path / "x.py").symlink_to("y.py")
    packages = tmp_path / "site-packages"
    packages.mkdir()
    (packages / "x.py").touch()
    (packages / "__pycache__").symlink_to(tmp_path / "__pycache__")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        add_environment(tar, listed(tmp_path / "x.py", packages / "x.py"))
    assert b"of the user" not in content.getvalue()


@pytest.mark.parametrize("before", ["/", "/../", "/bin/../"])
def test_an_interpreter_is_found_by_what_a_program_makes_of_its_name(venv: Path, before: str) -> None:
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(sys.executable)
    assert str(venv) in visible(None, f"{before}{venv}/bin/../bin/python").folders


def test_a_link_to_an_installation_goes_on_working(tmp_path: Path, venv: Path) -> None:
    clone = tmp_path / "clone"
    clone.symlink_to(venv)
    module = clone / "lib" / "python3.11" / "site-packages" / "a" / "b.py"
    seen = visible(file_at(module), "")
    assert seen.folders[str(clone)].path == str(venv)
    require_installed(file_at(module))
    (venv / "lib64").symlink_to("lib")
    require_installed(file_at(venv / "lib64" / "python3.11" / "site-packages" / "a" / "b.py"))
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to(sys.executable)
    python = str(clone / "bin" / "python")
    assert {str(clone)} <= set(visible(None, python).folders)


@pytest.mark.parametrize(
    "path", ["/proc/self/root/etc/shadow", "/proc/self/root/usr/lib/os-release", "/proc/kmsg", "/dev/sda", "/sys/x"]
)
def test_what_is_the_kernels_is_in_no_installation(path: str) -> None:
    assert installation_of(path) == ""
    refused_by_all(of_files([InstalledFile(path, 0o644, 0, 0)]))
    with pytest.raises(CapsuleError, match="belongs to the kernel"):
        if InstalledFile.at(path) is None:
            open_installed(path)
        visible(None, path)


@pytest.mark.parametrize("kind", ["fifo", "socket", "link"])
def test_what_is_no_regular_file_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "library.so"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to("/proc/kmsg")
    else:
        path.mkdir()
    with pytest.raises(CapsuleError, match="no installation"):
        open_installed(str(path))


@pytest.mark.parametrize("mode", [0o1777, 0o777, 0o2775 | 0o002])
def test_a_folder_of_everybody_is_no_installation(tmp_path: Path, mode: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "pyvenv.cfg").touch()
    (scratch / "token").write_text("of somebody else")
    scratch.chmod(mode)
    assert installation_of(str(scratch / "token")) == ""
    for look in (require_installed, lambda one: visible(one, ""), built):
        with pytest.raises(FacilityError, match=f"{scratch} looks like an installation, but is writable by everyone"):
            look(file_at(scratch / "token"))
    scratch.chmod(0o775)
    visible_module._installation_around.cache_clear()
    assert installation_of(str(scratch / "token")) == str(scratch)


def test_a_home_behind_a_link_is_no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "pyvenv.cfg").touch()
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setattr(visible_module, "_homes", lambda: frozenset({str(tmp_path / "link")}))
    visible_module._too_wide.cache_clear()
    try:
        assert installation_of(str(home / "token")) == installation_of(str(tmp_path / "link" / "token")) == ""
    finally:
        visible_module._too_wide.cache_clear()


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


FOLDERS = ["", "/", "/etc", "/proc", "/proc/1", "/dev", "/dev/shm", "/dev/shm/a", "//a", "/a/../proc", "/a/", "/a", "a"]
NAMES = [
    "b",
    "",
    ".",
    "..",
    "a/b",
    "../b",
    "dev",
    "proc",
    "ld.so.preload",
    "shm",
    "x" * 255,
    "x" * 256,
    "\0",
    "\ud800",
    "é",
]


@pytest.mark.parametrize("folder", [*FOLDERS, "/a" * 2000, f"/{'y' * 250}" * 16, f"/{'y' * 256}"])
@pytest.mark.parametrize("name", NAMES)
def test_what_is_told_at_once_is_what_a_detailed_look_tells(folder: str, name: str) -> None:
    """A path that is usual has no problem; the check refuses exactly the paths that have one."""
    path = f"{folder}/{name}"
    assert not (is_usual(folder, name) and problem(path))
    if problem(path):
        with pytest.raises(CapsuleError):
            require_outside_kernel(path)
    else:
        require_outside_kernel(path)


def test_a_file_of_a_package_is_told_at_once() -> None:
    assert is_usual("/opt/venv/lib/python3.11/site-packages/torch", "functional.py")


def test_links_are_followed_to_where_a_container_would_unpack() -> None:
    links = {"/data": "/session", "/a/b": "../session/x"}
    assert _leads_to("/data/file", links) == "/session/file/"
    assert _leads_to("/a/b/c", links) == "/session/x/c/"
    with pytest.raises(CapsuleError, match="link loop"):
        _leads_to("/x/y", {"/x": "/x"})
