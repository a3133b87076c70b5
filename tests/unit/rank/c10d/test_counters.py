"""Sequence numbers: what they are counted by, and that a program with a tag for each message has no end of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prismdbg.model.collective import Identity
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
        assert sent(counters, tag) == sent(counters, -1) - tag == 0
    assert len(counters.sequences()) == MOST_TAGS
    assert sent(counters, 10 * MOST_TAGS - 1) == 1 and sent(counters, 0) == 0


def test_a_replay_goes_on_with_what_is_known() -> None:
    first, second, third = Counters(), Counters(), Counters()
    for tag in range(MOST_TAGS + 9):
        sent(first, tag)
    sent(first, 20)
    second.resume_at(Moment(0, 3), 3, first.sequences())
    past: list[Any] = [
        SimpleNamespace(identity=Identity("0", seq, "send", 1, tag), record_id=tag)
        for tag, seq in [*((tag, 0) for tag in range(MOST_TAGS + 9)), (20, 1)]
    ]
    third.resume_before(past, 0, 3)
    for counters in (second, third):
        assert counters.sequences() == first.sequences()
        assert [sent(counters, tag) for tag in (20, 0, 30)] == [2, 0, 1]
