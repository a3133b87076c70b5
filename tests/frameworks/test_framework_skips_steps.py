"""Steps are counted as DeepSpeed and megatron-core count them: those that a loss scaler skips, one for all groups of
parameters, and those of a stage that has nothing to train."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from chain import assert_identical, prismdbg, replay
from jobs import plain_environment, recorded_by_command_line, torchrun

from prismdbg.capsule.log.format import StepSource

PROGRAMS = Path(__file__).parent / "programs"
BOUND_S = 400.0
TAKEN, SKIPPED = StepSource.OPTIMIZER, StepSource.SKIPPED_BY_SCALER
OVERFLOWS = [SKIPPED, TAKEN, TAKEN, SKIPPED, TAKEN, TAKEN]


@dataclass(frozen=True, slots=True)
class Job:
    """`module`: what must be installed. `sources`: how its steps end."""

    module: str
    file: str
    options: tuple[str, ...]
    sources: list[StepSource]


def zero(stage: int) -> Job:
    return Job("deepspeed", "deepspeed_overflow.py", ("--stage", str(stage)), OVERFLOWS)


JOBS = {  # by the rows of the table with which they run
    "deepspeed-zero2": [zero(0), zero(2)],
    "deepspeed-zero3": [zero(3)],
    "megatron-tp2": [Job("megatron", "megatron_overflow.py", ("--fp16",), OVERFLOWS)],
    "megatron-pp2": [Job("megatron", "megatron_overflow.py", (), [TAKEN] * 6)],
}


@pytest.mark.parametrize("row", JOBS)
def test_each_step_of_the_framework_is_counted_on_each_rank(row: str, tmp_path: Path) -> None:
    for number, job in enumerate(JOBS[row]):
        if importlib.util.find_spec(job.module) is None:
            pytest.skip(f"{job.module} is not installed: `make frameworks` installs it")
        if job.module == "deepspeed" and not torch.ops.mkldnn._is_mkldnn_fp16_supported():
            pytest.skip("DeepSpeed computes in fp16 only on a CPU that has instructions for it")
        assert_counted(job, tmp_path / f"run{number}")


def assert_counted(job: Job, run: Path) -> None:
    line, env = torchrun(PROGRAMS / job.file, *job.options, ranks=2), plain_environment(DS_ACCELERATOR="cpu")
    made = recorded_by_command_line(line, run, "--window", "all", env=env, bound_s=BOUND_S)
    assert made.ended.code == 0, made.ended.output[-3000:]
    assert f"steps 6 skipped {job.sources.count(SKIPPED)}" in made.ended.output
    for rank in (0, 1):
        assert [(mark.step, mark.source) for mark in made.log(rank).steps] == [*enumerate(job.sources, 1)]
    capsule = run.with_suffix(".capsule")
    said = prismdbg("capture", made.run.path, "--rank", 1, "--origin", "start", "-o", capsule)
    assert said.code == 0, said.err
    assert_identical(replay(capsule), capsule)
