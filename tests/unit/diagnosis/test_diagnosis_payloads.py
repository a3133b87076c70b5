"""Hints from fingerprints: who reduces nothing but zeros, and groups whose members all send the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.payloads import FEWEST_STEPS, Payload
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.model.fingerprint_arithmetic import of_zeros
from prismdbg.rank.c10d import fingerprint
from tests.unit.logs import Job, Tensors

GRADIENTS, FLAG = Tensors(shape=(512,)), Tensors(shape=(4,))
ZEROS = of_zeros([512 * 4])

Sends = Callable[[int, int], int]  # rank, step


def trained(sends: Sends, *, steps: int = 12, tensors: Tensors = GRADIENTS, op: str = "allreduce_") -> Job:
    job = Job(3)
    for step in range(steps):
        job.call(op, tensors=tensors)
        for rank in job.ranks:
            calls = job.logs[rank].collectives
            calls[-1] = replace(calls[-1], fingerprint=sends(rank, step))
            job.next_step(rank)
    return job


def hints(job: Job) -> list[Payload]:
    found = diagnose(Evidence(logs=job.logs, world_size=3, ended_wall_ns=job.now_ns)).verdicts
    return [verdict for verdict in found if isinstance(verdict, Payload)]


@pytest.mark.parametrize("shapes", [[(512,)], [(3, 5), (7,)], [(0,)]])
def test_what_zeros_give_is_what_the_recorder_writes(shapes: list[tuple[int, ...]]) -> None:
    tensors = [torch.zeros(shape) for shape in shapes]
    assert of_zeros(t.numel() * t.element_size() for t in tensors) == fingerprint.of(tensors)


def test_a_rank_that_sends_nothing_but_zeros_from_some_step_on() -> None:
    [hint] = hints(trained(lambda rank, step: ZEROS if rank == 1 and step >= 3 else 100 * rank + step))
    assert (hint.ranks, hint.certainty, str(hint.moment), hint.steps) == ((1,), Certainty.HINT, "3.1", 9)
    assert hint.text == (
        "rank 1 sends only zeros in all_reduce of group world, in 9 steps from 3.1 on at /job/train.py:42 in main"
    )
    json.dumps(hint.to_json())


def test_all_ranks_send_zeros() -> None:
    [hint] = hints(trained(lambda rank, step: ZEROS))
    assert hint.ranks == (0, 1, 2) and "send only zeros" in hint.text


def test_a_group_whose_members_send_the_same_bits() -> None:
    [hint] = hints(trained(lambda rank, step: 1000 + step))
    assert hint.ranks == (0, 1, 2) and "send identical bits" in hint.text


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(trained(lambda rank, step: 100 * rank + step), id="as it should be"),
        pytest.param(trained(lambda rank, step: ZEROS if step < 11 else rank), id="no longer"),
        pytest.param(trained(lambda rank, step: ZEROS, steps=FEWEST_STEPS - 1), id="not for long"),
        pytest.param(trained(lambda rank, step: of_zeros([16]), tensors=FLAG), id="a flag"),
        pytest.param(trained(lambda rank, step: 1000 + step, tensors=FLAG), id="a small one"),
        pytest.param(trained(lambda rank, step: 1000 + step, op="broadcast_"), id="a broadcast"),
        pytest.param(trained(lambda rank, step: 17), id="a constant"),
        pytest.param(trained(lambda rank, step: 1000 + step + (rank if step == 5 else 0)), id="not always"),
    ],
)
def test_where_there_is_nothing_to_hint_at(job: Job) -> None:
    assert hints(job) == []
