"""Capsules that start at a state snapshot: made without CRIU and without asking the rank, replayed bit for bit."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace as changed
from pathlib import Path

import pytest
from chain import CLI, assert_identical, prismdbg, recording, replay, span
from jobs import EXAMPLES, ROOT, Ended, Recorded, forked, plain_environment, recorded_by_command_line, run

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.reader import read_log, read_payload
from prismdbg.capsule.manifest import FileEntry, IncidentKind, Origin
from prismdbg.capsule.state_snapshot import PROLOGUE
from prismdbg.jobs.injection import cache_dir

pytestmark = pytest.mark.job

HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
PROGRAM = Path(__file__).parent.parent / "programs" / "stateful_mlp.py"
EVERY = 4
STEPS = 14


def job(*options: object) -> list[str]:
    return forked(PROGRAM, "--steps", STEPS, *options, ranks=2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    home = tmp_path_factory.mktemp("state")
    made = recorded_by_command_line(job(), home / "run", "--state-every", str(EVERY), env=HOOKS)
    assert made.ended.code == 0, made.ended.output
    return made


def captured(made: Recorded, rank: int, home: Path, *options: object) -> Path:
    capsule = home / f"rank{rank}"
    said = prismdbg("capture", made.run.path, "--rank", rank, "-o", capsule, *options)
    assert said.code == 0, said.err
    return capsule


def test_the_program_is_the_same_recorded_and_bare(recorded: Recorded, tmp_path: Path) -> None:
    bare = run(job(), tmp_path / "bare.txt", env=HOOKS)
    assert bare.lines("rank ") == recorded.ended.lines("rank ")
    assert bare.lines("step ") == recorded.ended.lines("step ")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_goes_on_from_its_snapshot(recorded: Recorded, rank: int, tmp_path: Path) -> None:
    capsule = captured(recorded, rank, tmp_path)
    manifest = Capsule.open(capsule).manifest
    assert (manifest.origin, manifest.contains_raw_memory) == (Origin.STATE, False)
    assert manifest.moment_a.step == 12
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])
    assert prismdbg("verify", capsule).code == 0


def test_the_module_that_ddp_wraps_may_be_registered_instead(tmp_path: Path) -> None:
    """DDP's gradient buckets have the recorded order nevertheless, and its buffers are sent in the step."""
    made = recorded_by_command_line(
        job("--bare", "--normalized"), tmp_path / "run", "--state-every", str(EVERY), env=HOOKS
    )
    capsule = captured(made, 1, tmp_path)
    assert_identical(replay(capsule), capsule)
    verified = prismdbg("verify", made.run.path, "--state", "--steps", 2, "--runtime", "local")
    assert verified.code == 0, verified.out + verified.err


def test_an_evaluation_between_two_steps_is_in_no_snapshot(tmp_path: Path) -> None:
    """It is the end of its step, and issues a collective of its own."""
    line = job("--evaluate-every", EVERY)
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", str(EVERY), env=HOOKS)
    capsule = captured(made, 1, tmp_path, "--window", 4)
    assert Capsule.open(capsule).manifest.moment_a.step == 9
    assert_identical(replay(capsule), capsule)


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)], ids=["native", "python"])
def test_messages_between_ranks_are_counted_on_from_the_snapshot(kernels: tuple[str, ...], tmp_path: Path) -> None:
    """Of each peer and tag: an answer is found, and what is sent is compared, by its number."""
    made = recorded_by_command_line(job("--ring"), tmp_path / "run", "--state-every", str(EVERY), *kernels, env=HOOKS)
    assert made.ended.code == 0, made.ended.output
    capsule = captured(made, 1, tmp_path)
    messages = [record for record in span(capsule) if record.is_p2p]
    kinds = {(record.op, record.identity.tag) for record in messages}
    assert kinds == {("send", 0), ("send", 1), ("recv_", 0), ("recv_", 1)}
    assert all(record.identity.seq > 0 for record in messages)
    assert all(record.fingerprint is not None for record in messages if record.op == "send")
    assert_identical(replay(capsule), capsule)


