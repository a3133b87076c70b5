"""Whether a process is a rank itself, by the ranks above and below it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from prismdbg.rank.recording import process_tree
from prismdbg.rank.recording.own_process import own_start_ticks
from prismdbg.settings.process_stat import start_ticks
from prismdbg.settings.rank_config import Mode, RankConfig

GIVEN = "localhost:29500"
HERE = "where this process has its group"
PARENT = [os.getppid(), start_ticks(os.getppid())]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankConfig:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "29500")
    return RankConfig(mode=Mode.RECORD, run="/no/such/server", socket_dir=str(tmp_path))


@pytest.fixture
def group_at(tmp_path: Path) -> Iterator[str]:
    """Where this process has a group."""
    store = dist.FileStore(str(tmp_path / "met"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield store.path
    dist.destroy_process_group()


def marked(config: RankConfig, pid: int, namespace: int | None = None, **about: object) -> Path:
    """The mark of rank 1 of two, which is this process's parent."""
    path = Path(config.socket_dir) / f"{pid}-{namespace or process_tree._namespace()}.rank"
    facts = {"rank": 1, "world_size": 2, "place": "", "given_place": GIVEN, "process": PARENT, "ancestors": []}
    facts |= about
    path.write_text(json.dumps(facts))
    return path


def test_the_parent_is_the_first_of_those_above() -> None:
    assert process_tree.ancestors()[0] == [os.getppid(), start_ticks(os.getppid())]


@pytest.mark.parametrize(
    ("about", "rank", "world_size", "above"),
    [
        ({}, 1, 2, 1),
        ({}, 0, 1, 1),
        ({}, 0, 4, None),  # it trained something alone, and then starts a job
        ({"process": [os.getppid(), 1]}, 1, 2, None),
        ({"namespace": 1}, 1, 2, None),
        ({}, 0, 2, 1),
        ({"left_ticks": own_start_ticks()}, 1, 2, 1),
    ],
)
def test_a_rank_above(about: dict[str, Any], rank: int, world_size: int, above: int | None, config: RankConfig) -> None:
    marked(config, 4, process=[os.getpid(), start_ticks(os.getpid())])
    marked(config, 5, **about)
    assert process_tree.rank_above(config, rank, world_size) == above


@pytest.mark.parametrize(
    ("about", "rank", "world_size", "above"),
    [
        ({"place": HERE}, 0, 2, None),  # a rank of the same job: its launcher becomes a rank itself
        ({"place": HERE}, 1, 2, 1),
        ({"place": HERE, "world_size": 4}, 0, 2, 1),
        ({"place": GIVEN}, 0, 2, 1),  # a helper of it inherits this
        ({"given_place": HERE}, 0, 2, None),  # that rank had no group yet: it has trained alone, and starts the job
        ({"given_place": HERE}, 1, 2, None),
        ({"given_place": HERE, "world_size": 1}, 1, 1, 1),  # there is no other rank that it could start
        ({}, 0, 2, 1),  # a helper that inherits this, and meets elsewhere
        ({"given_place": "localhost:29501"}, 0, 2, 1),
        ({"left_ticks": own_start_ticks()}, 1, 2, None),  # it had destroyed its groups
        ({"left_ticks": own_start_ticks()}, 0, 1, 1),
        ({"left_ticks": own_start_ticks() + 1}, 1, 2, 1),  # it still had them then
    ],
)
def test_a_rank_above_one_with_a_group(
    about: dict[str, Any], rank: int, world_size: int, above: int | None, config: RankConfig, group_at: str
) -> None:
    placed: dict[str, Any] = {name: group_at if value == HERE else value for name, value in about.items()}
    marked(config, 5, **placed)
    assert process_tree.rank_above(config, rank, world_size) == above


