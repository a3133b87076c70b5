"""What the supervisors of many nodes ask of the file server of RUN: each as much as one of a few nodes does."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_log import write_training

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.jobs.record import decisions, rank_progress, request_answers
from prismdbg.jobs.record.incidents import Wanted
from prismdbg.jobs.record.nodes import among_nodes, heartbeat, known_nodes
from prismdbg.jobs.record.nodes.among_nodes import AmongNodes
from prismdbg.jobs.record.nodes.heartbeat import Heartbeat
from prismdbg.jobs.record.nodes.known_nodes import LISTED_S, KnownNodes
from prismdbg.jobs.record.nodes.membership import AT_ONCE, JOIN_BOUND_S, TURN_S, Member, _Others
from prismdbg.jobs.record.rank_progress import RankProgress
from prismdbg.jobs.record.request_answers import RequestAnswers
from prismdbg.jobs.storage.job_nodes import NodeFolder
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.model.moment import Moment

FEW, MANY = 8, 64
NAN = Wanted(folder="0", incident=Incident(kind=IncidentKind.NAN, text="", moment=Moment(5, 2)), sent=True)


class Asked:
    """What is asked below a folder: names of files that are opened, looked up, or listed."""

    def __init__(self) -> None:
        self.below = ""
        self.names: list[str] = []
        sys.addaudithook(self._hook)  # stays until the process ends, and costs it nothing

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.below and event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(self.below):
            self._add(arguments[0])

    def _add(self, path: object) -> None:
        self.names.append(Path(str(path)).name)

    @contextmanager
    def of(self, folder: Path) -> Iterator[list[str]]:
        self.names, self.below = [], str(folder)
        with pytest.MonkeyPatch.context() as patched:
            for name in ("stat", "lstat"):
                patched.setattr(os, name, self._counted(getattr(os, name)))
            try:
                yield self.names
            finally:
                self.below = ""

    def _counted(self, ask: Callable[..., Any]) -> Callable[..., Any]:
        def counted(path: Any, *arguments: Any, **options: Any) -> Any:
            if str(path).startswith(self.below):
                self._add(path)
            return ask(path, *arguments, **options)

        return counted


@pytest.fixture(scope="module")
def asked() -> Asked:
    return Asked()


@pytest.fixture(autouse=True)
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "LOOK_NS", 0)
    monkeypatch.setattr(among_nodes, "LOOK_S", -1.0)
    monkeypatch.setattr(decisions, "SETTLE_S", 0.0)
    monkeypatch.setattr(known_nodes, "time", SimpleNamespace(monotonic=lambda: 1000.0))


def job(base: Path, nodes: int) -> tuple[RunFolder, list[NodeFolder]]:
    run = RunFolder(base / f"of {nodes}")
    run.nodes.mkdir(parents=True)
    run.ranks.mkdir()
    (run.nodes / "job.json").write_text('{"id": "x"}')
    found = [NodeFolder(run.nodes / f"n{number:04}") for number in range(nodes)]
    for node in found:
        node.path.mkdir()
        node.about.write_text("{}")
        node.supervisor_json.write_text("{}")
        Heartbeat(node).once()
    return run, found


def supervisor(run: RunFolder, node: NodeFolder) -> AmongNodes:
    return AmongNodes(Member(run=run, node=node, heart=Heartbeat(node), made=False), lambda _: None)


@pytest.mark.parametrize("has_incident", [False, True])
def test_a_look_of_a_supervisor_costs_the_same_among_many_nodes(
    has_incident: bool, tmp_path: Path, asked: Asked
) -> None:
    """Also while an incident is open that another one, which is nearer to it, does not capture."""
    costs = []
    for number in (FEW, MANY):
        run, nodes = job(tmp_path, number)
        one = supervisor(run, nodes[1])
        if has_incident:
            one.share(NAN, None, lambda _: None)
            (folder,) = run.decisions.iterdir()
            for node in nodes:
                write_json(folder / f"{node.name}.saw.json", {"key": [5, 0, 1] if node == nodes[0] else [9]})
        looks = []
        for _ in range(3):
            with asked.of(run.path) as names:
                one.settle()
                one.look({})
            looks.append(names)
        assert looks[0].count("node.json") >= number and "node.json" not in looks[1] + looks[2], "each is read once"
        assert one.has_to_decide is has_incident
        costs.append([len(names) for names in looks[1:]])
    assert costs[0] == costs[1], looks[2]


def test_many_supervisors_list_the_nodes_as_often_in_all_as_the_nodes_are(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(known_nodes, "time", SimpleNamespace(monotonic=lambda: now_s))
    run, nodes = job(tmp_path, MANY)
    known = KnownNodes(run, 0)
    times = []
    with asked.of(run.nodes) as names:
        while len(times) < 3:
            names.clear()
            assert known.lately() == nodes
            if "nodes" in names:
                assert ("node.json" in names) is (not times)
                times.append(now_s)
            now_s += 0.5
    assert all(later - earlier >= LISTED_S * MANY for earlier, later in pairwise(times)), times


def test_who_joins_many_nodes_asks_a_few(tmp_path: Path, asked: Asked) -> None:
    run, nodes = job(tmp_path, MANY)
    for ended in nodes[:3]:
        write_json(ended.supervisor_json, {"exit_code": 0})
    others = _Others(run, 0)
    assert not others.beat(0.0)
    with asked.of(run.path) as names:
        assert not others.beat(0.1) and not others.have_ended
    assert {name for name in names if name.startswith("n0")} == {f"n{number:04}.beat.json" for number in range(3, 7)}
    assert names.count("supervisor.json") <= 5 * AT_ONCE, "each with a few calls"
    Heartbeat(nodes[3]).once()
    assert not others.beat(0.2), "its number is the same"
    write_json(nodes[3].beat, {"beat": 2})
    assert others.beat(0.2)


@pytest.mark.parametrize("only", [30, MANY - 1])
def test_of_those_before_it_who_joins_looks_at_others_where_the_first_are_silent(only: int, tmp_path: Path) -> None:
    """All others, before it gives up."""
    run, nodes = job(tmp_path, MANY)
    others, found = _Others(run, 0), []
    for second in range(int(JOIN_BOUND_S)):
        write_json(nodes[only].beat, {"beat": second})
        found.append(others.beat(second))
    assert any(found) and not any(found[: int(TURN_S)])


def test_the_sizes_of_a_log_are_looked_up_while_it_grows_and_not_each_second(
    tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 1000.0
    monkeypatch.setattr(rank_progress, "time", SimpleNamespace(monotonic=lambda: now_s))
    log, progress = write_training(tmp_path / "0"), RankProgress(RunFolder(tmp_path))

    def told(*, at_once: bool = False) -> tuple[int, bool]:
        with asked.of(tmp_path) as names:
            size = progress.to_json([tmp_path / "0"], at_once=at_once)["0"]["log_bytes"]
        return size, bool(names)

    first, _ = told()
    assert first and told() == (first, False)
    log.next_segment()
    progress.feed("0", SimpleNamespace())  # type: ignore[arg-type]
    assert told() == (first, False)
    now_s += 11
    size, was_asked = told()
    assert size > first and was_asked
    now_s += 11
    assert told() == (size, False), "it has not grown"
    assert told(at_once=True) == (size, True)


@pytest.mark.parametrize("owner", ["n0000", "n0001"])
def test_who_is_not_to_answer_a_request_does_not_list_the_ranks_for_it_at_each_look(
    owner: str, tmp_path: Path, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another node, or one of its own that was left: nobody may remove it for long."""
    monkeypatch.setattr(request_answers, "LOOK_NS", 0)
    costs = []
    for number in (FEW, MANY):
        run, nodes = job(tmp_path, number)
        for rank in range(number):
            (run.ranks / str(rank)).mkdir()
            write_json(run.ranks / str(rank) / "rank.json", {"rank": rank, "pid": 1, "node": owner})
        request = run.requests / "0123456789abcdef"
        request.mkdir(parents=True)
        write_json(request / "request.json", {"rank": 1, "window_steps": 0, "timeout_s": 1, "origin": "image"})
        write_json(request / "result.json", {"error": "rank 1 has ended"})
        answers, looks = RequestAnswers(run, nodes[1], pytest.fail), []
        for _ in range(3):
            with asked.of(run.path) as names:
                answers.look()
            looks.append(list(names))
        assert "ranks" in looks[0] and not {"ranks", "request.json", "rank.json"} & {*looks[1], *looks[2]}
        costs.append([len(names) for names in looks[1:]])
    assert costs[0] == costs[1]
