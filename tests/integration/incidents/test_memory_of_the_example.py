"""The peak of the NaN example's captured rank: torch.profiler's to the byte, named with operator and source line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain import INCIDENTS, Taken, prismdbg, recording
from jobs import forked

pytestmark = [pytest.mark.job]

RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
PROFILED = Path(__file__).parents[1] / "programs" / "profiled.py"
TRAIN = INCIDENTS / "nan" / "train.py"
STEPS = 6  # of the profiler: the NaN is met later


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    job_line = forked(PROFILED, STEPS, TRAIN, "--steps", 14, ranks=4)
    with recording(job_line, tmp_path_factory.mktemp("profiled"), "--window", "all") as job:
        ended = job.end()
        assert len(job.capsules) == 1, ended.output[-3000:]
        return Taken(recording=job, ended=ended, capsule=job.capsules[0])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_the_peak_is_the_profilers_and_has_an_operator_and_a_line(profiled: Taken, runtime: str) -> None:
    """Both look at the same replayed rank, from its first line on."""
    lines = ("trace on", f"until {STEPS}.1", "memory peak", "quit")
    said = prismdbg("debug", profiled.capsule, "--runtime", runtime, typed="".join(f"{line}\n" for line in lines))
    assert said.code == 0, said.out + said.err
    profilers = re.search(rf"^\| rank {profiled.manifest.rank} profiled peak (\d+) ", said.out, re.MULTILINE)
    ours = re.search(r"^peak .*\((\d+) bytes\) at \d+\.\d+\.[1-9]\d*$", said.out, re.MULTILINE)
    assert profilers is not None and ours is not None, said.out
    assert ours[1] == profilers[1]
    assert "before start moment" not in said.out, "what is ours is not the program's"
    made_by = re.search(
        r"^caused by +(\S+) .*, [\d.]+ KiB \(\d+ bytes\)\n +(\S+):(\d+) in main$", said.out, re.MULTILINE
    )
    assert made_by is not None, said.out
    assert (made_by[1], made_by[2]) == ("aten::_log_softmax_backward_data", str(TRAIN))
    assert TRAIN.read_text().splitlines()[int(made_by[3]) - 1].strip() == "loss.backward()"
