"""How far one rank got: what it waits in, what it has issued, how it ended. Fed with events, or with a whole log."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from prismdbg.capsule.log_reader import Completion, Event, Note, RankLog, StepMark
from prismdbg.diagnosis.meeting import RECEIVE, RECEIVE_ANY, SEND, Meeting
from prismdbg.model.collective import Collective, Group, State

MOST_HELD = 32


@dataclass(slots=True)
class Progress:
    """Memory is bounded by what is in flight, not by what has happened.

    parked_ns: since when it is held for an image; held: from when to when it was, the last of them.
    lost: why the recording ended before the rank did; empty where it did not. has_died: said by whoever saw it, for
    the log cannot. An incident in a thread other than the main one does not end a rank.
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
    has_died: bool = False
    _reached: dict[tuple[object, ...], int] = field(default_factory=dict)
    _issued_ns: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, log: RankLog) -> Progress:
        progress = cls(log.rank, groups=dict(log.groups))
        for collective in log.collectives:
            progress._issue(collective)
            if collective.state is not State.SCHEDULED:
                progress.open.pop(collective.record_id)
        for note in log.notes:
            progress.feed(note)
        return progress

    def feed(self, event: Event) -> None:
        match event:
            case Collective():
                self._issue(event)
            case Completion(collective):
                self.open.pop(collective.record_id, None)
            case Group():
                self.groups[event.name] = event
            case Note():
                self._note(event)
            case StepMark():
                pass

    @property
    def is_parked(self) -> bool:
        """A rank that is gone, or no longer writes its log, does not say when its park is over."""
        return self.parked_ns is not None and not self.has_ended and not self.lost

    @property
    def has_ended(self) -> bool:
        return self.has_died or self.incident is not None or self.exit_code is not None

    def group(self, name: str) -> Group:
        return self.groups.get(name, Group(name=name, ranks=()))

    def has_come(self, meeting: Meeting) -> bool:
        """Whether this rank has issued its part of it. True also where its log cannot tell."""
        if self.lost:
            return True
        if not meeting.is_p2p:
            return self._at(meeting.group) >= meeting.seq
        here = self.group(meeting.group).ranks.index(self.rank)
        if here == meeting.source:
            return self._at(meeting.group, SEND, meeting.target, meeting.tag) >= meeting.seq
        takes_any = (meeting.group, RECEIVE_ANY, -1, meeting.tag) in self._reached
        return takes_any or self._at(meeting.group, RECEIVE, meeting.source, meeting.tag) >= meeting.seq

    def went_on_after(self, collective: Collective) -> int:
        """When the thread that issued it last issued anything."""
        return self._issued_ns.get(collective.thread_id, collective.time_created_ns)

    def issued_before(self, collective: Collective) -> int | None:
        """When the thread that issues it issued the one before; None for its first."""
        return self._issued_ns.get(collective.thread_id)

    def _at(self, *key: object) -> int:
        return self._reached.get(key, -1)

    def _issue(self, collective: Collective) -> None:
        self.open[collective.record_id] = collective
        if self.last is None or collective.record_id > self.last.record_id:
            self.last = collective
        identity = collective.identity
        key = (identity.group, identity.op, identity.peer, identity.tag) if collective.is_p2p else (identity.group,)
        self._reached[key] = max(self._at(*key), identity.seq)
        thread, time_ns = collective.thread_id, collective.time_created_ns
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
                self.exit_code = int(note.data.get("code", 0))
            case "lost":
                self.lost = str(note.data.get("text", "no reason given"))
