"""`git bisect run` with a capsule of a hang that waits for an answer: no replay shows it, so the script decides."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chain import CLI, prismdbg, recording
from jobs import ROOT, forked, plain_environment

from prismdbg.capsule.capsule_dir import Capsule

pytestmark = [pytest.mark.job]

UNCOMPILED = (Path(__file__).parents[1] / "programs" / "uncompiled.py").read_text()
TRAIN = """
import torch
import torch.distributed as dist
import uncompiled
from report import report

dist.init_process_group("gloo")
rank = dist.get_rank()
reporters = dist.new_group([0, 1])
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(5):
    loss = model(torch.full((2, 4), 1.0 + step + rank)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    report(step, rank, reporters)
    optimizer.step()
dist.destroy_process_group()
"""
GOOD = "def report(step, rank, reporters):\n    pass\n"
DEFECT = """import torch.distributed as dist

def report(step, rank, reporters):
    if step == 3 and rank == 0:
        dist.barrier(group=reporters)
"""
HISTORY = (
    ("a job that learns", {"train.py": TRAIN, "report.py": GOOD, "uncompiled.py": UNCOMPILED}),
    ("half a change", {"report.py": GOOD + "def\n"}),
    ("notes", {"report.py": GOOD, "README.md": "train.py learns\n"}),
    ("rank 0 reports", {"report.py": DEFECT}),
    ("tidier", {"report.py": "# what rank 0 reports\n" + DEFECT}),
)
CULPRIT = "rank 0 reports"
CHECKS = """
forbid:
  - {name: no rank waits for others in its report, on: collective, when: op == "barrier"}
"""


def git(repository: Path, *arguments: object) -> str:
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
    environment = plain_environment(
        GIT_CONFIG_GLOBAL="/dev/null", GIT_CONFIG_SYSTEM="/dev/null", PYTHONPATH=str(ROOT), **who
    )
    line = ["git", *map(str, arguments)]
    done = subprocess.run(line, cwd=repository, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """`HISTORY` as commits, and the capsule of rank 0, which waits in its barrier at the head."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    home = tmp_path_factory.mktemp("hung")
    repository = home / "repository"
    repository.mkdir()
    git(repository, "init", "-q", "-b", "main")
    for subject, files in HISTORY:
        for name, text in files.items():
            (repository / name).write_text(text)
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", subject)
    options = ("--window", "all", "--trigger", "hang=3s")
    with recording(forked(repository / "train.py", ranks=2), home, *options) as job:
        job.wait_for(lambda: len(job.capsules) == 2, 180, "both sides of the hang to be captured")
        job.stop()
        made = {Capsule.open(path).manifest.rank: path for path in job.capsules}
        shutil.copytree(made[0], home / "capsule")
    yield repository, home / "capsule"


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    file = tmp_path / "checks.yaml"
    file.write_text(CHECKS)
    return file


def test_a_commit_without_the_call_is_good_only_by_the_script(
    hung: tuple[Path, Path], checks: Path, tmp_path: Path
) -> None:
    repository, capsule = hung
    source = tmp_path / "good"
    source.mkdir()
    shutil.copy(repository / "train.py", source)
    (source / "report.py").write_text(GOOD)
    line = ("replay", capsule, "--runtime", "local", "--source", source)
    without = prismdbg(*line, "--bisect")
    assert without.code == 128 and "add --script" in without.err
    said = prismdbg(*line, "--script", checks, "--json")
    assert (said.code, said.json["fix"]["judgement"]) == (7, "unanswered"), said.out + said.err
    assert prismdbg(*line, "--script", checks, "--bisect").code == 0
    assert prismdbg(*line[:-1], repository, "--script", checks, "--bisect").code == 1


def test_git_bisect_finds_the_commit_that_hangs(hung: tuple[Path, Path], checks: Path) -> None:
    repository, capsule = hung
    first = git(repository, "rev-list", "--max-parents=0", "HEAD").strip()
    culprit = git(repository, "log", "--format=%H", f"--grep=^{CULPRIT}$").strip()
    git(repository, "bisect", "start", "HEAD", first)
    line = [*CLI, "replay", capsule, "--runtime", "local", "--source", ".", "--script", checks, "--bisect"]
    try:
        said = git(repository, "bisect", "run", *line)
    finally:
        git(repository, "bisect", "reset")
    assert f"{culprit} is the first bad commit" in said, said


UNEQUAL = """
import time
import torch
import torch.distributed as dist
from parts import PARTS

dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(5):
    left = PARTS[rank] - step
    while left == 0:
        time.sleep(0.1)
    dist.all_reduce(torch.ones(2))
dist.destroy_process_group()
"""


def test_a_rank_that_never_joined_is_judged_by_what_leads_it_there(tmp_path: Path) -> None:
    """Its silence alone is no verdict; a check before it is one, and so is a rank that goes on."""
    job_folder, good = tmp_path / "job", tmp_path / "good"
    for folder, parts in ((job_folder, "PARTS = 9, 3\n"), (good, "PARTS = 9, 9\n")):
        folder.mkdir()
        (folder / "train.py").write_text(UNEQUAL)
        (folder / "parts.py").write_text(parts)
    options = ("--window", "all", "--trigger", "hang=3s")
    with recording(forked(job_folder / "train.py", ranks=2), tmp_path, *options) as job:
        job.wait_for(lambda: len(job.capsules) == 2, 180, "both sides of the hang to be captured")
        job.stop()
        (capsule,) = [path for path in job.capsules if Capsule.open(path).manifest.rank == 1]
    script = tmp_path / "checks.yaml"
    codes = {}
    for least in (0, 1):
        script.write_text(f"expect: [{{that: local.left > {least}, at: 0.3}}]\n")
        for source in (job_folder, good):
            checks = ("--source", source, "--script", script, "--bisect", "--timeout", 20)
            codes[source.name, least] = prismdbg("replay", capsule, "--runtime", "local", *checks).code
    assert codes == {("job", 0): 125, ("good", 0): 0, ("job", 1): 1, ("good", 1): 0}
