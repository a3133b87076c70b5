"""The programs of examples/frameworks, unchanged: recorded as they run bare, captured while they run, replayed bit for
bit from their start, from a checkpoint and from a state snapshot, emulated as part of a job of 64 ranks."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, recording, replay
from emulated import emulate, log_of
from jobs import ROOT, Ended, Recorded, plain_environment, recorded_by_command_line, run, torchrun

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Origin
from prismdbg.model.collective import State

EXAMPLES = ROOT / "examples" / "frameworks"
EVERY = 4
BOUND_S = 400.0
WINDOW = 8
LARGE, LARGE_STEPS = 64, 2
Notes = Callable[[str, object], None]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """What the adapter of a framework says."""

    by: str
    names: str


@dataclass(frozen=True, kw_only=True)
class Program:
    """`module`: what must be installed. `steps`: how many optimizer steps of a whole run the framework counts.
    `large`: mesh, ranks and options of the program in a job of 64 ranks."""

    module: str
    file: str
    options: tuple[str, ...] = ()
    torchrun: bool = True
    endless: tuple[str, ...] = ("--steps", "100000")
    steps: int
    own_line: str
    state: Registered | None = None
    has_out: bool = False
    mesh: str = "dp=64"
    ranks: tuple[int, ...] = (0, 37)
    large: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()

    def words(self, home: Path, *options: object) -> list[str]:
        if importlib.util.find_spec(self.module) is None:
            pytest.skip(f"{self.module} is not installed: `make frameworks` installs it")
        out = ("--out", home / "out") if self.has_out else ()
        return [*map(str, [*self.options, *out, *options])]

    def line(self, home: Path, *options: object) -> list[str]:
        words = self.words(home, *options)
        if not self.torchrun:
            return [sys.executable, str(EXAMPLES / self.file), *words]
        return torchrun(EXAMPLES / self.file, *words, ranks=2)

    def own(self, home: Path) -> dict[str, str]:
        """Variables that it needs; folders are new ones in `home`."""
        return {name: value.format(home=home) for name, value in self.environment}

    def variables(self, home: Path) -> dict[str, str]:
        return plain_environment(**self.own(home))


PROGRAMS = {
    "transformers": Program(
        module="transformers",
        file="transformers_trainer.py",
        steps=22,
        own_line="compute_loss",
        state=Registered(by="transformers.Trainer", names="model, optimizer, lr_scheduler, trainer"),
        has_out=True,
    ),
    "accelerate": Program(
        module="accelerate",
        file="accelerate_loop.py",
        endless=("--epochs", "100000"),
        steps=24,
        own_line="<module>",
        state=Registered(by="accelerate", names="model, optimizer, lr_scheduler, custom, place"),
    ),
    "lightning": Program(
        module="lightning",
        file="lightning_fit.py",
        torchrun=False,
        endless=("--epochs", "100000"),
        steps=24,
        own_line="training_step",
        state=Registered(by="lightning.Trainer", names="model, optimizer, lr_scheduler, loops"),
        large=("--devices", "8", "--nodes", "8"),
    ),
    "megatron-tp2": Program(
        module="megatron.core",
        file="megatron_gpt.py",
        options=("--tp", "2"),
        steps=12,
        own_line="loss_of",
        mesh="dp=32,tp=2",
    ),
    "megatron-pp2": Program(
        module="megatron.core",
        file="megatron_gpt.py",
        options=("--pp", "2"),
        steps=12,
        own_line="loss_of",
        mesh="pp=2,dp=32",
    ),
    "torchtitan": Program(
        module="torchtitan",
        file="torchtitan_loop.py",
        steps=18,
        own_line="<module>",
        state=Registered(
            by="torchtitan.CheckpointManager", names="train_state, model, optimizer, dataloader, lr_scheduler"
        ),
        has_out=True,
    ),
    **{
        f"deepspeed-zero{stage}": Program(
            module="deepspeed",
            file="deepspeed_zero.py",
            options=("--stage", str(stage)),
            steps=12,
            own_line="<module>",
            environment=(("DS_ACCELERATOR", "cpu"),),
        )
        for stage in (2, 3)
    },
}


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> Program:
    return PROGRAMS[request.param]


@dataclass(frozen=True, kw_only=True)
class Whole:
    """A run of the program from its begin to its end, bare and recorded."""

    bare: Ended
    recorded: Recorded


@pytest.fixture(scope="module")
def whole(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    home = tmp_path_factory.mktemp("whole")
    line = program.line(home / "bare")
    bare = run(line, home / "bare.txt", env=program.variables(home / "bare"), bound_s=BOUND_S)
    assert bare.code == 0, bare.output[-3000:]
    line, env = program.line(home / "recorded"), program.variables(home / "recorded")
    recorded = recorded_by_command_line(line, home / "run", "--window", "all", env=env, bound_s=BOUND_S)
    assert recorded.ended.code == 0, recorded.ended.output[-3000:]
    return Whole(bare=bare, recorded=recorded)


def results(ended: Ended) -> list[str]:
    """Losses and parameters; the lines of two ranks may run into each other."""
    return sorted(re.findall(r"'?loss'?:? '?\d[\d.e+-]*|rank \d+ parameters -?[\d.]+", ended.output))


def test_the_job_computes_what_it_computes_bare(whole: Whole, record_property: Notes) -> None:
    found = results(whole.bare)
    assert len([line for line in found if line.startswith("rank ")]) == 2 < len(found)
    assert results(whole.recorded.ended) == found
    record_property("recorded", len(found))


def test_steps_are_counted_as_the_framework_counts_them(program: Program, whole: Whole, record_property: Notes) -> None:
    for rank in (0, 1):
        assert [mark.step for mark in whole.recorded.log(rank).steps] == list(range(1, program.steps + 1))
    record_property("steps", program.steps)


def test_collectives_are_named_by_the_line_of_the_program(
    program: Program, whole: Whole, record_property: Notes
) -> None:
    calls = [call for call in whole.recorded.log(1).collectives if call.moment.step]
    lines = [call.source for call in calls]
    named = [line for line in lines if line]
    assert {Path(line.filename).name for line in named} == {program.file}, set(lines)
    assert program.own_line in {line.name for line in named}
    record_property("lines", f"{len(named)} of {len(calls)}")


def test_it_is_replayed_from_its_start(whole: Whole, tmp_path: Path, record_property: Notes) -> None:
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", whole.recorded.run.path, "--rank", 1, "--origin", "start", "-o", capsule)
    assert said.code == 0, said.err
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    record_property("start", verdict["tally"]["compared"])


@pytest.mark.criu
def test_it_is_captured_while_it_runs(program: Program, tmp_path: Path, record_property: Notes) -> None:
    capsule, endless = tmp_path / "capsule", program.line(tmp_path, *program.endless)
    with recording(endless, tmp_path, env=program.variables(tmp_path)) as job:
        job.wait_for_step(1, 3, BOUND_S)
        said = prismdbg("capture", job.run.path, "--rank", 1, "--window", WINDOW, "-o", capsule)
        assert said.code == 0, said.err
        after = Capsule.open(capsule).manifest.moment_b.step
        job.wait_for_step(1, after + 2, BOUND_S)  # the job goes on
        job.stop()
    assert Capsule.open(capsule).manifest.origin is Origin.IMAGE
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    record_property("checkpoint", verdict["tally"]["compared"])


def test_it_goes_on_from_its_state_snapshot(program: Program, tmp_path: Path, record_property: Notes) -> None:
    if program.state is None:
        pytest.skip("prismdbg has no adapter that registers the state of this framework")
    line, env = program.line(tmp_path), program.variables(tmp_path)
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", str(EVERY), env=env, bound_s=BOUND_S)
    assert made.ended.code == 0, made.ended.output
    said = f"prismdbg: {program.state.by}: registered: {program.state.names}; not registered: "
    assert made.ended.output.count(said) == 1
    assert "no further state snapshots" not in made.ended.output
    capsule = tmp_path / "capsule"
    captured = prismdbg("capture", made.run.path, "--rank", 1, "-o", capsule)
    assert captured.code == 0, captured.err
    manifest = Capsule.open(capsule).manifest
    assert manifest.origin is Origin.STATE and manifest.moment_a.step > EVERY
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])
    record_property("state", verdict["tally"]["compared"])


def test_it_is_emulated_in_a_job_of_64_ranks(program: Program, tmp_path: Path, record_property: Notes) -> None:
    words = [sys.executable, str(EXAMPLES / program.file), *program.words(tmp_path, *program.large)]
    asked = ",".join(map(str, program.ranks))
    options = ("--ranks", asked, "--steps", LARGE_STEPS)
    done = emulate(tmp_path / "run", LARGE, program.mesh, *options, program=words, **program.own(tmp_path))
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    counts = [emulated_calls(tmp_path / "run", rank) for rank in program.ranks]
    record_property("emulated", f"{asked}: {', '.join(map(str, counts))}")


def emulated_calls(out: Path, rank: int) -> int:
    log = log_of(out, rank)
    assert [mark.step for mark in log.steps] == list(range(1, LARGE_STEPS + 1))
    assert log.collectives and all(call.state is State.COMPLETED and call.synthesized for call in log.collectives)
    return len(log.collectives)