def test_a_larger_window_begins_at_the_older_snapshot(recorded: Recorded, tmp_path: Path) -> None:
    capsule = captured(recorded, 0, tmp_path, "--window", 4)
    assert Capsule.open(capsule).manifest.moment_a.step == 8
    assert_identical(replay(capsule), capsule)


def test_a_job_that_runs_is_captured_and_verified(tmp_path: Path) -> None:
    """Nothing is asked of the ranks, and the job goes on."""
    line = forked(PROGRAM, "--steps", 1_000_000, "--rest-s", 0.02, ranks=2)
    with recording(line, tmp_path, "--state-every", 50, env=HOOKS) as live:
        live.wait_for_step(1, 120)
        capsule = captured(Recorded(run=live.run, ended=Ended(code=0, output="")), 1, tmp_path)
        verified = prismdbg("verify", live.run.path, "--state", "--rank", 0, "--runtime", "local")
        live.wait_for_step(1, live.step(1) + 10)
        kept = sorted(int(path.name) for path in (live.run.states / "1").iterdir() if path.name.isdecimal())
        live.stop()
    assert verified.code == 0, verified.out + verified.err
    assert "the registered state is all that the 2 steps after" in verified.err
    assert Capsule.open(capsule).manifest.origin is Origin.STATE
    assert_identical(replay(capsule), capsule)
    assert len(kept) == 2 and all(step % 50 == 0 for step in kept)


def test_a_rank_that_ended_too_early_is_not_verified(recorded: Recorded) -> None:
    said = prismdbg("verify", recorded.run.path, "--state", "--steps", STEPS, "--runtime", "local")
    assert said.code == 7, said.out + said.err
    assert said.out.startswith("inconclusive: the recording has 2 steps after the newest state snapshot, fewer than 14")
    assert "is all that the" not in said.err


def test_no_privilege_and_no_criu_are_needed(tmp_path: Path) -> None:
    """Recorded, captured and replayed by processes that have no capability at all."""
    without = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    cache = tmp_path / "cache"
    shutil.copytree(cache_dir() / "native", cache / "prismdbg" / "native", symlinks=True)
    env = {**HOOKS, "XDG_CACHE_HOME": str(cache)}
    run_path, capsule = tmp_path / "run", tmp_path / "capsule"
    lines = [
        ["record", "-o", run_path, "--state-every", EVERY, "--", *job()],
        ["capture", run_path, "--rank", 1, "-o", capsule],
        ["replay", capsule, "--runtime", "plain", "--allow-writes", "--json"],
    ]
    for number, line in enumerate(lines):
        ended = run([*without, *CLI, *map(str, line)], tmp_path / f"{number}.txt", env=env, cwd=ROOT)
        assert ended.code == 0, ended.output
    assert '"outcome": "identical"' in ended.output


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        ("state.json", b'["tensor"', b'["pickle"', "the state snapshot holds 'pickle', which cannot be read"),
        ("state.json", b'"model.module.0.weight"', b'"model.module.0.wei~~t"', "has no tensor 'model.module.0.wei~~t'"),
        ("state.json", b'"optimizer":', b'"optimizers":', "the recorded program registered"),
    ],
    ids=["kind", "name", "registration"],
)
def test_a_state_that_was_made_to_mislead_ends_the_replay(
    failed: Path, name: str, old: bytes, new: bytes, says: str, tmp_path: Path
) -> None:
    """Read in the rank's own place; nothing of it is evaluated there either."""
    shutil.copytree(failed, tmp_path / "capsule")
    manifest = Capsule.open(failed).manifest
    inside = f"{layout.STATE}/{name}"
    data = (failed / inside).read_bytes().replace(old, new)
    (tmp_path / "capsule" / inside).write_bytes(data)
    entry = FileEntry(len(data), hashlib.sha256(data).hexdigest())
    whole = changed(manifest, files={**manifest.files, inside: entry})
    (tmp_path / "capsule" / layout.MANIFEST).write_bytes(whole.to_bytes())
    said = prismdbg("replay", tmp_path / "capsule", "--runtime", "local")
    assert said.code == 6 and says in said.err, said.err


