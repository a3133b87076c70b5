"""Decides, from what the logs say, when there is an incident and of which rank a capsule is wanted. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from prismdbg.capsule.log import notes
from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.events import Event, Note, StepMark
from prismdbg.capsule.log.notes import moment_of
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.failures import says_lost_peer
from prismdbg.diagnosis.lateness.earlier_waits import are_in_one
from prismdbg.diagnosis.wording import exit_code, place
from prismdbg.errors import INTERRUPTED, UsageError
from prismdbg.jobs.record.nonfinite_watch import MOST_INCIDENTS, NO_MORE, UNNAMED, NonfiniteWatch
from prismdbg.jobs.storage.run_folder import attempt_of, rank_of
from prismdbg.model.collective import Group, group_title
from prismdbg.model.moment import Moment

SETTLE_NS = 1_000_000_000
SLOW_HISTORY = 8
MOST_OUTLIVED = 3  # exceptions that were printed, after which another one is an incident again
_MOST_OF_IT = 0.5  # of what a slow step took more: then it was the wait for that rank
DEFAULT_TRIGGERS = "exception,nan,hang=60s,signal"
_FIRST_OF_THEM = "the first NaN or Inf"
_SINCE = re.compile(rf"{_FIRST_OF_THEM}(?: since step \d+)?: ")
KNOWN_TRIGGERS = {"exception": "", "nan": "", "hang": "60s", "signal": "", "oom": "", "slow": "3"}


def parse_triggers(text: str) -> dict[str, str]:
    """`exception,nan,hang=30s,slow=3` as a mapping. `UsageError` names what is not known."""
    triggers: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name == "none":
            return {}
        if name not in KNOWN_TRIGGERS:
            raise UsageError(
                f"{name!r} is not a trigger", hint="use one or more of: " + ", ".join([*KNOWN_TRIGGERS, "none"])
            )
        triggers[name] = value or KNOWN_TRIGGERS[name]
    if "hang" in triggers:
        seconds(triggers["hang"])
    if "slow" in triggers:
        _factor(triggers["slow"])
    return triggers


def seconds(text: str) -> float:
    """`30s`, `2m`, `30`."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], text[-1]) if text[-1:] in units else (text, "s")
    value = _positive(number)
    if value is None:
        raise UsageError(f"{text!r} is not a duration", hint="write 30s, 2m or 1h")
    return value * units[unit]


def _factor(text: str) -> float:
    value = _positive(text)
    if value is None:
        raise UsageError(f"slow={text!r} is not a number", hint="write slow=3 for three times the median step")
    return value


