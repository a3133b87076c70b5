"""A log that this version did not write may hold an exception group's text with secrets of several lines."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from capsules import MANIFEST, RANK
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.cli import main
from prismdbg.jobs.capture.secret_search import report

KEY = f"-----BEGIN PRIVATE KEY-----\n{'aB3x' * 16}\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "what"), [(KEY, "private key"), ("password: |\n  swordfish\nend", "value of 'password'")]
)
def test_its_text_keeps_a_capsule_from_being_shared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, what: str
) -> None:
    log = TinyLog(tmp_path / "log")
    log.issue(0, 1)
    said = textwrap.indent(f"ValueError: refused\n{text}\n", "    | ")
    log.note("incident", incident="exception", text="of a group", traceback=["Traceback\n", said])
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, log.folder)
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    kept = report(capsule).kept
    assert {finding.place for finding in kept} == {"log: note 'incident'"} and what in {one.what for one in kept}
    assert main.run(["pack", "--share", str(capsule.path)]) == 1
    assert "swordfish" not in capsys.readouterr().err