@pytest.mark.parametrize(("rank", "meets_at", "above"), [(0, HERE, None), (1, HERE, None), (0, GIVEN, 1)])
def test_a_job_that_a_rank_started_again_before_it_ended_has_all_its_ranks(
    rank: int, meets_at: str, above: int | None, config: RankConfig, group_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = [PARENT[0], PARENT[1] - 1]  # another process has its PID now
    monkeypatch.setenv(process_tree.VARIABLE, process_tree._name(ended))
    marked(config, 5, process=ended, place=group_at if meets_at == HERE else meets_at)
    assert process_tree.rank_above(config, rank, 2) == above


def test_where_no_variable_names_a_place_it_is_not_the_same(
    config: RankConfig, group_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in jobs of Slurm."""
    monkeypatch.delenv("MASTER_ADDR")
    monkeypatch.delenv("MASTER_PORT")
    process_tree.mark(config, 1, 2)
    (mark,) = Path(config.socket_dir).glob("*.rank")
    assert json.loads(mark.read_text())["place"] == group_at
    mark.unlink()
    marked(config, 5, given_place="")
    assert process_tree.rank_above(config, 0, 2) == 1


def test_a_process_that_trains_alone_and_then_spawns_the_job_is_above_ranks(
    config: RankConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its child with its own rank number is one of them, too."""
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setenv("MASTER_PORT", str(store.port))
    marked(config, 5, rank=0, given_place=process_tree._given_place())
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert process_tree.rank_above(config, 0, 2) is None
    dist.destroy_process_group()


def test_ranks_meet_at_the_address_of_their_store() -> None:
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    assert process_tree._meeting_place() == f"localhost:{store.port}"
    dist.destroy_process_group()


def test_what_cannot_be_read_is_no_rank(config: RankConfig) -> None:
    assert process_tree.rank_above(config, 1, 1) is None
    marked(config, 5).write_text("{")
    assert process_tree.rank_above(config, 1, 1) is None and not process_tree.has_ranks_below(config)


def test_ranks_below(config: RankConfig) -> None:
    """RUN is not read: its file server may not answer."""
    this = [os.getpid(), start_ticks(os.getpid())]
    marked(config, 4, ancestors=[[5, 5], [os.getpid(), 1]])
    assert not process_tree.has_ranks_below(config)
    marked(config, 5, ancestors=[[5, 5], this])
    assert process_tree.has_ranks_below(config)


def test_a_rank_marks_itself(config: RankConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    process_tree.mark(config, 1, 2)
    monkeypatch.setattr(process_tree, "ancestors", lambda: [[os.getpid(), start_ticks(os.getpid())]])
    assert process_tree.rank_above(config, 1, 2) == 1
    monkeypatch.setattr(process_tree, "_this", lambda: PARENT)
    assert process_tree.has_ranks_below(config)


@pytest.mark.parametrize("namespace", [None, 1])
def test_a_rank_above_is_known_after_the_process_between_has_ended(
    namespace: int | None, config: RankConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a program in the background: the shell that started it has ended. It is none above itself, as after
    `os.execv`."""
    monkeypatch.setenv(process_tree.VARIABLE, "")
    marked(config, os.getpid(), process=[os.getpid(), start_ticks(os.getpid())], rank=0)
    marked(config, os.getppid())
    monkeypatch.setattr(process_tree, "ancestors", list)
    process_tree.tell_those_below()
    assert process_tree.rank_above(config, 1, 2) is None
    with monkeypatch.context() as at_the_parent:
        at_the_parent.setattr(process_tree, "_this", lambda: PARENT)
        at_the_parent.setattr(process_tree, "_namespace", lambda: namespace or Path("/proc/self/ns/pid").stat().st_ino)
        process_tree.tell_those_below()
    assert process_tree.rank_above(config, 1, 2) == (None if namespace else 1)


def test_what_is_told_to_those_below_is_of_a_bounded_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where each process starts the next one, for weeks."""
    monkeypatch.setenv(process_tree.VARIABLE, "")
    for pid in [*range(100), 98, 99]:
        monkeypatch.setattr(process_tree, "_this", lambda pid=pid: [pid, 1])
        process_tree.tell_those_below()
    told = os.environ[process_tree.VARIABLE].split()
    assert [name.split("-")[0] for name in told] == [str(pid) for pid in range(36, 100)]


def test_a_rank_may_destroy_its_groups_and_make_others(config: RankConfig) -> None:
    process_tree.mark_without_group(config)
    assert not list(Path(config.socket_dir).iterdir()), "it was no rank"
    process_tree.mark(config, 1, 2)
    (mark,) = Path(config.socket_dir).iterdir()
    had = json.loads(mark.read_text())
    process_tree.mark_without_group(config)
    left = json.loads(mark.read_text()).pop("left_ticks")
    assert own_start_ticks() <= left <= process_tree._now_ticks()
    process_tree.mark_with_group(config, 0, 1)
    assert json.loads(mark.read_text()) == {**had, "rank": 0, "world_size": 1}


def test_what_has_made_a_group_is_a_rank_before_it_communicates(config: RankConfig, group_at: str) -> None:
    """Unless a rank has started it."""
    above = marked(config, 5)
    process_tree.mark_with_group(config, 0, 1)
    assert not process_tree._own_mark(config).exists()
    above.unlink()
    process_tree.mark_with_group(config, 0, 1)
    assert json.loads(process_tree._own_mark(config).read_text())["place"] == group_at


def test_a_rank_without_a_folder_for_its_mark_goes_on(config: RankConfig) -> None:
    process_tree.mark(replace(config, socket_dir="/no/such/folder"), 1, 2)


def test_the_agent_is_the_first_process_above_without_the_variables_of_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between it and the rank may be a shell (`--no-python`), which lives as long as the rank."""
    shell, agent, script = [5, 50], [4, 40], [3, 30]
    monkeypatch.setattr(process_tree, "_is_of_torchrun", lambda process: process == shell)
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT", raising=False)
    assert process_tree.launch([shell, agent, script]) == {}
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    assert process_tree.launch([shell, agent, script]) == {"agent": agent, "worker": shell}
    assert process_tree.launch([agent, script]) == {"agent": agent, "worker": [os.getpid(), start_ticks(os.getpid())]}
    assert process_tree.launch([]) == {}
