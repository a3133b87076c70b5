"""What the supervisor's report of deaths and the logs say together of who failed first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.jobs.evidence import gather

BEGAN_NS = 10**18 - 10**9  # of the clock of a tiny log
MILLISECOND_NS = 10**6
NO_SUCH_PID = 2**22 + 1  # beyond what Linux gives


def a_run(run: Path, world: int = 3) -> dict[int, TinyLog]:
    """Logs of ranks that have done five steps together."""
    (run / "run.json").write_text("{}")
    logs = {}
    for rank in range(world):
        log = logs[rank] = TinyLog(run / "ranks" / str(rank), rank)
        log.group("0", range(world), "default_pg")
        for step in range(5):
            log.complete(log.issue(step, 1, seq=step))
            log.step(step + 1)
        (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, "world_size": world}))
    return logs


def death(rank: int, at_ms: float, number: int = 0, alive_ms: float = 0.0, code: int = 0) -> dict[str, Any]:
    return {
        "rank": str(rank),
        "wall_ns": BEGAN_NS + int(at_ms * MILLISECOND_NS),
        "alive_wall_ns": BEGAN_NS + int((alive_ms or at_ms - 1) * MILLISECOND_NS),
        "signal": number,
        "code": code or (128 + number if number else 0),
    }


def why(run: Path, deaths: Sequence[Mapping[str, Any]], **more: Any) -> Diagnosis:
    names = [one["rank"] for one in deaths]
    report = {"exit_code": 1, "deaths": names, "how_they_died": deaths, "ended_wall_ns": BEGAN_NS + 10**9, **more}
    (run / "supervisor.json").write_text(json.dumps(report))
    return diagnose(gather(run))


def raises(log: TinyLog, at_ms: int, text: str, *, at_issue: bool) -> None:
    """In a call that fails then."""
    call = log.issue(5, 1, seq=5)
    log.note("failed", record_id=call, type="RuntimeError", text=text, at_issue=at_issue)
    log.complete(call, status=fmt.Status.FAILED)
    traceback = [f"RuntimeError: {text}\n"]
    more: dict[str, Any] = {"type": "RuntimeError", "text": text, "traceback": traceback, "moment": "5.1"}
    log.note("incident", incident="exception", time_ns=at_ms * MILLISECOND_NS, **more)


def texts(found: Diagnosis) -> list[str]:
    return [verdict.text for verdict in found.verdicts]


def test_who_was_ended_by_its_launcher_after_two_had_failed_is_not_the_first(tmp_path: Path) -> None:
    logs = a_run(tmp_path)
    raises(logs[0], 1, "Invalid scalar type", at_issue=True)
    raises(logs[1], 2, "[pair.cc:553] Connection closed by peer", at_issue=False)
    seen = {"kind": "exception", "ranks": [0], "text": "RuntimeError: Invalid scalar type", "moment": "5.1"}
    deaths = [death(0, 500, code=1), death(1, 600, code=1), death(2, 900, SIGTERM)]

    found = why(tmp_path, deaths, incidents=[{**seen, "attempt": 0}])

    assert texts(found)[0] == "rank 0 raised at 5.1: RuntimeError: Invalid scalar type"
    assert found.verdicts[0].certainty is Certainty.CERTAIN
    assert not any("rank 2 died" in text for text in texts(found))


def test_an_exit_code_that_is_not_0_is_told(tmp_path: Path) -> None:
    logs = a_run(tmp_path)
    logs[2].note("exit", time_ns=10_000, code=1)

    found = why(tmp_path, [death(2, 500, code=1), death(0, 900, SIGTERM), death(1, 900, SIGTERM)])

    assert texts(found) == ["rank 2 exited with exit code 1"]


def test_a_job_whose_ranks_ended_well_and_that_failed_is_not_without_a_problem(tmp_path: Path) -> None:
    for log in a_run(tmp_path).values():
        log.note("exit", time_ns=10_000, code=0)

    found = why(tmp_path, [death(rank, 500) for rank in range(3)])

    assert found.verdicts == () and found.summary.startswith("the job ended with exit code 1, and no cause is found")


def test_who_was_killed_after_others_had_come_to_their_end_is_the_first_that_failed(tmp_path: Path) -> None:
    logs = a_run(tmp_path)
    for rank in (1, 2):
        logs[rank].note("exit", time_ns=10_000, code=0)

    found = why(tmp_path, [death(1, 500), death(2, 500), death(0, 900, SIGKILL)])

    assert texts(found) == ["rank 0 died without an error message: killed by SIGKILL"]
    assert found.verdicts[0].certainty is Certainty.CERTAIN
    assert not any("connections" in line for line in found.verdicts[0].lines)


def test_among_ranks_that_left_without_a_word_one_with_an_error_comes_before_those_with_0(tmp_path: Path) -> None:
    a_run(tmp_path, 4)

    found = why(tmp_path, [death(0, 500), death(1, 501), death(2, 502), death(3, 503, code=1)])

    (text,) = texts(found)
    assert text.startswith("rank 3 exited with exit code 1, and its log has no end record")
    assert not any("ended after it" in line for line in found.verdicts[0].lines)


def test_a_rank_that_was_ended_alone_a_moment_before_the_others_is_named(tmp_path: Path) -> None:
    """`torch.multiprocessing.spawn` ends the others at once, as a launcher does that is told to end: nobody knows."""
    a_run(tmp_path)
    deaths = [death(2, 500, SIGTERM), death(0, 503, SIGTERM, 502.5), death(1, 503, SIGTERM, 502.5)]

    found = why(tmp_path, deaths)

    assert [(one.text, one.certainty) for one in found.verdicts] == [
        ("rank 2 died without an error message: killed by SIGTERM", Certainty.HINT)
    ]
    (told,) = [line for line in found.missing if "told to end" in line]
    assert told.startswith("perhaps the job was told to end (") and "its other ranks are not diagnosed" in told


def test_ranks_that_the_signal_had_reached_when_the_first_was_gone_were_told_together(tmp_path: Path) -> None:
    a_run(tmp_path)

    found = why(tmp_path, [death(2, 500, SIGTERM), death(0, 503, SIGTERM, 499), death(1, 503, SIGTERM, 499)])

    assert found.verdicts == ()
    assert any(line.startswith("the job was told to end") for line in found.missing)
