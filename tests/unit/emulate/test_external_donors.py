"""Values of an earlier run, which may be a foreign one: only what its plain files contain is given to ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.emulate.external_donors import write_external
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.simulate.graph.mesh import Mesh

MESH = Mesh.parse("dp=2")


@pytest.fixture
def emulated(tmp_path: Path) -> Path:
    """A run without ranks, and with eight bytes that one of them sent."""
    run = tmp_path / "run"
    (run / "ranks").mkdir(parents=True)
    (run / "donors").mkdir()
    (run / "run.json").write_text(json.dumps({"emulated": {"world": 2, "mesh": {"dp": 2}}}))
    (run / "donors" / "0.bin").write_bytes(bytes(8))
    return run


def listed(run: Path, **value: Any) -> int:
    line = {"key": "k", "rank": 0, "file": "0.bin", "offset": 0, "size_bytes": 8, **value}
    (run / "donors" / "0.jsonl").write_text(json.dumps(line) + "\n")
    return write_external(RunFolder(run), MESH, run.parent / "external")


def test_what_is_there_is_found(emulated: Path) -> None:
    assert listed(emulated, offset=4, size_bytes=4) == 1
    (line,) = (emulated.parent / "external" / "0.jsonl").read_text().splitlines()
    assert json.loads(line)["file"] == str(emulated.resolve() / "donors" / "0.bin")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"size_bytes": 2**62}, r"0\.jsonl, line 1: a value ends at byte .* of 0\.bin, which is shorter"),
        ({"offset": 1}, "ends at byte 9 of 0.bin"),
        ({"file": "1.bin"}, r"1\.bin cannot be read: No such file"),
        ({"file": "link"}, "link cannot be read"),
        ({"file": "pipe"}, "pipe cannot be read: it is not a regular file"),
        ({"file": ""}, "cannot be read"),
    ],
    ids=["too long", "behind the end", "missing", "link", "pipe", "folder"],
)
def test_what_is_not_there_is_refused(emulated: Path, value: dict[str, Any], problem: str) -> None:
    (emulated / "donors" / "link").symlink_to("/etc/passwd")
    os.mkfifo(emulated / "donors" / "pipe")
    with pytest.raises(CapsuleError, match=problem):
        listed(emulated, **value)


def test_a_value_of_which_only_statistics_were_kept_needs_no_file(emulated: Path) -> None:
    assert listed(emulated, file="1.bin", size_bytes=0, mean=1.0) == 1


def test_of_a_recorded_run_what_it_still_has_is_found(emulated: Path) -> None:
    log = TinyLog(emulated / "ranks" / "0")
    log.group("0", [0, 1], "dp")
    log.complete(log.issue(0, 1), payload=bytes(16))
    log.complete(log.issue(0, 2), payload=bytes(16))
    segment = log.folder / fmt.payload_segment(0)
    assert write_external(RunFolder(emulated), MESH, emulated.parent / "whole") == 2
    os.truncate(segment, 20)
    assert write_external(RunFolder(emulated), MESH, emulated.parent / "cut") == 1
    segment.unlink()
    assert write_external(RunFolder(emulated), MESH, emulated.parent / "pruned") == 0
    segment.symlink_to("/dev/zero")
    with pytest.raises(CapsuleError, match="cannot be read"):
        write_external(RunFolder(emulated), MESH, emulated.parent / "linked")
