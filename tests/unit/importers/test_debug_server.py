"""Texts of torch's debug server: stacks are read; tables are recognized, and the error says which files to take."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest
from capsules import make_capsule
from click.testing import CliRunner
from tiny_log import write_training

from prismdbg.cli.main import cli
from prismdbg.diagnosis.why import diagnose
from prismdbg.errors import UsageError
from prismdbg.importers import debug_server
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


# As torch 2.13 wrote it in a job of two ranks with gloo; rank 2 is added, as one that does not answer.
STACKS = """PARTIAL DATA: 2/3 workers responded
  Rank 2: ConnectionError: refused

=== Rank 0: http://vm:55107/handler/dump_traceback? ===
Current thread 0x00007f5b427fc6c0 (most recent call first):
  <no Python frame>

Thread 0x00007f5b683f7b80 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/job/train.py", line 9 in step
  File "/job/train.py", line 16 in <module>

=== Rank 1: http://vm:55075/handler/dump_traceback? ===
Current thread 0x00007f2c7d6256c0 (most recent call first):
  File "/job/serve.py", line 3 in serve

Thread 0x00007f2c9ee22b80 (most recent call first):
  File "/job/train.py", line 6 in load
  File "/job/train.py", line 16 in <module>

=== Rank 2: http://vm:55076/handler/dump_traceback? ===
Error: 503"""
POSITIONS = [
    "rank 0 was at /job/train.py:9 in step, in /usr/lib/python3.11/threading.py:331 in wait, called from "
    "/job/train.py:16 in <module>",
    "rank 1 was at /job/train.py:6 in load, called from /job/train.py:16 in <module>",
    "the position of rank 2 is unknown: its debug server answered 503",
]
STACKS_NAME = "stacks_20260131_235959.txt"


def stacks(folder: Path, text: str = STACKS, name: str = STACKS_NAME) -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.parametrize("heading", HEADINGS)
def test_these_are_the_headings_that_torch_writes(heading: str) -> None:
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    handlers = Path(torch.origin).parent / "distributed" / "debug" / "_debug_handlers.py"
    if not handlers.is_file():
        pytest.skip("this torch has no debug server that writes texts")
    source = handlers.read_text()
    assert (
        f'"{heading}"' in source
        and 'f"=== Rank {i}: {addr} ==="' in source
        and 'f"Error: {resp.status_code}"' in source
    )


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


def test_the_names_are_those_of_torchs_handlers() -> None:
    torch = importlib.util.find_spec("torch")
    assert torch is not None and torch.origin is not None
    handlers = Path(torch.origin).parent / "distributed" / "debug" / "_debug_handlers.py"
    if not handlers.is_file():
        pytest.skip("this torch has no debug server that writes texts")
    named = set(re.findall(r'def dump_filename\(self\) -> str:\n +return "(\w+)"', handlers.read_text()))
    assert named <= debug_server._UNREAD | {"stacks"}


class TestStacks:
    def test_why_says_where_the_ranks_were(self, tmp_path: Path) -> None:
        file = stacks(tmp_path)
        for path in (file, tmp_path):
            ran = CliRunner().invoke(cli, ["why", str(path)])
            assert ran.exit_code == 0, ran.output
            first, *lines = ran.output.splitlines()
            assert first == "no call of any rank is known, only where the ranks were"
            assert lines[:3] == [f"{STACKS_NAME}: {line}" for line in POSITIONS]
            assert any("give the ranks' own dumps" in line for line in lines)

    def test_as_json(self, tmp_path: Path) -> None:
        stacks(tmp_path)
        said = json.loads(CliRunner().invoke(cli, ["why", "--json", str(tmp_path)]).output)["stacks"]
        assert said["file"] == STACKS_NAME
        assert said["ranks"]["1"][0] == {"filename": "/job/train.py", "line": 6, "name": "load"}
        assert said["ranks"]["2"] == []

    @pytest.mark.parametrize("command", [["open"], ["graph", "build", "--mesh", "dp=2"]])
    def test_commands_that_need_calls_say_so(self, tmp_path: Path, command: list[str]) -> None:
        ran = CliRunner().invoke(cli, [*command, str(stacks(tmp_path).parent)])
        assert isinstance(ran.exception, UsageError) and "has stacks, but no calls" in str(ran.exception)

    def test_beside_dumps_they_are_said_with_what_is_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "fr_trace_0.json").write_text(json.dumps(DUMP))
        for kind in ("tcpstore", "wait_counters"):
            stacks(tmp_path, "text", f"{kind}_20260131_235959.txt")
        stacks(tmp_path)
        found = diagnose(gather(tmp_path))
        assert [line.partition(": ")[2] for line in found.positions] == POSITIONS
        assert "not read of torch's debug server: its texts tcpstore, wait_counters" in found.missing
        assert is_imported(tmp_path)

    def test_the_newest_with_a_stack_counts(self, tmp_path: Path) -> None:
        """The last may be of a job that had ended."""
        stacks(tmp_path, STACKS.replace("train.py", "old.py"), "stacks_20260131_235900.txt")
        stacks(tmp_path)
        stacks(tmp_path, "=== Rank 0: http://vm:1/ ===\nError: 503", "stacks_20260201_000059.txt")
        job = read_job(tmp_path)
        assert job is not None and job.stacks_file == STACKS_NAME

    def test_beside_our_own_logs_they_are_passed_over(self, tmp_path: Path) -> None:
        write_training(tmp_path / "ranks" / "0")
        stacks(tmp_path)
        assert read_job(tmp_path) is None and not gather(tmp_path).stacks

    def test_bounds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        frame = '  File "/job/train.py", line 6 in load'
        thread = "Thread 0x1 (most recent call first):"
        name = f'  File "/job/{"a" * 9999}", line 6 in {"f" * 9999}'
        many = [thread] * 100 + ["Thread 0x2 (most recent call first):", name, *[frame] * 999]
        stacks(tmp_path, "\n".join(["=== Rank 0: a ===", *many, "=== Rank 99999999: a ===", thread]))
        found = debug_server.read_texts(tmp_path.iterdir()).stacks
        assert list(found) == [0] and len(found[0].threads) == 64
        assert (len(found[0].frames), len(found[0].frames[0].name), len(found[0].frames[0].filename)) == (
            128,
            1024,
            1024,
        )
        monkeypatch.setattr(debug_server, "MAX_STACKS_BYTES", 1 << 10)
        assert any("cannot be read" in line for line in debug_server.read_texts(tmp_path.iterdir()).gaps)

    @pytest.mark.parametrize("text", ["", "no stacks", "=== Rank 0: a ===", '  File "a", line 99999999999 in b'])
    def test_what_is_none(self, tmp_path: Path, text: str) -> None:
        stacks(tmp_path, text)
        (tmp_path / "stacks_20260201_000000.txt").write_bytes(b"\xff=== Rank 0")
        assert read_job(tmp_path) is None and not is_imported(tmp_path)
