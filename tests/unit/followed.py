"""What a follower of the log gives, made one event at a time from what a reader gives: for tests, and to compare."""

from __future__ import annotations

from collections.abc import Iterable

from prismdbg.capsule.log.batch import NOTABLE_KEPT, Batch, Key
from prismdbg.capsule.log.events import Completion, Event, Note, StepMark, Waited
from prismdbg.model.collective import Collective


def followed(events: Iterable[Event]) -> list[Event]:
    """All of it read at once."""
    given: list[Event] = []
    batch: Batch | None = None
    open_: dict[int, Collective] = {}
    threads: dict[int, int] = {}
    last: Collective | None = None
    for event in events:
        if isinstance(event, Waited):
            continue
        if isinstance(event, StepMark | Note):
            batch = None
        if not isinstance(event, Collective | Completion):
            given.append(event)
            continue
        if batch is None:
            batch = Batch()
            given.append(batch)
        if isinstance(event, Collective):
            open_[event.record_id] = event
            _add(batch, event, threads)
            batch.nonfinite |= event.sent_nonfinite
            if event.sent_nonfinite and _notable(given) < NOTABLE_KEPT:
                batch.notable.append(event)
            last = event if last is None or event.record_id > last.record_id else last
        else:
            done = event.collective
            open_.pop(done.record_id, None)
            step = done.moment.step
            if not done.is_on_device:
                batch.waited_ns[step] = batch.waited_ns.get(step, 0) + (done.duration_ns or 0)
            batch.nonfinite |= done.received_nonfinite
            if done.received_nonfinite and _notable(given) < NOTABLE_KEPT:
                batch.notable.append(done)
    if last is not None:
        if batch is None:
            batch = Batch()
            given.append(batch)
        batch.last, batch.open = last, list(open_.values())
    return given


def _add(batch: Batch, issued: Collective, threads: dict[int, int]) -> None:
    key, thread, now_ns = _key(issued), issued.thread_id, issued.time_created_ns
    batch.reached[key] = max(batch.reached.get(key, -1), issued.identity.seq)
    if thread in threads:
        batch.gaps.append((threads[thread], now_ns, issued.record_id))
    threads[thread] = batch.issued_ns[thread] = max(now_ns, threads.get(thread, 0))


def _key(issued: Collective) -> Key:
    """What its sequence number counts in."""
    identity = issued.identity
    return (identity.group, identity.op, identity.peer, identity.tag) if issued.is_p2p else (identity.group,)


def _notable(given: Iterable[Event]) -> int:
    return sum(len(event.notable) for event in given if isinstance(event, Batch))
