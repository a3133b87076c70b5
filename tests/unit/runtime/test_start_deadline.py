"""`--timeout` bounds the start of a rank, too: nothing that makes its place goes on after it."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from prismdbg.errors import WaitTimeout
from prismdbg.model.deadline import NEVER, Deadline
from prismdbg.runtime import docker_runtime
from prismdbg.runtime.environment import of_files
from prismdbg.runtime.parent_death_fifo import ParentDeathFifo
from prismdbg.runtime.spec import ProgramOrigin, ReplaySpec
from prismdbg.runtime.started_rank import StartedRank
from prismdbg.runtime.starter_process import start_process
from prismdbg.runtime.starter_spec import Isolation, make_folders

OVER = Deadline(at_s=time.monotonic() - 1, bound_s=20)


class SlowPlace:
    """It is made for as long as anybody waits."""

    removed = 0

    def outer_pid(self) -> int | None:
        return None

    def ended(self) -> int | None:
        return None

    def limits_met(self) -> tuple[str, ...]:
        return ()

    def last_words(self) -> str:
        return ""

    def runs(self) -> None:
        pass

    def remove(self) -> None:
        self.removed += 1

    def describe(self) -> str:
        return "a slow place"


def spec(session: Path, deadline: Deadline) -> ReplaySpec:
    make_folders(session)
    origin = ProgramOrigin(executable="/bin/python", argv=("python",), env={}, cwd="/")
    return ReplaySpec(
        name="rank 0 of gpt",
        origin=origin,
        session=session,
        python="/bin/python",
        environment=of_files(()),
        folders=tuple(f"/data/{number}" for number in range(5000)),
        deadline=deadline,
    )


def test_a_place_that_is_still_being_made_is_given_up(tmp_path: Path) -> None:
    planned = spec(tmp_path, Deadline.after(0.2))
    place = SlowPlace()
    with pytest.raises(
        WaitTimeout, match=r"within 0\.2 s: the start of rank 0 of gpt in a slow place was not complete"
    ):
        StartedRank(planned, place, ParentDeathFifo(planned.control)).until_running()
    assert place.removed


def test_no_process_is_started_after_it(tmp_path: Path) -> None:
    with pytest.raises(WaitTimeout, match="within 20 s: the preparation of rank 0 of gpt was not complete") as over:
        start_process(spec(tmp_path, OVER), "a plain process", Isolation.NONE)
    assert over.value.hint == "give a longer --timeout"


def test_neither_image_nor_files_of_a_container_are_made_after_it(tmp_path: Path) -> None:
    late = spec(tmp_path, OVER)
    with pytest.raises(WaitTimeout, match="the container image for rank 0 of gpt"):
        docker_runtime._within(late, print, "half of it")
    with pytest.raises(WaitTimeout, match="the making of the container"):
        next(docker_runtime._rank_layer(late, []))
    content = io.BytesIO(b"".join(docker_runtime._rank_layer(spec(tmp_path, NEVER), [])))
    with tarfile.open(fileobj=content) as tar:
        assert "data/4999" in tar.getnames()


def test_each_piece_of_work_is_asked_for_only_in_time() -> None:
    done: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(100):
            time.sleep(0.01)
            done.append(number)
            yield number

    with pytest.raises(WaitTimeout):
        list(Deadline.after(0.1).each(pieces(), "the work"))
    assert 0 < len(done) < 100
