"""A recording as Flight Recorder's dumps: torch's analyser and our reader of such dumps find what is in the logs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from capsules import make_capsule
from click.testing import CliRunner
from tiny_log import TinyLog
from torch_analyser import analysed

from prismdbg.capsule.log import format as fmt
from prismdbg.cli.main import cli
from prismdbg.diagnosis.why import diagnose
from prismdbg.errors import UsageError
from prismdbg.exporters import flight_recorder
from prismdbg.importers.plain_pickle import read_pickle
from prismdbg.importers.torch_names import OPS_BY_TITLE
from prismdbg.jobs.evidence import gather
from prismdbg.model.collective import State, TensorMeta

FOUR, EIGHT = TensorMeta((4,), "float32"), TensorMeta((8,), "bfloat16")
TRAIN = ("/job/train.py", 40, "step")


def rank_log(run: Path, rank: int, world: int = 2) -> TinyLog:
    log = TinyLog(run / "ranks" / f"{rank}.0", rank)
    log.group("0", tuple(range(world)), "default_pg")
    return log


def export(*arguments: object, code: int = 0) -> str:
    ran = CliRunner().invoke(cli, ["export", *map(str, arguments)])
    assert ran.exit_code == code, ran.output
    return ran.output


def exported(run: Path, *options: object) -> Path:
    dumps = run.parent / "dumps"
    export(run, "--format", "flight-recorder", "-o", dumps, *options)
    return dumps


def test_torch_names_the_rank_that_never_came(tmp_path: Path) -> None:
    for rank in range(3):
        log = rank_log(tmp_path / "run", rank, 3)
        log.complete(log.issue(0, 1, stack=log.stack(TRAIN)))
        if rank != 1:
            log.issue(0, 2, stack=log.stack(TRAIN))
    dumps = exported(tmp_path / "run")
    said = analysed(dumps)
    assert "Not all ranks joining collective, sequence number: 1" in said
    assert "missing ranks: {1}" in said and "step at /job/train.py:40" in said
    before, after = (diagnose(gather(where)).verdicts[0] for where in (tmp_path / "run", dumps))
    assert before.ranks[0] == after.ranks[0] == 1 and before.kind == after.kind == "stopped"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"op": "broadcast_", "root": 0}, "'all_reduce' does not match found collective type: 'broadcast'"),
        ({"inputs": (EIGHT,), "outputs": (EIGHT,)}, "'[[4]]' does not match found input sizes: '[[8]]'"),
    ],
)
def test_torch_names_the_mismatch_that_why_names(tmp_path: Path, other: dict[str, object], words: str) -> None:
    for rank in range(2):
        log = rank_log(tmp_path / "run", rank)
        log.complete(log.issue(0, 1))
        log.issue(0, 2, **(other if rank else {}))  # type: ignore[arg-type]
    dumps = exported(tmp_path / "run")
    said = analysed(dumps)
    assert "Collective sequence number: 1 has errors" in said and words in said and "Culprit rank 1" in said
    for where in (tmp_path / "run", dumps):
        assert diagnose(gather(where)).verdicts[0].kind == "mismatch"


def test_torch_finds_nothing_in_a_job_without_a_fault(tmp_path: Path) -> None:
    """With every operator that has an answer for each rank alike."""
    shares, whole = (FOUR, FOUR), (TensorMeta((8,), "float32"),)
    for rank in range(2):
        log = rank_log(tmp_path / "run", rank)
        log.complete(log.issue(0, 1, op="allgather_", inputs=(FOUR,), outputs=shares))
        log.complete(log.issue(0, 2, op="_allgather_base_", inputs=(FOUR,), outputs=whole))
        log.complete(log.issue(0, 3, op="reduce_scatter_", inputs=shares, outputs=(FOUR,)))
        log.complete(log.issue(0, 4, op="_reduce_scatter_base_", inputs=whole, outputs=(FOUR,)))
        log.complete(log.issue(0, 5, op="alltoall_", inputs=shares, outputs=shares))
        log.complete(log.issue(0, 6, op="alltoall_base_", inputs=whole, outputs=whole))
        log.complete(log.issue(0, 7, op="gather_", root=0, inputs=(FOUR,), outputs=() if rank else shares))
        log.complete(log.issue(0, 8, op="scatter_", root=0, inputs=() if rank else shares, outputs=(FOUR,)))
        log.complete(log.issue(0, 9, op="broadcast_", root=0))
        log.complete(log.issue(0, 10, op="reduce_", root=0))
        log.complete(log.issue(0, 11, op="barrier", inputs=(), outputs=()))
        send, into = ("send", "recv_")[rank], {"inputs": () if rank else (FOUR,), "outputs": (FOUR,) if rank else ()}
        log.complete(log.issue(0, 12, op=send, seq=0, root=1 - rank, flags=fmt.IssueFlag.P2P, **into))  # type: ignore[arg-type]
        log.complete(log.issue(0, 13, seq=12))
    said = analysed(exported(tmp_path / "run"))
    assert "errors" not in said and "Not all ranks" not in said, said
    assert diagnose(gather(tmp_path / "dumps")).verdicts == ()


def test_a_call_whose_sizes_one_rank_lacks_is_left_out_of_all(tmp_path: Path) -> None:
    """As in traces of torch's profiler. The analyser fails on it, and calls of one rank alone are a fault to it."""
    for rank in range(2):
        log = rank_log(tmp_path / "run", rank)
        log.complete(log.issue(0, 1, op="allgather_", inputs=(FOUR,), outputs=() if rank else (FOUR, FOUR)))
        log.complete(log.issue(0, 2))
    dumps = tmp_path / "dumps"
    said = export(tmp_path / "run", "--format", "flight-recorder", "-o", dumps)
    assert "left out: 2 calls: torch's analyser needs the sizes" in said
    told = analysed(dumps)
    assert "errors" not in told and "Not all ranks" not in told, told


