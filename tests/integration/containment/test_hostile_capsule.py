"""What a capsule can ask of the host that replays it, in every place: files among the kernel's, programs, libraries."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from counting import PYTHON, ask, short_folder
from runtime_places import Case, walled
from waiting import wait_for

from prismdbg.capsule.exact_file import known
from prismdbg.errors import CapsuleError, FacilityError, RuntimeFailure
from prismdbg.runtime import local_runtime
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.runtime.spec import COPIED_BYTES, LaidFile, ProgramOrigin
from prismdbg.runtime.starter_process import start_process

SWAPPINESS = Path("/proc/sys/vm/swappiness")


@walled
@pytest.mark.parametrize("path", [str(SWAPPINESS), "/sys/kernel/mm/ksm/run", "/dev/sda", "/etc/ld.so.preload"])
def test_no_file_of_a_capsule_is_laid_among_the_kernels(case: Case, path: str, tmp_path: Path) -> None:
    before = SWAPPINESS.read_text()
    content = tmp_path / "content"
    content.write_text("61" if before.strip() != "61" else "62")
    spec, _ = case.plan()
    try:
        with pytest.raises((CapsuleError, RuntimeFailure)):
            case.runtime.start(replace(spec, files=(*spec.files, LaidFile(source=content, target=path)))).kill()
        assert SWAPPINESS.read_text() == before
    finally:
        if SWAPPINESS.read_text() != before:
            SWAPPINESS.write_text(before)


@walled
def test_the_interpreter_that_a_capsule_names_does_not_start_the_place(case: Case) -> None:
    with short_folder() as folder:
        marker, program = folder / "marker", folder / "python3"
        program.write_text(f'#!/bin/sh\ntouch {marker}\nexec {PYTHON} "$@"\n')
        program.chmod(0o755)
        spec, socket = case.plan()
        rank = case.runtime.start(replace(spec, python=str(program)))
        try:
            wait_for(lambda: ask(socket, "status")["count"] > 0, 30, "it to count")
        finally:
            rank.kill()
        assert not marker.exists(), "a program that the capsule names ran on the host"


@pytest.mark.parametrize("case", ["local-start", "docker-start"], indirect=True)
def test_the_program_that_a_capsule_names_runs_only_inside(case: Case) -> None:
    with short_folder() as folder:
        marker, program = folder / "marker", folder / "program"
        program.write_text(f"#!/bin/sh\ntouch {marker}\n")
        program.chmod(0o755)
        spec, _ = case.plan()
        assert isinstance(spec.origin, ProgramOrigin)
        origin = replace(spec.origin, executable=str(program), argv=(str(program),))
        with pytest.raises(CapsuleError, match="executable must be"):
            case.runtime.start(replace(spec, origin=origin))
        assert not marker.exists()


@pytest.mark.parametrize("case", ["local-start", "docker-start"], indirect=True)
@pytest.mark.parametrize("path", ["/nowhere/at-all", "/etc/passwd"])
@pytest.mark.parametrize("field", ["executable", "cwd"])
def test_a_path_that_no_program_starts_with_is_the_capsules_fault(case: Case, field: str, path: str) -> None:
    spec, _ = case.plan()
    assert isinstance(spec.origin, ProgramOrigin)
    origin = replace(spec.origin, **cast(Any, {field: path}))
    with pytest.raises(CapsuleError, match=rf"rank\.json: {field} must be .* not '{path}' \("):
        case.runtime.start(replace(spec, origin=origin)).kill()


@pytest.mark.parametrize("case", ["plain-start"], indirect=True)
@pytest.mark.parametrize("listed", [True, False])
def test_a_listed_folder_that_this_machine_lacks_is_not_the_capsules_fault(case: Case, listed: bool) -> None:
    spec, _ = case.plan()
    assert isinstance(spec.origin, ProgramOrigin)
    origin = replace(spec.origin, cwd="/nowhere/at-all")
    with pytest.raises(RuntimeFailure if listed else CapsuleError, match="No such file or directory"):
        case.runtime.start(replace(spec, origin=origin, folders=(origin.cwd,) if listed else ())).kill()


@pytest.mark.parametrize("case", ["local-start", "docker-start"], indirect=True)
def test_a_file_that_is_called_installed_is_not_shown(case: Case) -> None:
    with short_folder() as folder:
        secret = folder / "token"
        secret.write_text("of the user")
        listed = InstalledFile.at(str(secret))
        spec, _ = case.plan()
        assert listed is not None and spec.environment is not None
        with pytest.raises(CapsuleError, match="no installation"):
            case.runtime.start(replace(spec, environment=of_files([*spec.environment.files, listed])))


@walled
def test_a_link_that_is_called_an_installation_shows_nothing(case: Case) -> None:
    with short_folder() as folder:
        home = folder / "home"
        home.mkdir()
        (home / "token").write_text("of the user")
        (folder / "site-packages").symlink_to(home)
        spec, _ = case.plan()
        assert spec.environment is not None
        listed = InstalledFile.at(str(folder / "site-packages" / "token"))
        assert listed is not None
        with pytest.raises(CapsuleError, match="no installation"):
            case.runtime.start(replace(spec, environment=of_files([*spec.environment.files, listed]))).kill()


@pytest.mark.parametrize("case", ["local-start", "docker-start"], indirect=True)
def test_a_link_to_an_installation_is_seen_through(case: Case) -> None:
    """The list has it where it really is, and the link; also where the program goes by the link."""
    with short_folder() as folder:
        packages = folder / "real" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "module.py").write_text("found = True")
        (folder / "clone").symlink_to(folder / "real")
        paths = (packages / "module.py", folder / "clone")
        spec, socket = case.plan()
        assert spec.environment is not None
        listed = [file for path in paths if (file := InstalledFile.at(str(path)))]
        rank = case.runtime.start(replace(spec, environment=of_files([*spec.environment.files, *listed])))
        try:
            text = ask(socket, f"run {_reads(folder / 'clone/site-packages/module.py').hex()}")
        finally:
            rank.kill()
        assert text["found"] == "found = True"


@pytest.mark.parametrize("case", ["local-start", "local-image"], indirect=True)
def test_an_installation_that_was_replaced_after_the_look_is_not_shown(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    with short_folder() as folder:
        home, packages = folder / "home", folder / "site-packages"
        home.mkdir()
        packages.mkdir()
        (home / "module.py").write_text("of the user")
        (packages / "module.py").write_text("found = True")
        listed = InstalledFile.at(str(packages / "module.py"))
        spec, _ = case.plan()
        assert listed is not None and spec.environment is not None

        def replaced_meanwhile(*words: Any, **more: Any) -> Any:
            packages.rename(folder / "old")
            packages.symlink_to(home)
            return start_process(*words, **more)

        monkeypatch.setattr(local_runtime, "start_process", replaced_meanwhile)
        with pytest.raises(RuntimeFailure, match="was replaced"):
            case.runtime.start(replace(spec, environment=of_files([*spec.environment.files, listed]))).kill()


@walled
@pytest.mark.parametrize("size_bytes", [100, COPIED_BYTES + 1], ids=["copied", "bound"])
@pytest.mark.parametrize("by", ["another", "a link"])
def test_a_file_that_was_replaced_after_it_was_hashed_is_not_shown(case: Case, size_bytes: int, by: str) -> None:
    with short_folder() as folder:
        data, secret = folder / "data", folder / "secret"
        for path in (data, secret):
            path.write_bytes(b"x")
            os.truncate(path, size_bytes)
        looked_at = known(str(data))
        data.rename(folder / "old")
        if by == "another":
            secret.rename(data)
        else:
            data.symlink_to(secret)
        spec, _ = case.plan()
        file = LaidFile(source=data, target=str(data), known=looked_at)
        assert file.is_bound == (size_bytes > COPIED_BYTES)
        with pytest.raises((RuntimeFailure, FacilityError), match="was replaced"):
            case.runtime.start(replace(spec, files=(*spec.files, file))).kill()


@walled
def test_a_capsule_whose_name_leads_elsewhere_by_then_shows_nothing(case: Case) -> None:
    """Who may write to the folder around it may have replaced it since it was verified."""
    with short_folder() as folder:
        private, capsule = folder / "private", folder / "capsule"
        for path in (private, capsule):
            path.mkdir()
        (private / "key").write_text("secret")
        spec, _ = case.plan()
        seen = replace(spec, capsule=capsule, capsule_folder=known(str(capsule)))
        if isinstance(spec.origin, ProgramOrigin):  # a checkpoint is restored from the capsule
            rank = case.runtime.start(seen)
            rank.kill()
            seen = replace(case.plan()[0], capsule=capsule, capsule_folder=known(str(capsule)))
        capsule.rename(folder / "moved")
        capsule.symlink_to(private)
        with pytest.raises(RuntimeFailure, match="was replaced"):
            case.runtime.start(seen).kill()


@walled
def test_no_link_in_a_capsule_is_followed_to_a_file_of_the_rank(case: Case) -> None:
    """Its owner may have put it there since it was verified."""
    with short_folder() as folder:
        (folder / "private").mkdir()
        (folder / "private" / "content").write_text("secret")
        (folder / "files").symlink_to("private")
        spec, _ = case.plan()
        laid = LaidFile(source=folder / "files" / "content", target="/data/of/rank")
        with pytest.raises((RuntimeFailure, FacilityError)):
            case.runtime.start(replace(spec, files=(*spec.files, laid))).kill()


@walled
@pytest.mark.parametrize("size_bytes", [100, COPIED_BYTES + 1], ids=["copied", "bound"])
def test_a_file_that_was_not_replaced_is_there(case: Case, size_bytes: int) -> None:
    """Also where its name leads through a link."""
    with short_folder() as folder:
        (folder / "real").mkdir()
        data = folder / "real" / "data"
        data.write_bytes(b"as it was")
        os.truncate(data, size_bytes)
        (folder / "link").symlink_to("real")
        named = folder / "link" / "data"
        spec, socket = case.plan()
        file = LaidFile(source=named, target=str(named), known=known(str(named)))
        rank = case.runtime.start(replace(spec, files=(*spec.files, file)))
        try:
            found = ask(socket, f"run {_reads(named, 9).hex()}")["found"]
        finally:
            rank.kill()
        assert found == "as it was"


def _reads(path: Path, size: int = -1) -> bytes:
    return f"found = open({str(path)!r}).read({size})".encode()
