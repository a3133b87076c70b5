"""Checkpoints in a replay leave some of the disk free, and say how much."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from prismdbg.checkpoint.engine import bound_s
from prismdbg.debugger import saved_checkpoints, time_travel
from prismdbg.debugger.saved_checkpoints import SavedCheckpoints
from prismdbg.debugger.time_travel import Travel
from prismdbg.errors import FacilityError, RankLost
from prismdbg.jobs.capture.costs import SPARE_BYTES
from prismdbg.jobs.replay.replay_plan import Plan
from prismdbg.model.moment import Moment
from prismdbg.runtime.limits import Limits
from prismdbg.runtime.spec import ProgramOrigin, ReplaySpec, Saving

MIB = 1 << 20


@pytest.mark.parametrize(
    ("next_bytes", "free", "said", "hint"),
    [
        (0, 951 * MIB, "no space for a checkpoint: 951 MiB are free in", "free 73 MiB of"),
        (200 * MIB, 1200 * MIB, "no space for a checkpoint of about 200 MiB: 1200 MiB are free in", "free 24 MiB of"),
    ],
)
def test_too_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, next_bytes: int, free: int, said: str, hint: str
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(FacilityError) as raised:
        SavedCheckpoints(tmp_path).require_room(next_bytes)
    assert said in str(raised.value) and "and 1024 MiB must stay free" in str(raised.value)
    assert hint in raised.value.hint


def test_room_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=SPARE_BYTES + MIB))
    SavedCheckpoints(tmp_path).require_room(MIB)


class Room(SavedCheckpoints):
    """Keeps what it was asked for, and has none."""

    asked_bytes = -1

    def require_room(self, next_bytes: int) -> None:
        self.asked_bytes = next_bytes
        raise FacilityError("no space for a checkpoint")


@pytest.mark.parametrize(
    ("image_bytes", "checkpoints", "asked_bytes"), [(0, [0], 700), (900, [0], 900), (900, [0, 950], 950)]
)
def test_the_next_one_is_taken_for_as_large_as_what_the_rank_holds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    image_bytes: int,
    checkpoints: list[int],
    asked_bytes: int,
) -> None:
    """Also the first one of a program that was started, whose capsule has no image."""
    monkeypatch.setattr(time_travel, "image_bytes", {os.getpid(): 600}.get)
    monkeypatch.setattr(time_travel, "known_bytes", {os.getpid(): 100}.get)
    files = {"checkpoint/pages-1.img": SimpleNamespace(size_bytes=image_bytes), "log": SimpleNamespace(size_bytes=1234)}
    travel, room = Travel.__new__(Travel), Room(tmp_path)
    vars(travel).update(
        capsule=SimpleNamespace(manifest=SimpleNamespace(files=files)),
        why_no_checkpoints="",
        _saved=room,
        _running=SimpleNamespace(rank_pid=os.getpid),
        _checkpoints={number: SimpleNamespace(size_bytes=size) for number, size in enumerate(checkpoints)},
    )
    with pytest.raises(FacilityError, match="no space"):
        travel.save(Moment(1))
    assert room.asked_bytes == asked_bytes


def test_a_rank_that_cannot_be_asked_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(pid: int) -> int:
        raise RankLost(f"process {pid} cannot be examined")

    monkeypatch.setattr(time_travel, "image_bytes", denied)
    travel = Travel.__new__(Travel)
    vars(travel).update(
        capsule=SimpleNamespace(manifest=SimpleNamespace(files={})),
        _running=SimpleNamespace(rank_pid=os.getpid),
        _checkpoints={0: SimpleNamespace(size_bytes=0)},
    )
    assert travel._expected_bytes() == 0


@pytest.mark.parametrize(
    ("recorded", "limit", "timeout_s"), [(0, 64, 120.0), (100, 900, 2138.0), (1 << 40, 64, 1400.72)]
)
def test_a_large_rank_has_longer_to_be_written(
    recorded: int, limit: int, timeout_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that is killed half-way can cost the rank its life. What it held is the capsule's word."""
    limits = Limits(memory_bytes=limit << 30, processes=1, shared_bytes=1, disk_bytes=1, recorded_bytes=recorded << 30)
    monkeypatch.setattr(saved_checkpoints.choice, "find", lambda: SimpleNamespace(program=None))
    monkeypatch.setattr(saved_checkpoints, "starter_engine", lambda _: None)
    program = ProgramOrigin(executable="/bin/true", argv=(), env={}, cwd="/")
    spec = ReplaySpec(name="n", origin=program, session=tmp_path, python="python3", limits=limits)
    plan = Plan(spec=spec, own=cast(Any, None), agent="", unhidden=cast(Any, None))
    saves, why_not = saved_checkpoints.with_saving(plan, cast(Any, SimpleNamespace(refuses=lambda _: None)), tmp_path)
    assert not why_not and saves.spec.saving is not None
    assert saves.spec.saving.timeout_s == pytest.approx(timeout_s)


@pytest.mark.parametrize(("holds", "expected"), [((50 << 30, 10 << 30), 60 << 30), (None, 64 << 30)])
def test_one_whose_state_on_gpus_is_large_has_longer_to_be_written(
    holds: tuple[int, int] | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not in what the capsule says of the recorded rank. What a rank holds that cannot be asked is at most what
    it may."""
    asked: list[tuple[str, float]] = []
    control = SimpleNamespace(save=lambda name, least_s: asked.append((name, least_s)) or SimpleNamespace(seal="s"))
    travel = Travel.__new__(Travel)
    vars(travel).update(
        capsule=SimpleNamespace(manifest=SimpleNamespace(files={})),
        unhidden=None,
        _plan=SimpleNamespace(spec=SimpleNamespace(limits=SimpleNamespace(memory_bytes=64 << 30))),
        _running=SimpleNamespace(rank_pid=lambda: holds and os.getpid()),
        _client=SimpleNamespace(leave=list, hear=lambda _: None),
        _checkpoints={0: SimpleNamespace(size_bytes=0)},
        _seals={},
        _control=lambda: control,
    )
    monkeypatch.setattr(time_travel, "connect", lambda *_: travel._client)
    monkeypatch.setattr(time_travel, "image_bytes", lambda _: holds and holds[0])
    monkeypatch.setattr(time_travel, "known_bytes", lambda _: holds and holds[1])
    travel._save_alone(7)
    assert asked == [("7", bound_s(expected))]


def test_a_large_one_has_as_long_to_be_restored(tmp_path: Path) -> None:
    """In place or in a new one."""

    class Large(SavedCheckpoints):
        def size_bytes(self, number: int) -> int:
            return 60 << 30

    asked: list[float] = []

    def return_to(name: str, seal: str, least_s: float) -> Any:
        asked.append(least_s)
        return SimpleNamespace(refusal="", left=())

    saving = Saving(engine=cast(Any, None), folder=tmp_path)
    program = ProgramOrigin(executable="/bin/true", argv=(), env={}, cwd="/")
    spec = ReplaySpec(name="n", origin=program, session=tmp_path, python="python3", saving=saving)
    travel = Travel.__new__(Travel)
    vars(travel).update(
        _plan=Plan(spec=spec, own=cast(Any, None), agent="", unhidden=cast(Any, None)),
        _saved=Large(tmp_path),
        _seals={3: "s"},
        _control=lambda: SimpleNamespace(return_to=return_to),
    )
    assert travel._return_in_place(3) and asked == [bound_s(60 << 30)]
    anew = travel._plan_at(3).spec.saving
    assert anew is not None and (anew.start_from, anew.timeout_s) == ("3", bound_s(60 << 30))
