"""A job that cannot be started leaves nothing behind, and takes nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode


@pytest.mark.parametrize("was_there", [True, False])
def test_a_job_that_cannot_be_started(was_there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    if was_there:
        folder.mkdir()
    assert main.run(["record", "-o", str(folder), "--", str(tmp_path / "no-such-program")]) == ExitCode.USAGE
    assert " cannot be started" in capsys.readouterr().err
    assert folder.exists() == was_there
    assert not was_there or not list(folder.iterdir())


def test_a_mistyped_option_is_not_taken_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["record", "-o", str(tmp_path / "run"), "--wndow", "3", "--", "true"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: unknown option '--wndow'\n  try: see `prismdbg record --help`\n"
