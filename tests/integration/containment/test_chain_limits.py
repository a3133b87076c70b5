"""What a replay may take, as a user says it: each option ends a program that takes more, and its name is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from chain import INCIDENTS, Taken, prismdbg

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.runtime.limits import OPTIONS

pytestmark = [pytest.mark.job, pytest.mark.criu]

FILLS = (
    "\nwith open({path!r}, 'wb') as file:\n    while True:\n        file.write(bytes(1 << 20))\n        file.flush()\n"
)
TAKES = {  # what it does, what it may, how that is said
    "memory": (
        "held = bytearray()\nwhile True:\n    held += bytes(1 << 24)\n",
        "1GiB",
        "memory: 1024MiB; the recorded",
    ),
    "pids": ("import os, time\nwhile True:\n    if not os.fork():\n        time.sleep(60)\n", "48", "processes: 48"),
    "shm": (FILLS.format(path="/dev/shm/full"), "16MiB", "shared memory (/dev/shm): 16MiB"),
    "disk": (FILLS.format(path="/tmp/large"), "64MiB", "disk: 64MiB"),
}


@pytest.mark.parametrize("name", TAKES)
def test_a_program_that_takes_more_is_ended(nan_early: Taken, tmp_path: Path, name: str) -> None:
    source = tmp_path / "nan"
    shutil.copytree(INCIDENTS / "nan", source)
    code, most, words = TAKES[name]
    (source / "train.py").write_text(f"import torch\n{code}")
    said = prismdbg(
        "replay", nan_early.capsule, "--runtime", "local", "--source", source, OPTIONS[name], most, "--timeout", 60
    )
    assert said.code == 4, said.out + said.err
    assert f"the replay reached its limit of {words}" in said.err and OPTIONS[name] in said.err


def test_a_capsule_knows_what_its_rank_held(nan_early: Taken) -> None:
    """By which the replay's usual limit is found."""
    held = Capsule.open(nan_early.capsule).rank()["peak_bytes"]
    assert 50 << 20 < held < 4 << 30
