"""Texts of torch's debug server are recognized, and the error says which files to take instead."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from capsules import make_capsule
from click.testing import CliRunner
from tiny_log import write_training

from prismdbg.cli.main import cli
from prismdbg.errors import UsageError
from prismdbg.importers.formats import is_imported, read_job
from prismdbg.jobs.evidence import gather

NAME = "fr_trace_20260131_235959.txt"
DUMP = {"version": "2.10", "entries": [], "pg_config": {}}
HEADINGS = ("=== FR Trace ===", "=== TorchComms FR Trace ===")


def table(folder: Path, heading: str = HEADINGS[0], name: str = NAME) -> Path:
    """As after a rank that did not answer."""
    file = folder / name
    file.write_text(f"PARTIAL DATA: 1/2 workers responded\n  Rank 1: timeout\n\n{heading}\n--- Groups ---\n")
    return file


@pytest.mark.parametrize("heading", HEADINGS)
def test_these_are_the_headings_that_torch_writes(heading: str) -> None:
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    handlers = Path(torch.origin).parent / "distributed" / "debug" / "_debug_handlers.py"
    if not handlers.is_file():
        pytest.skip("this torch has no debug server that writes texts")
    assert f'"{heading}"' in handlers.read_text()


@pytest.mark.parametrize("name", [NAME, f"torchcomms_{NAME}"])
@pytest.mark.parametrize("heading", HEADINGS)
@pytest.mark.parametrize("command", [["why"], ["open"], ["graph", "build", "--mesh", "dp=2"]])
def test_what_to_take_instead_is_said(tmp_path: Path, command: list[str], heading: str, name: str) -> None:
    file = table(tmp_path, heading, name)
    for path in (file, tmp_path):
        ran = CliRunner().invoke(cli, [*command, str(path)])
        assert isinstance(ran.exception, UsageError)
        assert str(ran.exception).startswith(f"{name} is a text table of torch's debug server")
        assert "handler/fr_trace_json" in ran.exception.hint


def test_beside_dumps_it_is_passed_over(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "fr_trace_0.json").write_text(json.dumps(DUMP))
    assert is_imported(tmp_path)
    job = read_job(tmp_path)
    assert job is not None and list(job.logs) == [0]


def test_beside_our_own_logs_it_is_passed_over(tmp_path: Path) -> None:
    """Also of a folder of logs without `run.json`."""
    write_training(tmp_path / "ranks" / "0")
    table(tmp_path)
    assert read_job(tmp_path) is None and not is_imported(tmp_path)
    assert list(gather(tmp_path).logs) == [0]
    capsule = make_capsule(tmp_path / "capsule")
    table(capsule.path)
    assert list(gather(capsule.path).logs) == [capsule.manifest.rank]


def test_other_texts_are_none(tmp_path: Path) -> None:
    table(tmp_path, name="notes.txt")
    (tmp_path / NAME).write_text("nothing of the kind")
    assert read_job(tmp_path) is None and not is_imported(tmp_path)
