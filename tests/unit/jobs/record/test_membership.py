"""Supervisors come together in one RUN: the first makes it, others of the same job join, and nobody else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_for

from prismdbg.errors import UsageError
from prismdbg.jobs.record.nodes import membership
from prismdbg.jobs.record.nodes.membership import Member, enter
from prismdbg.jobs.record.nodes.shared_job import SharedJob
from prismdbg.jobs.storage.job_nodes import node_folders, node_states
from prismdbg.jobs.storage.job_restarts import begin_restart
from prismdbg.jobs.storage.run_folder import RunFolder, write_json

JOB = SharedJob(id="torchrun 1", supervisors=2)
AGAIN = SharedJob(id=JOB.id, supervisors=2, restart=1)


def say_nothing(_text: str) -> None:
    pass


def fill(member: Member) -> None:
    """As `record` does, at last."""
    write_json(member.run.run_json, {"command": []})


def test_the_first_makes_it_and_the_second_joins(tmp_path: Path) -> None:
    with enter(tmp_path / "run", JOB, say_nothing) as first:
        assert first.made
        fill(first)
        with enter(tmp_path / "run", JOB, say_nothing) as second:
            assert not second.made and second.node.name == f"{first.node.name}-2"
            assert [state.state for state in node_states(first.run)] == ["running", "running"]


def test_of_many_at_once_one_makes_it(tmp_path: Path) -> None:
    made: list[bool] = []
    names: set[str] = set()
    everybody = threading.Barrier(6)

    def supervise() -> None:
        everybody.wait(20)
        with enter(tmp_path / "run", JOB, say_nothing) as member:
            if member.made:
                fill(member)
            made.append(member.made)
            names.add(member.node.name)
            everybody.wait(60)

    threads = [threading.Thread(target=supervise) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert sorted(made) == [False] * 5 + [True] and len(names) == 6
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"nodes", "run.json"}, "nothing is left behind"


def test_another_job_is_refused(tmp_path: Path) -> None:
    with enter(tmp_path / "run", JOB, say_nothing) as first:
        fill(first)
        with pytest.raises(UsageError, match="RUN of another job"), enter(tmp_path / "run", SharedJob(id="x"), print):
            pass


def test_what_is_no_run_of_several_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("")
    with pytest.raises(UsageError, match="not empty"), enter(tmp_path / "run", JOB, print):
        pass
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_a_job_that_has_ended_is_not_joined(tmp_path: Path) -> None:
    with enter(tmp_path / "run", JOB, say_nothing) as first:
        fill(first)
    write_json(first.node.supervisor_json, {"exit_code": 0})
    with pytest.raises(UsageError, match="not empty"), enter(tmp_path / "run", JOB, print):
        pass
    assert len(node_folders(first.run)) == 1


def test_a_job_of_which_nobody_is_heard_is_not_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "JOIN_BOUND_S", 1.2)
    with enter(tmp_path / "run", JOB, say_nothing) as first:
        fill(first)
    told: list[str] = []
    wait_for(lambda: not _beats(), 20, "the heart to stand still")
    with pytest.raises(UsageError, match="none of its supervisors"), enter(tmp_path / "run", JOB, told.append):
        pass
    assert any("waiting up to" in text for text in told), "a wait of more than a second is told"


def _beats() -> bool:
    return any(thread.name == "prismdbg-heartbeat" for thread in threading.enumerate())


def test_a_node_is_described_by_more_than_its_host_name(tmp_path: Path) -> None:
    with enter(tmp_path / "run", JOB, say_nothing) as first:
        about = json.loads(first.node.about.read_text())
    assert about["boot_id"] and about["namespaces"]["pid"] and RunFolder(tmp_path / "run").nodes.is_dir()


def ended_job(run: Path, *, ranks: tuple[str, ...] = ("0", "1.2")) -> None:
    with enter(run, JOB, say_nothing) as first:
        fill(first)
    write_json(first.node.supervisor_json, {"exit_code": 1})
    for name in ranks:
        (run / "ranks" / name).mkdir(parents=True)


def test_a_job_that_is_started_again_goes_on_in_its_run(tmp_path: Path) -> None:
    ended_job(tmp_path / "run")
    with enter(tmp_path / "run", AGAIN, say_nothing) as first:
        assert not first.made and first.node.name.endswith(".restart1") and first.first_attempt == 3
        (tmp_path / "run" / "ranks" / "0.3").mkdir()  # another node may be that fast
        with enter(tmp_path / "run", AGAIN, say_nothing) as second:
            assert second.first_attempt == 3 and second.node.name == f"{first.node.name}-2"
    write_json(first.node.supervisor_json, {"exit_code": 0})
    write_json(second.node.supervisor_json, {"exit_code": 0})
    with pytest.raises(UsageError, match="not empty"), enter(tmp_path / "run", AGAIN, print):
        pass
    with pytest.raises(UsageError, match="restarted 1 time since"), enter(tmp_path / "run", JOB, print):
        pass
    assert len(node_folders(first.run)) == 3, "who was refused leaves nothing"


def test_of_many_that_start_it_again_all_count_alike(tmp_path: Path) -> None:
    """Those of whom one is first, while ranks of its node have begun."""
    ended_job(tmp_path / "run")
    attempts: list[int] = []
    everybody = threading.Barrier(6)

    def supervise() -> None:
        everybody.wait(20)
        with enter(tmp_path / "run", AGAIN, say_nothing) as member:
            (member.run.ranks / f"0.{member.first_attempt}").mkdir(exist_ok=True)
            attempts.append(member.first_attempt)
            everybody.wait(60)

    threads = [threading.Thread(target=supervise) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(90)
    assert attempts == [3] * 6
    assert not list((tmp_path / "run" / "nodes").glob(".coming*"))


def test_a_job_that_was_lost_before_it_made_its_run_makes_it_when_started_again(tmp_path: Path) -> None:
    with enter(tmp_path / "run", JOB, say_nothing):
        pass
    with enter(tmp_path / "run", AGAIN, say_nothing) as again:
        assert again.made and again.first_attempt == 1
        fill(again)
        with enter(tmp_path / "run", AGAIN, say_nothing) as second:
            assert not second.made


def test_who_began_a_restart_is_waited_for_until_it_has_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended_job(tmp_path / "run")
    assert begin_restart(RunFolder(tmp_path / "run"), AGAIN.restart)
    monkeypatch.setattr(membership, "JOIN_BOUND_S", 0.5)
    with pytest.raises(UsageError, match="none of its supervisors"), enter(tmp_path / "run", AGAIN, say_nothing):
        pass


def test_who_came_before_run_was_filled_joins_though_its_file_server_client_remembers_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS asks again for a name that was missing only after its folder was opened or changed, or after a minute."""
    run, missing, asked = tmp_path / "run", set[Path](), threading.Event()
    is_file, iterdir = Path.is_file, Path.iterdir

    def remembered(path: Path) -> bool:
        if path == run / "run.json" and threading.current_thread() is joining and not is_file(path):
            missing.add(path)
            asked.set()
        return path not in missing and is_file(path)

    def listed(path: Path) -> Iterator[Path]:
        if path == run and threading.current_thread() is joining:
            missing.clear()
            asked.set()
        return iterdir(path)

    def join() -> None:
        with enter(run, JOB, say_nothing) as second:
            joined.append(second.made)

    joining, joined = threading.Thread(target=join), list[bool]()
    monkeypatch.setattr(Path, "is_file", remembered)
    monkeypatch.setattr(Path, "iterdir", listed)
    monkeypatch.setattr(membership, "JOIN_BOUND_S", 15.0)
    with enter(run, JOB, say_nothing) as first:
        joining.start()
        assert asked.wait(20)
        fill(first)
        joining.join(60)
    assert joined == [False]


def test_a_run_may_begin_with_a_restart(tmp_path: Path) -> None:
    """The folder was removed, or the start before got nowhere."""
    with enter(tmp_path / "run", AGAIN, say_nothing) as first:
        assert first.made and first.first_attempt == 1
        fill(first)
        with enter(tmp_path / "run", AGAIN, say_nothing) as second:
            assert not second.made and second.first_attempt == 1


def test_who_gets_no_reply_to_what_it_renamed_is_still_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server did it, and its client asks again. If nobody took itself for the first one, nobody filled RUN."""
    rename = Path.rename

    def twice(path: Path, target: Path) -> Path:
        rename(path, target)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", twice)
    with enter(tmp_path / "run", JOB, say_nothing) as first:
        assert first.made
        fill(first)
    assert begin_restart(first.run, AGAIN.restart) and not begin_restart(first.run, AGAIN.restart)
    assert {path.name for path in first.run.nodes.iterdir() if path.is_dir()} == {first.node.name, ".restart.1"}