def test_what_was_not_registered_shows_and_is_named(tmp_path: Path) -> None:
    made = recorded_by_command_line(
        job("--unregistered", "schedule", "--ahead"), tmp_path / "run", "--state-every", "4", env=HOOKS
    )
    capsule = captured(made, 1, tmp_path, "--window", 4)  # from step 8, where the schedule is between two changes
    said = prismdbg("replay", capsule, "--runtime", "local")
    assert said.code == 5, said.out + said.err
    assert "sends different values from the recorded ones" in said.out
    assert "possible: state that was not registered: schedule (StepLR), data (Tensor)" in said.out


@pytest.mark.parametrize("how", [(), ("--python-kernels",)], ids=["native", "python"])
def test_the_beginning_has_its_configuration_however_much_it_receives(how: tuple[str, ...], tmp_path: Path) -> None:
    """Rank 1 is told the width of its network by rank 0. Of the weights that follow, some are larger than the
    window, and others would drop what it was told."""
    line = job("--weights-mib", 3)
    options = ("--state-every", str(EVERY), "--window-bytes", "1MiB", *how)
    made = recorded_by_command_line(line, tmp_path / "run", *options, env=HOOKS)
    assert made.ended.code == 0, made.ended.output
    capsule = captured(made, 1, tmp_path)
    prologue = capsule / layout.STATE / PROLOGUE
    before = [c for c in read_log(prologue).collectives if c.moment.step == 0][:3]
    assert [c.payload is not None for c in before] == [True, True, False], "size and bytes of the object, then weights"
    assert b"width" in read_payload(prologue, before[1].payload)  # type: ignore[arg-type]
    assert_identical(replay(capsule), capsule)
    (note,) = Capsule.open(capsule).manifest.notes
    assert note.startswith(
        "5.2 MiB that rank 1 received before its restore point are not kept (--window-bytes 1.0 MiB)"
    )


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capsule that the exception of rank 1 made."""
    home = tmp_path_factory.mktemp("failed")
    made = recorded_by_command_line(job("--raise-at", 10), home / "run", "--state-every", str(EVERY), env=HOOKS)
    assert made.ended.code == 1
    (capsule,) = made.run.capsules.iterdir()
    manifest = Capsule.open(capsule).manifest
    assert (manifest.origin, manifest.incident.kind) == (Origin.STATE, IncidentKind.EXCEPTION)
    assert (manifest.rank, manifest.moment_a.step, manifest.moment_b.step) == (1, 8, 10)
    return capsule


def test_an_exception_happens_again(failed: Path) -> None:
    verdict = replay(failed)
    assert verdict["outcome"] == "identical" and verdict["tally"]["synthesized"] == 0
    assert verdict["raised"]["type"] == "ValueError" and verdict["moment"] == "10.1"


@pytest.mark.parametrize(("rank", "how"), [(1, ()), (2, ("--by-hand",))])
def test_sharded_parameters_and_everything_else_that_a_step_depends_on(
    rank: int, how: tuple[str, ...], tmp_path: Path
) -> None:
    """FSDP2 x TP, dropout, gradient accumulation, a GradScaler, a schedule, and a loader with workers in mid-epoch."""
    program = PROGRAM.with_name("stateful_fsdp.py")
    env = {**HOOKS, "PYTHONPATH": f"{HOOKS['PYTHONPATH']}:{EXAMPLES}"}
    line = forked(program, *how, ranks=4)
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", "3", env=env)
    assert made.ended.code == 0, made.ended.output
    capsule = captured(made, rank, tmp_path)
    assert Capsule.open(capsule).manifest.moment_a.step == 6
    assert_identical(replay(capsule), capsule)
