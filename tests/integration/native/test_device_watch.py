"""What is put on a GPU's streams and followed there, on a device that a test lets go on (`tests/fake_cuda`).

The kernel itself and a real driver are tried by `make gpu`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import fake_cuda

SCENARIOS = (
    "finds_what_the_host_finds",
    "streams_do_not_hold_each_other",
    "a_later_waiter_is_held_back",
    "a_failed_device_is_told_as_unknown",
    "room_is_bounded_and_used_again",
    "no_room_is_waited_for_once",
    "what_never_comes_is_not_waited_for",
    "a_buffer_in_the_making_is_waited_for",
    "threads_with_pythons_lock_go_on",
    "the_end_is_bounded",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    folder = tmp_path_factory.mktemp("fake_cuda")
    fake_cuda.build(compiler, folder)
    return folder


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario(scenario: str, built: Path) -> None:
    program = f"import sys; sys.path.insert(0, {str(built)!r}); import device_scenarios as d; d.{scenario}()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]


def test_every_scenario_is_run() -> None:
    text = (fake_cuda.HERE / "scenarios.cpp").read_text()
    assert text.count("METH_NOARGS") == len(SCENARIOS)
