"""What the native kernels write of a real two-rank job is what the job itself saw."""

from __future__ import annotations

import base64

import pytest
from native_ranks import JOBS, Ran, run_job

from prismdbg.capsule.log.reader import read_payload
from prismdbg.model.collective import Collective, State


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> list[Ran]:
    return run_job(tmp_path_factory.mktemp("every_kind"), "every_kind", 2)


def test_every_kind_of_collective_is_in_the_log(ran: list[Ran]) -> None:
    for one in ran:
        expected, log = one.report(), one.log()
        assert [c.name for c in log.collectives] == [e["name"] for e in expected]
        assert all(c.state is State.COMPLETED for c in log.collectives)
        assert [c.record_id for c in log.collectives] == list(range(len(expected)))
        for entry, collective in zip(expected, log.collectives, strict=True):
            _check(one, entry, collective)


def _check(one: Ran, entry: dict[str, object], collective: Collective) -> None:
    assert collective.fingerprint == entry["fingerprint"], entry
    payload = read_payload(one.folder, collective.payload) if collective.payload else b""
    assert payload == base64.b64decode(str(entry["payload"])), entry
    lines = [f.line for f in collective.frames if f.filename == str(JOBS / "every_kind.py")]
    assert entry["line"] in lines, entry
    assert collective.sent_nonfinite == entry.get("sent_nonfinite", False), entry
    assert collective.received_nonfinite == entry.get("received_nonfinite", False), entry
    assert collective.is_async == entry.get("is_async", False), entry
    assert collective.root == entry.get("root", entry.get("peer", -1)), entry
    assert collective.tag == entry.get("tag", 0), entry
    assert collective.source_rank == entry.get("source", -1), entry
    if "reduce_op" in entry:
        assert collective.reduce_op == entry["reduce_op"]
    assert collective.duration_ns is not None and collective.duration_ns >= 0


def test_identities_of_collectives_agree_between_ranks(ran: list[Ran]) -> None:
    first, second = ({c.identity: c.name for c in one.log().collectives if not c.is_p2p} for one in ran)
    assert first == second


def test_moments_count_within_their_step(ran: list[Ran]) -> None:
    log = ran[0].log()
    assert [mark.step for mark in log.steps] == [0, 1, 2]
    by_step: dict[int, list[int]] = {}
    for collective in log.collectives:
        by_step.setdefault(collective.moment.step, []).append(collective.moment.collective)
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_step.values())
    assert set(by_step) == {0, 1, 2}


def test_groups_are_described_before_their_first_record(ran: list[Ran]) -> None:
    for one in ran:
        groups = one.log().groups
        assert [(group.ranks, group.desc) for group in groups.values()] == [((0, 1), "default_pg")]
