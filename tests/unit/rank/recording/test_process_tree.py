"""Whether a process is a rank itself, by the ranks above and below it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from prismdbg.rank.recording import process_tree
from prismdbg.settings.process_stat import start_ticks
from prismdbg.settings.rank_config import Mode, RankConfig

NAMESPACE = Path("/proc/self/ns/pid").stat().st_ino


@pytest.fixture
def config(tmp_path: Path) -> RankConfig:
    return RankConfig(mode=Mode.RECORD, run=str(tmp_path), socket_dir=str(tmp_path / "sockets"))


def recorded(config: RankConfig, name: str, **about: object) -> None:
    folder = Path(config.home) / "ranks" / name
    folder.mkdir(parents=True)
    parent = {"pid": os.getppid(), "started_ticks": start_ticks(os.getppid()), "pid_namespace": NAMESPACE}
    (folder / "rank.json").write_text(json.dumps({"rank": int(name[0]), "world_size": 2, **parent, **about}))
    Path(config.socket_dir).mkdir(exist_ok=True)
    (Path(config.socket_dir) / f"{name}.sock").touch()


def test_the_parent_is_the_first_of_those_above() -> None:
    assert process_tree.ancestors()[0] == [os.getppid(), start_ticks(os.getppid())]


@pytest.mark.parametrize(
    ("about", "world_size", "above"),
    [
        ({}, 2, 1),
        ({}, 1, 1),
        ({}, 4, None),  # it trained something alone, and then starts a job
        ({"started_ticks": 1}, 2, None),
        ({"pid_namespace": 1}, 2, None),
    ],
)
def test_a_rank_above(about: dict[str, int], world_size: int, above: int | None, config: RankConfig) -> None:
    recorded(config, "0", pid=os.getpid())
    recorded(config, "1.2", **about)
    assert process_tree.rank_above(config, world_size) == above


def test_what_cannot_be_read_is_no_rank(config: RankConfig) -> None:
    assert process_tree.rank_above(config, 1) is None
    recorded(config, "0")
    (Path(config.home) / "ranks" / "0" / "rank.json").write_text("{")
    assert process_tree.rank_above(config, 1) is None and not process_tree.has_ranks_below(config)


def test_ranks_below(config: RankConfig) -> None:
    this = [os.getpid(), start_ticks(os.getpid())]
    recorded(config, "0", ancestors=[[5, 5], [os.getpid(), 1]])
    assert not process_tree.has_ranks_below(config)
    recorded(config, "1", ancestors=[[5, 5], this])
    assert process_tree.has_ranks_below(config)


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
