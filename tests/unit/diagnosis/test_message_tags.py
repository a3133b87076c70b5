"""A program may have another tag for each message: what is known of them is bounded, and nobody is accused for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.capsule.log.batch import Batch, Key
from prismdbg.diagnosis.collective_key import RECEIVE, RECEIVE_ANY, SEND, CollectiveKey
from prismdbg.diagnosis.hang import NS_PER_S, HangDetector
from prismdbg.diagnosis.progress import Progress
from prismdbg.diagnosis.reached import MOST_TAGS
from prismdbg.log.rank_log import columns_of
from prismdbg.model.collective import Collective, Group, Identity
from prismdbg.model.moment import Moment
from prismdbg.rank.c10d.counters import Counters
from tests.unit.logs import WORLD, Job, lone_collective

PAIR = Group(name=WORLD, ranks=(0, 1))
MESSAGES = 100_000


def message(tag: int) -> CollectiveKey:
    """The first one of that tag from rank 0 to rank 1."""
    return CollectiveKey(WORLD, 0, tag, source=0, target=1)


def sent(tag: int, op: str = SEND, peer: int = 1) -> Batch:
    key: Key = (WORLD, op, peer, tag)
    return Batch(reached={key: 0})


def fed(op: str = SEND, rank: int = 0, peer: int = 1) -> Progress:
    """By a pipeline that numbers its microbatches."""
    progress = Progress(rank, groups={WORLD: PAIR})
    for tag in range(MESSAGES):
        progress.feed(sent(tag, op, peer))
    return progress


@pytest.mark.parametrize(("op", "rank", "peer"), [(SEND, 0, 1), (RECEIVE, 1, 0), (RECEIVE_ANY, 1, -1)])
def test_the_newest_tags_are_known_and_older_ones_count_as_come(op: str, rank: int, peer: int) -> None:
    progress = fed(op, rank, peer)
    assert len(progress._reached) == MOST_TAGS
    assert all(progress.has_come(message(tag)) for tag in (0, 7, MESSAGES - MOST_TAGS - 1, MESSAGES - 1))
    assert not progress.has_come(message(MESSAGES))


def test_of_a_tag_that_is_used_again_and_again_the_number_is_known() -> None:
    progress = Progress(0, groups={WORLD: PAIR})
    for number in range(3 * MOST_TAGS):
        progress.feed(Batch(reached={(WORLD, SEND, 1, 0): number}))
        progress.feed(sent(number + 1))
    assert progress.has_come(replace(message(0), seq=3 * MOST_TAGS - 1))
    assert not progress.has_come(replace(message(0), seq=3 * MOST_TAGS))


def test_a_rank_may_have_sent_what_is_forgotten() -> None:
    progress = fed()
    assert progress.may_have_sent(replace(message(3), source=-1), PAIR)
    assert not progress.may_have_sent(replace(message(MESSAGES), source=-1), PAIR)


def receive(tag: int, number: int) -> Collective:
    identity = Identity(WORLD, number, RECEIVE, 0, tag)
    return lone_collective(op=RECEIVE, is_p2p=True, tag=tag, root=0, identity=identity)


CYCLE = [number % 4096 for number in range(3 * 4096)]
SHUFFLED = [number * 7919 % 4096 for number in range(3 * 4096)]
NEVER_AGAIN = [*range(MESSAGES)]
ONE_IN_BETWEEN = [*range(2 * MOST_TAGS), 0, *range(2 * MOST_TAGS), 3]


@pytest.mark.parametrize("tags", [CYCLE, SHUFFLED, NEVER_AGAIN, ONE_IN_BETWEEN])
@pytest.mark.parametrize("is_sent", [False, True])
def test_who_has_not_sent_the_newest_message_is_named(tags: list[int], is_sent: bool) -> None:
    """Also where its tag was used long ago: the rank counts on from the highest number of those that it forgot."""
    detector, counters = HangDetector(NS_PER_S), Counters()
    for rank in PAIR.ranks:
        detector.feed(rank, PAIR)
    numbered = [(tag, counters._used(WORLD, SEND, 1, tag)) for tag in tags]
    for tag, number in numbered if is_sent else numbered[:-1]:
        detector.feed(0, Batch(reached={(WORLD, SEND, 1, tag): number}))
    awaited = receive(*numbered[-1])
    detector.feed(1, Batch(open=[awaited], last=awaited))
    reports = detector.due(100 * NS_PER_S)
    assert [report.stall.never_came for report in reports] == ([] if is_sent else [(0,)])


def test_of_a_whole_log_all_tags_are_known() -> None:
    job = Job(2)
    tags = [number * 7919 % 104_729 for number in range(2 * MOST_TAGS)]
    for number, tag in enumerate(tags):
        identity = Identity(WORLD, 0, SEND, 1, tag)
        call = lone_collective(record_id=number, op=SEND, is_p2p=True, tag=tag, root=1, identity=identity)
        job.calls(0).append(replace(call, moment=Moment(0, number + 1), time_created_ns=number))
    progress = Progress.of(columns_of(job.logs[0]))
    assert all(progress.has_come(message(tag)) for tag in tags)
    assert not any(progress.has_come(message(tag)) for tag in range(1000) if tag not in tags)
