"""The supervisor dies, is told to end, or its job restarts: the job is as it would have been, the logs can be read."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from chain import PARTS, assert_identical, parameters, prismdbg, recording, replay
from jobs import EXAMPLES, Ended, forked, torchrun
from kernels import PIDFDS_TELL
from waiting import wait_for

from prismdbg.capsule.log.reader import read_log
from prismdbg.model.collective import State

pytestmark = [pytest.mark.job, pytest.mark.criu]


@pytest.mark.parametrize("recorder", ["native", "python"])
def test_a_job_outlives_its_supervisor_and_can_still_be_captured(recorder: str, tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    job_line = forked(PARTS / "until_told.py", tmp_path / "told", 0.02, ranks=2)
    options = ["--python-kernels"] if recorder == "python" else []
    capsule = tmp_path / "capsule"
    with recording(job_line, tmp_path, *options) as job:
        job.wait_for_step(1, 3)
        ranks = [psutil.Process(job.pid(rank)) for rank in (0, 1)]
        os.kill(job.job.process.pid, signal.SIGKILL)
        job.job.process.wait(30)
        reached = job.step(1)
        wait_for(lambda: job.step(1) > reached, 60, "the job to go on without its supervisor")

        said = prismdbg("capture", job.run.path, "--rank", 1, "--window", 2, "-o", capsule)
        assert said.code == 0, said.err
        assert all(rank.is_running() for rank in ranks)
        states = prismdbg("status", job.run.path, "--json").json["ranks"]
        assert [state["state"] for state in states] == ["running", "running"]

        last = job.step(0) + 20
        (tmp_path / "told" / "last").write_text(str(last))
        wait_for(lambda: not any(_lives(rank) for rank in ranks), 180, "the job to end by itself")
        for rank in (0, 1):
            log = read_log(job.run.latest(rank))
            assert log.steps[-1].step >= last
            assert [note.data["code"] for note in log.notes if note.kind == "exit"] == [0]
            assert all(record.state is State.COMPLETED for record in log.collectives)
        found = parameters(Ended(code=0, output=job.job.output))
        assert [rank for rank, _ in found] == ["0", "1"] and found[0][1] == found[1][1]
        assert prismdbg("why", job.run.path).code == 0
    assert_identical(replay(capsule), capsule)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_a_signal_that_ends_the_job_is_passed_on_and_is_no_incident(tmp_path: Path) -> None:
    job_line = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", "100000", ranks=2)
    with recording(job_line, tmp_path, "--window", "all") as job:
        job.wait_for_step(1, 3)
        ranks = [psutil.Process(job.pid(rank)) for rank in (0, 1)]
        job.job.process.send_signal(signal.SIGTERM)
        assert job.end(60).code != 0
        assert job.supervisor["incidents"] == [] and job.capsules == []
        assert not any(_lives(rank) for rank in ranks)


def test_an_exception_just_before_the_signal_is_captured(tmp_path: Path) -> None:
    """Within the second in which the supervisor waits for what other logs say. The launcher still ends rank 0."""
    job_line = forked(PARTS / "incidents.py", "oom", ranks=2)
    with recording(job_line, tmp_path, "--window", "all") as job:
        job.wait_for_step(1, 14)
        before_s = 0.1  # later than that, a terminal may have told the ranks first

        def has_raised() -> bool:
            raised = [note.time_ns for note in job.log(1).notes if note.kind == "incident"]
            return bool(raised) and time.monotonic_ns() - raised[0] > before_s * 1e9

        job.wait_for(has_raised, 60, "rank 1 to raise")
        job.job.process.send_signal(signal.SIGTERM)
        assert job.end(60).code != 0
        assert job.supervisor["interrupted"]["signal"] == signal.SIGTERM
        (incident,) = job.supervisor["incidents"]
        assert (incident["kind"], incident["ranks"]) == ("oom", [1])
        assert len(job.capsules) == 1


def test_ranks_that_their_launcher_ends_when_it_is_told_to_are_no_incident(tmp_path: Path) -> None:
    """As `timeout 90 torchrun` does: `record` gets no signal. Rank 0 takes long to end, as with gigabytes of memory."""
    job_line = torchrun(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", 100_000, ranks=2)
    with recording(job_line, tmp_path, "--window", "all") as job:
        job.wait_for_step(1, 3)
        ranks = [psutil.Process(job.pid(rank)) for rank in (0, 1)]
        launcher = ranks[0].parent()
        job.wait_until_watched(0, 1)
        assert launcher is not None
        ranks[0].suspend()
        try:
            # A SIGTERM that comes before it stands ends it at once.
            wait_for(lambda: ranks[0].status() == psutil.STATUS_STOPPED, 60, "rank 0 to stand")
            launcher.terminate()
            wait_for(lambda: not _lives(ranks[1]), 60, "rank 1 to end")
            with pytest.raises(psutil.TimeoutExpired):
                ranks[0].wait(1.5)  # so long the supervisor looks at a rank that died alone
        finally:
            ranks[0].resume()
        assert job.end(60).code != 0
        assert job.supervisor["incidents"] == [] and job.capsules == []
        assert {death["signal"] for death in job.supervisor["how_they_died"]} == {signal.SIGTERM}
        assert "the job was told to end" in prismdbg("why", job.run.path).out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_rank_that_is_ended_alone_is_the_cause_and_the_job_was_not_told(number: int, tmp_path: Path) -> None:
    """Its peer raises within milliseconds of it, for it loses the connection."""
    with recording(forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", 100_000, ranks=2), tmp_path) as job:
        job.wait_for_step(1, 4)
        job.wait_until_watched(0, 1)
        os.kill(job.pid(1), number)
        assert job.end(60).code != 0
        assert job.supervisor["interrupted"] == {}
        (incident,) = job.supervisor["incidents"]
        said = prismdbg("why", job.run.path).out
        assert "told to end" not in said and "job was terminated" not in said, said
        if number == signal.SIGTERM:
            assert (incident["kind"], incident["ranks"]) == ("lost", [1])
            assert "rank 1 died without an error message: killed by SIGTERM" in said, said
        else:  # it ends as by KeyboardInterrupt, and says so
            how = "exit code 130 (KeyboardInterrupt, as after SIGINT)"
            assert incident["text"].endswith(f"; rank 1 had exited with {how}"), incident
            assert f"rank 1 never joined it: it exited with {how}" in said, said
            assert "certain: rank 0 raised" not in said and "certain: exception" not in said, said


def test_a_death_that_is_seen_late_is_still_told_from_those_that_followed(tmp_path: Path) -> None:
    """When the supervisor looks, both ranks are gone, and their launcher has waited for them: only a new kernel knows
    of which signal. Rank 0 raised, for its peer was gone, or was told to end."""
    with recording(forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", 100_000, ranks=2), tmp_path) as job:
        job.wait_for_step(1, 4)
        supervisor = psutil.Process(job.job.process.pid)
        launcher = psutil.Process(job.pid(1)).parent()
        assert launcher is not None and launcher.ppid() == supervisor.pid
        job.wait_until_watched(0, 1)
        supervisor.suspend()
        try:
            wait_for(lambda: supervisor.status() == psutil.STATUS_STOPPED, 60, "the supervisor to stand")
            os.kill(job.pid(1), signal.SIGKILL)
            wait_for(lambda: launcher.status() == psutil.STATUS_ZOMBIE, 60, "the launcher to end")
        finally:
            supervisor.resume()
        assert job.end().code == 1
        signals = {death["rank"]: death["signal"] for death in job.supervisor["how_they_died"]}
        assert signals.keys() == {"0", "1"} and signals["1"] == (signal.SIGKILL if PIDFDS_TELL else None)
        (incident,) = job.supervisor["incidents"]
        assert (incident["kind"], incident["ranks"]) == ("lost", [1])
        assert not job.capsules, "nothing before the death was kept, and the rank that followed is not the one to keep"
        said = prismdbg("why", job.run.path)
        assert said.code == 0, said.out
        assert "told to end" not in said.out and "job was terminated" not in said.out, said.out
        # Certain where it is known that rank 1 was killed, and rank 0 had the time to raise.
        has_raised = any(note.kind == "incident" for note in read_log(job.run.latest(0)).notes)
        certainty = "certain" if PIDFDS_TELL and has_raised else "likely"
        assert f"{certainty}: rank 1 died without an error message" in said.out, said.out
        first = said.out.partition("\nlikely: ")[0]
        assert (
            first.startswith(f"{certainty}: rank 1")
            or "rank 1 never joined it: it died without an error message" in first
        ), said.out


def test_the_sockets_go_with_the_job(tmp_path: Path) -> None:
    from prismdbg.settings.rank_config import RankConfig

    with recording(forked(PARTS / "incidents.py", "not at all", ranks=2), tmp_path) as job:
        job.wait_for_step(1, 1)
        sockets = Path(RankConfig.load(job.run.config).socket_dir)
        assert {path.name for path in sockets.glob("*.sock")} == {"0.sock", "1.sock"}
        # beside them what children tell, of the ranks and of the process that started them, a mark of each rank, and
        # where the job's configuration is
        beside = {path for path in sockets.iterdir() if path.suffix not in (".sock", ".opened", ".rank", ".tmp")}
        assert [(path.name, path.read_text()) for path in beside] == [("config", str(job.run.config))]
        assert job.end().code == 0
        assert not sockets.exists()


def test_a_restarted_job_has_logs_of_each_attempt(tmp_path: Path) -> None:
    """The incident is the first attempt's; the second one succeeds."""
    line = torchrun(PARTS / "fails_once.py", tmp_path / "failed", ranks=2)
    line.insert(line.index("--nproc-per-node"), "--max-restarts=1")
    with recording(line, tmp_path, "--window", "all") as job:
        ended = job.end()
        assert ended.code == 0, ended.output[-3000:]
        assert [folder.name for folder in job.run.rank_folders()] == ["0", "0.1", "1", "1.1"]
        (incident,) = job.supervisor["incidents"]
        assert (incident["ranks"], incident["attempt"]) == ([1], 0)
        assert incident["text"] == "RuntimeError: the first attempt fails"
        (capsule,) = job.capsules
        assert incident["capsules"] == [str(capsule)]
    verdict = replay(capsule)
    assert verdict["raised"]["text"] == "the first attempt fails"
    assert_identical(verdict, capsule)
