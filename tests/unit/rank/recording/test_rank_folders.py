"""Each start of a rank has a log folder of its own, named by rank and attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from prismdbg.rank.recording.python_recorder import PythonRecorder
from prismdbg.rank.recording.recorded_rank import Recording, _claim_folder
from prismdbg.settings.rank_config import Mode, RankConfig


def test_a_folder_for_each_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert [_claim_folder(tmp_path, 3).name for _ in range(3)] == ["3", "3.1", "3.2"]


@pytest.mark.parametrize(("count", "name"), [("0", "1"), ("2", "1.2"), ("many", "1")])
def test_the_launcher_says_which_attempt_it_is(
    count: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that attempts of different ranks have the same number, also where one did not get far enough to be logged."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", count)
    assert _claim_folder(tmp_path, 1).name == name


def test_a_job_that_was_started_again_counts_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that the earlier start did not get as far as to log, too."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert _claim_folder(tmp_path, 1, first_attempt=2).name == "1.3"


def test_a_folder_of_the_node_that_is_gone_is_not_made_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nobody would bring what is written there into RUN."""
    local = tmp_path / "prismdbg-abc"
    config = RankConfig(mode=Mode.RECORD, socket_dir=str(tmp_path), run=str(tmp_path / "run"), local=str(local))
    mine = Recording(config, PythonRecorder(), "python", lambda *_: None)
    assert not mine.ensure_open() and not local.exists()
    assert not list((tmp_path / "run" / "ranks").iterdir()), "the newest attempt is another one, and has a log"
    assert f"is not recorded: the log could not be opened: [Errno 2] No such file or directory: '{local}" in (
        capfd.readouterr().err
    )
