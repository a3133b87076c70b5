"""The native recorder while the rank parks, is handed over, forks, loses its peers, its disk or its descriptors."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from native_ranks import run_job

from prismdbg.model.collective import State


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_parked_rank_loses_no_record(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "parked", 1)
    log = one.log()
    assert len(log.collectives) == one.report()["issued"]
    assert {c.state for c in log.collectives} == {State.COMPLETED}
    assert [c.record_id for c in log.collectives] == list(range(len(log.collectives)))
    assert [note.kind for note in log.notes] == ["parked"] * 5
    assert len(list(one.folder.glob("events.*.seg"))) > 1, "the log never went on to a second segment"


def test_a_thread_past_the_gate_is_on_its_way_until_it_is_recorded(tmp_path: Path) -> None:
    run_job(tmp_path, "on_its_way", 1)


def test_works_outlive_their_peers_after_a_handover(tmp_path: Path) -> None:
    run_job(tmp_path, "handover", 2)


def test_a_failed_collective_fails_as_before_and_is_recorded(tmp_path: Path) -> None:
    survivor, _ = run_job(tmp_path, "peer_dies", 2, expect=(0, 3))
    states = [(c.name, c.state) for c in survivor.log().collectives]
    assert states == [
        ("all_reduce", State.COMPLETED),
        ("all_reduce", State.FAILED),
        ("recv", State.FAILED),
        ("send", State.COMPLETED),
        ("barrier", State.FAILED),
        ("all_reduce", State.FAILED),
    ]


def test_a_forked_child_never_writes_its_parents_log(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "forked", 1)
    log = one.log()
    assert [c.state for c in log.collectives] == [State.COMPLETED, State.COMPLETED]
    assert log.notes == [] and log.steps == []


@pytest.mark.parametrize("payloads", [[], ["payloads"]])
def test_without_descriptors_the_training_goes_on(tmp_path: Path, payloads: list[str]) -> None:
    (one,) = run_job(tmp_path, "out_of_space", 1, "descriptors", *payloads)
    log = one.log()
    assert log.notes[0].kind == "lost" and "Too many open files" in log.notes[0].data["text"]


@pytest.mark.parametrize("payloads", [[], ["payloads"]])
def test_on_a_full_disk_the_training_goes_on(small_disk: Path, payloads: list[str]) -> None:
    (one,) = run_job(small_disk, "out_of_space", 1, "disk", *payloads)
    log = one.log()
    assert log.notes[0].kind == "lost" and "No space left" in log.notes[0].data["text"]
    assert len(log.collectives) > 10


def test_a_log_that_is_gone_after_a_park_is_said_where_it_can_be(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "reopened", 1)
    assert "prismdbg: rank 0: events are no longer recorded: " in one.output


@pytest.mark.parametrize("payloads", [[], ["payloads"]])
def test_a_program_that_takes_our_descriptors_gets_none_of_our_bytes(tmp_path: Path, payloads: list[str]) -> None:
    (one,) = run_job(tmp_path, "takes_descriptors", 1, *payloads)
    assert len(one.log().collectives) == 1
    assert "closed by the program" in one.output


@pytest.mark.parametrize("how", ["never", "closed"])
def test_a_file_that_has_the_number_of_stderr_gets_none_of_our_bytes(tmp_path: Path, how: str) -> None:
    run_job(tmp_path, "other_stderr", 1, how)


def test_other_threads_run_while_a_segment_is_had(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "held", 1)
    assert len(one.log().notes) == 30_000


def test_what_a_handler_raises_while_a_group_is_described_is_for_the_program(tmp_path: Path) -> None:
    (one,) = run_job(tmp_path, "interrupted", 1)
    log = one.log()
    assert len(log.collectives) == one.report()["issued"] == 5
    assert [group.ranks for group in log.groups.values()] == [(0,)] * 3
    assert "Preempted" not in one.output and "Late" not in one.output


def test_a_program_with_a_tag_for_each_message_has_no_end_of_them(tmp_path: Path) -> None:
    ranks = run_job(tmp_path, "many_tags", 2)
    sent, received = ([c.identity for c in one.log().collectives if c.is_p2p] for one in ranks)
    assert [(i.tag, i.seq) for i in sent] == [(i.tag, i.seq) for i in received]
    assert [i.seq for i in sent[-3:]] == [1, 1, 2]
    assert len(set(sent)) == len(sent)
