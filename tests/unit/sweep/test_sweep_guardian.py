"""Whatever a configuration started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from prismdbg.errors import UsageError
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import How, SweepRequest
from prismdbg.sweep.space import Space
from prismdbg.sweep.workers.guardian import hold
from prismdbg.sweep.workers.trial_group import TrialGroup

# The shell ends at once when it is told to, and leaves its child; or neither of them does what it is told.
# The child has a session of its own, so that no signal to the sweep's processes reaches it.
JOB = "[ $1 = deaf ] && trap '' TERM HUP; setsid sleep 600 & echo $! > $2.new; mv $2.new $2; wait"
SWEEP = """
import resource, signal, sys
from pathlib import Path
from test_sweep_guardian import request, run

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    run(request(Path(sys.argv[1]), "deaf"), 600.0)
"""


def request(path: Path, how: str) -> SweepRequest:
    command = ("sh", "-c", JOB, "job", "{how}", "{folder}/pid")
    return SweepRequest(output=path / "s", space=Space.parse(1, "dp", [f"how={how}"]), command=command, how=How.RECORD)


def run(asked: SweepRequest, bound_s: float) -> dict[str, str]:
    with SweepFolder.opened(asked) as folder:
        trials = [folder.trial(one) for one in asked.space.configurations()]
        return TrialGroup(folder, len(trials), bound_s, print, to_end_s=3.0).run(trials)


def sleeper(path: Path, how: str) -> psutil.Process:
    return psutil.Process(int((path / "s/trials" / f"how={how}" / "folder/pid").read_text()))


def is_running(path: Path, how: str) -> bool:
    try:
        return sleeper(path, how).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def has_ended(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_nothing_of_a_job_that_takes_too_long_goes_on(tmp_path: Path) -> None:
    why = run(request(tmp_path, "leaving,deaf"), 20.0)
    assert why == dict.fromkeys(("how=leaving", "how=deaf"), "it did not end within 20 seconds (--timeout)")
    assert not is_running(tmp_path, "leaving") and not is_running(tmp_path, "deaf")


@pytest.mark.parametrize(
    ("send", "number"), [(os.kill, signal.SIGKILL), (os.killpg, signal.SIGHUP), (os.killpg, signal.SIGQUIT)]
)
def test_a_configuration_begins_again_once_all_of_its_earlier_start_has_ended(
    tmp_path: Path, send: Callable[[int, int], None], number: int
) -> None:
    """The sweep is killed, or its terminal ends it with all its processes; its job does not end when it is told to."""
    asked = request(tmp_path, "deaf")
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", SWEEP, str(tmp_path)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, start_new_session=True) as sweeping:
        try:
            wait_for(lambda: (asked.output / "trials/how=deaf/folder/pid").is_file(), 60, "the job to run")
            job = sleeper(tmp_path, "deaf")
            send(sweeping.pid, number)
            sweeping.wait(60)
        finally:
            sweeping.kill()
    with SweepFolder.opened(asked) as folder:
        folder.begin(folder.trial(next(asked.space.configurations())))
    assert has_ended(job)


def test_what_does_not_end_is_an_error_in_time(tmp_path: Path) -> None:
    held = hold(tmp_path, 0)
    with pytest.raises(UsageError, match="still runs for an earlier start"):
        hold(tmp_path, 0)
    os.close(held)
    os.close(hold(tmp_path, 0))
