"""`record --dry-run`: what would be recorded is said, and nothing is started or made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prismdbg.cli.main import run
from prismdbg.errors import FacilityError
from prismdbg.jobs.record import dry_run as module
from prismdbg.jobs.record.dry_run import dry_run
from prismdbg.jobs.record.incidents import parse_triggers
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.record.supervisor import Policy

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "train.py", "--api-key", "hunter2")


def planned(tmp_path: Path, **options: object) -> tuple[dict[str, str], tuple[str, ...]]:
    chosen = dict(options.pop("policy", {}))  # type: ignore[call-overload]
    policy = Policy(**{"triggers": parse_triggers("nan,hang=5s"), "log_bytes": 1 << 20} | chosen)
    request = RecordRequest(output=tmp_path / "run", command=TORCHRUN, policy=policy, **options)  # type: ignore[arg-type]
    found = dry_run(request)
    return dict(found.rows), found.doubts


def test_nothing_is_started_and_nothing_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    line = ["record", "-o", str(tmp_path / "run"), "--dry-run", "--", sys.executable, "-c", f"open({str(made)!r}, 'w')"]
    assert run(line) == 0
    assert "captures on" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_it_says_what_would_be_recorded(tmp_path: Path) -> None:
    rows, doubts = planned(tmp_path, window_steps=8, window_bytes=1 << 30)
    assert "hunter2" not in rows["command"]
    assert rows["ranks"] == "4, of one node"
    assert rows["received data"] == "at least the last 8 steps, at most 1.0 GiB per rank"
    assert rows["captures on"] == "nan, hang=5s; at most 4 capsules"
    assert rows["disk"].startswith("at most 1.0 GiB per rank, 4.0 GiB in all, besides capsules; ")
    assert any("will not be replayable" in doubt for doubt in doubts)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"policy": {"checkpoint_every": 50}}, "at the newest checkpoint"),
        ({"state_every": 50}, "at the newest state snapshot"),
        ({"window_steps": -1}, "at the program's start"),
        ({}, "nowhere"),
    ],
)
def test_where_capsules_start(tmp_path: Path, options: dict[str, object], start: str) -> None:
    rows, doubts = planned(tmp_path, **options)
    assert rows["capsules start"].startswith(start)
    assert any("replayable" in doubt for doubt in doubts) is (start == "nowhere")


def test_what_this_machine_cannot_do_is_a_doubt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacking() -> None:
        raise FacilityError("CRIU is not built")

    monkeypatch.setattr(module.choice, "find", lacking)
    monkeypatch.setattr(module, "_is_native_built", lambda: False)
    rows, doubts = planned(tmp_path, policy={"checkpoint_every": 5}, window_steps=2, window_bytes=1 << 60)
    said = "\n".join(doubts)
    assert "no checkpoint can be taken on this machine: CRIU is not built" in said
    assert "the native recorder is not built" in said and "the disk may become full" in said
    assert rows["recorder"].startswith("Python kernels")


@pytest.mark.parametrize(
    ("output", "command", "words"),
    [
        ("full", "true", "already exists and is not empty"),
        ("a:b", "true", "contains a colon"),
        ("new", "no-such-program", "no-such-program cannot be started: no such program"),
        ("full/file/new", "true", "cannot be created: not a directory: "),
    ],
)
def test_what_record_would_refuse_is_refused(
    tmp_path: Path, output: str, command: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert run(["record", "-o", str(tmp_path / output), "--dry-run", "--", command]) == 2
    said = capsys.readouterr().err
    assert words in said and "  try: " in said
