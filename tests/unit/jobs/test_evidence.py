"""What a run folder yields for a diagnosis, also where half of it is missing or damaged."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM

import pytest
from capsules import MANIFEST, RANK, make_capsule
from tiny_log import TinyLog

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.capsule.stacks import FROM_OUTSIDE, HangPlace, JobStacks, RankStacks, ThreadStack
from prismdbg.diagnosis.failures import Died
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs import evidence as evidence_module
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.replay.silence import recorded_silence
from prismdbg.jobs.storage.kept_stacks import keep_stacks
from prismdbg.jobs.storage.pack import pack
from prismdbg.jobs.storage.run_folder import RunFolder, describe_run
from prismdbg.jobs.storage.run_report import report
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.telemetry.file_format import segment_name

TOLD_NS = 10**18 + 60 * 10**9  # a minute after the calls of a tiny log
NO_SUCH_PID = 2**22 + 1  # beyond what Linux gives


def rank_folder(run: Path, name: str, *, calls: int = 2, world_size: int = 2) -> TinyLog:
    log = TinyLog(run / "ranks" / name, int(name.split(".")[0]))
    log.group("0", range(world_size), "default_pg")
    for n in range(calls):
        log.complete(log.issue(0, n + 1, seq=n))
    (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, "world_size": world_size}))
    return log


def supervisor(run: Path, **state: object) -> None:
    (run / "supervisor.json").write_text(json.dumps(state))


@pytest.mark.parametrize(("whole", "asked"), [(True, None), (False, 24 << 20)])
def test_nodes_are_asked_for_what_is_read_of_their_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool, asked: int | None
) -> None:
    (tmp_path / "run.json").write_text("{}")
    for rank in range(8):
        rank_folder(tmp_path, str(rank), world_size=8)
    told = list[int | None]()
    monkeypatch.setattr(evidence_module, "ask_for_logs", lambda *_: told.append(_[-1]) or [])
    gather(tmp_path, whole=whole)
    assert told == [asked]


def test_telemetry_that_is_damaged_is_a_gap_and_the_logs_speak_without_it(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    rank_folder(tmp_path, "0.1").note("exit", code=0)
    assert not gather(tmp_path).telemetry
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / segment_name(1)).write_bytes(b"damaged by a disk")

    evidence = gather(tmp_path)

    assert any(gap.startswith("telemetry is damaged, and read only in part: ") for gap in evidence.gaps)
    assert evidence.folder_name(0) == "0.1"
    assert not [verdict for verdict in diagnose(evidence).verdicts if verdict.kind == "straggler"]


def test_logs_and_how_they_ended(tmp_path: Path) -> None:
    rank_folder(tmp_path, "0").note("exit", code=0)
    rank_folder(tmp_path, "1")
    supervisor(tmp_path, exit_code=1, ended_wall_ns=123)

    evidence = gather(tmp_path)

    assert sorted(evidence.logs) == [0, 1]
    assert (evidence.world_size, evidence.ended_wall_ns, evidence.is_running) == (2, 123, False)
    assert evidence.silent == {1}
    assert evidence.died_first is None


@pytest.mark.parametrize(("how", "silent"), [({}, set()), ({"code": 0}, set()), ({"code": 137}, {1})])
def test_a_rank_whose_recording_ended_is_silent_only_where_it_failed(
    how: dict[str, int], silent: set[int], tmp_path: Path
) -> None:
    rank_folder(tmp_path, "0").note("exit", code=0)
    rank_folder(tmp_path, "1").note("lost", text="events are no longer recorded: No space left on device")
    supervisor(tmp_path, exit_code=1, deaths=["1"], how_they_died=[{"rank": "1", "wall_ns": 9, "signal": None, **how}])

    assert gather(tmp_path).silent == silent


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "killed by SIGKILL"),
        (signal.SIGABRT, "aborted (SIGABRT) by a crash in native code, or by a watchdog"),
        (signal.SIGSEGV, "SIGSEGV, a crash in native code"),
        (40, "killed by signal 40"),
        (None, "killed from outside, or a crash in native code"),
    ],
)
def test_the_signal_that_a_rank_died_of_is_named_where_it_is_known(
    number: int | None, how: str, tmp_path: Path
) -> None:
    rank_folder(tmp_path, "0").note("exit", code=0)
    rank_folder(tmp_path, "1")
    died = [{"rank": "1", "wall_ns": 9, "signal": number, "code": None if number is None else 128 + number}]
    supervisor(tmp_path, exit_code=1, deaths=["1"], how_they_died=died)

    found = diagnose(gather(tmp_path)).verdicts[0]

    assert found.text == f"rank 1 died without an error message: {how}"


@pytest.mark.parametrize(("exit_code", "silent"), [(0, set()), (1, {1})])
def test_a_rank_that_left_with_code_0_is_silent_where_the_job_failed(
    exit_code: int, silent: set[int], tmp_path: Path
) -> None:
    """Its peers lost their connections to it: to leave it out would accuse one of them."""
    rank_folder(tmp_path, "0").note("exit", code=exit_code)
    rank_folder(tmp_path, "1")
    died = [{"rank": "1", "wall_ns": 9, "signal": 0, "code": 0}]
    supervisor(tmp_path, exit_code=exit_code, deaths=["1"], how_they_died=died)

    evidence = gather(tmp_path)

    assert (evidence.silent, set(evidence.exit_codes)) == (silent, silent)
    found = diagnose(evidence)
    if silent:
        assert found.verdicts[0].text.startswith("rank 1 exited with exit code 0, and its log has no end record")
    else:
        (missing,) = [line for line in found.missing if line.startswith("the log of rank 1 breaks off: it ended with")]
        assert "but its log has no end record" in missing and found.summary.endswith("available logs of ranks 0 and 1")


def test_the_rank_that_the_supervisor_saw_die_first(tmp_path: Path) -> None:
    for name in ("0", "1"):
        rank_folder(tmp_path, name)
    supervisor(tmp_path, exit_code=1, incidents=[{"kind": "lost", "ranks": [1], "text": "killed"}])

    assert gather(tmp_path).died_first == 1


def test_deaths_before_a_restart_say_nothing_of_the_attempt_after_it(tmp_path: Path) -> None:
    for name in ("0", "1", "0.1", "1.1"):
        rank_folder(tmp_path, name)
    lost = {"kind": "lost", "ranks": [1], "attempt": 0}
    supervisor(tmp_path, exit_code=1, deaths=["1", "0", "0.1", "1.1"], incidents=[lost])

    assert gather(tmp_path).died_first == 0


def test_of_deaths_seen_at_once_the_first_is_likely(tmp_path: Path) -> None:
    for name in ("0", "1"):
        rank_folder(tmp_path, name)
    died = [{"rank": "0", "wall_ns": 9, "signal": SIGTERM}, {"rank": "1", "wall_ns": 9, "signal": None}]
    supervisor(tmp_path, exit_code=1, deaths=["0", "1"], how_they_died=died)

    evidence = gather(tmp_path)

    assert (evidence.interrupted, evidence.died_first, evidence.deaths_seen_late) == (False, 1, True)
    (verdict,) = [verdict for verdict in diagnose(evidence).verdicts if isinstance(verdict, Died)]
    assert (verdict.ranks, verdict.certainty) == ((1,), Certainty.LIKELY)
    assert "its death was noticed late" in "\n".join(verdict.lines)


def test_deaths_seen_one_after_the_other_are_certain(tmp_path: Path) -> None:
    for name in ("0", "1"):
        rank_folder(tmp_path, name)
    killed = {"rank": "1", "wall_ns": 9, "signal": SIGKILL}
    ended = {"rank": "0", "wall_ns": 12, "alive_wall_ns": 9, "signal": SIGTERM}
    supervisor(tmp_path, exit_code=1, deaths=["1", "0"], how_they_died=[killed, ended])

    evidence = gather(tmp_path)

    assert (evidence.died_first, evidence.deaths_seen_late) == (1, False)


def test_who_was_told_to_end_is_not_for_certain_the_first_where_another_end_is_not_known(tmp_path: Path) -> None:
    for name in ("0", "1"):
        rank_folder(tmp_path, name)
    told = {"rank": "0", "wall_ns": 9, "signal": SIGTERM}
    unknown = {"rank": "1", "wall_ns": 12, "alive_wall_ns": 9, "signal": None}
    supervisor(tmp_path, exit_code=1, deaths=["0", "1"], how_they_died=[told, unknown])

    evidence = gather(tmp_path)

    assert (evidence.interrupted, evidence.died_first, evidence.deaths_seen_late) == (False, 0, True)


@pytest.mark.parametrize("alive_ns", [9, 29])
def test_who_was_killed_after_one_that_had_its_word_is_not_the_first(alive_ns: int, tmp_path: Path) -> None:
    """As a launcher ends the others, or kills a rank that hangs half a minute after it told it to end. The look that
    sees one dead sees after that who is alive."""
    rank_folder(tmp_path, "0").note("exit", code=1)
    rank_folder(tmp_path, "1")
    raised = {"rank": "0", "wall_ns": 9, "signal": 0, "code": 1}
    killed = {"rank": "1", "wall_ns": 30, "alive_wall_ns": alive_ns, "signal": SIGKILL, "code": 137}
    supervisor(tmp_path, exit_code=1, deaths=["0", "1"], how_they_died=[raised, killed])

    assert gather(tmp_path).died_first is None


@pytest.mark.parametrize(("text", "first"), [("too short", None), ("Connection closed by peer", 1)])
def test_who_was_told_to_end_in_the_look_that_saw_one_that_raised_followed_it(
    text: str, first: int | None, tmp_path: Path
) -> None:
    """A launcher ends the others of one that raised, unless that one had lost a peer."""
    rank_folder(tmp_path, "0").note("incident", incident="exception", type="RuntimeError", text=text)
    rank_folder(tmp_path, "1")
    seen = {"wall_ns": TOLD_NS, "alive_wall_ns": TOLD_NS - 10**9}
    raised, told = {"rank": "0", "signal": 0, "code": 1}, {"rank": "1", "signal": SIGTERM, "code": 143}
    supervisor(tmp_path, exit_code=1, deaths=["0", "1"], how_they_died=[raised | seen, told | seen])

    assert gather(tmp_path).died_first == first


@pytest.mark.parametrize(("trained_on", "first"), [(True, 1), (False, None)])
def test_an_exception_that_a_rank_outlived_ended_nobody(trained_on: bool, first: int | None, tmp_path: Path) -> None:
    """It was only printed, and the rank trained on."""
    log = rank_folder(tmp_path, "0")
    log.note("incident", incident="exception", type="ValueError", text="odd")
    if trained_on:
        log.step(1, time_ns=10**9)
    rank_folder(tmp_path, "1")
    seen = {"wall_ns": TOLD_NS, "alive_wall_ns": TOLD_NS - 10**9}
    followed, told = {"rank": "0", "signal": 0, "code": 1}, {"rank": "1", "signal": SIGTERM, "code": 143}
    supervisor(tmp_path, exit_code=1, deaths=["0", "1"], how_they_died=[followed | seen, told | seen])

    assert gather(tmp_path).died_first == first


@pytest.mark.parametrize(("code", "first"), [(1, None), (0, 1)])
def test_a_process_that_outlives_the_end_of_its_rank_died_with_the_others(
    code: int, first: int | None, tmp_path: Path
) -> None:
    """As those of Ray, which kills all of them later."""
    rank_folder(tmp_path, "0").note("exit", code=code)
    rank_folder(tmp_path, "1")
    killed = {"signal": 0, "code": 1, "wall_ns": TOLD_NS, "alive_wall_ns": TOLD_NS - 10**9}
    supervisor(tmp_path, exit_code=1, deaths=["0", "1"], how_they_died=[{"rank": each} | killed for each in "01"])

    assert gather(tmp_path).died_first == first


def test_a_death_after_another_incident_was_not_the_first(tmp_path: Path) -> None:
    for name in ("0", "1"):
        rank_folder(tmp_path, name)
    supervisor(tmp_path, exit_code=1, incidents=[{"kind": "exception", "ranks": [0]}, {"kind": "lost", "ranks": [1]}])

    assert gather(tmp_path).died_first is None


def test_only_the_last_attempt_counts(tmp_path: Path) -> None:
    for name in ("0", "1"):
        rank_folder(tmp_path, name, calls=5)
    rank_folder(tmp_path, "0.1", calls=1)

    evidence = gather(tmp_path)

    assert list(evidence.logs) == [0]
    assert len(evidence.logs[0].collectives) == 1
    assert "no log of rank 1: it was not recorded, or issued no collective" in diagnose(evidence).missing


def test_ranks_of_jobs_that_ran_side_by_side_are_not_compared(tmp_path: Path) -> None:
    """They took the folders as they came: each attempt has ranks of both."""
    ports = {"0": 24001, "1": 24002, "0.1": 24002, "1.1": 24001}
    for name, port in ports.items():
        log = rank_folder(tmp_path, name, calls=2 if port == 24001 else 3)
        described = {"environment": {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}, "world_size": 2}
        (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, **described}))
    (tmp_path / "run.json").write_text("{}")

    evidence = gather(tmp_path)

    assert {rank: len(log.collectives) for rank, log in evidence.logs.items()} == {0: 3, 1: 3}
    assert any("several jobs ran at the same time" in gap for gap in evidence.gaps)


def test_attempts_that_met_at_other_places_are_attempts(tmp_path: Path) -> None:
    for name in ("0", "1", "0.1", "1.1"):
        log = rank_folder(tmp_path, name, calls=3 if "." in name else 2)
        port = 24002 if "." in name else 24001
        described = {"environment": {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}}
        (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, **described}))
    (tmp_path / "run.json").write_text("{}")

    evidence = gather(tmp_path)

    assert {rank: len(log.collectives) for rank, log in evidence.logs.items()} == {0: 3, 1: 3}
    assert "this is attempt 2: earlier attempts are not diagnosed" in evidence.gaps


def test_a_log_is_read_up_to_its_damage(tmp_path: Path) -> None:
    rank_folder(tmp_path, "0", calls=3)
    broken = rank_folder(tmp_path, "1", calls=2)
    broken.write(broken.offset, b"\x07\0\0\0\x01\0\0\0")

    evidence = gather(tmp_path)

    assert len(evidence.logs[1].collectives) == 2
    assert "damaged at offset" in evidence.damaged[1]


def test_a_log_that_cannot_be_read_at_all(tmp_path: Path) -> None:
    rank_folder(tmp_path, "0")
    foreign = rank_folder(tmp_path, "1")
    foreign.path.write_bytes(b"something else" * 100)

    evidence = gather(tmp_path)

    assert list(evidence.logs) == [0]
    assert "is not a prismdbg log" in evidence.damaged[1]


def test_what_stands_in_json_files_may_be_missing_or_broken(tmp_path: Path) -> None:
    log = rank_folder(tmp_path, "0")
    (log.folder / "rank.json").unlink()
    (tmp_path / "supervisor.json").write_text("{")

    assert gather(tmp_path).silent == {0}


def test_a_folder_without_logs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="contains no log"):
        gather(tmp_path)


def test_a_run_without_a_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    supervisor(tmp_path, exit_code=3)

    with pytest.raises(CapsuleError, match=r"contains no log of any rank: .* and the job ended with 3") as raised:
        gather(tmp_path)

    assert raised.value.hint


def test_of_a_job_that_has_just_begun_it_says_that_no_rank_has_issued_a_collective_so_far(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    describe_run(run, ["true"], {})  # by this process, which lives
    with pytest.raises(CapsuleError, match=r"contains no log of any rank so far: the job is running, but"):
        gather(tmp_path)
    (line,) = report(tmp_path)
    assert line.endswith(
        "no rank so far: the job is running, but no rank has issued a collective or an optimizer step yet"
    )

    supervisor(tmp_path, exit_code=3)
    assert report(tmp_path) == [f"{tmp_path} contains no rank: the job issued no collective and no optimizer step"]


class TestAJobThatWasToldToEnd:
    def hung(self, run: Path, **more: object) -> None:
        """Rank 1 never comes; then both are told to end, and rank 1 says so."""
        first, second = rank_folder(run, "0"), rank_folder(run, "1")
        first.issue(0, 3, seq=2)
        second.note("exit", code=130, time_ns=61 * 10**9)
        (run / "run.json").write_text("{}")
        supervisor(run, exit_code=1, ended_wall_ns=TOLD_NS + 10**9, **more)

    def test_who_was_interrupted_with_it_is_no_culprit(self, tmp_path: Path) -> None:
        self.hung(tmp_path, interrupted={"signal": 2, "wall_ns": TOLD_NS})

        diagnosis = diagnose(gather(tmp_path))

        [stopped] = diagnosis.verdicts
        assert stopped.text.endswith("rank 1 never joined it")
        assert "exit code" not in " ".join(stopped.lines)
        assert any("the job was told to end" in line for line in diagnosis.missing)
        assert not any("without a word" in line for line in diagnosis.missing)

    @pytest.mark.parametrize(("told_ns", "is_told"), [(TOLD_NS, True), (10**18 - 2 * 10**9, False)])
    def test_who_was_interrupted_while_another_still_lives_is_no_culprit_either(
        self, told_ns: int, is_told: bool, tmp_path: Path
    ) -> None:
        """A rank that waits in a collective hears of Ctrl-C only when its launcher kills it. The supervisor that was
        told before the ranks began was told in an attempt before."""
        self.hung(tmp_path)
        process = {"pid": os.getpid(), "world_size": 2}
        (tmp_path / "ranks" / "0" / "rank.json").write_text(json.dumps(process))
        supervisor(tmp_path, interrupted={"signal": 2, "wall_ns": told_ns})

        diagnosis = diagnose(gather(tmp_path))

        first = diagnosis.verdicts[0].text
        assert first.endswith("rank 1 never joined it") is is_told
        assert first.startswith("rank 1 exited") is not is_told
        assert any("the job was told to end" in line for line in diagnosis.missing) is is_told

    @pytest.mark.parametrize("reported", [True, False])
    def test_a_death_that_was_reported_counts_while_another_rank_still_lives(
        self, reported: bool, tmp_path: Path
    ) -> None:
        for name in ("0", "1"):
            rank_folder(tmp_path, name)
        (tmp_path / "ranks" / "0" / "rank.json").write_text(json.dumps({"pid": os.getpid(), "world_size": 2}))
        lost = {"kind": "lost", "text": "rank 1 was killed", "moment": "0.2", "ranks": [1], "attempt": 0}
        supervisor(tmp_path, incidents=[lost] * reported, interrupted={"signal": 15, "wall_ns": TOLD_NS})

        evidence = gather(tmp_path)

        assert (evidence.interrupted, evidence.is_running) == (True, True)
        assert (evidence.silent, len(evidence.incidents)) == (({1}, 1) if reported else (set(), 0))

    def test_who_alone_was_interrupted_is_one(self, tmp_path: Path) -> None:
        self.hung(tmp_path, how_they_died=[{"rank": "0", "wall_ns": TOLD_NS + 2 * 10**9, "signal": 15}])

        first = diagnose(gather(tmp_path)).verdicts[0]
        assert first.text.startswith("rank 1 exited with exit code 130 (KeyboardInterrupt")

    def test_what_was_seen_before_comes_first(self, tmp_path: Path) -> None:
        rank_folder(tmp_path, "0")
        rank_folder(tmp_path, "1").note("exit", code=130, time_ns=61 * 10**9)
        nan = {"kind": "nan", "text": "rank 1 sends the first NaN", "moment": "0.2", "ranks": [1], "attempt": 0}
        supervisor(tmp_path, exit_code=1, incidents=[nan], interrupted={"signal": 2, "wall_ns": TOLD_NS})

        first, *_ = diagnose(gather(tmp_path)).verdicts

        assert (first.kind, first.text) == ("incident", "nan: rank 1 sends the first NaN")

    @pytest.mark.parametrize("kept", [{"capsules": ["lost-rank1-0.2"]}, {"evidence": ["evidence-rank1"]}, {}])
    def test_a_death_that_was_reported_stays(self, kept: dict[str, list[str]], tmp_path: Path) -> None:
        """It was seen before the supervisor knew that the job is to end, whether anything was kept of it or not."""
        for name in ("0", "1"):
            rank_folder(tmp_path, name)
        lost = {"kind": "lost", "text": "rank 1 was killed", "moment": "0.2", "ranks": [1], "attempt": 0, **kept}
        died = [{"rank": "1", "wall_ns": TOLD_NS - 10**8, "signal": SIGTERM}]
        told = {"signal": 15, "wall_ns": TOLD_NS}
        supervisor(tmp_path, exit_code=1, incidents=[lost], how_they_died=died, interrupted=told)

        found = [verdict.text for verdict in diagnose(gather(tmp_path)).verdicts]

        assert found == ["rank 1 died without an error message: killed by SIGTERM"]

    @pytest.mark.parametrize("kept", [{"capsules": ["lost-rank1-0.2"]}, {"evidence": ["evidence-rank1"]}, {}])
    def test_where_the_launcher_alone_was_told_only_a_death_that_was_captured_stays(
        self, kept: dict[str, list[str]], tmp_path: Path
    ) -> None:
        for name in ("0", "1"):
            rank_folder(tmp_path, name)
        lost = {"kind": "lost", "text": "rank 1 was killed", "moment": "0.2", "ranks": [1], "attempt": 0, **kept}
        died = [{"rank": rank, "wall_ns": TOLD_NS + ns, "signal": SIGTERM} for rank, ns in (("1", 0), ("0", 10**6))]
        supervisor(tmp_path, exit_code=1, incidents=[lost], how_they_died=died, interrupted={})

        found = [verdict.text for verdict in diagnose(gather(tmp_path)).verdicts]

        assert found == (["lost: rank 1 was killed"] if kept else [])

    def test_who_was_ended_alone_is_the_cause_though_its_peer_raised_at_once(self, tmp_path: Path) -> None:
        peer, _ = rank_folder(tmp_path, "0"), rank_folder(tmp_path, "1")
        peer.note(
            "incident", incident="exception", type="RuntimeError", text="Connection closed", time_ns=61_002 * 10**6
        )
        ended = {"rank": "1", "wall_ns": TOLD_NS, "signal": SIGTERM, "code": 143}
        followed = {"rank": "0", "wall_ns": TOLD_NS + 113 * 10**6, "signal": SIGTERM, "code": 143}
        supervisor(tmp_path, exit_code=1, deaths=["1", "0"], how_they_died=[ended, followed], interrupted={})

        evidence = gather(tmp_path)

        assert (evidence.interrupted, evidence.died_first) == (False, 1)

    def on_two_nodes(self, run: Path, *ranks: tuple[str, str, int]) -> Diagnosis:
        """Of a job whose node n2 alone was told to end. ranks: log folder, node, and when it issued the last of its
        collectives, in seconds of its log; rank 0 raises a second after that."""
        told = {"signal": 15, "wall_ns": TOLD_NS}
        for node, said in (("n1", {"exit_code": 1}), ("n2", {"exit_code": 143, "interrupted": told})):
            (run / "nodes" / node).mkdir(parents=True)
            (run / "nodes" / node / "node.json").write_text("{}")
            (run / "nodes" / node / "supervisor.json").write_text(json.dumps({"ended_wall_ns": TOLD_NS, **said}))
        (run / "nodes" / "job.json").write_text('{"id": "x"}')
        (run / "run.json").write_text("{}")
        for name, node, last_s in ranks:
            log = rank_folder(run, name, calls=0)
            log.complete(log.issue(0, 1, seq=0, time_ns=last_s * 10**9))
            if name.startswith("0"):
                raised_ns = (last_s + 1) * 10**9
                log.note("incident", incident="exception", type="ValueError", text="no", time_ns=raised_ns)
            about = {"pid": NO_SUCH_PID, "world_size": 2, "node": node}
            (log.folder / "rank.json").write_text(json.dumps(about))
        return diagnose(gather(run))

    @pytest.mark.parametrize(("last_s", "is_told"), [(110, True), (125, False)])
    def test_where_ranks_of_another_node_went_on_for_long_the_job_was_not_told(
        self, last_s: int, is_told: bool, tmp_path: Path
    ) -> None:
        found = self.on_two_nodes(tmp_path, ("0", "n1", last_s), ("1", "n2", 30))
        texts = [verdict.text for verdict in found.verdicts]
        assert any("ValueError: no" in text for text in texts) is not is_told, texts
        assert any("the job was told to end" in line for line in found.missing) is is_told
        assert found.interrupted is is_told

    @pytest.mark.parametrize("joins_again", [False, True])
    def test_a_job_that_began_anew_after_a_node_was_told_was_not_told_itself(
        self, joins_again: bool, tmp_path: Path
    ) -> None:
        later = [("0.1", "n1", 70), *([("1.1", "n2", 70)] if joins_again else [])]
        found = self.on_two_nodes(tmp_path, ("0", "n1", 30), ("1", "n2", 30), *later)
        assert "ValueError: no" in found.verdicts[0].text, [verdict.text for verdict in found.verdicts]
        assert not any("the job was told to end" in line for line in found.missing)
        assert found.exit_code == 1

    def test_the_incident_of_an_attempt_before_is_kept(self, tmp_path: Path) -> None:
        for name in ("0", "0.1"):
            rank_folder(tmp_path, name, world_size=1).note("exit", code=0)
        raised = {"kind": "exception", "text": "ValueError: no", "moment": "0.2", "ranks": [0], "attempt": 0}
        supervisor(tmp_path, exit_code=0, incidents=[raised, {"kind": "damaged"}, 7])

        verdicts = diagnose(gather(tmp_path)).verdicts
        assert [verdict.text for verdict in verdicts] == ["exception (attempt 1): ValueError: no"]


def test_what_is_missing_in_a_run_folder_is_named(tmp_path: Path) -> None:
    rank_folder(tmp_path, "0", world_size=3)
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.json").write_text(json.dumps({"nan_check": False, "ranks": [0, 2]}))

    diagnosis = diagnose(gather(tmp_path))

    assert diagnosis.missing == (
        "rank 1 was not selected for recording (--ranks)",
        "no log of rank 2: it was not recorded, or issued no collective",
        "rank 0 ended without an error message: ended by the launcher, or killed",
        "the supervisor's report (supervisor.json) is missing or damaged: the rank that died first is unknown",
        "NaN and Inf were not checked: recorded without the trigger nan",
    )
    assert diagnosis.ranks == (0,)


def test_a_supervisor_that_did_not_see_the_end(tmp_path: Path) -> None:
    rank_folder(tmp_path, "0", world_size=1)
    rank_folder(tmp_path, "0.1", world_size=1).note("exit", code=0)
    (tmp_path / "run.json").write_text("{}")
    supervisor(tmp_path, incidents=[])

    diagnosis = diagnose(gather(tmp_path))

    assert diagnosis.missing == (
        "this is attempt 2: earlier attempts are not diagnosed",
        "the supervisor did not see the job's end: the rank that died first is unknown",
    )
    assert diagnosis.summary == "no problem found in the available logs of rank 0"


@pytest.mark.parametrize("packed", [False, True])
def test_a_capsule_says_what_its_own_log_and_the_stacks_say(packed: bool, tmp_path: Path) -> None:
    frame = Frame("/job/data.py", 27, "load")
    thread = ThreadStack(name="MainThread", holds_gil=True, frames=(frame,))
    stacks = RankStacks(rank=1, taken_by=FROM_OUTSIDE, threads=(thread,))
    taken = JobStacks(taken_wall_ns=5, attempt=0, ranks={1: stacks})
    hang = Incident(kind=IncidentKind.HANG, text="rank 0 waited 3 s in all_reduce; rank 1 never joined it")
    path = tmp_path / "capsule"
    make_capsule(path, replace(MANIFEST, rank=0, incident=hang), stacks=taken.to_json())
    if packed:
        pack(path, tmp_path / "capsule.tar.zst")
        path = tmp_path / "capsule.tar.zst"

    found = diagnose(gather(path))

    assert [verdict.text for verdict in found.verdicts] == [f"hang: {hang.text}"]
    assert found.verdicts[0].lines == (f"rank 1 was at {frame}, holding the GIL",)
    assert found.missing[0] == "a capsule contains only the log of its own rank, here rank 0"
    assert found.ranks == (0,)


def test_of_a_job_that_runs_it_is_now_by_the_clock_as_its_ranks_found_it(tmp_path: Path) -> None:
    """Somebody has set the machine's clock since: nobody waits for longer."""
    log = rank_folder(tmp_path, "0")
    (log.folder / "rank.json").write_text(json.dumps({"pid": os.getpid(), "world_size": 2}))
    evidence = gather(tmp_path)
    assert evidence.is_running
    assert abs(evidence.ended_wall_ns - evidence.logs[0].wall_offset_ns - time.monotonic_ns()) < 60 * 10**9


