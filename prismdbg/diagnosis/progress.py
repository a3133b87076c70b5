"""How far one rank got: what it waits in, what it has issued, how it ended. Fed with events, or with a whole log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.capsule.log.notes import exit_codes
from prismdbg.diagnosis.collective_key import RECEIVE, RECEIVE_ANY, SEND, CollectiveKey
from prismdbg.diagnosis.outlived import was_outlived
from prismdbg.diagnosis.reached import Reached
from prismdbg.log.columns import LogColumns
from prismdbg.log.whole_batch import whole_batch
from prismdbg.model.collective import UNNAMED, Collective, Group

MOST_HELD = 32


@dataclass(slots=True)
class Progress:
    """Memory is bounded by what is in flight, and by groups and pairs of ranks, not by what has happened.

    parked_ns: since when it is held for an image; held: from when to when it was, the last of them.
    lost: why the recording ended before the rank did; empty where it did not. is_cut: its log no longer has all that
    the rank issued. has_died: said by whoever saw it, for the log cannot. An incident in a thread other than the main
    one does not end a rank.
    """

    rank: int
    groups: dict[str, Group] = field(default_factory=dict)
    open: dict[int, Collective] = field(default_factory=dict)
    last: Collective | None = None
    parked_ns: int | None = None
    held: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=MOST_HELD))
    incident: Note | None = None
    exit_code: int | None = None
    lost: str = ""
    is_cut: bool = False
    has_died: bool = False
    _reached: Reached = field(default_factory=Reached)
    _issued_ns: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, log: LogColumns) -> Progress:
        progress = cls(log.rank, groups=dict(log.groups), is_cut=log.issued > len(log))
        progress._reached.most_tags = len(log)  # which are in memory anyway, in no order
        progress.feed(whole_batch(log))
        for note in log.notes:
            if not was_outlived(log, note):
                progress.feed(note)
        return progress

    def feed(self, event: Event) -> None:
        match event:
            case Batch():
                self._go_on(event)
            case Group():
                self.groups[event.name] = event
            case Note():
                self._note(event)
            case StepMark() if self.incident is not None and event.time_ns > self.incident.time_ns:
                self.incident = None  # it was only printed: the program went on

    @property
    def is_parked(self) -> bool:
        """A rank that is gone, or no longer writes its log, does not say when its park is over."""
        return self.parked_ns is not None and not self.has_ended and not self.lost

    @property
    def has_ended(self) -> bool:
        return self.has_died or self.incident is not None or self.exit_code is not None

    def group(self, name: str) -> Group:
        nobody = Group(name=name, ranks=())
        return self.groups.get(name, nobody) if name != UNNAMED else nobody

    def has_come(self, key: CollectiveKey) -> bool:
        """Whether this rank has issued its part of it. True also where its log cannot tell."""
        if self.lost:
            return True
        if not key.is_p2p:
            return self._at(key.group) >= key.seq
        if self.rank not in self.group(key.group).ranks:  # of a damaged log
            return True
        here = self.group(key.group).ranks.index(self.rank)
        if here == key.source:
            return self._at(key.group, SEND, key.target, key.tag) >= key.seq
        takes_any = self._at(key.group, RECEIVE_ANY, -1, key.tag) >= 0
        return takes_any or self._at(key.group, RECEIVE, key.source, key.tag) >= key.seq

    def may_have_sent(self, key: CollectiveKey, group: Group) -> bool:
        """Anything to the target of that message, under its tag."""
        return self.is_cut or self.cannot_tell(key, group) or self._at(key.group, SEND, key.target, key.tag) >= 0

    def cannot_tell(self, key: CollectiveKey, group: Group) -> bool:
        """Whether it may have issued its part of it all the same. group: as another rank describes it.

        Of a group of which nothing is left in a log that was cut, nothing is known. Names of groups are given again
        after `destroy_process_group`, and to groups that were split from different parents."""
        mine = self.groups.get(key.group)
        means_another = mine is not None and mine.ranks != group.ranks
        is_forgotten = self.is_cut and not self._reached.has_some_of(key.group)
        return bool(self.lost) or means_another or is_forgotten

    def is_open(self, collective: Collective) -> bool:
        return self.open.get(collective.record_id) is collective

    def does_without(self, collective: Collective) -> bool:
        """A message that nobody has sent for whole steps: a thread that listens for one waits as long as it likes."""
        if not collective.is_p2p or collective.is_on_device or self.last is None:
            return False
        return self.last.moment.step > collective.moment.step + 1

    def went_on_after(self, collective: Collective) -> int:
        """When the thread that issued it last issued anything."""
        return self._issued_ns.get(collective.thread_id, collective.time_created_ns)

    @property
    def issued_ns(self) -> int:
        """When it last issued anything; 0 where it has issued nothing."""
        return max(self._issued_ns.values(), default=0)

    def _at(self, *key: Any) -> int:
        return self._reached.upto(key)

    def _go_on(self, batch: Batch) -> None:
        for record_id in batch.closed:
            self.open.pop(record_id, None)
        self.open.update({collective.record_id: collective for collective in batch.open})
        self.last = batch.last or self.last
        for key, seq in batch.reached.items():
            self._reached.add(key, seq)
        for thread, time_ns in batch.issued_ns.items():
            self._issued_ns[thread] = max(self._issued_ns.get(thread, 0), time_ns)

    def _note(self, note: Note) -> None:
        match note.kind:
            case "parked":
                self.parked_ns = note.time_ns
            case "released" if self.parked_ns is not None:
                self.held.append((self.parked_ns, note.time_ns))
                self.parked_ns = None
            case "incident" if not note.data.get("thread"):
                self.incident = self.incident or note
            case "exit":
                self.exit_code = next(iter(exit_codes([note])), self.exit_code)
            case "lost":
                self.lost = str(note.data.get("text", "no reason given"))
