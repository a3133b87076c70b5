"""`prismdbg replay`: runs the rank from the start to the end moment and compares it with the record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log_coverage import Span, capsule_span
from prismdbg.capsule.log_events import Note, RankLog
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.replay.divergence import with_causes
from prismdbg.jobs.replay.replay import LiveReplay, Say, redacted_arguments
from prismdbg.jobs.replay.verdict import End, Outcome, Recorded, Seen, decide, ended_by
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import State
from prismdbg.model.counted import counted
from prismdbg.model.moment import Moment
from prismdbg.protocol.wire import Message
from prismdbg.session.frames import frames_of, own_frame
from prismdbg.session.story import causes_lines
from prismdbg.settings.rank_config import CAP_DETAILS

SOURCE_BOUND_S = 10.0
HANGS_AGAIN_S = 10.0  # after everything recorded of a rank that hung was compared


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """What a verdict rests on: collectives compared, of these with their payload fingerprints, pickled objects that
    were sent and differ, and the whole steps before the step in which the replay ended."""

    collectives: int = 0
    fingerprints: int = 0
    differing_objects: int = 0
    whole_steps: int = 0

    @property
    def is_thin(self) -> bool:
        return self.collectives == 1 or self.differing_objects >= max(self.fingerprints, 1)

    def __str__(self) -> str:
        whose = "its payload fingerprint" if self.collectives == 1 else "their payload fingerprints"
        objects = counted(self.differing_objects, "pickled object")
        differ = f", {objects} {'differs' if self.differing_objects == 1 else 'differ'}" * bool(self.differing_objects)
        thin = ": thin evidence" if self.is_thin else ""
        return f"{counted(self.collectives, 'collective')} compared, {self.fingerprints} with {whose}{differ}{thin}"


@dataclass(slots=True)
class Verdict:
    """`moment`: what the outcome reaches to. `went_on_to`: the first call past the recorded ones, where it came to one.

    `story`: the divergence event, `source`: what stands there, as the agent's verb of that name gives it.

    `why`: for an outcome that needs a reason. `raised`: the exception that ended the program, if one did;
    `also_raised`: others that nothing caught, of threads for instance. `end`: how the replay ended; `is_covered`: all
    recorded collectives were compared; `strength`: what the verdict rests on.
    """

    outcome: Outcome = Outcome.INCONCLUSIVE
    why: str = ""
    moment: str = ""
    end: End = End.NOT_RUN
    went_on_to: str = ""
    tally: dict[str, Any] = field(default_factory=dict)
    strength: Strength = field(default_factory=Strength)
    is_covered: bool = False
    story: Message | None = None
    source: Message | None = None
    raised: Message | None = None
    also_raised: list[Message] = field(default_factory=list)
    states: list[Message] = field(default_factory=list)
    synthesized: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exit_code: int | None = None
    elapsed_ns: int = 0

    @property
    def summary(self) -> str:
        """In one line; of a divergence the story says more."""
        why = f": {self.why}" if self.why else ""
        if self.outcome is Outcome.IDENTICAL:
            return f"identical up to {self.moment}: {self.strength}"
        if self.outcome is Outcome.INCONCLUSIVE:
            return f"inconclusive{why} ({self.strength})"
        return f"{self.outcome} at {self.moment}{why} ({self.strength})"

    def take(self, raised: Message) -> None:
        """An exception that nothing caught."""
        if raised.get("thread"):
            self.also_raised.append(raised)
            return
        if self.raised is not None:  # the program had it printed and went on
            self.also_raised.append(self.raised)
        self.raised = raised


def require_inside(capsule: Capsule, until: Moment | None) -> None:
    """`UsageError` where `until` lies outside of the capsule. A bare step is its first call."""
    first, last = capsule.manifest.moment_a, capsule.manifest.moment_b
    if until is None:
        return
    name = capsule.path.name
    if until < first and until != Moment(first.step):
        raise UsageError(
            f"capsule {name} begins at {first}, but --until is {until}", hint=f"--until {first}, or leave it out"
        )
    if Moment(until.step, until.collective) > last:
        raise UsageError(
            f"capsule {name} ends at {last}, but --until is {until}", hint=f"--until {last}, or leave it out"
        )


def run_to_end(live: LiveReplay, *, until: Moment | None, strict: bool, timeout_s: float, say: Say) -> Verdict:
    """Resumes the rank once and follows it to the end moment, to `until`, or to its own end."""
    started = time.monotonic_ns()
    verdict = Verdict()
    if live.end_record < live.first_record:
        verdict.notes.append("the rank is at the start moment: inspect it with `prismdbg debug`")
    else:
        live.client.ask("resume", until=str(until) if until else None, end=live.end_record, strict=strict)
        _follow(live, verdict, timeout_s)
    verdict.elapsed_ns = time.monotonic_ns() - started
    judge(live.capsule, verdict, until)
    if verdict.outcome is not Outcome.IDENTICAL:
        live.running.require_no_limit_met(ends=verdict.end in (End.FINISHED, End.DIED))
    if verdict.outcome is Outcome.DIVERGED and verdict.story is None:
        verdict.notes += causes_lines(with_causes({}, live.capsule, live.client, live.runtime))
    other_end = verdict.outcome in (Outcome.DIVERGED, Outcome.RANK_LOST) or verdict.raised is not None
    if other_end and (text := redacted_arguments(live.capsule)):
        verdict.notes.append(text)
    return verdict


def _follow(live: LiveReplay, verdict: Verdict, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    hangs = live.capsule.manifest.incident.kind is IncidentKind.HANG
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"the replay did not reach its end within {timeout_s:g} s; it was at {_where(live)}")
        over = hangs and verdict.is_covered
        try:
            event = live.client.next_event(min(left, HANGS_AGAIN_S) if over else left, "the replayed rank")
        except WaitTimeout:
            if over and left > HANGS_AGAIN_S:
                verdict.end = End.SILENT
                return
            continue
        except RankLost:
            _lost(live, verdict)
            return
        if _take(event, verdict, live):
            return


def _where(live: LiveReplay) -> str:
    try:
        return str(live.client.ask("progress", timeout_s=5)["moment"])
    except PrismError:
        return "an unknown moment"


def _take(event: Message, verdict: Verdict, live: LiveReplay) -> bool:
    """Adds one event to the verdict; True when it is the last."""
    kind = event["event"]
    verdict.moment = str(event.get("moment", verdict.moment))
    verdict.tally = event.get("tally", verdict.tally)
    if kind == "diverged":
        verdict.end = End.DIFFERED
        verdict.story = with_causes(event, live.capsule, live.client, live.runtime)
        verdict.source = _source(live, event)
        return True
    if kind == "exception":
        verdict.take(event)
    elif kind == "state":
        verdict.states.append(event)
    elif kind == "synthesized":
        verdict.synthesized.append(event)
    elif kind == "note":
        verdict.notes.append(str(event["text"]))
    elif kind == "all_compared":
        verdict.is_covered = True
    elif kind == "stopped" and event["reason"] == "until":
        verdict.end = End.UNTIL
        verdict.tally = live.client.ask("progress")["tally"]
        return True
    elif kind == "end_of_log":
        verdict.end, verdict.went_on_to = End.NEXT_CALL, str(event["moment"])
        return True
    elif kind == "finished":
        verdict.end, verdict.exit_code = End.FINISHED, int(event["code"])
        return True
    return False


def _source(live: LiveReplay, story: Message) -> Message | None:
    """Around the program's own line, while the rank stands there."""
    try:
        frame = own_frame(frames_of(story["actual"]["frames"]))
        return live.client.ask("source", frame=frame, around=2, timeout_s=SOURCE_BOUND_S)
    except PrismError:
        return None


