"""`capture --origin` takes the words that users read, and for a checkpoint also the one in a manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.capsule.manifest import Origin
from prismdbg.cli import main
from prismdbg.cli.commands import capture
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CheckpointError
from prismdbg.jobs.capture.capture import CaptureRequest
from prismdbg.jobs.storage.run_folder import RunFolder, write_json


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Origin]:
    """The origins of the captures that were asked for in the run `tmp_path / "run"`."""
    run, found = RunFolder(tmp_path / "run"), list[Origin]()
    run.path.mkdir()
    write_json(run.run_json, {})
    write_json(run.config, {"state_every": 0})

    def take(request: CaptureRequest, _say: object) -> None:
        found.append(request.origin)
        raise CheckpointError("that is enough", hint="")

    monkeypatch.setattr(capture, "capture", take)
    return found


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        (["--origin", "checkpoint"], Origin.IMAGE),
        (["--origin", "image"], Origin.IMAGE),
        (["--origin", "state"], Origin.STATE),
        (["--origin", "start"], Origin.START),
        ([], Origin.IMAGE),
    ],
)
def test_an_origin_is_given_by_its_word(given: list[str], origin: Origin, asked: list[Origin], tmp_path: Path) -> None:
    main.run(["capture", str(tmp_path / "run"), "--rank", "0", "-o", str(tmp_path / "c"), *given])
    assert asked == [origin]


def test_another_word_is_refused(asked: list[Origin], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["capture", str(tmp_path / "run"), "--rank", "0", "-o", str(tmp_path / "c"), "--origin", "cloud"]
    assert main.run(line) == ExitCode.USAGE
    assert "'cloud' is not one of 'checkpoint', 'state', 'start'" in capsys.readouterr().err and not asked


def test_a_manifest_keeps_its_name_for_a_checkpoint() -> None:
    """Capsules that exist have it."""
    assert [(str(origin), origin.word) for origin in Origin] == [
        ("image", "checkpoint"),
        ("start", "start"),
        ("state", "state"),
    ]
