"""An edited program over a captured one: where it leaves the record, what that proves, and `git bisect run` with it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from chain import CLI, Said, Taken, prismdbg, recording
from jobs import ROOT, forked, plain_environment

pytestmark = [pytest.mark.job]

UNCOMPILED = (Path(__file__).parents[1] / "programs" / "uncompiled.py").read_text()
TRAIN = """
import torch
import torch.distributed as dist
import uncompiled
from loss import weigh

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    words = torch.tensor([max(4.0 - step, 0.0) if rank else 1.0, 2.0])
    loss = weigh(model(torch.full((2, 4), 1.0 + step + rank)).pow(2).mean(1), words)
    total = loss.detach().clone()
    dist.all_reduce(total)
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
"""
GOOD = "def weigh(losses, words):\n    return (losses * words / words.clamp(min=1)).mean()\n"
DEFECT = GOOD.replace(".clamp(min=1)", "")
BORN = "4.1"  # the first collective of the step in which a batch has no words
HISTORY = (
    ("a job that learns", {"train.py": TRAIN, "loss.py": GOOD, "uncompiled.py": UNCOMPILED}),
    ("half a change", {"loss.py": GOOD + "def\n"}),
    ("the other half", {"loss.py": "# weights of a batch\n" + GOOD}),
    ("simpler weights", {"loss.py": DEFECT}),
    ("notes", {"README.md": "train.py learns\n"}),
    ("tidier", {"loss.py": "# weights of a batch\n" + DEFECT}),
)
CULPRIT = "simpler weights"


@dataclass(frozen=True, slots=True)
class Repository:
    """`HISTORY` as commits, and the capsule of the incident at its head."""

    path: Path
    capsule: Path

    def git(self, *arguments: object, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *map(str, arguments)],
            cwd=self.path,
            env=plain_environment(
                GIT_CONFIG_GLOBAL="/dev/null",
                GIT_CONFIG_SYSTEM="/dev/null",
                GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a", GIT_COMMITTER_EMAIL="a@b",
                PYTHONPATH=str(ROOT),
            ),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout + done.stderr

    def commit_named(self, subject: str) -> str:
        return self.git("log", "--format=%H", f"--grep=^{subject}$").strip()

    def replayed(self, source: Path, *options: object) -> Said:
        return prismdbg("replay", self.capsule, "--runtime", "local", "--source", source, *options)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    home = tmp_path_factory.mktemp("bisect")
    made = Repository(home / "repository", home / "capsule")
    made.path.mkdir()
    made.git("init", "-q", "-b", "main")
    for subject, files in HISTORY:
        for name, text in files.items():
            (made.path / name).write_text(text)
        made.git("add", ".")
        made.git("commit", "-q", "-m", subject)
    with recording(forked(made.path / "train.py", ranks=2), home, "--window", "all") as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        shutil.copytree(job.capsules[0], made.capsule)
    yield made


@pytest.fixture
def edited(repository: Repository, tmp_path: Path) -> Path:
    """A copy of the program as it is at the head."""
    for name in ("train.py", "loss.py"):
        shutil.copy(repository.path / name, tmp_path)
    return tmp_path


def fix_of(said: Said) -> dict[str, Any]:
    fix = said.json["fix"]
    assert isinstance(fix, dict)
    return fix


def test_a_fix(repository: Repository, edited: Path) -> None:
    (edited / "loss.py").write_text(GOOD)
    (edited / "notes.txt").write_text("not the program's")
    said = repository.replayed(edited, "--json")
    assert said.code == 0, said.out + said.err
    fix, source = fix_of(said), said.json["source"]
    assert (fix["judgement"], fix["left"], fix["affected"], fix["on_record"]) == ("gone", BORN, BORN, True)
    assert source["replaced"] == [str(repository.path / "loss.py")] and source["unmatched"] == ["notes.txt"]
    assert "the recorded NaN or Inf does not occur there" in fix["text"]
    assert "replaced: " in said.err and "notes.txt" in said.err


def test_the_program_as_it_was(repository: Repository, edited: Path) -> None:
    said = repository.replayed(edited)
    assert said.code == 1
    assert "no file differs from the captured ones" in said.err
    assert f"a NaN or Inf at {BORN}, as in the recorded run" in said.out


def test_a_fix_with_expectations_of_its_own(repository: Repository, edited: Path) -> None:
    """They decide; those that rest on synthesized peers say so."""
    (edited / "loss.py").write_text(GOOD)
    script = edited / "checks.yaml"
    script.write_text(
        f"expect:\n  - {{that: finite(input), at: {BORN}, name: sent}}\n"
        f"  - {{that: finite(out), at: {BORN}, name: received}}\nforbid: [{{on: nan}}]\n"
    )
    said = repository.replayed(edited, "--script", script, "--json")
    assert said.code == 0, said.out + said.err
    assert [check["assumed"] for check in said.json["checks"][:2]] == [False, True]


def test_a_fix_with_an_expectation_that_does_not_hold(repository: Repository, edited: Path) -> None:
    (edited / "loss.py").write_text(GOOD)
    script = edited / "checks.yaml"
    script.write_text(f"expect:\n  - {{that: max(out) < 0, at: {BORN}}}\n")
    assert repository.replayed(edited, "--script", script).code == 1


def test_a_program_that_leaves_the_record_early_rests_on_assumptions(repository: Repository, edited: Path) -> None:
    """A smaller rate: another program from its second step on, and the defect in it."""
    (edited / "train.py").write_text(TRAIN.replace("lr=0.01", "lr=0.02"))
    said = repository.replayed(edited, "--json")
    assert said.code == 1, said.out + said.err
    fix = fix_of(said)
    assert (fix["judgement"], fix["left"], fix["on_record"]) == ("recurs", "1.1", False)
    assert "depends on synthesized data" in fix["text"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("loss.py", GOOD + "def\n"),
        ("train.py", "def\n"),  # not even torch
        ("train.py", TRAIN.replace("weigh(model", "weigh(None, model")),
    ],
    ids=["does not compile", "nothing is imported", "raises"],
)
def test_code_that_cannot_run_is_skipped(repository: Repository, edited: Path, name: str, text: str) -> None:
    (edited / name).write_text(text)
    assert repository.replayed(edited, "--bisect").code == 125
    assert repository.replayed(edited).code in (1, 6)


def test_a_script_decides_nothing_where_the_program_comes_nowhere(repository: Repository, edited: Path) -> None:
    """As the line for CI has it: what is forbidden did not happen, but neither did anything else."""
    first = 'dist.init_process_group("gloo")'
    (edited / "train.py").write_text(TRAIN.replace(first, "import sys; sys.exit(2)"))
    script = edited / "checks.yaml"
    script.write_text("forbid: [{on: nan}]\n")
    said = repository.replayed(edited, "--script", script, "--json")
    assert said.code == 1, said.out + said.err
    assert fix_of(said)["judgement"] == "another failure"
    assert [check["outcome"] for check in said.json["checks"]] == ["undecided"]
    assert said.json["cut_short"].startswith("the program ended at ")
    (edited / "train.py").write_text(TRAIN.replace(first, "import sys; sys.exit(0)"))
    assert repository.replayed(edited, "--script", script, "--bisect").code == 125


def test_a_folder_without_the_program(repository: Repository, tmp_path: Path) -> None:
    said = repository.replayed(tmp_path)
    assert said.code == 2 and "the relative path" in said.err
    assert repository.replayed(tmp_path, "--bisect").code == 125


def test_what_is_asked_wrongly_ends_the_search(repository: Repository, edited: Path) -> None:
    """git takes 1 to 127 for a verdict, and would blame a commit."""
    script = edited / "checks.yaml"
    script.write_text("expect:\n  - {that: bytes >, at: 1.1}\n")
    wrong: list[tuple[object, ...]] = [
        ("--script", script),
        ("--script", edited / "none.yaml"),
        ("-x", script),
        ("--until", 1),
    ]
    for options in [*wrong, ("--timeout", 0), ("--no-such-option",), ("--runtime", "podman")]:
        said = repository.replayed(edited, *options, "--bisect")
        assert said.code == 128 and "rror: " in said.err, (options, said)
    repository.git("bisect", "start", "HEAD", "HEAD~4")
    try:
        said_by_git = repository.git(
            "bisect", "run", *CLI, "replay", repository.capsule, "--runtime", "local", "--bisect", check=False
        )
    finally:
        repository.git("bisect", "reset")
    assert "first bad commit" not in said_by_git and "128" in said_by_git, said_by_git


@pytest.mark.parametrize(
    "runs", [("--runtime", "local", "--source", "."), ("--runtime", "plain", "--allow-writes")], ids=["source", "plain"]
)
def test_git_bisect_finds_the_commit(repository: Repository, runs: tuple[str, ...]) -> None:
    """Of a commit that does not start, neither knows whether it is bad."""
    first = repository.git("rev-list", "--max-parents=0", "HEAD").strip()
    repository.git("bisect", "start", "HEAD", first)
    try:
        said = repository.git("bisect", "run", *CLI, "replay", repository.capsule, *runs, "--bisect")
    finally:
        repository.git("bisect", "reset")
    assert f"{repository.commit_named(CULPRIT)} is the first bad commit" in said, said


@pytest.mark.criu
def test_a_process_image_is_refused(nan_with_checkpoints: Taken, tmp_path: Path) -> None:
    said = prismdbg("replay", nan_with_checkpoints.capsule, "--source", tmp_path)
    assert said.code == 2
    assert "its memory contains the old program" in said.err and "--window all" in said.err