def _lost(live: LiveReplay, verdict: Verdict) -> None:
    """The process is gone without its last word: os._exit, a signal, out of memory."""
    verdict.exit_code = live.running.wait(30)
    verdict.end = End.DIED
    verdict.notes.append(f"its process ended without an error message: {ended_by(verdict.exit_code)}")


def judge(capsule: Capsule, verdict: Verdict, until: Moment | None = None) -> None:
    """Fills in the outcome, why, its strength and the moment it reaches to."""
    manifest = capsule.manifest
    log = read_log(capsule.log)
    span = capsule_span(capsule, log)
    stopped = Moment.parse(verdict.moment) if verdict.end is End.UNTIL else None
    seen = _seen(verdict, span, log)
    decision = decide(recorded(capsule, log, span, stopped), seen)
    verdict.outcome, verdict.why = decision.outcome, decision.why
    verdict.is_covered = not seen.missing
    if verdict.end in (End.NEXT_CALL, End.FINISHED, End.DIED, End.SILENT) and verdict.is_covered:
        verdict.moment = str(manifest.moment_b)
    verdict.moment = verdict.moment or str(manifest.moment_a)
    tally = verdict.tally
    verdict.strength = Strength(
        collectives=seen.compared,
        fingerprints=_fingerprinted(tally),
        differing_objects=tally.get("object_notes", 0),
        whole_steps=span.whole_steps(Moment.parse(verdict.moment)),
    )
    verdict.notes += _notes(capsule, span, verdict, until)