def messages(run: Path, *, lost: bool) -> None:
    """Three ranks: 0 sends to 1 between two collectives of all; `lost`: a second time, which 1 never receives."""
    for rank in range(3):
        log = rank_log(run, rank, 3)
        log.complete(log.issue(0, 1, seq=1))
        if rank == 0:
            log.complete(log.issue(0, 2, op="send", seq=0, root=1, flags=fmt.IssueFlag.P2P, outputs=()))
        if rank == 1:
            log.complete(log.issue(0, 2, op="recv_", seq=0, root=0, flags=fmt.IssueFlag.P2P, inputs=()))
        log.complete(log.issue(0, 3, seq=2))
        if rank == 0 and lost:
            log.issue(0, 4, op="send", seq=1, root=1, flags=fmt.IssueFlag.P2P, outputs=())


def test_messages_among_collectives(tmp_path: Path) -> None:
    messages(tmp_path / "run", lost=False)
    said = analysed(exported(tmp_path / "run"))
    assert "errors" not in said and "Not all ranks" not in said, said
    assert diagnose(gather(tmp_path / "dumps")).verdicts == ()


def test_a_message_that_nobody_receives(tmp_path: Path) -> None:
    messages(tmp_path / "run", lost=True)
    said = analysed(exported(tmp_path / "run"))
    assert "Not all ranks joining collective, sequence number: 2" in said
    assert "group info: 0: 0->1:messages of world" in said and "missing ranks: {1}" in said
    for where in (tmp_path / "run", tmp_path / "dumps"):
        assert diagnose(gather(where)).verdicts[0].ranks[0] == 1


def test_without_the_other_ranks(tmp_path: Path) -> None:
    make_capsule(tmp_path / "capsule")
    assert "rank 1: torchfrtrace needs --allow-incomplete-ranks" in export(
        tmp_path / "capsule", "--format", "flight-recorder", "-o", tmp_path / "dumps"
    )
    assert "missed FR dumps from ranks" in analysed(tmp_path / "dumps", "--allow-incomplete-ranks")


