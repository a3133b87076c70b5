"""What `status` says of a rank that raised and went on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_log import TinyLog, write_training

from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.storage.run_report import rank_states

NO_SUCH_PID = 2**22 + 1  # beyond what Linux gives


@pytest.mark.parametrize("of", [{}, {"thread": True}])
@pytest.mark.parametrize(
    ("goes_on", "code", "state"),
    [(True, 0, "ended"), (True, 3, "failed"), (True, None, "died"), (False, None, "failed"), (False, 1, "failed")],
)
def test_an_exception_that_was_outlived_is_no_failure(
    of: dict[str, Any], goes_on: bool, code: int | None, state: str, tmp_path: Path
) -> None:
    log = TinyLog(tmp_path / "ranks" / "0")
    log.group("0", (0,), "default_pg")
    (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, "world_size": 1}))
    log.complete(log.issue(0, 1))
    log.note("incident", incident="exception", type="ConnectionError", text="no", traceback=[], time_ns=2001, **of)
    if goes_on:
        log.issue(0, 2)
        log.issue(0, 3)
        log.step(1, time_ns=2500)
    if code is not None:
        log.note("exit", code=code)

    (found,) = rank_states(RunFolder(tmp_path))

    assert found.state == state


@pytest.mark.parametrize(
    ("signal", "code", "state"), [(0, 0, "ended"), (0, 3, "died"), (9, 137, "died"), (None, None, "died")]
)
def test_who_ended_without_a_word_with_exit_code_0_did_not_die(
    signal: int | None, code: int | None, state: str, tmp_path: Path
) -> None:
    """`os._exit(0)`: the supervisor saw the code."""
    log = write_training(tmp_path / "ranks" / "0")
    (log.folder / "rank.json").write_text(json.dumps({"pid": NO_SUCH_PID, "world_size": 1}))
    deaths = [None, {"rank": "0", "wall_ns": 5, "alive_wall_ns": 1, "signal": signal, "code": code}]
    (tmp_path / "supervisor.json").write_text(json.dumps({"exit_code": 0, "how_they_died": deaths}))

    (found,) = rank_states(RunFolder(tmp_path))

    assert found.state == state
