"""What a run writes is readable by its owner alone, whatever the umask is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prismdbg.log import summary
from prismdbg.model.private_file import private
from prismdbg.model.schedule import Schedule
from prismdbg.rank.emulation.donors import DonorWriter
from prismdbg.settings import state_hold
from prismdbg.settings.rank_config import Mode, RankConfig

SCHEDULE = Schedule(rank=0, step=1, steps=(1,), iteration_ns=0, streams=(), channels=(), rows=())


@pytest.fixture(autouse=True)
def _loose_umask() -> Iterator[None]:
    mask = os.umask(0)
    yield
    os.umask(mask)


def config(path: Path) -> None:
    path.write_text("of an earlier command")
    path.chmod(0o644)
    RankConfig(mode=Mode.RECORD, run=str(path.parent), socket_dir="", cache_dir="").save(path)


def donors(path: Path) -> None:
    DonorWriter(path, 0, 100).close()


@pytest.mark.parametrize(
    "write",
    [
        config,
        donors,
        lambda path: state_hold.hold(path),
        lambda path: summary.put(path, [b"x"]),
        SCHEDULE.save,
    ],
    ids=["config", "donors", "hold", "summary", "schedule"],
)
def test_only_the_owner_reads_it(tmp_path: Path, write: Callable[[Path], object]) -> None:
    write(tmp_path / "file")
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert made and {path.stat().st_mode & 0o777 for path in made} == {0o600}


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("own")
    (tmp_path / "link").symlink_to(tmp_path / "own")
    with pytest.raises(OSError, match="symbolic link"), open(tmp_path / "link", "w", opener=private):
        pass
    assert (tmp_path / "own").read_text() == "own"
