"""What the ranks of a recorded job are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.rank.config import RankConfig
from prismdbg.workflows import record
from prismdbg.workflows.incidents import parse_triggers
from prismdbg.workflows.record import RecordRequest
from prismdbg.workflows.supervisor import Policy


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(record, "make_socket_dir", lambda: tmp_path / "sockets")
    yield


@pytest.mark.parametrize(
    ("triggers", "looked_for"), [("none", False), ("exception", False), ("nan", True), ("exception,nan", True)]
)
def test_nan_is_looked_for_only_where_it_is_a_trigger(triggers: str, looked_for: bool, tmp_path: Path) -> None:
    policy = Policy(triggers=parse_triggers(triggers))
    run = record.prepare(RecordRequest(output=tmp_path / "run", command=("true",), policy=policy))
    assert RankConfig.load(run.config).nan_check is looked_for


def test_a_secret_of_the_command_line_is_not_kept(tmp_path: Path) -> None:
    command = ("python", "train.py", "--api-key", "hunter2")
    run = record.prepare(RecordRequest(output=tmp_path / "run", command=command, policy=Policy()))
    assert "hunter2" not in run.run_json.read_text()
