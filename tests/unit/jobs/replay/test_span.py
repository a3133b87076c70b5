"""The moments that one may ask a capsule for."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.span import require_inside
from prismdbg.model.moment import Moment
from tests.unit.jobs.capture.test_packed_memory import capsule_of


@pytest.mark.parametrize("text", ["0", "0.1", "0.1.7", "1", "1.3", "1.3.99"])
def test_inside(text: str, tmp_path: Path) -> None:
    require_inside(capsule_of(tmp_path).manifest, "kept", "--at", Moment.parse(text))


@pytest.mark.parametrize("text", ["1.4", "2", "99.1"])
def test_behind(text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"capsule kept ends at 1\.3, but --at is ") as refused:
        require_inside(capsule_of(tmp_path).manifest, "kept", "--at", Moment.parse(text))
    assert refused.value.hint == "--at 1.3, or leave it out"


@pytest.mark.parametrize("at", ["99.1", "1.2.3.4", "abc", "-1"])
@pytest.mark.parametrize("where", [[], ["--web"]])
def test_debugging_at_such_a_moment_is_wrong_usage(
    at: str, where: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["debug", str(capsule_of(tmp_path).path), "--at", at, *where]) == ExitCode.USAGE
    assert at in capsys.readouterr().err
