"""`why` where there is little to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_run_whose_logs_could_not_be_begun(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    """The disk was full: there are folders of ranks, and no log in them."""
    (tmp_path / "run.json").write_text(json.dumps({"command": ["train.py"], "started_wall_ns": 1}))
    for rank in range(2):
        (tmp_path / "ranks" / str(rank)).mkdir(parents=True)
    assert main.run(["why", str(tmp_path), *options]) == ExitCode.BAD_CAPSULE
    said = capsys.readouterr()
    assert not said.out
    assert "error: no rank left a readable log: no diagnosis is possible; the log of rank 0 cannot be read" in said.err
    assert "\n  try: read the output of the job" in said.err
