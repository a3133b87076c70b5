"""Lists of installed files: what is found, when two are the same, what has changed since."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.checked_json import Fields
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.runtime import compiler, environment_scan
from prismdbg.runtime.elf import needed_libraries
from prismdbg.runtime.environment import Environment, InstalledFile, of_files
from prismdbg.runtime.environment_scan import installed_folders, mapped_code, scan, with_programs


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A virtual environment whose interpreter is a link to a link, in another folder."""
    base = tmp_path / "base" / "bin"
    base.mkdir(parents=True)
    (base / "python3.11").write_text("interpreter")
    (base / "python3").symlink_to("python3.11")
    home = tmp_path / "venv"
    packages = home / "lib" / "python3.11" / "site-packages"
    (packages / "torch" / "__pycache__").mkdir(parents=True)
    (packages / "torch" / "__init__.py").write_text("import this")
    (packages / "torch" / "__pycache__" / "__init__.cpython-311.pyc").write_text("compiled")
    (home / "bin").mkdir()
    (home / "bin" / "python").symlink_to(base / "python3")
    (home / "lib64").symlink_to("lib")
    return home


def rank(prefix: Path, *paths: str) -> dict[str, Any]:
    return {
        "executable": str(prefix / "bin" / "python"),
        "prefix": str(prefix),
        "base_prefix": str(prefix.parent / "base"),
        "sys_path": ["", *paths, str(prefix / "lib" / "python3.11" / "site-packages")],
    }


@pytest.fixture(autouse=True)
def only_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_scan, "_ALWAYS", ())
    monkeypatch.setattr(environment_scan, "_ALWAYS_PATTERNS", ())


def test_every_link_on_the_way_is_found_and_byte_code_is_not(prefix: Path, tmp_path: Path) -> None:
    found = {file.path: file.target for file in scan(rank(prefix)).files}
    assert found == {
        f"{prefix}/bin/python": f"{tmp_path}/base/bin/python3",
        f"{tmp_path}/base/bin/python3": "python3.11",
        f"{tmp_path}/base/bin/python3.11": "",
        f"{prefix}/lib64": "lib",
        f"{prefix}/lib/python3.11/site-packages/torch/__init__.py": "",
    }


def test_a_link_into_the_kernels_files_is_not_followed(prefix: Path) -> None:
    """They are another process's where the list is used."""
    (prefix / "bin" / "mtab").symlink_to("/proc/self/mounts")
    (prefix / "self").symlink_to("/proc/self")
    (prefix / "bin" / "through").symlink_to(prefix / "self" / "mounts")
    environment = scan(rank(prefix))
    assert {f"{prefix}/bin/mtab", f"{prefix}/self"} <= {file.path for file in environment.files}
    assert not [file.path for file in environment.files if file.path.startswith("/proc")]
    assert Environment.from_json(Fields(environment.to_json(), "environment.json")) == environment


def test_an_installation_behind_a_link_is_found_where_it_is(prefix: Path, tmp_path: Path) -> None:
    (tmp_path / "clone").symlink_to(prefix)
    found = {file.path: file.target for file in scan(rank(tmp_path / "clone")).files}
    assert found.pop(str(tmp_path / "clone")) == str(prefix)
    assert found == {file.path: file.target for file in scan(rank(prefix)).files}


def test_the_same_files_give_the_same_key_and_a_change_another(prefix: Path) -> None:
    first = scan(rank(prefix))
    assert scan(rank(prefix)).key == first.key
    module = prefix / "lib/python3.11/site-packages/torch/__init__.py"
    os.utime(module, ns=(1, 1))
    assert scan(rank(prefix)).key != first.key
    with pytest.raises(FacilityError, match=r"torch/__init__\.py was modified"):
        first.check_unchanged()


