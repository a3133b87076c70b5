"""A collective operator that this prismdbg has never heard of, in a job: the job is as bare, and the log and `why` say
what is not recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import prismdbg
from jobs import forked, plain_environment, recorded_by_command_line, run

from prismdbg.capsule.log.reader import read_log

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "newer_operator.py"
WHY_NOT = "this version of prismdbg does not know it"
NEWER = """
import torch
import torch.distributed as dist

library = torch.library.Library("c10d", "FRAGMENT")


def summed(tensor, process_group):
    result = tensor.clone()
    dist.ProcessGroup.unbox(process_group)._get_backend(torch.device("cpu")).allreduce([result]).wait()
    return result


def register():
    group = "__torch__.torch.classes.c10d.ProcessGroup"
    library.define(f"newer_sum(Tensor tensor, {group} process_group) -> Tensor")
    library.impl("newer_sum", summed, "CPU")
"""


@pytest.fixture
def newer_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which torch has the operator as soon as it is imported, as an operator in C++ is there: torch
    loads its backends last."""
    theirs = tmp_path / "theirs"
    (theirs / "newer_torch-1.0.dist-info").mkdir(parents=True)
    (theirs / "newer_torch-1.0.dist-info" / "METADATA").write_text("Name: newer-torch\nVersion: 1.0\n")
    (theirs / "newer_torch-1.0.dist-info" / "entry_points.txt").write_text(
        "[torch.backends]\nnewer = newer_torch:register\n"
    )
    (theirs / "newer_torch.py").write_text(NEWER)
    return plain_environment(PYTHONPATH=str(theirs))


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)], ids=["native", "python"])
def test_the_job_is_as_bare_and_the_call_is_noted(
    newer_torch: dict[str, str], kernels: tuple[str, ...], tmp_path: Path
) -> None:
    bare = run(forked(PROGRAM, ranks=2), tmp_path / "bare.txt", env=newer_torch)
    made = recorded_by_command_line(
        forked(PROGRAM, ranks=2), tmp_path / "run", "--window", "all", *kernels, env=newer_torch
    )
    assert (made.ended.code, bare.code) == (0, 0), bare.output + made.ended.output
    assert made.ended.lines("result ") == bare.lines("result ") != []
    for rank in (0, 1):
        log = read_log(made.run.latest(rank))
        (note,) = [note for note in log.notes if note.kind == "unknown"]
        assert (note.data["op"], note.data["text"]) == ("newer_sum", WHY_NOT)
        assert [call.op for call in log.collectives if call.op == "newer_sum"] == []
        assert [call.op for call in log.collectives].count("allreduce_") == 3
    said = prismdbg("why", made.run.path)
    assert said.out.count(f"called c10d::newer_sum, which is not recorded: {WHY_NOT}") == 2, said.out

    capsule = tmp_path / "capsule"
    assert prismdbg("capture", made.run.path, "--rank", 1, "--origin", "start", "-o", capsule).code == 0
    shown = prismdbg("inspect", capsule)
    assert "the program calls c10d::newer_sum, which prismdbg does not record" in shown.out + shown.err, shown.out
    replayed = prismdbg("replay", capsule, "--runtime", "plain", "--allow-writes")
    assert replayed.code != 0 and "c10d::newer_sum" in replayed.out + replayed.err, replayed.out + replayed.err
