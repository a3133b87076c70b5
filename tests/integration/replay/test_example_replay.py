"""The GPT examples: recorded they train as before, every rank replays bitwise, and a changed program is found out."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from jobs import EXAMPLES, Ended, Recorded, Replayed, forked, record, replay, run

pytestmark = pytest.mark.job

CHECKSUMS = Path(__file__).parents[1] / "checksums.py"
PROGRAMS = Path(__file__).parents[1] / "programs"
STEPS = 4


def ddp(workers: int) -> list[str]:
    options = ["--size", "tiny", "--steps", STEPS, "--workers", workers, "--log-every", 1]
    return forked(CHECKSUMS, EXAMPLES / "train_ddp.py", *options, ranks=2)


def fsdp_tp() -> list[str]:
    options = ["--size", "tiny", "--steps", STEPS, "--tp", 2, "--log-every", 1]
    return forked(CHECKSUMS, EXAMPLES / "train_fsdp_tp.py", *options, ranks=4)


JOBS = {
    "ddp": (2, ddp(0)),
    "ddp with loader workers": (2, ddp(2)),
    "fsdp2 x tp in bf16": (4, fsdp_tp()),
}

REPLAYED = {"ddp": (0, 1), "ddp with loader workers": (1,), "fsdp2 x tp in bf16": (0, 3)}  # a corner of the mesh each

RecordedJob = Callable[[str], Recorded]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> RecordedJob:
    """The example, recorded once by the best recorder there is."""

    @cache
    def made(name: str) -> Recorded:
        done = record(JOBS[name][1], tmp_path_factory.mktemp("example") / "run", native=True)
        assert done.ended.code == 0, done.ended.output
        return done

    return made


def said(ended: Ended | Replayed, rank: int | None = None) -> list[str]:
    """Checksums and losses that were printed, all or one rank's."""
    which = r"\d+" if rank is None else str(rank)
    losses = re.findall(r"step \d+ loss \d+\.\d+", ended.output) if not rank else []
    return sorted(re.findall(rf"checksum rank {which} step \d+ \w{{16}}", ended.output) + losses)


@pytest.mark.parametrize("name", JOBS)
def test_recorded_it_trains_as_before(recorded: RecordedJob, name: str, tmp_path: Path) -> None:
    ranks, command = JOBS[name]
    bare = run(command, tmp_path / "output.txt")
    assert bare.code == 0, bare.output
    assert len(said(bare)) == ranks * STEPS + STEPS
    assert said(recorded(name).ended) == said(bare)
    assert recorded(name).ranks == list(range(ranks)), "loader workers and the launcher have no log"
    assert [mark.step for mark in recorded(name).log(0).steps] == list(range(1, STEPS + 1))


@pytest.mark.parametrize(("name", "rank"), [(name, rank) for name, ranks in REPLAYED.items() for rank in ranks])
def test_a_rank_replays_alone(recorded: RecordedJob, name: str, rank: int) -> None:
    replayed = replay(recorded(name).folder(rank))
    log = recorded(name).log(rank)
    assert replayed.divergence is None, replayed.divergence
    assert (replayed.code, replayed.synthesized) == (0, [])
    assert said(replayed, rank) == said(recorded(name).ended, rank)
    tally = replayed.tally
    assert (tally["compared"], tally["missing"], tally["object_notes"]) == (len(log.collectives), 0, 0)
    assert tally["fingerprints"] == sum(c.fingerprint is not None for c in log.collectives) > STEPS


@pytest.fixture
def changed(recorded: RecordedJob, tmp_path: Path) -> Callable[..., Replayed]:
    """Replays rank 0 of the DDP example with `old` replaced by `new` in one of its files."""

    def replay_changed(file: str, old: str, new: str) -> Replayed:
        folder = Path(shutil.copytree(EXAMPLES, tmp_path / "gpt"))
        text = (folder / file).read_text()
        assert text.count(old) == 1
        (folder / file).write_text(text.replace(old, new))
        script = {str(EXAMPLES / "train_ddp.py"): str(folder / "train_ddp.py")}
        return replay(recorded("ddp").folder(0), arguments=script)

    return replay_changed


def difference(replayed: Replayed) -> dict[str, object]:
    assert replayed.divergence is not None, replayed.output
    (found,) = replayed.divergence["differences"]
    return dict(found)


def test_another_dropout_rate_shows_in_the_first_loss(changed: Callable[..., Replayed]) -> None:
    """The log supplies what the ranks received: only what this one sends can tell."""
    replayed = changed("model.py", "dropout: float = 0.1", "dropout: float = 0.10001")
    assert replayed.divergence is not None
    assert difference(replayed)["field"] == "sent"
    assert difference(replayed)["structural"] is False
    expected, actual = replayed.divergence["expected"], replayed.divergence["actual"]
    assert (expected["profiling_name"], expected["moment"]) == ("all_reduce", actual["moment"])
    assert "dist.all_reduce(mean)" in _source(actual["frames"])
    assert replayed.divergence["history"][-1]["process_group"] == expected["process_group"]


def test_another_operator_is_named(changed: Callable[..., Replayed]) -> None:
    replayed = changed("train_ddp.py", "dist.all_reduce(mean)", "dist.reduce(mean, 0)")
    assert replayed.divergence is not None
    fields = {found["field"]: (found["expected"], found["actual"]) for found in replayed.divergence["differences"]}
    assert fields["op"] == ("all_reduce", "reduce")
    assert fields["root"] == ("-1", "0")
    assert "dist.reduce(mean, 0)" in _source(replayed.divergence["actual"]["frames"])


def test_a_skipped_collective_shows_at_the_next_one(changed: Callable[..., Replayed]) -> None:
    replayed = changed("train_ddp.py", "dist.all_reduce(mean)", "mean.mul_(1)")
    assert replayed.divergence is not None
    expected, actual = replayed.divergence["expected"], replayed.divergence["actual"]
    assert "dist.all_reduce(mean)" in _source(expected["frames"])
    assert "dist.all_reduce(mean)" not in _source(actual["frames"])
    assert expected["moment"] == actual["moment"]


def test_a_collective_skipped_at_the_end_is_missing(changed: Callable[..., Replayed]) -> None:
    replayed = changed("train_ddp.py", "    dist.barrier()", "    pass")
    assert replayed.divergence is None
    assert replayed.tally["missing"] == 1


def test_a_collective_too_many_is_past_the_end(changed: Callable[..., Replayed]) -> None:
    replayed = changed("train_ddp.py", "    dist.barrier()", "    dist.barrier(), dist.barrier()")
    assert replayed.divergence is None
    assert replayed.past_the_end is not None


def test_another_number_of_threads_shows_in_what_is_sent(tmp_path: Path) -> None:
    command = [sys.executable, str(PROGRAMS / "summed.py"), str(tmp_path / "met")]
    recorded = record(command, tmp_path / "run", native=True)
    assert recorded.ended.code == 0, recorded.ended.output
    same = replay(recorded.folder(0))
    assert (same.code, same.divergence) == (0, None)
    assert same.tally["fingerprints"] == 1
    assert difference(replay(recorded.folder(0), env={"OMP_NUM_THREADS": "2"}))["field"] == "sent"


def _source(frames: list[dict[str, object]]) -> str:
    """The program's lines in a stack."""
    lines = []
    for frame in frames:
        path = Path(str(frame["filename"]))
        if path.is_file() and "site-packages" not in path.parts and path.suffix == ".py":
            lines.append(path.read_text().splitlines()[int(str(frame["line"])) - 1])
    return "\n".join(lines)
