"""Programs of frameworks, unchanged: recorded with state snapshots, captured, replayed bit for bit."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, replay
from jobs import recorded_by_command_line, run, torchrun

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Origin

PROGRAMS = Path(__file__).parent / "programs"
EVERY = 4
BOUND_S = 400.0


@dataclass(frozen=True, kw_only=True)
class Program:
    """`module`: what must be installed. `names`: what the adapter registers."""

    module: str
    by: str
    names: str
    has_out: bool = False

    def line(self, name: str, home: Path, *options: object) -> list[str]:
        if importlib.util.find_spec(self.module) is None:
            pytest.skip(f"{self.module} is not installed: `make frameworks` installs it")
        out = ("--out", home / "out") if self.has_out else ()
        return torchrun(PROGRAMS / f"{name}.py", *out, *options, ranks=2)


ALL = {
    "hf_trainer": Program(
        module="transformers",
        by="transformers.Trainer",
        names="model, optimizer, lr_scheduler, trainer",
        has_out=True,
    ),
    "accelerate_loop": Program(
        module="accelerate", by="accelerate", names="model, optimizer, lr_scheduler, custom, place"
    ),
    "lightning_fit": Program(module="lightning", by="lightning.Trainer", names="model, optimizer, lr_scheduler, loops"),
    "titan_loop": Program(
        module="torchtitan",
        by="torchtitan.CheckpointManager",
        names="train_state, model, optimizer, dataloader, lr_scheduler",
        has_out=True,
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_a_program_that_was_not_changed_goes_on_from_its_snapshot(name: str, tmp_path: Path) -> None:
    program = ALL[name]
    bare = run(program.line(name, tmp_path / "bare"), tmp_path / "bare.txt", bound_s=BOUND_S)
    line = program.line(name, tmp_path / "recorded")
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", str(EVERY), bound_s=BOUND_S)
    assert made.ended.code == 0, made.ended.output
    assert made.ended.output.count(f"prismdbg: {program.by}: registered: {program.names}; not registered: ") == 1
    assert "no further state snapshots" not in made.ended.output
    assert bare.lines("rank ") == made.ended.lines("rank "), "the job computes what it computes bare"
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", 1, "-o", capsule)
    assert said.code == 0, said.err
    manifest = Capsule.open(capsule).manifest
    assert manifest.origin is Origin.STATE and manifest.moment_a.step > EVERY
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])
