"""Sequence numbers: what they are counted by, and that a program with a tag for each message has no end of them."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.counters import MOST_TAGS, Counters


def sent(counters: Counters, tag: int, peer: int = 1) -> int:
    call: Any = SimpleNamespace(spec=OPS["send"], group_name="0", root=peer, tag=tag)
    return counters.issue(call)[2].seq


def test_messages_are_counted_by_peer_and_tag() -> None:
    counters = Counters()
    assert [sent(counters, 1), sent(counters, 2), sent(counters, 1), sent(counters, 1, peer=2)] == [0, 0, 1, 0]
    assert counters.sequences() == [("0", "send", 1, 2, 1), ("0", "send", 1, 1, 2), ("0", "send", 2, 1, 1)]


def test_tags_that_were_used_longest_ago_are_forgotten() -> None:
    counters = Counters()
    for tag in range(10 * MOST_TAGS):
        first = sent(counters, tag)
        assert sent(counters, -1) == tag and (first == 0 or tag >= MOST_TAGS - 1)
    assert len(counters.sequences()) == MOST_TAGS + 1
    assert sent(counters, 10 * MOST_TAGS - 1) == first + 1 and sent(counters, 0) > 0


def test_tags_that_come_again_count_on_although_they_were_forgotten() -> None:
    counters, tags = Counters(), range(MOST_TAGS + 100)
    assert [{sent(counters, tag) for tag in tags} for _ in range(4)] == [{0, 1}, {1, 2}, {2, 3}, {3, 4}]


def test_no_two_messages_have_the_same_identity() -> None:
    counters, draw = Counters(), Random(7)
    tags = [draw.choice((3, 40, MOST_TAGS * 3)) * draw.randrange(MOST_TAGS) for _ in range(20_000)]
    made = [(tag, sent(counters, tag)) for tag in tags]
    assert len(set(made)) == len(made)


def test_a_replay_goes_on_with_what_is_known() -> None:
    first, second = Counters(), Counters()
    for tag in range(MOST_TAGS + 9):
        sent(first, tag)
    sent(first, 20)
    second.resume_at(Moment(0, 3), 3, first.sequences())
    assert second.sequences() == first.sequences()
    assert [sent(second, tag) for tag in (20, 0, 30)] == [2, 1, 1]
