"""What ran between two calls, laid into the time that was recorded between them, and put together where it is small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prismdbg.memory.traced_step import BETWEEN, FREED, Changed, Item, Ran, Waited

SMALL = "small operators"


def laid_out(items: Sequence[Item], begin_ns: int, end_ns: int, done_ns: Mapping[int, int]) -> list[Item]:
    """The same items in the time from `begin_ns` to `end_ns`: one factor for all that ran, so that computing and
    waiting together fill it.

    done_ns: by record number when that collective was complete, in the same time. Other waits are left out.
    """
    end_ns = max(begin_ns, end_ns)
    kept = [item for item in items if not isinstance(item, Waited) or item.record_id in done_ns]
    factor = _factor(kept, begin_ns, end_ns, done_ns)
    laid: list[Item] = []
    at_ns, anchor_ns, ran_ns = begin_ns, begin_ns, 0
    for item in kept:
        if isinstance(item, Waited):
            laid.append(item)
            at_ns = anchor_ns = max(at_ns, min(done_ns[item.record_id], end_ns))
            ran_ns = 0
        elif isinstance(item, Ran):
            ran_ns += item.taken_ns
            ends_ns = min(anchor_ns + round(factor * ran_ns), end_ns)
            laid.append(Ran(ends_ns - at_ns, item.label, item.line))
            at_ns = ends_ns
        else:
            laid.append(item)
    return _filled(laid, end_ns - at_ns)


def _factor(items: Sequence[Item], begin_ns: int, end_ns: int, done_ns: Mapping[int, int]) -> float:
    """The largest with which all ends in time: it goes on from the begin, or from a wait that was longer than what
    ran before it."""
    factor = float("inf")
    ahead_ns = 0
    for item in reversed(items):
        if isinstance(item, Ran):
            ahead_ns += item.taken_ns
        elif isinstance(item, Waited) and ahead_ns:
            factor = min(factor, max(end_ns - done_ns[item.record_id], 0) / ahead_ns)
    return min(factor, max(end_ns - begin_ns, 0) / ahead_ns) if ahead_ns else 0.0


def _filled(laid: list[Item], rest_ns: int) -> list[Item]:
    """What is left of the time: rounding, or the program where nothing is known of it."""
    if rest_ns <= 0:
        return laid
    last = next((n for n in reversed(range(len(laid))) if not isinstance(laid[n], Changed)), None)
    if last is not None and isinstance(ran := laid[last], Ran):
        laid[last] = Ran(ran.taken_ns + rest_ns, ran.label, ran.line)
        return laid
    return [*laid, Ran(rest_ns, BETWEEN)]


def put_together(items: Sequence[Item], least_ns: int) -> Iterator[Item]:
    """Neighbours that each take less than `least_ns` become one; what memory did before it, its highest and its end.

    All times, sums and peaks stay what they were.
    """
    small: list[Ran] = []
    changes: list[Changed] = []
    for item in items:
        if isinstance(item, Changed):
            changes.append(item)
        elif isinstance(item, Ran) and item.taken_ns < least_ns:
            small.append(item)
        else:
            yield from _joined(small, changes)
            yield item
            small, changes = [], []
    yield from _joined(small, changes)


def _joined(small: Sequence[Ran], changes: Sequence[Changed]) -> Iterator[Item]:
    yield from _extremes(changes)
    taken_ns = sum(ran.taken_ns for ran in small)
    if taken_ns:
        longest = max(small, key=lambda ran: (bool(ran.line), ran.taken_ns))
        label = longest.label if len({ran.label for ran in small}) == 1 else SMALL
        yield Ran(taken_ns, label, longest.line)


def _extremes(changes: Sequence[Changed]) -> Iterator[Changed]:
    high, at, label = 0, 0, ""
    for change in changes:
        at += change.size_bytes
        if at > high:
            high, label = at, change.label
    if high:
        yield Changed(high, label)
    if at != high:
        yield Changed(at - high, FREED if at < high else label)
