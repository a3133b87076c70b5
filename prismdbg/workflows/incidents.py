"""Decides, from what the logs say, when there is an incident and of which rank a capsule is wanted. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from prismdbg.capsule.log_reader import Completion, Event, Note, StepMark
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.errors import UsageError
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment

SETTLE_NS = 1_000_000_000
SLOW_HISTORY = 8
DEFAULT_TRIGGERS = "exception,nan,hang=60s,signal"
KNOWN_TRIGGERS = {"exception": "", "nan": "", "hang": "60s", "signal": "", "oom": "", "slow": "3"}


def parse_triggers(text: str) -> dict[str, str]:
    """`exception,nan,hang=30s,slow=3` as a mapping. `UsageError` names what is not known."""
    triggers: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, value = part.partition("=")
        if name == "none":
            return {}
        if name not in KNOWN_TRIGGERS:
            raise UsageError(f"{name!r} is not a trigger", hint="triggers: " + ", ".join([*KNOWN_TRIGGERS, "none"]))
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
        raise UsageError(f"slow={text!r}: not a number", hint="write slow=3 for three times the median step")
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
    """A capsule is wanted: of this log folder's rank, up to `last` (to the log's end where None)."""

    folder: str
    incident: Incident
    last: Moment | None = None


@dataclass(slots=True)
class _Nonfinite:
    folder: str
    record: Collective
    sent: bool

    @property
    def seen_ns(self) -> int:
        """A sender shows when it issues, a receiver when it has received."""
        return self.record.time_created_ns if self.sent else self.record.time_completed_ns or 0


@dataclass(slots=True)
class IncidentWatch:
    """Fed with every event of every rank; each kind of incident fires once for a run."""

    triggers: Mapping[str, str]
    _nonfinite: list[_Nonfinite] = field(default_factory=list)
    _nan_since_ns: int | None = None
    _raised: list[tuple[str, Note]] = field(default_factory=list)
    _raised_since_ns: int | None = None
    _fired: set[str] = field(default_factory=set)
    _steps: dict[str, list[int]] = field(default_factory=dict)

    @property
    def settling(self) -> bool:
        """Something was seen and it is not yet decided who was first."""
        return self._nan_since_ns is not None or self._raised_since_ns is not None

    def feed(self, folder: str, event: Event, now_ns: int) -> list[Wanted]:
        match event:
            case Collective() if event.sent_nonfinite:
                self._note_nonfinite(folder, event, True, now_ns)
            case Completion() if event.collective.received_nonfinite:
                self._note_nonfinite(folder, event.collective, False, now_ns)
            case Note(kind="incident"):
                self._note_raised(folder, event, now_ns)
            case StepMark():
                return self._slow(folder, event)
        return []

    def due(self, now_ns: int, ended: bool) -> list[Wanted]:
        """What had to settle first: other ranks' logs, or a death, may still tell of something earlier."""
        return [*self._first_raised(now_ns, ended), *self._first_nonfinite(now_ns, ended)]

    def _first_nonfinite(self, now_ns: int, ended: bool) -> list[Wanted]:
        if not _has_settled(self._nan_since_ns, now_ns, ended):
            return []
        self._nan_since_ns = None
        self._fired.add("nan")
        first = min(self._nonfinite, key=lambda n: (n.seen_ns, not n.sent))
        record = first.record
        verb = "sends" if first.sent else "receives"
        place = f" at {record.source}" if record.source else ""
        what = f"{record.name} in group {record.group}, {record.moment}{place}"
        text = f"rank {first.folder} {verb} the first NaN or Inf: {what}"
        incident = Incident(kind=IncidentKind.NAN, text=text, moment=record.moment)
        return [Wanted(folder=first.folder, incident=incident, last=record.moment)]

    def _note_nonfinite(self, folder: str, record: Collective, sent: bool, now_ns: int) -> None:
        if "nan" in self.triggers and "nan" not in self._fired:
            self._nonfinite.append(_Nonfinite(folder, record, sent))
            if self._nan_since_ns is None:
                self._nan_since_ns = now_ns

    def lost(self, folder: str, moment: Moment, how: str) -> list[Wanted]:
        """A rank died without a word. What others raised meanwhile came of that; only the first counts."""
        if "exception" not in self.triggers or "exception" in self._fired:
            return []
        self._fired.add("exception")
        self._raised_since_ns = None
        incident = Incident(kind=IncidentKind.LOST, text=f"rank {folder} died {how}", moment=moment)
        return [Wanted(folder=folder, incident=incident)]

    def _note_raised(self, folder: str, note: Note, now_ns: int) -> None:
        wanted = "exception" in self.triggers or (_kind(note) is IncidentKind.OUT_OF_MEMORY and "oom" in self.triggers)
        if wanted and "exception" not in self._fired:
            self._raised.append((folder, note))
            if self._raised_since_ns is None:
                self._raised_since_ns = now_ns

    def _first_raised(self, now_ns: int, ended: bool) -> list[Wanted]:
        """Of those that raised; the peers of a rank that raises lose their connections to it, and raise, too."""
        if not _has_settled(self._raised_since_ns, now_ns, ended):
            return []
        self._raised_since_ns = None
        self._fired.add("exception")
        folder, note = min(self._raised, key=lambda raised: raised[1].time_ns)
        text = f"{note.data.get('type')}: {note.data.get('text')}"
        incident = Incident(kind=_kind(note), text=text, moment=Moment.parse(str(note.data["moment"])))
        return [Wanted(folder=folder, incident=incident)]

    def median_step_ns(self) -> int:
        """Of the last steps of all ranks; 0 where there are none yet."""
        gaps = sorted(b - a for times in self._steps.values() for a, b in pairwise(times))
        return gaps[len(gaps) // 2] if gaps else 0

    def _slow(self, folder: str, mark: StepMark) -> list[Wanted]:
        history = self._steps.setdefault(folder, [])
        history.append(mark.time_ns)
        del history[: -SLOW_HISTORY - 2]
        if "slow" not in self.triggers or "slow" in self._fired or len(history) < SLOW_HISTORY + 2:
            return []
        gaps = sorted(b - a for a, b in pairwise(history[-SLOW_HISTORY - 2 : -1]))
        median, last = gaps[len(gaps) // 2], history[-1] - history[-2]
        if last < float(self.triggers["slow"]) * median:
            return []
        self._fired.add("slow")
        text = f"step {mark.step - 1} took {last / 1e9:.2f} s, {last / median:.1f} times the median"
        incident = Incident(kind=IncidentKind.SLOW, text=text, moment=Moment(max(mark.step - 1, 0)))
        return [Wanted(folder=folder, incident=incident, last=Moment(max(mark.step - 1, 0), 1 << 60))]


def _has_settled(since_ns: int | None, now_ns: int, ended: bool) -> bool:
    return since_ns is not None and (ended or now_ns - since_ns >= SETTLE_NS)


def _kind(note: Note) -> IncidentKind:
    return IncidentKind(str(note.data.get("incident", "exception")))
