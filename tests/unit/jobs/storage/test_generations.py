"""Which log folders ran together, in a job that torchrun restarts: it counts restarts on each node by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tiny_log import TinyLog

from prismdbg.diagnosis.why import diagnose
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.storage import generations
from prismdbg.jobs.storage.generations import last_generation
from prismdbg.jobs.storage.run_folder import RunFolder, read_if_whole, read_json, write_json

BEGAN_NS = 10**18 - 2 * 10**9  # a second before the first record of a tiny log
NO_SUCH_PID = 2**22 + 1


def rank(
    run: RunFolder, name: str, *, world_size: int = 4, began_ns: int = BEGAN_NS, agent: int = 0, worker: int = 0
) -> TinyLog:
    """agent, worker: when these processes of torchrun began; 0: not known."""
    log = TinyLog(run.ranks / name, int(name[0]))
    log.group("0", range(world_size), "default_pg")
    log.complete(log.issue(0, 1, seq=0))
    about: dict[str, object] = {
        "rank": int(name[0]),
        "pid": NO_SUCH_PID,
        "world_size": world_size,
        "started_ns": began_ns,
    }
    about |= {"agent": [7, agent], "worker": [8, worker]} if agent else {}
    write_json(log.folder / "rank.json", about)
    return log


def names(run: RunFolder) -> list[str]:
    return [folder.name for folder in last_generation(run.rank_folders())]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    write_json(tmp_path / "run.json", {})
    return RunFolder(tmp_path)


@pytest.mark.parametrize(
    ("before", "together"), [((), ["0.1", "1.1", "2", "3"]), (("0", "1"), ["0.1", "1.1", "2", "3"])]
)
def test_ranks_of_a_node_that_counts_less(before: Sequence[str], together: list[str], run: RunFolder) -> None:
    """A rank of the other node failed before this one's communicated."""
    for name in before:
        rank(run, name, began_ns=BEGAN_NS - 10**10)
    for name in ("0.1", "1.1", "2", "3"):
        rank(run, name)
    assert names(run) == together


def test_a_job_that_has_grown(run: RunFolder) -> None:
    rank(run, "0", world_size=1, began_ns=BEGAN_NS - 10**10)
    for name in ("0.1", "1"):
        rank(run, name, world_size=2)
    assert names(run) == ["0.1", "1"]


def test_a_rank_that_ended_before_the_others_began_is_of_an_earlier_attempt(run: RunFolder) -> None:
    for name in ("0", "1"):
        rank(run, name, world_size=2)
    rank(run, "0.1", world_size=2, began_ns=BEGAN_NS + 10**10)
    assert names(run) == ["0.1"]


def test_a_rank_whose_agent_has_started_others_since_is_of_an_earlier_attempt(run: RunFolder) -> None:
    """Whatever the clocks of the nodes say."""
    for name in ("0", "1"):
        rank(run, name, world_size=2, agent=1, worker=2)
    rank(run, "0.1", world_size=2, agent=1, worker=3)
    assert names(run) == ["0.1"]


@pytest.mark.parametrize("is_here", [True, False])
def test_ranks_that_an_agent_starts_one_after_the_other_run_together(is_here: bool, run: RunFolder) -> None:
    """A clock tick lies between their starts."""
    for name in ("0.1", "1.1"):
        rank(run, name)
    for name, worker in (("2", 5), ("3", 6)):
        log = rank(run, name, agent=1, worker=worker)
        if not is_here:
            log.path.unlink()
    assert names(run) == ["0.1", "1.1", "2", "3"]


def test_a_rank_of_another_job_beside_it_did_not_run_with_them(run: RunFolder) -> None:
    for name, port in (("1", 24001), ("0.1", 24002)):
        about = rank(run, name, world_size=2).folder / "rank.json"
        write_json(about, {**read_json(about), "environment": {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}})
    assert names(run) == ["0.1"]


def test_a_job_that_has_become_smaller(run: RunFolder) -> None:
    for name in ("0", "1"):
        rank(run, name, world_size=2)
    rank(run, "0.1", world_size=1)
    assert names(run) == ["0.1"]


def undescribed_by_a_log(run: RunFolder, name: str, *, began_ns: int) -> None:
    """The log is on a node that is lost."""
    about = {"rank": int(name[0]), "pid": NO_SUCH_PID, "world_size": 4, "started_ns": began_ns, "node": "n2"}
    (run.ranks / name).mkdir(parents=True)
    write_json(run.ranks / name / "rank.json", about)


LAST_WORD_NS = 10**18  # later than that of any tiny log here


