"""Clocks of nodes that differ are found by the ends of collectives, and make nobody a straggler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prismdbg.diagnosis.clocks import clock_offsets
from prismdbg.diagnosis.evidence import Evidence, SilentNode
from prismdbg.diagnosis.lost_nodes import find_lost_nodes, unseen_ends
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import diagnose
from prismdbg.log.rank_log import columns_of
from tests.unit.logs import MILLISECOND_NS, Job

NODES = {0: "n1", 1: "n1", 2: "n2", 3: "n2"}
AHEAD_NS = 3_700 * MILLISECOND_NS


def job(*, steps: int = 20, late: int | None = None) -> Job:
    made = Job(4)
    for number in range(steps):
        made.call(late_ns={} if late is None else {late: (1 + number % 3) * MILLISECOND_NS})
        for rank in made.ranks:
            made.next_step(rank)
    return made


def ahead(made: Job, ranks: tuple[int, ...], by_ns: int) -> Job:
    """As a clock that is ahead writes it into the log's head."""
    for rank in ranks:
        made.logs[rank] = replace(made.logs[rank], wall_offset_ns=by_ns)
    return made


def offsets(made: Job) -> dict[str, int]:
    return clock_offsets({rank: columns_of(log) for rank, log in made.logs.items()}, NODES)


def test_a_clock_that_is_ahead_is_found() -> None:
    assert offsets(ahead(job(late=1), (2, 3), AHEAD_NS)) == {"n1": 0, "n2": AHEAD_NS}
    assert offsets(ahead(job(late=3), (0, 1), AHEAD_NS)) == {"n1": 0, "n2": -AHEAD_NS}


def test_clocks_that_agree_are_left_as_they_are() -> None:
    assert offsets(job()) == {"n1": 0, "n2": 0}


def test_an_offset_that_may_be_chance_is_none() -> None:
    """The ends on the other node scatter by milliseconds: half a millisecond between clocks cannot be seen."""
    columns = {rank: columns_of(log) for rank, log in job().logs.items()}
    scatter = np.arange(len(columns[2].ended_ns)) % 5 * MILLISECOND_NS - 3 * MILLISECOND_NS // 2
    for rank in (2, 3):
        columns[rank] = replace(columns[rank], ended_ns=columns[rank].ended_ns + scatter)
    assert clock_offsets(columns, NODES) == {"n1": 0, "n2": 0}


def test_nothing_is_concluded_from_few_collectives() -> None:
    assert offsets(ahead(job(steps=3), (2, 3), AHEAD_NS)) == {"n1": 0, "n2": 0}


def test_what_only_some_wait_for_says_nothing() -> None:
    made = Job(4)
    for _ in range(20):
        made.call("broadcast_", root=0)
    assert offsets(ahead(made, (2, 3), AHEAD_NS)) == {"n1": 0, "n2": 0}


def test_one_node_needs_no_offsets() -> None:
    made = job()
    assert clock_offsets({rank: columns_of(log) for rank, log in made.logs.items()}, {}) == {}


def lost(made: Job, **node: object) -> Evidence:
    silent = SilentNode(name="n2", ranks=(2, 3), silent_s=43.2, **node)  # type: ignore[arg-type]
    return Evidence(logs=made.logs, nodes=NODES, silent_nodes=(silent,), silent=frozenset({2, 3}))


def test_a_lost_node_is_the_first_that_is_told() -> None:
    made = job()
    made.call(without={2, 3}, done=False)
    made.raises(0, "RuntimeError", "Connection closed by peer")
    told = diagnose(lost(made))
    first = told.verdicts[0]
    assert first.text.startswith("node n2 with ranks 2 and 3 is lost: no heartbeat for 43 seconds"), first.text
    assert (first.ranks, told.places(first)) == ((2, 3), ["node n2: ranks 2 and 3"])
    assert told.to_json()["nodes"]["3"] == "n2"


def test_a_supervisor_that_is_lost_loses_no_node() -> None:
    going_on = lost(job(), goes_on=True)
    assert list(find_lost_nodes(going_on)) == []
    assert "the supervisor of node n2 is lost" in next(iter(unseen_ends(going_on)))


def test_a_node_whose_ranks_recorded_something_after_its_last_heartbeat_is_only_likely_lost() -> None:
    (found,) = find_lost_nodes(lost(job(), recorded_s=15.0))
    assert found.certainty is Certainty.LIKELY
    assert found.text.endswith("no heartbeat for 43 seconds, and its ranks recorded last 15 seconds ago"), found.text
    (sure,) = find_lost_nodes(lost(job()))
    assert sure.certainty is Certainty.CERTAIN and sure.text.endswith("have recorded nothing since")


def test_ranks_that_came_to_their_end_were_not_lost() -> None:
    made = job()
    made.exits()
    assert list(find_lost_nodes(lost(made))) == []