def test_another_version_of_prismdbg_is_no_other_environment(prefix: Path) -> None:
    first = scan(rank(prefix))
    packages = prefix / "lib/python3.11/site-packages"
    for name in (
        "prismdbg/errors.py",
        "prismdbg-0.2.0.dist-info/RECORD",
        "_prismdbg.pth",
        "prismdbg_tui/app.py",
    ):
        (packages / name).parent.mkdir(exist_ok=True)
        (packages / name).write_text("ours")
    (prefix / "bin" / "prismdbg").write_text("our command")
    assert scan(rank(prefix)).key == first.key
    (packages / "prismdbg_of_somebody_else").write_text("not ours")
    assert scan(rank(prefix)).key != first.key


def test_what_is_missing_or_changed_is_named_and_the_rest_counted(tmp_path: Path) -> None:
    files = []
    for number in range(6):
        path = tmp_path / f"file{number}"
        path.write_text("x")
        files.append(InstalledFile.at(str(path)) or pytest.fail("not there"))
    environment = of_files(files)
    environment.check_unchanged()
    for number in range(5):
        (tmp_path / f"file{number}").unlink()
    with pytest.raises(FacilityError, match=r"file0 is missing.*and 2 more"):
        environment.check_unchanged()


def test_it_survives_json(prefix: Path) -> None:
    environment = scan(rank(prefix))
    with_extra = of_files(environment.files, extra=[environment.files[0].path])
    for one in (environment, with_extra):
        assert Environment.from_json(Fields(one.to_json(), "environment.json")) == one
        assert Environment.from_json(Fields(one.to_json(), "environment.json")).key == one.key


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"folders": []},
        {"folders": {"/a": [["b"]]}},
        {"folders": {"/a": [["b", "x", 1, 2]]}},
        {"folders": {"relative": [["b", 1, 2, 3]]}},
        {"folders": {"/a/../b": [["c", 1, 2, 3]]}},
        {"folders": {"/proc/self/root/etc": [["shadow", 1, 2, 3]]}},
        {"folders": {"/dev": [["sda", 1, 2, 3]]}},
        {"folders": {"/sys": [["x", 0o777, 0, 0, "y"]]}},
        {"folders": {"/etc": [["ld.so.preload", 1, 2, 3]]}},
    ],
)
def test_damaged_json_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(CapsuleError):
        Environment.from_json(Fields(value, "environment.json"))


@pytest.mark.parametrize("name", ["", ".", "..", "b/c", "../b", "b\0", "b" * 256, "é" * 128, "\ud800", 7])
def test_what_is_no_name_of_a_file_is_refused(name: Any) -> None:
    with pytest.raises(CapsuleError):
        Environment.from_json(Fields({"folders": {"/a": [[name, 0o644, 2, 3]]}}, "environment.json"))


@pytest.mark.parametrize(
    "facts",
    [
        (-1, 2, 3),
        (0o10000, 2, 3),
        (True, 2, 3),
        (0o644, -1, 3),
        (0o644, 1 << 63, 3),
        (0o644, 2, 1 << 63),
        (0o777, 0, 0, "a\0"),
    ],
)
def test_what_no_file_can_have_is_refused(facts: tuple[Any, ...]) -> None:
    with pytest.raises(CapsuleError):
        Environment.from_json(Fields({"folders": {"/a": [["b", *facts]]}}, "environment.json"))


@pytest.mark.parametrize("entry", [["é" * 127, 0o644, 2, 3], ["b", 0o777, 0, 0, "é"], ["b", 0o4755, 2, -3]])
def test_what_is_rare_is_read(entry: list[Any]) -> None:
    (file,) = Environment.from_json(Fields({"folders": {"/a": [entry]}}, "environment.json")).files
    assert file == InstalledFile(f"/a/{entry[0]}", *entry[1:])


def test_the_parts_are_the_whole(prefix: Path) -> None:
    files = scan(rank(prefix)).files
    common, extra = of_files(files, extra=[files[0].path]).parts()
    assert extra.files == (files[0],)
    assert common.files == files[1:]


def test_folders_are_all_parents() -> None:
    assert of_files([InstalledFile("/a/b/c", 0o644), InstalledFile("/d", 0o644)]).folders == {"/", "/a", "/a/b"}


