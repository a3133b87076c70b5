"""A job that cannot be started leaves nothing behind, and takes nothing away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from waiting import wait_for

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.jobs.capture import agent_sockets
from prismdbg.jobs.record import record
from prismdbg.jobs.record.nodes import publisher
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.record.supervisor import Policy
from prismdbg.jobs.storage.ranks_alive import process_with
from prismdbg.settings.rank_config import RankConfig


@pytest.mark.parametrize("was_there", [True, False])
def test_a_job_that_cannot_be_started(was_there: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    if was_there:
        folder.mkdir()
    assert main.run(["record", "-o", str(folder), "--", str(tmp_path / "no-such-program")]) == ExitCode.USAGE
    assert " cannot be started" in capsys.readouterr().err
    assert folder.exists() == was_there
    assert not was_there or not list(folder.iterdir())


ENDS_LATER = "import sys; sys.stdin.read(); sys.exit(7)"


@pytest.mark.parametrize("stream", ["full", "unread"])
def test_a_job_is_not_left_by_a_supervisor_that_cannot_speak(
    stream: str, tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]
) -> None:
    """Its standard error is a file on a full disk, or a pipe whose reader has ended."""
    line = [*prismdbg_command, "record", "-o", str(tmp_path / "run"), "--", sys.executable, "-c", ENDS_LATER]
    shell = ["bash", "-c", '"$@" 2>/dev/full' if stream == "full" else '"$@" 2> >(true)', "sh", *line]
    ended = subprocess.run(shell, env=child_environment, input="", text=True, timeout=120, check=False)
    assert ended.returncode == 7
    assert json.loads((tmp_path / "run" / "supervisor.json").read_text())["exit_code"] == 7


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_that_is_ignored_does_not_end_the_watch(
    number: signal.Signals, tmp_path: Path, child_environment: dict[str, str], prismdbg_command: tuple[str, ...]
) -> None:
    """As with nohup, or in the background of a script: the job goes on, and its incidents are still incidents."""
    line = [*prismdbg_command, "record", "-o", str(tmp_path / "run"), "--", sys.executable, "-c", ENDS_LATER]
    ignoring = ["bash", "-c", f"trap '' {number.name}; exec \"$@\"", "sh", *line]
    with subprocess.Popen(ignoring, env=child_environment, stdin=subprocess.PIPE) as supervisor:
        wait_for((tmp_path / "run" / "supervisor.json").exists, 60, "the supervisor to begin")
        supervisor.send_signal(number)
        supervisor.communicate(timeout=60)
    assert supervisor.returncode == 7
    assert json.loads((tmp_path / "run" / "supervisor.json").read_text())["interrupted"] == {}


TOLD = (  # in short naps: a signal that comes just before `signal.pause` would be noticed at the next one only
    "import signal, sys, time; signal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))\n"
    "signal.signal(signal.SIGQUIT, signal.SIG_DFL); print('on', flush=True)\n"  # a shell's background job ignores it
    "while True: time.sleep(0.05)"
)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR2, 7), (signal.SIGQUIT, 128 + signal.SIGQUIT)])
def test_a_signal_is_the_jobs(
    number: signal.Signals, code: int, tmp_path: Path, child_environment: dict[str, str],
    prismdbg_command: tuple[str, ...],
) -> None:  # fmt: skip
    """Bare, it would reach the job: `record` does not die of it."""
    line = [*prismdbg_command, "record", "-o", str(tmp_path / "run"), "--", sys.executable, "-c", TOLD]
    with subprocess.Popen(line, env=child_environment, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None and supervisor.stdout.readline() == b"on\n"
        wait_for((tmp_path / "run" / "supervisor.json").exists, 60, "the supervisor to begin")
        supervisor.send_signal(number)
        assert supervisor.wait(60) == code


@pytest.mark.parametrize("told", [KeyboardInterrupt, SystemExit])
def test_who_is_told_to_end_before_the_watch_begins_ends_the_job(told: type[BaseException], tmp_path: Path) -> None:
    def say(_text: str) -> None:
        raise told

    request = RecordRequest(output=tmp_path / "run", command=("sleep", "1000"), policy=Policy())
    before = {process.pid for process in psutil.Process().children()}
    with pytest.raises(told):
        record.record(request, say)
    assert {process.pid for process in psutil.Process().children()} == before


def test_a_mistyped_option_is_not_taken_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["record", "-o", str(tmp_path / "run"), "--wndow", "3", "--", "true"]) == ExitCode.USAGE
    assert capsys.readouterr().err == "error: unknown option '--wndow'\n  try: see `prismdbg record --help`\n"


LEAVES_A_PROCESS = (
    "import subprocess, sys\n"
    "left = subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
    "open(sys.argv[1], 'w').write(str(left.pid))\n"
)


@pytest.mark.parametrize("local", ["", "local"])
@pytest.mark.parametrize("program", [LEAVES_A_PROCESS, "pass"])
def test_where_ranks_tell_of_each_other_is_kept_while_a_process_of_the_job_runs(
    program: str, local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that outlives the command starts another process: that is none of the job's."""
    monkeypatch.setattr(publisher, "LAST_TRIES_S", -1.0)
    (tmp_path / "local").mkdir()
    run, told = tmp_path / "run", tmp_path / "pid"
    own = str(tmp_path / local) if local else ""
    monkeypatch.setattr(agent_sockets, "HOMES", (tmp_path,))
    command = (sys.executable, "-c", program, str(told))
    try:
        assert record.record(RecordRequest(output=run, command=command, local=own, policy=Policy()), print) == 0
        monkeypatch.setattr(agent_sockets, "start_ticks", lambda _: 0)  # `record` has ended
        agent_sockets.remove_dead_sockets()
        (config,) = run.glob("nodes/*/config.json" if local else "config.json")
        sockets = Path(RankConfig.load(config).socket_dir)
        assert sockets.exists() == (program == LEAVES_A_PROCESS)
    finally:
        if told.exists():
            psutil.Process(int(told.read_text())).kill()
    wait_for(lambda: process_with(config) is None, 60, "the process to be gone")
    agent_sockets.remove_dead_sockets()
    assert not sockets.exists()
