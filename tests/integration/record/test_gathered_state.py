"""A registered state that issues collectives, where not all ranks are recorded: the job is the same as bare."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import ROOT, forked, plain_environment, record_command, run

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "gathered_state.py"
HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))


@pytest.mark.parametrize("kernels", [[], ["--python-kernels"]], ids=["native", "python"])
@pytest.mark.parametrize("kind", ["loader", "handled", "fsdp1", "frozen"])
def test_a_state_that_is_gathered_is_asked_of_no_rank(kind: str, kernels: list[str], tmp_path: Path) -> None:
    job = forked(PROGRAM, kind, ranks=2)
    bare = run(job, tmp_path / "bare.txt", env=HOOKS)
    options = ["--ranks", "0", "--state-every", "2", *kernels]
    recorded = run(record_command(job, tmp_path / "run", *options), tmp_path / "recorded.txt", env=HOOKS)
    assert bare.code == recorded.code == 0, (bare.output, recorded.output)
    assert bare.lines("result") == recorded.lines("result") != []
    (said,) = recorded.lines("prismdbg: no further state snapshots of rank 0: ")
    assert "issues collectives" in said