def test_of_the_systems_prefix_only_the_interpreters_folders_are_taken() -> None:
    folders = installed_folders(
        {
            "prefix": "/usr",
            "base_prefix": "/usr",
            "sys_path": ["/usr/lib/python3/dist-packages", "/usr/lib/python311.zip", "/usr/share/project"],
        }
    )
    assert folders == ["/usr/lib/python3/dist-packages"]


def test_mapped_code_of_this_process_has_its_interpreter() -> None:
    found = mapped_code(os.getpid())
    assert str(Path(sys.executable).resolve()) in found
    assert not [path for path in found if path.startswith(("/dev", "/proc")) or path.endswith("(deleted)")]
    assert mapped_code(2**22 + 1) == []


def test_an_interpreter_asks_for_its_loader_and_libraries() -> None:
    needed = needed_libraries(Path("/bin/sh"))
    assert any(name.startswith("/lib") and "ld-" in name for name in needed)
    assert "libc.so.6" in needed


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_what_is_no_whole_elf_file_asks_for_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert needed_libraries(tmp_path / "file") == ()
    assert needed_libraries(tmp_path / "missing") == ()


def paths(environment: Environment) -> set[str]:
    return {file.path for file in environment.files}


def test_a_program_that_the_rank_started_comes_with_what_it_needs(tmp_path: Path) -> None:
    before = of_files([InstalledFile("/opt/x/lib/a.so", 0o644)], extra=["/opt/x/lib/a.so"])
    own = tmp_path / "own"
    own.touch(0o755)
    found = with_programs(before, ["/usr/bin/env", str(own), "/usr/bin/no-such-program", "/proc/self/exe"])
    assert {"/opt/x/lib/a.so", "/usr/bin/env"} < paths(found)
    assert any(path.endswith("/libc.so.6") for path in paths(found))
    assert not [path for path in paths(found) if path.startswith(str(tmp_path)) or "no-such" in path]
    assert found.extra == paths(found), "no other rank's image has them"
    assert with_programs(before, [str(own), "/usr/bin/no-such-program"]) is before, "nothing is started for it"


@pytest.mark.skipif(not Path("/usr/bin/g++").exists(), reason="this machine has no C++ compiler of its system")
def test_a_compiler_comes_with_its_parts() -> None:
    found = paths(with_programs(of_files([]), ["/usr/bin/g++"]))
    names = {path.rpartition("/")[2] for path in found}
    assert {"g++", "cc1plus", "as", "ld", "crti.o", "libc_nonshared.a", "libgcc.a", "vector", "stdio.h"} <= names
    assert any(name.startswith("libmpfr.so") for name in names), "a library of the compiler proper"
    assert "vector" not in {path.rpartition("/")[2] for path in paths(with_programs(of_files([]), ["/usr/bin/env"]))}


@pytest.mark.parametrize(
    ("name", "mode", "is_one"),
    [
        ("g++", 0o755, True),
        ("x86_64-linux-gnu-gcc-12", 0o755, True),
        ("clang++-17", 0o755, True),
        ("c++filt", 0o755, False),
        ("gcc-ar", 0o755, False),
        ("g++", 0o775, False),
    ],
)
def test_only_a_compiler_that_nobody_else_may_change_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int, is_one: bool
) -> None:
    own, is_administrators = tmp_path.stat().st_uid, compiler._is_administrators
    monkeypatch.setattr(compiler, "_ADMINISTRATORS", (0, own))  # also the user of this test
    outer = set(tmp_path.parents)
    monkeypatch.setattr(compiler, "_is_administrators", lambda path: path in outer or is_administrators(path))
    program = tmp_path / name
    program.touch()
    program.chmod(mode)
    assert compiler.is_one(str(program)) is is_one


def test_a_compiler_that_does_not_answer_has_no_parts(tmp_path: Path) -> None:
    silent = tmp_path / "g++"
    silent.write_text("not a program")
    silent.chmod(0o755)
    added: list[str] = []
    compiler.add_parts(str(silent), added.append, added.append)
    assert all(path.startswith("/usr/bin/") for path in added)