@pytest.mark.parametrize(
    ("before", "began_ns", "together"),
    [
        ((), BEGAN_NS, True),
        (("0", "1"), LAST_WORD_NS, True),
        (("0", "1"), BEGAN_NS, False),
    ],
    ids=["it is not known that there was an earlier attempt", "after it", "with it"],
)
def test_ranks_whose_logs_are_not_here_ran_together_with_those_that_began_after_the_attempt_before(
    before: Sequence[str], began_ns: int, together: bool, run: RunFolder
) -> None:
    for name in (*before, "0.1", "1.1"):
        rank(run, name)
    for name in ("2", "3"):
        undescribed_by_a_log(run, name, began_ns=began_ns)
    assert names(run) == ["0.1", "1.1", *(("2", "3") if together else ())]


def test_where_the_logs_of_the_attempt_before_are_not_here_either_nobody_knows(run: RunFolder) -> None:
    undescribed_by_a_log(run, "0", began_ns=BEGAN_NS - 10**10)
    rank(run, "0.1")
    undescribed_by_a_log(run, "1", began_ns=BEGAN_NS)
    assert names(run) == ["0.1"]


def test_of_a_lost_node_whose_logs_were_not_copied_the_loss_is_told(run: RunFolder) -> None:
    """Rank 0 lost a peer on it, and would be told as the cause."""
    (run.nodes / "n2").mkdir(parents=True)
    write_json(run.nodes / "job.json", {"id": "x"})
    write_json(run.nodes / "n2" / "node.json", {"local": "/elsewhere/prismdbg-x"})
    lost = {"type": "RuntimeError", "incident": "exception", "text": "Connection closed by peer"}
    rank(run, "0.1").note("incident", moment="0.1", traceback=["RuntimeError: no"], **lost)
    rank(run, "1.1")
    for name in ("2", "3"):
        undescribed_by_a_log(run, name, began_ns=BEGAN_NS)
    evidence = gather(run.path)
    assert [node.ranks for node in evidence.silent_nodes] == [(2, 3)]
    assert diagnose(evidence).verdicts[0].kind == "lost_node"


def test_a_rank_of_which_nobody_knows_when_it_began_or_ended(run: RunFolder) -> None:
    rank(run, "0.1", world_size=2)
    damaged = rank(run, "1", world_size=2)
    damaged.path.write_bytes(b"damaged")
    assert names(run) == ["0.1"]
    write_json(rank(run, "1", world_size=2).folder / "rank.json", {})
    write_json(run.ranks / "0.1" / "rank.json", {"world_size": 2})
    assert names(run) == ["0.1"]


def test_each_rank_is_read_once(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job may have hundreds of ranks, and each read asks a file server."""
    size = 100
    for number in range(size):
        about = {"rank": number, "world_size": size, "started_ns": BEGAN_NS, "agent": [7, 1], "worker": [8, 2]}
        folder = run.ranks / (f"{number}.1" if number < 8 else str(number))
        folder.mkdir(parents=True)
        write_json(folder / "rank.json", about)
    read = list[Path]()

    def counted(path: Path) -> dict[str, Any]:
        read.append(path)
        return read_if_whole(path)

    monkeypatch.setattr(generations, "read_if_whole", counted)
    monkeypatch.setattr(generations, "_last_word_ns", lambda _: BEGAN_NS)
    assert len(last_generation(run.rank_folders())) == size
    assert len(read) == size


def test_why_reads_them_together(run: RunFolder) -> None:
    for name in ("0.1", "1.1", "2"):
        rank(run, name)
    raised = {"exception": "RuntimeError", "type": "RuntimeError", "incident": "exception", "text": "no"}
    rank(run, "3").note("incident", moment="0.1", traceback=["RuntimeError: no"], **raised)
    died = [{"rank": "3", "wall_ns": BEGAN_NS + 2 * 10**9, "signal": 0, "code": 1, "alive_wall_ns": 0}]
    incident = {"kind": "exception", "text": "RuntimeError: no", "moment": "0.1", "ranks": [3], "attempt": 0}
    write_json(run.supervisor_json, {"exit_code": 1, "deaths": ["3"], "how_they_died": died, "incidents": [incident]})
    evidence = gather(run.path)
    assert sorted(evidence.logs) == [0, 1, 2, 3] and evidence.exit_codes == {}
    diagnosis = diagnose(evidence)
    assert [verdict.ranks for verdict in diagnosis.verdicts if verdict.kind == "raised"] == [(3,)]
    assert not [verdict for verdict in diagnosis.verdicts if verdict.kind == "incident"], "it is told once"


def test_how_ranks_died_is_known_of_all_of_them(run: RunFolder) -> None:
    for name in ("0.1", "1.1", "2", "3"):
        rank(run, name)
    died = [{"rank": "3", "wall_ns": BEGAN_NS + 2 * 10**9, "signal": 9, "code": 137, "alive_wall_ns": 0}]
    write_json(run.supervisor_json, {"exit_code": 1, "deaths": ["3"], "how_they_died": died})
    assert gather(run.path).signals == {3: 9}
