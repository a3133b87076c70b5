"""Parameters of `fully_shard` that the program has gathered where a snapshot is due: they stay gathered, so the ranks
issue what they issue without snapshots, also where not all of them take that snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import ROOT, Recorded, forked, plain_environment, recorded_by_command_line

from prismdbg.settings.state_folders import states_of

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "gathered_parameters.py"
HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))


@pytest.mark.parametrize(
    ("kind", "says"),
    [("ahead", "call prismdbg.step(n) at the top of the loop"), ("evaluated", ""), ("marked", "")],
    ids=["ahead", "evaluated", "marked"],
)
def test_no_rank_gathers_them_again(kind: str, says: str, tmp_path: Path) -> None:
    job = forked(PROGRAM, kind, ranks=2)
    plain = recorded_by_command_line(job, tmp_path / "plain", "--ranks", "0", env=HOOKS)
    made = recorded_by_command_line(job, tmp_path / "run", "--ranks", "0", "--state-every", "1", env=HOOKS)
    assert plain.ended.code == made.ended.code == 0, made.ended.output
    assert plain.ended.lines("result") == made.ended.lines("result") != []
    assert _operators(made) == _operators(plain)
    told = made.ended.lines("prismdbg: no further state snapshots of rank 0: ")
    assert len(told) == bool(says) and all(says in line for line in told)
    assert bool(states_of(made.run.path / "states" / "0")) == (not says)


def _operators(made: Recorded) -> list[str]:
    return [record.op for record in made.log(0).collectives]
