"""A replayed rank that ends before its agent answers: the error says what it printed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from counting import short_folder

from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.jobs.replay import replay, replay_plan
from prismdbg.jobs.replay.replay import connect
from prismdbg.jobs.replay.replay_plan import Plan
from prismdbg.model.deadline import NEVER, Deadline
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.runtime import RunningRank
from prismdbg.runtime.spec import OUTPUT, ImageOrigin, ProgramOrigin

SPEC = SimpleNamespace(name="rank 0", origin=None)
BEFORE_STATE = "the program ended before its state was restored"


@pytest.fixture
def own() -> Iterator[RankFolder]:
    with short_folder() as home, RankFolder(home / "rank") as folder:
        yield folder


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("", "; it printed nothing"),
        ("old\n\nImportError: no torch\n", "; its last output:\nold\nImportError: no torch"),
    ],
)
def test_what_it_printed_is_in_the_error_and_the_hint_is_advice(own: RankFolder, printed: str, said: str) -> None:
    (own.path / OUTPUT).write_text(printed)
    ended = SimpleNamespace(exit_code=lambda: 1, require_within_limits=lambda: None)
    for awaits_state, what in ((False, "the rank ended before its agent answered"), (True, BEFORE_STATE)):
        plan = SimpleNamespace(own=own, agent="agent", awaits_restore_point=awaits_state, spec=SPEC)
        with pytest.raises(RankLost) as lost:
            connect(cast(Plan, plan), cast(RunningRank, ended))
        assert str(lost.value) == f"{what}, with exit code 1{said}"
    assert lost.value.hint.startswith("run `prismdbg verify`")


PROGRAM = ProgramOrigin(executable="/bin/python", argv=(), env={}, cwd="/")
SMALL, LARGE = (
    ImageOrigin(engine=cast(Any, None), images=Path(), root_pid=1, pids=(1,), names=(), timeout_s=bound_s)
    for bound_s in (60.0, 1500.0)
)


@pytest.mark.parametrize(
    ("origin", "given_s", "most_s"),
    [
        (PROGRAM, 7200.0, 7200.0),
        (PROGRAM, None, 900.0),
        (SMALL, 7200.0, 90.0),
        (SMALL, None, 90.0),
        (LARGE, None, 1500.0),
    ],
)
def test_a_program_may_take_as_long_as_the_command_until_it_imports_torch(
    own: RankFolder, monkeypatch: pytest.MonkeyPatch, origin: object, given_s: float | None, most_s: float
) -> None:
    (own.path / OUTPUT).write_text("compiling kernels\n")
    bounds: list[float] = []

    def never(_path: Path, *, bound_s: float, **_: object) -> None:
        bounds.append(bound_s)
        raise WaitTimeout("waited", hint="try again")

    monkeypatch.setattr(replay, "connect_when_ready", never)
    plan = SimpleNamespace(
        own=own, agent="agent", awaits_restore_point=False, spec=SimpleNamespace(name="rank 0", origin=origin)
    )
    deadline = NEVER if given_s is None else Deadline.after(given_s)
    with pytest.raises(WaitTimeout) as late:
        connect(cast(Plan, plan), cast(RunningRank, SimpleNamespace()), deadline)
    assert str(late.value) == "waited; its last output:\ncompiling kernels" and late.value.hint == "try again"
    assert bounds == [pytest.approx(most_s, abs=5)]


@pytest.mark.parametrize(("gib", "least_s"), [(0, 120), (1, 120), (64, 64 * 1024 / 50)])
def test_a_large_image_may_be_read_for_as_long_as_it_may_be_written(gib: int, least_s: float) -> None:
    files = {
        "checkpoint/pages-1.img": SimpleNamespace(size_bytes=gib << 30),
        "log/0": SimpleNamespace(size_bytes=1 << 40),
    }
    capsule = SimpleNamespace(manifest=SimpleNamespace(files=files))
    assert least_s <= replay_plan.restore_s(cast(Any, capsule)) <= least_s + 120


def test_the_end_of_the_time_is_told_with_what_it_printed(own: RankFolder) -> None:
    runs = SimpleNamespace(exit_code=lambda: None)
    plan = SimpleNamespace(own=own, agent="agent", awaits_restore_point=False, spec=SPEC)
    with pytest.raises(WaitTimeout) as late:
        connect(cast(Plan, plan), cast(RunningRank, runs), Deadline.after(0.05))
    what = "the replay did not reach its end within 0.05 s: the start of rank 0 was not complete"
    assert str(late.value) == f"{what}; it printed nothing" and late.value.hint == "give a longer --timeout"