def test_a_hang_of_a_job_whose_end_nobody_saw_is_not_certain(tmp_path: Path) -> None:
    """It and its supervisor were killed together, and `why` runs after a reboot: rank 0 waited until then, not until
    now."""
    (tmp_path / "run.json").write_text("{}")
    supervisor(tmp_path, deaths=[])
    logs = [out_of_sight(tmp_path, rank) for rank in (0, 1)]
    logs[0].issue(0, 3, seq=2)

    evidence = gather(tmp_path)
    found = diagnose(evidence)

    assert (evidence.is_running, evidence.silent) == (None, frozenset())
    assert [(verdict.kind, verdict.certainty) for verdict in found.verdicts] == [("stopped", Certainty.HINT)]
    assert any(
        gap.startswith("it is unknown whether the job runs or how it ended: its ranks cannot be seen from here, and")
        for gap in found.missing
    )
    assert found.to_json()["is_running"] is None


def test_a_hang_that_was_seen_is_certain_also_where_nobody_saw_the_end(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    logs = [out_of_sight(tmp_path, rank) for rank in (0, 1)]
    logs[0].issue(0, 3, seq=2)
    thread = ThreadStack(name="MainThread", holds_gil=False, frames=(Frame("/job/data.py", 3, "load"),))
    ranks = {1: RankStacks(rank=1, taken_by=FROM_OUTSIDE, threads=(thread,))}
    keep_stacks(RunFolder(tmp_path), JobStacks(taken_wall_ns=TOLD_NS, attempt=0, ranks=ranks))

    (stopped,) = diagnose(gather(tmp_path)).verdicts

    assert stopped.certainty is Certainty.CERTAIN and "for 61.0 s" in stopped.text


def test_a_hang_that_was_reported_is_likely_where_nobody_saw_the_end(tmp_path: Path) -> None:
    """Without stacks: how long it lasted was not noted."""
    (tmp_path / "run.json").write_text("{}")
    supervisor(tmp_path, incidents=[{"kind": "hang", "text": "rank 0 waits", "moment": "0.3", "ranks": [0]}])
    logs = [out_of_sight(tmp_path, rank) for rank in (0, 1)]
    logs[0].issue(0, 3, seq=2)

    (stopped,) = diagnose(gather(tmp_path)).verdicts

    assert (stopped.kind, stopped.certainty) == ("stopped", Certainty.LIKELY)
    assert stopped.text.endswith("0.3); rank 1 never joined it")


def test_a_job_out_of_sight_that_has_just_recorded_something_runs(tmp_path: Path) -> None:
    """As seen from the login node of a cluster."""
    log = out_of_sight(tmp_path, 0)
    log.issue(0, 3, seq=2, time_ns=time.time_ns() - gather(tmp_path).logs[0].wall_offset_ns)
    evidence = gather(tmp_path)
    assert evidence.is_running
    assert abs(evidence.ended_wall_ns - time.time_ns()) < 60 * 10**9


@pytest.mark.parametrize(("silent_s", "is_running"), [(20, True), (70, True), (120, None)])
def test_a_job_out_of_sight_may_run_through_a_step_as_long_as_its_last_ones(
    tmp_path: Path, silent_s: int, is_running: bool | None
) -> None:
    """Its steps take 30 s. Where its last record is too old for that, nobody says that it ended."""
    (tmp_path / "run.json").write_text("{}")
    logs = [out_of_sight(tmp_path, rank, calls=0) for rank in (0, 1)]
    wait_ns = time.time_ns() - silent_s * SECOND_NS - gather(tmp_path).logs[0].wall_offset_ns
    for log in logs:
        for step in range(3):
            begun_ns = wait_ns - (3 - step) * 30 * SECOND_NS
            log.step(step, time_ns=begun_ns)
            log.complete(log.issue(step, 1, seq=step, time_ns=begun_ns), ended_ns=begun_ns + 1000)
    logs[0].issue(3, 1, seq=3, time_ns=wait_ns)

    evidence = gather(tmp_path)
    (stopped,) = diagnose(evidence).verdicts

    assert (evidence.is_running, stopped.certainty) == (is_running, Certainty.HINT)
    assert ("the job is running" if is_running else "the job may still run") in stopped.lines[-1]
    assert "because the job ended" not in stopped.lines[-1]


def test_silence_out_of_sight_is_no_waiting_that_was_seen(tmp_path: Path) -> None:
    """The job may have been killed right after its last record, 58 s ago: rank 0 is known to have waited for 4 s."""
    (tmp_path / "run.json").write_text("{}")
    logs = [out_of_sight(tmp_path, rank, calls=0) for rank in (0, 1)]
    now_ns = time.time_ns() - gather(tmp_path).logs[0].wall_offset_ns
    logs[0].issue(0, 1, seq=0, time_ns=now_ns - 62 * SECOND_NS)
    logs[1].complete(
        logs[1].issue(0, 1, seq=0, group="1", time_ns=now_ns - 59 * SECOND_NS), ended_ns=now_ns - 58 * SECOND_NS
    )

    evidence = gather(tmp_path)

    assert evidence.is_running
    assert [verdict.certainty for verdict in diagnose(evidence).verdicts] == [Certainty.HINT]


def out_of_sight(run: Path, rank: int, *, calls: int = 2) -> TinyLog:
    log = rank_folder(run, str(rank), calls=calls)
    (log.folder / "rank.json").write_text(json.dumps({"pid": 1, "boot_id": "another", "world_size": 2}))
    return log


@pytest.mark.parametrize(("note", "lost"), [("exit", ()), ("incident", ()), ("", (1,))])
def test_a_rank_that_said_its_end_is_not_lost_with_its_node(note: str, lost: tuple[int, ...], tmp_path: Path) -> None:
    """Its supervisor alone was killed; and it is not alive, though nobody can see that from here."""
    (tmp_path / "nodes" / "n2").mkdir(parents=True)
    (tmp_path / "nodes" / "job.json").write_text('{"id": "x"}')
    (tmp_path / "nodes" / "n2" / "node.json").write_text("{}")
    log = rank_folder(tmp_path, "1")
    if note:
        log.note(note, code=1)
    elsewhere = {"pid": 1, "node": "n2", "boot_id": "another", "world_size": 2}
    (log.folder / "rank.json").write_text(json.dumps(elsewhere))

    assert gather(tmp_path).is_running is not bool(note), "it has just written"
    long_ago = log.path.stat().st_mtime - 60
    os.utime(log.path, (long_ago, long_ago))
    (silent,) = gather(tmp_path).silent_nodes
    assert silent.ranks == lost and silent.recorded_s is not None, "it recorded that long after any heartbeat"


SECOND_NS = 10**9


def of_two_nodes(run: Path, *, first: dict[str, object], other: dict[str, object], calls: int = 2) -> None:
    """Rank 0 of node n1, rank 1 of node n2. Too few calls, and it is not known how far apart their clocks are."""
    (run / "run.json").write_text("{}")
    (run / "nodes").mkdir()
    (run / "nodes" / "job.json").write_text('{"id": "x"}')
    for rank, (name, told) in enumerate((("n1", first), ("n2", other))):
        (run / "nodes" / name).mkdir()
        (run / "nodes" / name / "node.json").write_text("{}")
        (run / "nodes" / name / "supervisor.json").write_text(json.dumps({"exit_code": 1} | told))
        log = rank_folder(run, str(rank), calls=calls)
        described = {"pid": NO_SUCH_PID, "world_size": 2, "node": name, "boot_id": name}
        (log.folder / "rank.json").write_text(json.dumps(described))


def death(rank: int, at_s: float, number: int) -> dict[str, object]:
    wall_ns = TOLD_NS + round(at_s * SECOND_NS)
    how = {"rank": str(rank), "wall_ns": wall_ns, "alive_wall_ns": wall_ns - 10**6, "signal": number}
    return {"deaths": [str(rank)], "how_they_died": [{**how, "code": 128 + number}]}


REPORTED = {"kind": "lost", "text": "rank 1 was killed by SIGKILL", "ranks": [1], "capsules": []}
TOLD = {"interrupted": {"signal": 15, "wall_ns": TOLD_NS}}


def test_a_death_that_was_reported_was_before_the_end_though_the_clock_of_its_node_is_ahead(tmp_path: Path) -> None:
    """`mpirun` tells the others to end a second after it; by the clock of n2 it was two seconds after that."""
    of_two_nodes(tmp_path, first=death(0, 0.1, SIGTERM) | TOLD, other=death(1, 2, SIGKILL) | {"incidents": [REPORTED]})

    evidence = gather(tmp_path)

    assert evidence.unknown_clocks == {"n2"} and evidence.silent == {1}
    assert [seen.ranks for seen in evidence.incidents] == [(1,)]
    (found,) = diagnose(evidence).verdicts
    assert found.text == "rank 1 died without an error message: killed by SIGKILL"
    assert found.certainty is Certainty.LIKELY


def test_a_death_is_not_called_earlier_than_the_end_by_a_clock_that_is_not_known(tmp_path: Path) -> None:
    """Whoever ends late of what the job was told is killed; the clock of n2 is behind."""
    of_two_nodes(tmp_path, first=death(0, 0.1, SIGTERM) | TOLD, other=death(1, -2, SIGKILL))
    assert not gather(tmp_path).silent


def test_where_the_node_that_was_told_has_the_unknown_clock_its_own_ranks_are_compared(tmp_path: Path) -> None:
    of_two_nodes(tmp_path, first=death(0, -2, SIGKILL), other=death(1, -1, SIGKILL) | TOLD)
    assert gather(tmp_path).silent == {1}


@pytest.mark.parametrize(("calls", "is_late"), [(2, True), (20, False)])
def test_who_died_first_is_only_likely_where_clocks_are_not_known(calls: int, is_late: bool, tmp_path: Path) -> None:
    of_two_nodes(tmp_path, first=death(0, 0.1, SIGTERM), other=death(1, -5, SIGKILL), calls=calls)
    evidence = gather(tmp_path)
    assert (evidence.died_first, evidence.deaths_seen_late) == (1, is_late)


@pytest.mark.parametrize(("calls", "is_told"), [(2, False), (20, True)])
def test_an_end_that_seems_earlier_by_an_unknown_clock_hides_no_death(
    calls: int, is_told: bool, tmp_path: Path
) -> None:
    """By known clocks, all were told, and rank 1 did not hear of it."""
    of_two_nodes(tmp_path, first=death(0, -5, SIGINT), other=death(1, 0, SIGKILL), calls=calls)
    evidence = gather(tmp_path)
    assert (evidence.interrupted, evidence.silent) == (is_told, set() if is_told else {0, 1})


@pytest.mark.parametrize(("kind", "is_told"), [(IncidentKind.REQUEST, False), (IncidentKind.HANG, True)])
def test_a_capsule_of_a_job_that_goes_on_is_no_hang(kind: IncidentKind, is_told: bool, tmp_path: Path) -> None:
    """A call may be open where its log ends; that a capsule takes seconds to make is no wait."""
    log = TinyLog(tmp_path / "log")
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1, seq=0))
    log.issue(0, 2, seq=1)
    incident = Incident(kind=kind, text="", moment=Moment(0, 2))
    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_tree(layout.LOG, log.folder)
        writer.add_json(layout.RANK, RANK)
        writer.finish(replace(MANIFEST, incident=incident, created_ns=TOLD_NS))
    verdicts = diagnose(gather(tmp_path / "capsule")).verdicts
    assert [verdict.kind for verdict in verdicts if verdict.kind == "stopped"] == ["stopped"] * is_told


def test_of_the_capsule_of_a_hang_it_is_when_that_was_found(tmp_path: Path) -> None:
    """The machine was suspended for eight hours before, for which its clock counts and that of the log does not."""
    hang = HangPlace(identity="group 0 #7", waiting=(0,), never_came={1: ""})
    taken = JobStacks(taken_wall_ns=TOLD_NS, attempt=0, ranks={}, hang=hang)
    incident = Incident(kind=IncidentKind.HANG, text="rank 0 waited")
    made = replace(MANIFEST, incident=incident, created_ns=TOLD_NS + 8 * 3600 * SECOND_NS)
    capsule = make_capsule(tmp_path / "capsule", made, stacks=taken.to_json())

    assert gather(capsule.path).ended_wall_ns == TOLD_NS
    log = read_log(capsule.log)
    ended_ns = max(call.time_completed_ns or 0 for call in log.collectives)
    assert recorded_silence(capsule, log).hung_s == (TOLD_NS - log.wall_offset_ns - ended_ns) / SECOND_NS