def test_a_dump_is_read_back_as_the_log(tmp_path: Path) -> None:
    for rank in range(2):
        log = rank_log(tmp_path / "run", rank)
        log.complete(log.issue(0, 1, stack=log.stack(TRAIN), inputs=(EIGHT,), outputs=(EIGHT,)))
        log.complete(log.issue(0, 2), status=fmt.Status.FAILED)
    before, after = (gather(where).logs[1] for where in (tmp_path / "run", exported(tmp_path / "run")))
    first, second = after.collectives
    assert (first.inputs, first.frames) == (before.collectives[0].inputs, before.collectives[0].frames)
    assert first.identity == before.collectives[0].identity and first.duration_ns == before.collectives[0].duration_ns
    assert first.time_created_ns == before.collectives[0].time_created_ns + before.wall_offset_ns
    assert second.state is State.SCHEDULED  # a dump has no word for a failure
    assert after.groups["0"].ranks == (0, 1)


def test_json_says_the_same(tmp_path: Path) -> None:
    log = rank_log(tmp_path / "run", 0)
    log.complete(log.issue(0, 1, stack=log.stack(TRAIN)))
    exported(tmp_path / "run")
    export(tmp_path / "run", "--format", "flight-recorder-json", "-o", tmp_path / "json")
    dumps = (tmp_path / "dumps" / "nccl_trace_rank_0").read_bytes()
    expected = read_pickle(dumps, "the dump")
    assert json.loads((tmp_path / "json" / "nccl_trace_rank_0.json").read_text()) == json.loads(json.dumps(expected))


def test_what_is_not_written_is_said(tmp_path: Path) -> None:
    log = rank_log(tmp_path / "run", 0)
    for number in range(1, 6):
        log.complete(log.issue(0, number))
    log.issue(0, 6, op="recv_any_source_", inputs=(), flags=fmt.IssueFlag.P2P)
    log.issue(0, 7, op="own_call_")
    log.issue(0, 8, group="nobody")
    said = export(tmp_path / "run", "--format", "flight-recorder", "-o", tmp_path / "dumps", "--last", 4)
    assert "1 dump with 1 collective" in said
    for line in (
        "messages cannot be paired",
        "own_call_",
        "members of the group are not known",
        "4 earlier calls; --last N",
        "rank 1:",
    ):
        assert line in said, said
    assert [call.record_id for call in gather(tmp_path / "dumps").logs[0].collectives] == [4]


def test_a_folder_with_something_in_it_is_left_as_it_is(tmp_path: Path) -> None:
    rank_log(tmp_path / "run", 0).issue(0, 1)
    (tmp_path / "dumps").mkdir()
    (tmp_path / "dumps" / "mine").write_text("kept")
    ran = CliRunner().invoke(
        cli, ["export", str(tmp_path / "run"), "--format", "flight-recorder", "-o", str(tmp_path / "dumps")]
    )
    assert isinstance(ran.exception, UsageError) and "not an empty folder" in str(ran.exception)
    assert [path.name for path in (tmp_path / "dumps").iterdir()] == ["mine"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dumps", "run"]


def test_titles_are_those_that_the_reader_knows() -> None:
    assert set(flight_recorder._TITLES.values()) <= set(OPS_BY_TITLE)


def test_a_receive_from_any_rank_is_left_out_and_it_is_said(tmp_path: Path) -> None:
    log = rank_log(tmp_path / "run", 0)
    log.complete(log.issue(0, 1))
    log.issue(0, 2, op="recv_any_source_", inputs=(), flags=fmt.IssueFlag.P2P)
    said = export(tmp_path / "run", "--format", "flight-recorder", "-o", tmp_path / "dumps")
    assert "left out: 1 call: torch's analyser cannot pair a receive" in said
    assert len(gather(tmp_path / "dumps").logs[0].collectives) == 1
