"""A program that was named through links and asks where it really lies: in a replay it finds the same beside it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from chain import prismdbg, recording
from jobs import forked

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "resolves_itself.py"


@pytest.mark.parametrize("runtime", ["docker", "local"])
@pytest.mark.parametrize("what", ["folder", "file"])
def test_what_lies_beside_it_is_there(tmp_path: Path, what: str, runtime: str) -> None:
    real, named = tmp_path / "real", tmp_path / "named"
    (real / "lib").mkdir(parents=True)
    shutil.copy(PROGRAM, real / "train.py")
    (real / "lib" / "beside_it.py").write_text("import torch\ndef values(n): return torch.full((4,), float(n))\n")
    if what == "folder":
        named.symlink_to("real")
    else:
        named.mkdir()
        (named / "train.py").symlink_to("../real/train.py")
    with recording(forked(named / "train.py", ranks=2), tmp_path, "--window", "all") as job:
        ended = job.end()
    assert [capsule.name for capsule in job.capsules] == ["nan-rank1-0.5"], ended.output[-3000:]
    replayed = prismdbg("replay", job.capsules[0], "--runtime", runtime)
    assert replayed.code == 0, replayed.out + replayed.err
    assert "identical up to 0.5: 5 collectives compared" in replayed.out
