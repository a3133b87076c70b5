"""A part of `make faults`: real jobs with faults injected at random moments print and end as bare ones do."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import zlib
from dataclasses import replace

import pytest
from file_server import missing

from tests.faults import kinds
from tests.faults.__main__ import in_turn
from tests.faults.jobs import KINDS, Kind, bare, inject

pytestmark = pytest.mark.job

FAULTS = 4  # of a job


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return bare(tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_job_with_faults_ends_as_bare(kind: Kind, results: list[str]) -> None:
    if kind.disk and os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    if kind.served and (reason := missing()):
        pytest.skip(reason)
    if kind.clock and shutil.which("g++") is None:
        pytest.skip("g++ is missing")
    seed = zlib.crc32(kind.name.encode())
    python_kernels = bool(seed % 2)
    outcome = inject(kind, FAULTS, seed, results, python_kernels=python_kernels)
    assert not outcome.wrong, (outcome.injected, outcome.wrong, outcome.output[-3000:])
    assert len(outcome.injected) == FAULTS, "little is left to break"


def test_however_many_faults_are_of_all_kinds_and_both_kernels() -> None:
    for seed in range(5):
        turns = in_turn(KINDS, seed)
        assert len({(kind.name, is_python) for kind, is_python in turns}) == len(turns) == 2 * len(KINDS)
        for count in range(1, len(turns) + 1):
            kinds_seen = {kind.name for kind, _ in turns[:count]}
            python_kernels = sum(is_python for _, is_python in turns[:count])
            assert len(kinds_seen) == min(count, len(KINDS)) and abs(count - 2 * python_kernels) <= 1


@pytest.mark.parametrize("name", ["restart", "restart-killed"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_job_that_is_started_again_more_often_than_bare_is_seen(
    name: str, is_killed: bool, results: list[str]
) -> None:
    """Its results are the same. A signal that the program handles is no reason to start it again."""
    fault = killed if is_killed else kinds.to_a_rank(signal.SIGUSR1)
    kind = replace(next(kind for kind in KINDS if kind.name == name), faults={"": fault}, bare=True)
    outcome = inject(kind, 1, 3, results, python_kernels=False)
    assert outcome.injected
    if is_killed:
        assert any("the ranks end with" in wrong for wrong in outcome.wrong), (outcome.wrong, outcome.output[-3000:])
    else:
        assert not outcome.wrong, (outcome.wrong, outcome.output[-3000:])


def killed(target: kinds.Target) -> None:
    target.rank().kill()


def test_a_bare_job_needs_the_descriptor_that_a_recorded_one_is_left(results: list[str]) -> None:
    limit = kinds.limited(resource.RLIMIT_NOFILE, kinds.spare_descriptors(kinds.NEEDED_DESCRIPTORS - 1))
    kind = Kind(name="limits", faults={"all descriptors taken": limit}, bare=True)
    outcome = inject(kind, FAULTS, 1, results, python_kernels=False)
    assert outcome.injected and outcome.wrong and "Too many open files" in outcome.output


def test_a_bare_job_survives_every_limit(results: list[str]) -> None:
    """Else a recorded one could not."""
    kind = Kind(name="limits", faults=kinds.LIMIT_FAULTS, bare=True)
    outcome = inject(kind, len(kind.faults), 1, results, python_kernels=False)
    assert not outcome.wrong and len(outcome.injected) == len(kind.faults), (outcome.wrong, outcome.output[-3000:])