def _positive(text: str) -> float | None:
    """A finite number above zero, else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A capsule is wanted: of this log folder's rank, up to `last` (to the log's end where None). `died_with`: the exit
    code of a rank that died without a word, where it is known. `sent`: it sent the first NaN or Inf, and did not only
    receive it. nth: of its kind in this attempt of the job. time_ns: when it happened, by CLOCK_MONOTONIC. of_thread:
    another thread than the main one raised, which may be nothing to the program. waited_for: it is known that the
    others waited for this rank in a slow step."""

    folder: str
    incident: Incident
    last: Moment | None = None
    died_with: int | None = None
    sent: bool = False
    nth: int = 1
    time_ns: int = 0
    of_thread: bool = False
    waited_for: bool = False

    def as_nth(self, number: int, since_step: int) -> Wanted:
        """As it is in a job of which other nodes have reported earlier ones. since_step: from which on it is the first
        one, where that is known."""
        if self.incident.kind is not IncidentKind.NAN or number <= self.nth:
            return self
        since = f" since step {since_step}" if since_step else ""
        text = _SINCE.sub(f"{_FIRST_OF_THEM}{since}: ", self.incident.text, count=1)
        text += NO_MORE if number == MOST_INCIDENTS else ""
        return replace(self, incident=replace(self.incident, text=text), nth=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsOver:
    """What was reported last, of this kind in this attempt of the job, hides nothing later any more. time_ns: since
    when, by CLOCK_MONOTONIC. since_step: from which step on, of a NaN or Inf."""

    attempt: int
    kind: IncidentKind
    time_ns: int
    since_step: int = 0


def _title(folder: str) -> str:
    """`rank 2`, and of a restarted one `rank 2 (attempt 2)`."""
    rank, _, restarts = folder.partition(".")
    return f"rank {rank} (attempt {int(restarts) + 1})" if restarts else f"rank {rank}"


@dataclass(slots=True)
class StepTimes:
    """When the last steps of each rank began."""

    _begun_ns: dict[str, list[int]] = field(default_factory=dict)

    def add(self, folder: str, mark: StepMark) -> None:
        times = self._begun_ns.setdefault(folder, [])
        times.append(mark.time_ns)
        del times[: -SLOW_HISTORY - 2]

    def median_ns(self) -> int:
        gaps = sorted(b - a for times in self._begun_ns.values() for a, b in pairwise(times))
        return gaps[len(gaps) // 2] if gaps else 0

    def last_against_median(self, folder: str) -> tuple[int, int] | None:
        """How long the last step took, and the median of those before it; None while there are too few."""
        times = self._begun_ns[folder]
        if len(times) < SLOW_HISTORY + 2:
            return None
        gaps = sorted(b - a for a, b in pairwise(times[:-1]))
        return times[-1] - times[-2], gaps[len(gaps) // 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SlowStep:
    """As the first rank told it: where the ranks wait for one another, the step of all of them is slow."""

    folder: str
    step: int
    took_ns: int
    median_ns: int
    time_ns: int


@dataclass(slots=True)
class StepWaits:
    """How long each rank waited in its collectives, by step: who lets the others wait waits least."""

    _waited_ns: dict[str, dict[int, int]] = field(default_factory=dict)
    groups: dict[str, Mapping[str, Group]] = field(default_factory=dict)  # by folder; they are filled meanwhile

    def add(self, folder: str, step: int, waited_ns: int) -> None:
        steps = self._waited_ns.setdefault(folder, {})
        steps[step] = steps.get(step, 0) + waited_ns
        for old in [known for known in steps if known < step - SLOW_HISTORY]:
            del steps[old]

    def least(self, step: int) -> tuple[str, int] | None:
        """The rank that waited least in that step, and how much longer the others did, in the middle."""
        waited = {folder: steps[step] for folder, steps in self._waited_ns.items() if step in steps}
        if len(waited) < 2:
            return None
        least = min(waited, key=waited.__getitem__)
        return least, round(median(ns for folder, ns in waited.items() if folder != least)) - waited[least]

    @property
    def all_meet(self) -> bool:
        """Whether all ranks are in the same groups, so that those that waited did so for the one that did not."""
        ranks = [rank_of(Path(folder)) for folder in self._waited_ns]
        return are_in_one(ranks, (group.ranks for known in self.groups.values() for group in known.values()))


@dataclass(slots=True)
class _Attempt:
    """One start of the job: a launcher that restarts it restarts all ranks together."""

    triggers: Mapping[str, str]
    number: int = 0
    over: list[IsOver] = field(default_factory=list)
    _nonfinite: NonfiniteWatch = field(default_factory=NonfiniteWatch)
    _raised: list[tuple[str, Note]] = field(default_factory=list)
    _raised_since_ns: int | None = None
    _failed_exits: list[tuple[str, Note]] = field(default_factory=list)
    _slow: _SlowStep | None = None
    _slow_since_ns: int | None = None
    _waits: StepWaits = field(default_factory=StepWaits)
    _fired: set[str] = field(default_factory=set)
    _raised_first: tuple[str, int] | None = None  # of the exception that has fired: whose, and when
    _outlived: int = 0
    _went_on_ns: dict[str, int] = field(default_factory=dict)  # by folder: when a rank was last seen to do so

    @property
    def settling(self) -> bool:
        return any(
            since is not None for since in (self._nonfinite.since_ns, self._raised_since_ns, self._slow_since_ns)
        )

    def due(self, now_ns: int, ended: bool, usual_step_ns: int, *, is_over: bool) -> list[Wanted]:
        """is_over: the job was restarted since, so that no step follows."""
        return [
            *self._first_raised(now_ns, ended),
            *self.first_nonfinite(now_ns, ended=ended or is_over, usual_step_ns=usual_step_ns),
            *self._slow_one(now_ns, ended),
        ]

    def first_nonfinite(
        self, now_ns: int, *, ended: bool, usual_step_ns: int, interrupted: bool = False
    ) -> list[Wanted]:
        if not _has_settled(self._nonfinite.since_ns, now_ns, ended or interrupted):
            return []
        first = self._nonfinite.decide(now_ns, ended, usual_step_ns, interrupted=interrupted)
        if first is None:
            return []
        found, record = first.found, first.found.record
        verb = "sends" if found.sent else "receives"
        since = f" since step {first.since_step}" if first.since_step else ""
        what = f"{record.name} in group {group_title(found.groups, record.group)}, {record.moment}{place(record)}"
        text = f"{_title(found.folder)} {verb} {_FIRST_OF_THEM}{since}: {what}{first.remark}"
        incident = Incident(kind=IncidentKind.NAN, text=text, moment=record.moment)
        time_ns = found.seen_ns
        return [
            Wanted(
                folder=found.folder,
                incident=incident,
                last=record.moment,
                sent=found.sent,
                nth=first.nth,
                time_ns=time_ns,
            )
        ]

    def note_batch(self, folder: str, batch: Batch, groups: Mapping[str, Group], now_ns: int) -> None:
        self._waits.groups[folder] = groups
        self.note_waits(folder, batch.waited_ns)
        if "nan" in self.triggers:
            self._nonfinite.note_batch(folder, batch, groups, now_ns)

    def note_scaler(self, folder: str, *, several: bool) -> None:
        self._nonfinite.note_scaler(folder, several=several)

    def note_skipped(self, folder: str, step: int | None, optimizer: int | None) -> None:
        """None where the note does not know."""
        if step is not None:
            self._nonfinite.note_skipped(folder, step, UNNAMED if optimizer is None else optimizer)

    def note_taken(self, folder: str, optimizer: int | None) -> None:
        """None where the note does not know."""
        if optimizer is not None:
            self._nonfinite.note_taken(folder, optimizer)

    def lost(self, folder: str, moment: Moment, how: str, died_with: int | None, time_ns: int) -> list[Wanted]:
        """A rank died without a word; `how` follows its name. What others raised meanwhile came of that; only the
        first counts."""
        if "exception" not in self.triggers or "exception" in self._fired:
            return []
        self._fired.add("exception")
        self._raised_since_ns = None
        incident = Incident(kind=IncidentKind.LOST, text=f"{_title(folder)} {how}", moment=moment)
        return [Wanted(folder=folder, incident=incident, died_with=died_with, time_ns=time_ns)]

    def note_raised(self, folder: str, note: Note, now_ns: int) -> None:
        wanted = "exception" in self.triggers or (_kind(note) is IncidentKind.OUT_OF_MEMORY and "oom" in self.triggers)
        if wanted and "exception" not in self._fired and _raised_by(note) not in self._fired:
            self._raised.append((folder, note))
            if self._raised_since_ns is None:
                self._raised_since_ns = now_ns

    def note_exit(self, folder: str, note: Note) -> None:
        if note.data.get("code"):
            self._failed_exits.append((folder, note))

    def before_the_end(self, now_ns: int, told_ns: int) -> list[Wanted]:
        """What would have been decided soon, had the job not been told to end, at `told_ns`."""
        found = [*self._first_raised(now_ns, ended=True), *self._slow_one(now_ns, ended=True)]
        return [wanted for wanted in found if wanted.time_ns < told_ns]

    def _first_raised(self, now_ns: int, ended: bool) -> list[Wanted]:
        """Of those that raised; the peers of a rank that raises lose their connections to it, and raise, too, even
        before it where it closes them on its way out."""
        if not _has_settled(self._raised_since_ns, now_ns, ended):
            return []
        self._raised_since_ns = None
        raised, self._raised = self._raised, []
        self._fired |= {_raised_by(note) for _, note in raised}
        folder, note = min(raised, key=lambda one: (says_lost_peer(one[1]), self._is_outlived(*one), one[1].time_ns))
        of_thread = bool(note.data.get("thread"))
        self._raised_first = None if of_thread else (folder, note.time_ns)
        text = f"{note.data.get('type')}: {note.data.get('text')}{self._who_left(folder, note.time_ns)}"
        incident = Incident(kind=_kind(note), text=text, moment=moment_of(note.data))
        return [Wanted(folder=folder, incident=incident, time_ns=note.time_ns, of_thread=of_thread)]

    def _is_outlived(self, folder: str, note: Note) -> bool:
        return note.time_ns < self._went_on_ns.get(folder, 0)

    def _who_left(self, folder: str, time_ns: int) -> str:
        """The first rank that had ended with an error by then: what is raised for a lost peer names no rank."""
        left = min(self._failed_exits, key=lambda one: one[1].time_ns, default=None)
        if left is None or left[0] == folder or left[1].time_ns >= time_ns:
            return ""
        return f"; {_title(left[0])} had exited with {exit_code(left[1].data['code'])}"

    def note_waits(self, folder: str, waited_ns: Mapping[int, int]) -> None:
        if "slow" in self.triggers and "slow" not in self._fired:
            for step, ns in waited_ns.items():
                self._waits.add(folder, step, ns)

    def note_outlived(self, folder: str, time_ns: int) -> None:
        """A rank goes on: if its exception has fired, it was only printed, and what ends ranks is still to come. Only
        a few times: some programs print one in each step."""
        self._went_on_ns[folder] = max(self._went_on_ns.get(folder, 0), time_ns)
        if self._raised_first is None or self._raised_first[0] != folder or time_ns <= self._raised_first[1]:
            return
        self._raised_first = None
        self._outlived += 1
        if self._outlived <= MOST_OUTLIVED:
            self._fired.discard("exception")
            self.over.append(IsOver(attempt=self.number, kind=IncidentKind.EXCEPTION, time_ns=time_ns))

    def note_step(self, folder: str, mark: StepMark, steps: StepTimes, now_ns: int) -> None:
        self.note_outlived(folder, mark.time_ns)
        self._note_step_of_nonfinite(folder, mark)
        found = steps.last_against_median(folder)
        if "slow" not in self.triggers or "slow" in self._fired or self._slow is not None or found is None:
            return
        took, usual = found
        if took >= float(self.triggers["slow"]) * usual:
            self._slow = _SlowStep(
                folder=folder, step=max(mark.step - 1, 0), took_ns=took, median_ns=usual, time_ns=mark.time_ns
            )
            self._slow_since_ns = now_ns

    def _note_step_of_nonfinite(self, folder: str, mark: StepMark) -> None:
        was_off = self._nonfinite.next_since is None
        self._nonfinite.note_step(folder, mark)
        if was_off and (since := self._nonfinite.next_since) is not None:
            over = IsOver(attempt=self.number, kind=IncidentKind.NAN, time_ns=mark.time_ns, since_step=since)
            self.over.append(over)

    def _slow_one(self, now_ns: int, ended: bool) -> list[Wanted]:
        """Of the rank for which the others waited in that step, if they did; else of the one that was seen."""
        if self._slow is None or not _has_settled(self._slow_since_ns, now_ns, ended):
            return []
        self._slow_since_ns = None
        self._fired.add("slow")
        slow, folder = self._slow, self._slow.folder
        text = f"step {slow.step} took {slow.took_ns / 1e9:.2f} s, {slow.took_ns / slow.median_ns:.1f} times the median"
        least = self._waits.least(slow.step)
        waited_for = least is not None and least[1] >= _MOST_OF_IT * (slow.took_ns - slow.median_ns)
        if least is not None and waited_for:
            folder, longer_ns = least
            longer = f"{longer_ns / 1e9:.2f} s"
            if self._waits.all_meet:
                text += f"; the others waited {longer} for {_title(folder)}"
            else:
                text += f"; {_title(folder)} waited least in it, the others {longer} longer"
        incident = Incident(kind=IncidentKind.SLOW, text=text, moment=Moment(slow.step))
        last = Moment(slow.step, 1 << 60)
        return [
            Wanted(folder=folder, incident=incident, last=last, time_ns=slow.time_ns, waited_for=waited_for),
        ]


@dataclass(slots=True)
class IncidentWatch:
    """Fed with every event of every rank. In an attempt of the job, what ends ranks (an exception, a death) fires once,
    and again after an exception that its rank outlived; an exception of a thread once before that, and a slow step
    once. NaN or Inf fires again after steps without any.
    `HangWatch` tells of hangs."""

    triggers: Mapping[str, str]
    _attempts: dict[int, _Attempt] = field(default_factory=dict)
    _steps: StepTimes = field(default_factory=StepTimes)
    _groups: dict[str, dict[str, Group]] = field(default_factory=dict)  # by folder, then by name
    interrupted_ns: list[int] = field(default_factory=list)  # when ranks ended of Ctrl-C, by CLOCK_MONOTONIC

    @property
    def settling(self) -> bool:
        """Something was seen and it is not yet decided who was first."""
        return any(attempt.settling for attempt in self._attempts.values())

    def feed(self, folder: str, event: Event, now_ns: int) -> None:
        attempt, groups = self._attempt(folder), self._groups.setdefault(folder, {})
        match event:
            case Batch():
                attempt.note_batch(folder, event, groups, now_ns)
            case Group():
                groups[event.name] = event
            case Note(kind="scaler"):
                attempt.note_scaler(folder, several=bool(event.data.get("several")))
            case Note(kind=notes.SKIPPED):
                attempt.note_skipped(folder, event.data.get("step"), event.data.get("optimizer"))
            case Note(kind=notes.TAKEN):
                attempt.note_taken(folder, event.data.get("optimizer"))
            case Note(kind="incident"):
                attempt.note_raised(folder, event, now_ns)
            case Note(kind="exit"):
                attempt.note_exit(folder, event)
                if event.data.get("code") == INTERRUPTED:
                    self.interrupted_ns.append(event.time_ns)
            case StepMark():
                self._steps.add(folder, event)
                attempt.note_step(folder, event, self._steps, now_ns)

    def newly_over(self) -> list[IsOver]:
        """Since this was asked last. What is wanted after that is a later one."""
        found = [over for attempt in self._attempts.values() for over in attempt.over]
        for attempt in self._attempts.values():
            attempt.over.clear()
        return found

    def due(self, now_ns: int, ended: bool) -> list[Wanted]:
        """What had to settle first: other ranks' logs, or a death, may still tell of something earlier."""
        unsettled = [number for number, attempt in self._attempts.items() if attempt.settling]
        usual_step_ns = self.median_step_ns() if unsettled else 0
        return [
            wanted
            for number in unsettled
            for wanted in self._attempts[number].due(now_ns, ended, usual_step_ns, is_over=number < max(self._attempts))
        ]

    def due_at_the_end(self, now_ns: int, told_ns: int) -> list[Wanted]:
        """Of a job that is told to end, at `told_ns`: what had not settled and happened before, and NaN or Inf that a
        gradient scaler has skipped so far."""
        usual_step_ns = self.median_step_ns()
        return [
            wanted
            for attempt in self._attempts.values()
            for wanted in (
                *attempt.before_the_end(now_ns, told_ns),
                *attempt.first_nonfinite(now_ns, ended=False, usual_step_ns=usual_step_ns, interrupted=True),
            )
        ]

    def lost(
        self, folder: str, moment: Moment, how: str, died_with: int | None = None, time_ns: int = 0
    ) -> list[Wanted]:
        """A rank died without a word."""
        return self._attempt(folder).lost(folder, moment, how, died_with, time_ns)

    def median_step_ns(self) -> int:
        """Of the last steps of all ranks; 0 where there are none yet."""
        return self._steps.median_ns()

    def _attempt(self, folder: str) -> _Attempt:
        number = attempt_of(folder)
        return self._attempts.setdefault(number, _Attempt(self.triggers, number))


def _has_settled(since_ns: int | None, now_ns: int, ended: bool) -> bool:
    return since_ns is not None and (ended or now_ns - since_ns >= SETTLE_NS)


def _raised_by(note: Note) -> str:
    """What has happened then. An exception of a thread may be nothing to the program, which goes on: it hides no later
    one, and no death."""
    return "exception of a thread" if note.data.get("thread") else "exception"


def _kind(note: Note) -> IncidentKind:
    return IncidentKind(str(note.data.get("incident", "exception")))
