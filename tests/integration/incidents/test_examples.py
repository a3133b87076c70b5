"""The examples without prismdbg, also under torchrun: they learn, and the incidents happen where their READMEs say."""

from __future__ import annotations

import math
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jobs
import pytest

pytestmark = pytest.mark.job

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
BOUND_S = 120
LOSS = re.compile(r"step (\d+) loss (nan|\d+\.\d{4})")  # anywhere: the ranks' lines may run into each other


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    exit_code: int
    text: str

    @property
    def losses(self) -> dict[int, float]:
        return {int(step): float(loss) for step, loss in LOSS.findall(self.text)}


def ran(line: list[str]) -> Run:
    """Nothing of prismdbg is in the environment of the job."""
    with tempfile.TemporaryDirectory() as folder:
        ended = jobs.run(line, Path(folder) / "output.txt")
    return Run(exit_code=ended.code, text=ended.output)


def torchrun(script: str, *options: str) -> Run:
    return ran(jobs.torchrun(EXAMPLES / script, *options, ranks=4))


def forked(script: str, *options: str) -> Run:
    return ran(jobs.forked(EXAMPLES / script, *options, ranks=4))


def test_ddp_learns_goes_on_from_its_checkpoint_and_its_ranks_agree(tmp_path: Path) -> None:
    options = ("--size", "tiny", "--checkpoint", str(tmp_path / "gpt.pt"))
    first = torchrun("gpt/train_ddp.py", *options, "--steps", "20")
    second = torchrun("gpt/train_ddp.py", *options, "--steps", "40")

    assert first.exit_code == second.exit_code == 0, first.text + second.text
    assert first.losses[1] > 5.4  # about ln(256): it knows nothing
    assert min(second.losses) == 21
    assert second.losses[21] < first.losses[10]
    assert second.losses[40] < first.losses[20]
    assert second.losses[40] < 3.6
    for run in (first, second):
        assert len(re.findall(r"rank \d parameters", run.text)) == 4
        assert len(set(re.findall(r"parameters (\w{16})", run.text))) == 1


def test_fsdp_tp_learns_in_bfloat16() -> None:
    run = torchrun("gpt/train_fsdp_tp.py", "--size", "tiny", "--steps", "20")

    assert run.exit_code == 0, run.text
    assert run.losses[1] > 5.4
    assert run.losses[20] < 4.0


def test_pipeline_stages_with_fsdp_and_tensor_parallelism_learn() -> None:
    small = ("--pp", "2", "--tp", "2", "--microbatches", "4", "--batch", "16", "--steps", "12", "--log-every", "6")
    run = torchrun("emulation/train.py", *small)

    assert run.exit_code == 0, run.text
    assert run.losses[1] > 5.4
    assert run.losses[12] < 4.2


def test_nan_comes_with_the_corrupt_record_and_stays() -> None:
    run = forked("incidents/nan/train.py", "--steps", "14")

    assert run.exit_code == 0, run.text
    assert [step for step, loss in run.losses.items() if math.isnan(loss)] == [12, 13, 14]
    assert run.losses[11] < run.losses[1]


def test_the_corrupt_record_can_be_placed(tmp_path: Path) -> None:
    scores = tmp_path / "scores.f32"
    place = ("--out", str(scores), "--rank", "1", "--step", "3", "--batch", "4")
    subprocess.run([sys.executable, str(EXAMPLES / "incidents/nan/scores.py"), *place], check=True, timeout=BOUND_S)

    run = forked("incidents/nan/train.py", "--steps", "4", "--batch", "4", "--scores", str(scores))

    assert [step for step, loss in run.losses.items() if math.isnan(loss)] == [3, 4]


def test_one_bit_made_the_shipped_scores_corrupt(tmp_path: Path) -> None:
    scores = tmp_path / "scores.f32"
    subprocess.run(
        [sys.executable, str(EXAMPLES / "incidents/nan/scores.py"), "--out", str(scores)], check=True, timeout=BOUND_S
    )

    assert scores.read_bytes() == (EXAMPLES / "incidents/nan/scores.f32").read_bytes()


def test_parts_of_one_size_do_not_hang(tmp_path: Path) -> None:
    options = ("--parts", ".25", ".25", ".25", ".25", "--steps", "3", "--timeout", "30", "--out", str(tmp_path))
    run = forked("incidents/hang/train.py", *options)

    assert run.exit_code == 0, run.text
    assert len(re.findall(r"rank \d sees model.pt", run.text)) == 4


def test_rank_1_raises_in_its_dataset() -> None:
    run = forked("incidents/exception/train.py")

    assert run.exit_code == 1
    assert max(run.losses) in (14, 15)  # rank 0 may not get to print the 15th
    assert "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x86 in position 0" in run.text


def test_what_runs_out_of_memory_under_a_cap_has_enough_without() -> None:
    run = forked("incidents/memory/train.py", "--steps", "6")

    assert run.exit_code == 0, run.text
    assert len(run.losses) == 6
    (held_out,) = re.findall(r"held out((?: \d+\.\d{4})+)", run.text)
    losses = [float(loss) for loss in held_out.split()]
    assert len(losses) == 6 and losses[-1] < losses[0]


def test_what_is_archived_is_read_as_before() -> None:
    plain = forked("incidents/slow/train.py", "--steps", "4", "--archived", "0", "0")
    archived = forked("incidents/slow/train.py", "--steps", "4", "--archived", "4430", "4446")

    assert plain.exit_code == archived.exit_code == 0, plain.text + archived.text
    assert len(plain.losses) == 4 and archived.losses == plain.losses
