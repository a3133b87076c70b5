"""Whoever may rename a capsule while its replay is prepared shows the rank nothing else of this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from capsules import make_capsule
from starter_parts import starter_parts

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.exact_file import known
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.jobs.replay.replay_plan import ReplayRequest, make_plan
from prismdbg.jobs.storage import verify
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.spec import Bind


@pytest.fixture
def starter() -> Any:
    return starter_parts()


@pytest.fixture
def capsule(tmp_path: Path) -> Capsule:
    return make_capsule(tmp_path / "capsule")


def swapped_for_a_link(capsule: Capsule) -> Path:
    """What it leads to is somebody else's; where the capsule is by then."""
    private, moved = capsule.path.with_name("private"), capsule.path.with_name("moved")
    private.mkdir(exist_ok=True)
    capsule.path.rename(moved)
    capsule.path.symlink_to(private)
    return moved


def bind_of(capsule: Capsule, session: Path) -> Bind:
    with closing(RankFolder(session / "rank")) as own:
        spec = make_plan(ReplayRequest(capsule=capsule), session, own).spec
    (bind,) = (bind for bind in spec.all_binds() if bind.target == str(capsule.path))
    return bind


def test_the_folder_that_is_bound_is_the_one_that_was_verified(capsule: Capsule, tmp_path: Path, starter: Any) -> None:
    bind = bind_of(verify.require_replayable(capsule), tmp_path / "session")
    assert bind.known is not None
    assert bind.known == known(str(capsule.path)) and bind.source == capsule.path
    os.close(starter.open_known(asdict(bind.known)))
    swapped_for_a_link(capsule)
    with pytest.raises(starter.PlaceError, match="was replaced"):
        starter.open_known(asdict(bind.known))


def test_it_is_bound_by_its_real_path(capsule: Capsule, tmp_path: Path) -> None:
    linked = Path(tmp_path / "linked")
    linked.symlink_to(capsule.path)
    bind = bind_of(verify.require_replayable(Capsule.open(linked)), tmp_path / "session")
    assert (bind.source, bind.target) == (capsule.path, str(linked))


def test_nothing_but_that_folder_is_verified(capsule: Capsule, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name leads elsewhere by then: what is read is what is bound."""
    before = known(str(capsule.path))
    moved: list[Path] = []
    monkeypatch.setattr(verify, "findings", swapping(lambda: moved.append(swapped_for_a_link(capsule))))
    folder = verify.require_replayable(capsule).folder
    assert folder == before
    assert known(str(moved[0])).inode == before.inode and known(str(capsule.path)) != before


def test_another_capsule_in_its_place_is_not_run(capsule: Capsule) -> None:
    capsule.path.rename(capsule.path.with_name("moved"))
    make_capsule(capsule.path, steps=4)
    with pytest.raises(FacilityError, match="was replaced"):
        verify.require_replayable(capsule)


def test_a_damaged_one_is_named_as_the_user_did(capsule: Capsule) -> None:
    (capsule.path / layout.RANK).write_text("{")
    with pytest.raises(CapsuleError, match=f"^{capsule.path}: ") as raised:
        verify.require_replayable(capsule)
    assert "/proc/" not in str(raised.value)
    (capsule.path / layout.MANIFEST).write_text("{")
    with pytest.raises(CapsuleError, match=str(capsule.path)) as raised:
        verify.require_replayable(capsule)
    assert "/proc/" not in str(raised.value)


def swapping(act: Callable[[], object], original: Callable[..., Any] = verify.findings) -> Callable[..., Any]:
    def findings(path: Path) -> Any:
        act()
        return original(path)

    return findings
