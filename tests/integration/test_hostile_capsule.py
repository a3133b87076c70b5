"""What a capsule can ask of the host that replays it, in every place: files among the kernel's, programs, libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from counting import PYTHON, ask, short_folder
from runtime_places import Case, walled
from waiting import wait_for

from prismdbg.errors import CapsuleError, RuntimeFailure
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.runtime.spec import LaidFile, ProgramOrigin

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
        with pytest.raises(RuntimeFailure, match="cannot start"):
            case.runtime.start(replace(spec, origin=origin))
        assert not marker.exists()


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
