"""A part of `make faults`: real jobs with faults injected at random moments print and end as bare ones do."""

from __future__ import annotations

import os
import shutil
import zlib
from pathlib import Path

import pytest

from tests.faults.jobs import KINDS, Kind, bare, inject

pytestmark = pytest.mark.job

FAULTS = 4  # of a job
# The others, with descriptors taken away and servers that stop, are in `make faults` alone: not all of them hold yet.
KINDS_HERE = ("signals", "files", "program", "disk", "clock")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return bare(tmp_path_factory.mktemp("bare"))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in KINDS_HERE], ids=lambda kind: kind.name)
def test_a_job_with_faults_ends_as_bare(kind: Kind, results: list[str]) -> None:
    if kind.disk and os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    if kind.served and (shutil.which("bindfs") is None or not Path("/dev/fuse").exists()):
        pytest.skip("bindfs or /dev/fuse is missing (apt-get install bindfs)")
    if kind.clock and shutil.which("g++") is None:
        pytest.skip("g++ is missing")
    seed = zlib.crc32(kind.name.encode())
    python_kernels = bool(seed % 2) and not kind.served  # there they write themselves, and wait for the server
    outcome = inject(kind, FAULTS, seed, results, python_kernels=python_kernels)
    assert not outcome.wrong, (outcome.injected, outcome.wrong, outcome.output[-3000:])
    assert outcome.injected and (kind.disk or len(outcome.injected) == FAULTS), "little is left to break"
