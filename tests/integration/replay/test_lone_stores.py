"""A program that asks a store of torch.distributed, in a replay from its start."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import assert_identical, prismdbg
from chain import replay as verdict_of
from jobs import ROOT, Replayed, forked, plain_environment, record, recorded_by_command_line, replay

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Origin
from prismdbg.capsule.spawned import NOT_RECORDED

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "asks_a_store.py"
USES = "the program uses a store of torch.distributed at"


def replayed(how: str, folder: Path) -> Replayed:
    recorded = record(forked(PROGRAM, how, ranks=2), folder / "run", native=True)
    assert recorded.ended.code == 0, recorded.ended.output
    return replay(recorded.folder(1))


@pytest.mark.parametrize(("how", "key", "line"), [("key", "loss 0", 52), ("wait", "rate 0", 43)])
def test_a_key_of_another_rank_is_an_error_that_says_so(how: str, key: str, line: int, tmp_path: Path) -> None:
    ended = replayed(how, tmp_path)
    assert [found["text"].partition(",")[0] for found in ended.exceptions] == [
        f"{NOT_RECORDED}: {key} in a store of torch.distributed"
    ]
    assert [note.startswith(f"{USES} {PROGRAM}:{line}:") for note in ended.notes] == [True]


def test_a_count_without_the_others_is_a_divergence_with_its_cause(tmp_path: Path) -> None:
    """In a store of the program's own, which a replay has no address of."""
    ended = replayed("count", tmp_path)
    assert ended.divergence is not None
    assert ended.divergence["moment"] == "0.4"
    assert [note.startswith(f"{USES} {PROGRAM}:38:") for note in ended.notes] == [True]


def test_a_store_before_the_restore_point_has_no_address(tmp_path: Path) -> None:
    """In a replay from a state snapshot: the other rank, to which it would connect, is not there."""
    hooks = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
    line = forked(PROGRAM, "state", ranks=2)
    made = recorded_by_command_line(line, tmp_path / "run", "--state-every", "3", env=hooks)
    assert made.ended.code == 0, made.ended.output
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", 1, "-o", capsule)
    assert said.code == 0, said.err
    assert Capsule.open(capsule).manifest.origin is Origin.STATE
    assert_identical(verdict_of(capsule), capsule)


def test_what_the_rank_has_set_is_there(tmp_path: Path) -> None:
    ended = replayed("own", tmp_path)
    assert (ended.code, ended.divergence) == (0, None), ended.output
    assert "result 1 5.0" in ended.output
