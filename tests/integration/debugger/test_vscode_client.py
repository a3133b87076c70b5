"""The debug adapter driven by a client that shares nothing with it: Microsoft's DebugClient, from npm."""

from __future__ import annotations

import base64
import json
import math
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from chain import INCIDENTS, Taken
from spawning import Spawn

from prismdbg.jobs.injection import cache_dir

LACKING = [name for name in ("node", "npm") if shutil.which(name) is None]
pytestmark = [
    pytest.mark.job,
    pytest.mark.criu,
    pytest.mark.skipif(bool(LACKING), reason=f"not installed: {', '.join(LACKING)} (apt-get install nodejs npm)"),
]

CLIENT = Path(__file__).parents[2] / "vscode_client"
TRAIN = INCIDENTS / "nan" / "train.py"
LINE = 61  # sums the loss of all ranks
BOUND_S = 240.0
INSTALL = (
    *("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"),
    "--fetch-retry-mintimeout=1000",  # without a network, a minute less
)

Json = dict[str, Any]


@pytest.fixture
def client_folder(tmp_path: Path) -> Path:
    """The client, its session and what it needs, as the lock file has it."""
    folder = Path(shutil.copytree(CLIENT, tmp_path / "client"))
    line = [*INSTALL, "--cache", str(cache_dir() / "npm")]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=BOUND_S, check=False)
    assert done.returncode == 0 or "CI" not in os.environ, done.stderr
    if done.returncode != 0:
        pytest.skip(f"npm cannot install the client: {done.stderr.partition(chr(10))[0]}")
    return folder


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`prismdbg` of this tree, as a program: the client starts it with one argument."""
    path = tmp_path / "prismdbg"
    path.write_text(f"#!{sys.executable}\nfrom prismdbg.cli.main import main\n\nmain()\n")
    path.chmod(0o755)
    return path


def number(place: Json) -> float:
    return float(struct.unpack("<f", base64.b64decode(place["sent"]))[0])


def test_a_session_forwards_to_a_watchpoint_and_back(
    nan_early: Taken, client_folder: Path, command: Path, spawn: Spawn
) -> None:
    line = ["node", "session.js", str(command), str(nan_early.capsule), str(TRAIN), str(LINE)]
    session = spawn(*line, cwd=client_folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = session.communicate(timeout=BOUND_S)
    assert session.returncode == 0, f"{out[-3000:]}\n{err}"

    saw: Json = json.loads(out.splitlines()[-1])
    stop, logpoint = saw["breakpoints"]
    assert stop["verified"] and logpoint["verified"] and saw["entry"]["reason"] == "entry"
    at_line = saw["breakpoint"]
    assert (at_line["reason"], at_line["hitBreakpointIds"]) == ("breakpoint", [stop["id"]])
    assert (at_line["path"], at_line["line"], at_line["isNan"]) == (str(TRAIN), LINE, "False")
    assert at_line["moment"].strip("'").startswith("2.") and math.isfinite(number(at_line))
    assert any(text.startswith("at 1.") and "all_reduce" in text for text in saw["printed"]), saw["printed"]

    (watchpoint,) = saw["watchpoints"]
    changed = saw["watchpoint"]
    assert (changed["reason"], changed["hitBreakpointIds"]) == ("data breakpoint", [watchpoint["id"]])
    assert changed["isNan"] == "True" and math.isnan(number(changed))

    before, back = saw["stepBack"], saw["reverseContinue"]
    assert before["isNan"] == "False" and before["moment"] != changed["moment"]
    assert (back["reason"], back["hitBreakpointIds"]) == ("breakpoint", [stop["id"]])
    seen = ("path", "line", "moment", "isNan", "sent")
    assert [back[name] for name in seen] == [at_line[name] for name in seen]
