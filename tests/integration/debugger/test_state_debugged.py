"""A capsule that starts at a state snapshot is debugged like any other: there and back, by scripts, with edited files,
by `git bisect`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from chain import CLI, prismdbg, recording
from jobs import ROOT, forked, plain_environment
from seat import Seat, seat

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.session import notices

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "stateful_mlp.py"
LOOKED_AT = ("out", "model.module[0].weight", "optimizer.state", "schedule.last_epoch")
STARTED = "starting the program, which loads the state snapshot at its restore point"
CHECKS = """
time_limit: 300
expect:
  - name: the loop goes on with the recorded step
    that: local.step == 8
    at: "8.2"
"""
TEXT = PROGRAM.read_text()
GOOD = TEXT.replace("raise ValueError", "print")
HISTORY = (
    ("a job that learns", GOOD),
    ("half a change", GOOD.replace("for step in", "for step of")),
    ("the other half", GOOD.replace("Two ranks", "Some ranks")),
    ("a bound", TEXT),
    ("notes", TEXT + "# it raises\n"),
)
CULPRIT = "a bound"
EDITED = {
    "other parameters": (GOOD.replace("(width, width), torch.nn.ReLU()", "(width, width, False), torch.nn.ReLU()"), ""),
    "other names": (GOOD.replace('"schedule": schedule}', '"steps": schedule}'), "registers model, optimizer, steps"),
    "no restore point": (
        GOOD.replace("start = restore_point(**registered) or 0", "start = 0"),
        "the program did not call prismdbg.restore_point before its first step",
    ),
}


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capsule that an exception of rank 1 in step 10 made; it starts at step 8."""
    home = tmp_path_factory.mktemp("failed")
    job = forked(PROGRAM, "--steps", 14, "--raise-at", 10, ranks=2)
    hooks = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
    with recording(job, home, "--state-every", 4, env=hooks) as live:
        ended = live.end()
        assert len(live.capsules) == 1, ended.output[-3000:]
        manifest = Capsule.open(live.capsules[0]).manifest
        assert (manifest.origin, manifest.incident.kind) == (Origin.STATE, IncidentKind.EXCEPTION)
        assert (manifest.rank, manifest.moment_a.step, manifest.moment_b.step) == (1, 8, 10)
        return live.capsules[0]


def walk(one: Seat, *back: tuple[str, int]) -> None:
    """Forwards, then `back` and forth: each place has the bits it had, wherever it is come from."""
    first: dict[str, tuple[str, ...]] = {}
    for _ in range(4):
        moment = one.at("next")
        first[moment] = one.bits()
    places = list(first)
    for line, place in [*back, (f"goto {places[1]}", 1)]:
        assert one.at(line) == places[place], line
        assert one.bits() == first[places[place]], line
    one.debugger.do("restart")
    assert one.at("next") == places[0]
    assert one.bits() == first[places[0]]
    assert one.unlike() == []


@pytest.mark.criu
@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_it_goes_back_by_checkpoints_of_the_replay(failed: Path, runtime: str) -> None:
    with seat(failed, runtime, spacing_s=0.0, looked_at=LOOKED_AT) as one:
        walk(one, ("rn", 2), ("rn 2", 0), ("next 3", 3))
        assert len(one.travel.checkpoints) > 1
        assert one.at("continue") == "10.1"
        assert [notice.kind for notice in one.told if isinstance(notice, notices.ProgramRaised)] == ["ValueError"]
        assert one.spoken.count(f"{runtime}: {STARTED}") == 1


def test_without_criu_it_goes_back_by_starting_again(failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRISMDBG_CRIU", "/nowhere")
    with seat(failed, "local", spacing_s=0.0, looked_at=LOOKED_AT) as one:
        walk(one, ("rn", 2))
        assert "/nowhere" in one.travel.why_no_checkpoints and len(one.travel.checkpoints) == 1


def test_the_debugger_begins_at_the_restore_point_and_comes_back_to_it(failed: Path) -> None:
    lines = ["where", "print start", "next", "print local.step", "back", "continue", "print local.step", "quit"]
    said = prismdbg("debug", failed, "--runtime", "local", typed="\n".join(lines) + "\n")
    assert said.code == 0, said.err
    assert said.out.count("at the restore point, where the program gets the state of the snapshot") == 2
    at_restore, *_ = said.out.partition("(prismdbg) next")
    number = next(number for number, line in enumerate(TEXT.splitlines(), 1) if "restore_point(" in line)
    assert f"stateful_mlp.py:{number} in <module>" in at_restore
    stopped, _, raised = said.out.partition("(prismdbg) continue")
    assert "print local.step\n8\n" in stopped
    assert "print local.step\n10\n" in raised and "ValueError: the loss is" in raised


def test_a_script_asks_for_values_of_the_restored_program(failed: Path, tmp_path: Path) -> None:
    (tmp_path / "checks.yaml").write_text(CHECKS)
    said = prismdbg("replay", failed, "--runtime", "local", "--script", tmp_path / "checks.yaml", "--json")
    assert said.code == 0, said.out + said.err
    assert [check["outcome"] for check in said.json["checks"]] == ["held"]


def test_a_changed_program_runs_from_the_state(failed: Path, tmp_path: Path) -> None:
    """With --source: the fix is in the loop, and the state is the recorded one."""
    (tmp_path / PROGRAM.name).write_text(GOOD)
    said = prismdbg("replay", failed, "--runtime", "local", "--source", tmp_path)
    assert said.code == 0, said.out + said.err
    assert said.out.startswith("identical up to 10.1") and "no exception" in said.out


@pytest.mark.parametrize("name", EDITED)
def test_what_cannot_take_the_state_is_skipped_by_a_bisection(failed: Path, name: str, tmp_path: Path) -> None:
    text, why = EDITED[name]
    assert text != GOOD
    (tmp_path / PROGRAM.name).write_text(text)
    said = prismdbg("replay", failed, "--runtime", "local", "--source", tmp_path, "--bisect")
    assert said.code == 125, said.out + said.err
    assert "inconclusive: the program ended before its state was restored" in said.err and why in said.err


def test_git_bisect_finds_the_commit(failed: Path, tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")

    def git(*arguments: object) -> str:
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        none = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
        environment = plain_environment(PYTHONPATH=str(ROOT), **none, **who)
        line = ["git", *map(str, arguments)]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    git("init", "-q", "-b", "main")
    for subject, text in HISTORY:
        (tmp_path / PROGRAM.name).write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", subject)
    first = git("rev-list", "--max-parents=0", "HEAD").strip()
    git("bisect", "start", "HEAD", first)
    said = git("bisect", "run", *CLI, "replay", failed, "--runtime", "local", "--source", ".", "--bisect")
    assert f"{git('log', '--format=%H', f'--grep=^{CULPRIT}$').strip()} is the first bad commit" in said, said