def recorded(capsule: Capsule, log: RankLog, span: Span, stopped: Moment | None = None) -> Recorded:
    """What the log says of the end of the span; `stopped`: of a replay that stops on its way."""
    end = span.records[-1].moment if span.records else Moment(0)
    incidents = [n for n in log.notes if n.kind == "incident"]
    notes = [n for n in incidents if not span.goes_on or _moment_of(n) <= end]
    main = [n for n in notes if not n.data.get("thread")]
    codes = [int(n.data.get("code", 0)) for n in log.notes if n.kind == "exit"]
    return Recorded(
        incident=capsule.manifest.incident.kind,
        required=len([r for r in span.records if stopped is None or r.moment <= stopped]),
        goes_on=span.goes_on,
        answered=span.answered,
        exit_code=codes[-1] if codes and not span.goes_on else None,
        died_with=None if span.goes_on else capsule.rank().get("died_with"),
        raised=_exception(main[-1].data) if main else "",
        also_raised=tuple(_exception(n.data) for n in notes if n not in main[-1:]),
        raised_later=tuple(_exception(n.data) for n in incidents if n not in notes),
    )


def _moment_of(note: Note) -> Moment:
    return Moment.parse(str(note.data.get("moment", "0.0")))


def _exception(told: dict[str, Any] | None) -> str:
    """As `Type: text`, without what our own cap on memory adds where a rank is recorded: the way to its trace."""
    if told is None:
        return ""
    return f"{told.get('type')}: {str(told.get('text')).partition(CAP_DETAILS)[0].rstrip()}"


def _seen(verdict: Verdict, span: Span, log: RankLog) -> Seen:
    compared = int(verdict.tally.get("compared", 0))
    missing = int(verdict.tally.get("missing", 0))
    if verdict.end is End.DIED:  # without a last word its last tally is not known
        compared = len(span.records) if verdict.is_covered else compared
        missing = 0 if verdict.is_covered or not span.records else max(len(span.records) - compared, 1)
    differing = (str(state["moment"]) for state in verdict.states if not state["equal"])
    return Seen(
        end=verdict.end,
        compared=compared,
        fingerprinted=None if verdict.end is End.DIED else _fingerprinted(verdict.tally),
        states=_computed_states(verdict.states, span),
        missing=0 if verdict.end is End.UNTIL else missing,
        lacking=_lacking(verdict.synthesized, log),
        exit_code=verdict.exit_code,
        raised=_exception(verdict.raised),
        also_raised=tuple(map(_exception, verdict.also_raised)),
        parameters_differ_at=next(differing, ""),
    )


def _computed_states(states: list[Message], span: Span) -> int:
    """A state in the step in which the replay begins may be the one that it began with: no evidence."""
    begin = span.records[0].moment.step if span.records else 0
    return sum(Moment.parse(str(state["moment"])).step > begin for state in states)


def _fingerprinted(tally: Mapping[str, int]) -> int:
    """A pickled object that differs, as a PID or a time does, is no evidence."""
    return tally.get("fingerprints", 0) - tally.get("object_notes", 0)


def _lacking(synthesized: list[Message], log: RankLog) -> int:
    """Of these answers, how many the recorded rank had received: what it never received it did not go by."""
    complete: set[object] = set()
    for record in log.collectives:
        if record.state is not State.SCHEDULED:
            complete |= {record.record_id, str(record.identity)}
    calls = (event["collective"] for event in synthesized)  # what was in flight at the start has no identity
    return sum(call.get("identity", call.get("record_id")) in complete for call in calls)


def _notes(capsule: Capsule, span: Span, verdict: Verdict, until: Moment | None) -> list[str]:
    """What else is worth knowing of the end."""
    manifest, notes = capsule.manifest, []
    if verdict.end is End.UNTIL and verdict.moment != str(until):
        notes.append(f"this run has no moment {until}: the replay stopped at {verdict.moment}")
    elif until is not None and verdict.end is not End.UNTIL:
        notes.append(f"{until} was not reached: the replay ended before it, at {verdict.moment}")
    if verdict.strength.collectives:
        notes.append(
            f"compared from {manifest.moment_a} to {verdict.moment}: "
            f"{counted(verdict.strength.whole_steps, 'whole step')} before the one in which it ends"
        )
    if not span.answered and verdict.end in (End.NEXT_CALL, End.FINISHED):
        there = f"went on to {verdict.went_on_to}" if verdict.went_on_to else "ended normally"
        kind = "a synthesized answer" if verdict.tally.get("synthesized") else "its recorded answer"
        notes.append(f"hang resolved: the collective at {verdict.moment} got {kind}, and the program {there}")
    if verdict.outcome is not Outcome.IDENTICAL or until is not None:
        return notes
    match manifest.incident.kind:
        case IncidentKind.NAN:
            notes.append(f"the NaN occurs again, bit for bit: {manifest.incident.text}")
        case IncidentKind.LOST if verdict.end is End.DIED:
            known = capsule.rank().get("died_with") is not None
            as_it = "as it did when it was recorded" if known else "and how the recorded rank died is unknown"
            notes.append(f"the rank died here, {as_it}")
        case IncidentKind.LOST:
            notes.append("the recorded rank died here; nothing in the replay ends it")
        case IncidentKind.HANG if verdict.end is End.SILENT:
            notes.append(f"it hangs again: no further collective within {HANGS_AGAIN_S:g} s")
    return notes
