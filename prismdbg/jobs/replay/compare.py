"""`prismdbg replay`: runs the rank from the start to the end moment and compares it with the record."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.coverage import (
    NO_STEP_BEFORE,
    Span,
    capsule_span,
    ends_its_step,
    row_of,
    starts_too_late,
)
from prismdbg.capsule.log.events import Note, RankLog
from prismdbg.capsule.log.format import StepSource
from prismdbg.capsule.log.notes import SKIPPED, exit_codes, moment_of, traceback_of
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.errors import PrismError, RankLost, WaitTimeout
from prismdbg.jobs.replay.bounded_messages import Received, Said, Shown
from prismdbg.jobs.replay.divergence import with_causes
from prismdbg.jobs.replay.exceptions import as_recorded, raised_at, recorded_text, redaction_note, text_of
from prismdbg.jobs.replay.replay import LiveReplay, redacted_arguments
from prismdbg.jobs.replay.replay_progress import ReplayProgress
from prismdbg.jobs.replay.silence import BOUNDED, recorded_silence
from prismdbg.jobs.replay.verdict import (
    AS_RECORDED,
    AT_END,
    Decision,
    End,
    Outcome,
    Recorded,
    Seen,
    decide,
    ended_by,
    is_from_outside,
)
from prismdbg.log.rank_log import read_log
from prismdbg.model.deadline import Deadline
from prismdbg.model.meanwhile import working
from prismdbg.model.moment import Moment
from prismdbg.model.plain_text import one_line
from prismdbg.model.plurals import counted
from prismdbg.protocol.wire import InvalidMessage, Message
from prismdbg.session.causes import not_hidden
from prismdbg.session.divergence_text import causes_lines
from prismdbg.session.frames import frames_of, own_frame
from prismdbg.session.notices import rank_says
from prismdbg.settings.process_stat import fields_of, is_stopped

SOURCE_BOUND_S = 10.0
MAX_RAISED, MAX_RAISED_BYTES = 10_000, 16 << 20
COMPARED = ("compared", "fingerprints", "object_notes", "within", "unsketched")  # of a tally, each once a collective


@dataclass(frozen=True, slots=True, kw_only=True)
class Strength:
    """What a verdict rests on: collectives compared, of these with their payload fingerprints, pickled objects that
    were sent and differ, and the whole steps, as far as the log shows where a step ends. within: collectives whose
    values are close to the recorded ones by their sketches, at most `farthest` apart."""

    collectives: int = 0
    fingerprints: int = 0
    within: int = 0
    farthest: float = 0.0
    differing_objects: int = 0
    whole_steps: int = 0

    @property
    def is_thin(self) -> bool:
        """Also where nothing of what was sent was compared."""
        values = self.fingerprints + self.within
        return self.collectives == 1 or (self.collectives > 0 and values <= self.differing_objects)

    def __str__(self) -> str:
        whose = "its payload fingerprint" if self.collectives == 1 else "their payload fingerprints"
        objects = counted(self.differing_objects, "pickled object")
        differ = f", {objects} {'differs' if self.differing_objects == 1 else 'differ'}" * bool(self.differing_objects)
        near = f", {self.within} only by sketches, at most about {self.farthest:.1g} apart" * bool(self.within)
        thin = "; too little to be sure" if self.is_thin else ""
        compared = f"{counted(self.collectives, 'collective')} compared, {self.fingerprints} with {whose}"
        return f"{compared}{near}{differ}{thin}"


@dataclass(slots=True)
class Verdict:
    """`moment`: what the outcome reaches to. `went_on_to`: the first call past the recorded ones, where it came to one.

    `story`: the divergence event, `source`: what stands there, as the agent's verb of that name gives it.

    `why`: for an outcome that needs a reason. `raised`: the exception that ended the program, if one did;
    `also_raised`: others that nothing caught, of threads for instance. `end`: how the replay ended; `is_covered`: all
    recorded collectives were compared; `strength`: what the verdict rests on.

    What the rank tells is folded as it comes, for a long replay tells much, and a hostile one more. `last_state`: the
    moment of the last parameters compared; `differs_at`: of the first that differ. `lacking`: synthesized answers where
    the recorded rank had received one. `said`: the rank's notes; `notes`: ours, to which they are added at the end.
    """

    outcome: Outcome = Outcome.INCONCLUSIVE
    why: str = ""
    moment: str = ""
    tolerance: float = 0.0
    end: End = End.NOT_RUN
    went_on_to: str = ""
    tally: dict[str, Any] = field(default_factory=dict)
    strength: Strength = field(default_factory=Strength)
    is_covered: bool = False
    story: Message | None = None
    source: Message | None = None
    raised: Message | None = None
    also_raised: list[Message] = field(default_factory=list)
    states: Shown = field(default_factory=Shown)
    last_state: Moment | None = None
    differs_at: str = ""
    synthesized: Shown = field(default_factory=Shown)
    lacking: int = 0
    said: Said = field(default_factory=Said)
    notes: list[str] = field(default_factory=list)
    exit_code: int | None = None
    elapsed_ns: int = 0
    _raised_bytes: int = 0

    @property
    def summary(self) -> str:
        """In one line; of a divergence the story says more."""
        why = f": {one_line(self.why)}" if self.why else ""
        if self.outcome is Outcome.IDENTICAL:
            return f"identical up to {self.moment}: {self.strength}"
        if self.outcome is Outcome.WITHIN:
            return f"within tolerance {self.tolerance:g} up to {self.moment}, not bit for bit: {self.strength}"
        if self.outcome is Outcome.INCONCLUSIVE:
            return f"inconclusive{why} ({self.strength})"
        return f"{self.outcome} at {self.moment}{why} ({self.strength})"

    def take(self, raised: Message) -> None:
        """An exception that nothing caught."""
        if raised.get("thread"):
            self._also(raised)
            return
        if self.raised is not None:  # the program had it printed and went on
            self._also(self.raised)
        self.raised = raised

    def _also(self, raised: Message) -> None:
        """Every one of them counts, so none can be left out."""
        self._raised_bytes += len(raised["type"]) + len(raised["text"])
        if len(self.also_raised) >= MAX_RAISED or self._raised_bytes > MAX_RAISED_BYTES:
            raise InvalidMessage(
                f"the rank raised more than {MAX_RAISED} exceptions, or {MAX_RAISED_BYTES >> 20} MiB of them"
            )
        self.also_raised.append({name: raised.get(name) for name in ("type", "text", "moment", "thread")})

    def take_state(self, state: Message) -> None:
        """Parameters that were compared with the recorded ones."""
        self.last_state = max(self.last_state or Moment(0), Moment.parse(state["moment"]))
        self.differs_at = self.differs_at or ("" if state["equal"] else state["moment"])
        self.states.add(state)

    def take_synthesized(self, event: Message, received: Received) -> None:
        self.lacking += received.has(event["collective"])
        self.synthesized.add(event)


def run_to_end(
    live: LiveReplay, *, until: Moment | None, strict: bool, deadline: Deadline, tolerance: float = 0.0
) -> Verdict:
    """Resumes the rank once and follows it to the end moment, to `until`, or to its own end. `tolerance`: by which
    values that the rank sends may differ from the recorded ones, as far as there are sketches of them; 0: by no bit."""
    started = time.monotonic_ns()
    verdict = Verdict(notes=list(not_hidden(live.unhidden)), tolerance=tolerance)
    if live.end_record < live.first_record:  # there is nothing to compare
        verdict.notes.append("the rank is at the start moment: inspect it with `prismdbg debug`")
    else:
        stop = str(until) if until else None
        live.client.ask("resume", until=stop, end=live.end_record, strict=strict, tolerance=tolerance)
        with working() as tell:
            _follow(live, verdict, deadline, ReplayProgress(live, until, tell))
    verdict.elapsed_ns = time.monotonic_ns() - started
    judge(live.capsule, verdict, until)
    if verdict.outcome not in AS_RECORDED:
        live.running.require_no_limit_met(ends=verdict.end in (End.FINISHED, End.DIED))
    if verdict.outcome is Outcome.DIVERGED and verdict.story is None:
        verdict.notes += causes_lines(with_causes({}, live.capsule, live.client, live.unhidden))
    other_end = verdict.outcome in (Outcome.DIVERGED, Outcome.RANK_LOST) or verdict.raised is not None
    if other_end and (text := redacted_arguments(live.capsule)):
        verdict.notes.append(text)
    return verdict


def _follow(live: LiveReplay, verdict: Verdict, deadline: Deadline, progress: ReplayProgress) -> None:
    is_bounded = live.capsule.manifest.incident.kind in BOUNDED
    silence_s = recorded_silence(live.capsule, read_log(live.capsule.log)).bound_s if is_bounded else 0.0
    received = Received(live.capsule.log)
    while True:
        left = deadline.left_s()
        over = is_bounded and verdict.is_covered
        if left <= 0 and over:
            verdict.end = End.QUIET
            return
        if left <= 0:
            what = f"the replay did not reach its end within {deadline.bound_s:g} s; it was at {_where(live)}"
            raise WaitTimeout(what, hint=_advice(live))
        try:
            event = progress.next_event(min(left, silence_s) if over else left)
        except WaitTimeout:
            if over and left > silence_s:
                verdict.end = End.SILENT
                return
            continue
        except InvalidMessage:
            raise
        except RankLost:
            if deadline.left_s() <= 0:  # the starter may have ended it, at its own bound
                continue
            _lost(live, verdict)
            return
        if _take(event, verdict, live, received):
            return


def _advice(live: LiveReplay) -> str:
    pid = live.running.rank_pid()
    with suppress(OSError):
        if pid is not None and is_stopped(fields_of(pid)):
            return f"check why the rank's process {pid} is stopped (state T of `ps`): more time does not help"
    return "give a longer --timeout"


def _where(live: LiveReplay) -> str:
    """And what is known by then: without a difference it is all the same so far."""
    try:
        progress = live.client.ask("progress", timeout_s=5)
    except PrismError:
        return "an unknown moment"
    return (
        f"{progress['moment']}, with {counted(progress['tally']['compared'], 'collective')} compared and no difference"
    )


def _take(event: Message, verdict: Verdict, live: LiveReplay, received: Received) -> bool:
    """Adds one event to the verdict; True when it is the last."""
    kind = event["event"]
    verdict.moment = str(Moment.parse(event["moment"])) if "moment" in event else verdict.moment
    verdict.tally = event.get("tally", verdict.tally)
    if kind == "diverged":
        verdict.end = End.DIFFERED
        verdict.story = with_causes(event, live.capsule, live.client, live.unhidden)
        verdict.source = _source(live, event)
        return True
    if kind == "exception":
        verdict.take(event)
    elif kind == "state":
        verdict.take_state(event)
    elif kind == "synthesized":
        verdict.take_synthesized(event, received)
    elif kind == "note":
        verdict.said.add(rank_says(event["text"]))
    elif kind == "all_compared":
        verdict.is_covered = True
    elif kind == "stopped" and event["reason"] == "until":
        verdict.end = End.UNTIL
        verdict.tally = live.client.ask("progress")["tally"]
        return True
    elif kind == "end_of_log":
        verdict.end, verdict.went_on_to = End.NEXT_CALL, verdict.moment
        return True
    elif kind == "finished":
        verdict.end, verdict.exit_code = End.FINISHED, event["code"]
        return True
    return False


def _source(live: LiveReplay, story: Message) -> Message | None:
    """Around the program's own line, while the rank stands there."""
    try:
        frame = own_frame(frames_of(story["actual"].get("frames", [])))
        return live.client.ask("source", frame=frame, around=2, timeout_s=SOURCE_BOUND_S)
    except PrismError:
        return None


def _lost(live: LiveReplay, verdict: Verdict) -> None:
    """The process is gone without its last word: os._exit, a signal, out of memory."""
    verdict.exit_code = live.running.wait(30)
    verdict.end = End.DIED
    verdict.notes.append(f"its process ended without an error message: {ended_by(verdict.exit_code)}")


def judge(capsule: Capsule, verdict: Verdict, until: Moment | None = None) -> None:
    """Fills in the outcome, why, its strength and the moment it reaches to. `InvalidMessage` where the rank claims to
    have compared more than was recorded."""
    manifest = capsule.manifest
    log = read_log(capsule.log)
    span = capsule_span(capsule, log)
    _require_possible(verdict.tally, row_of(log, span.end_record + 1) - row_of(log, span.past_records))
    stopped = Moment.parse(verdict.moment) if verdict.end is End.UNTIL else None
    there = recorded(capsule, log, span, stopped)
    seen = as_recorded(there, _seen(verdict, span))
    decision = decide(there, seen)
    if decision.outcome in AS_RECORDED and verdict.end is not End.UNTIL and until and until > manifest.moment_b:
        decision = Decision(Outcome.INCONCLUSIVE, f"{until}, an operator after the last collective, was not reached")
    verdict.outcome, verdict.why = decision.outcome, decision.why
    verdict.is_covered = not seen.missing
    if verdict.end in AT_END and verdict.is_covered:
        verdict.moment = str(manifest.moment_b)
    verdict.moment = verdict.moment or str(manifest.moment_a)
    tally = verdict.tally
    verdict.strength = Strength(
        collectives=seen.compared,
        fingerprints=_fingerprinted(tally),
        within=tally.get("within", 0),
        farthest=tally.get("farthest", 0.0),
        differing_objects=tally.get("object_notes", 0),
        whole_steps=_whole_steps(log, span, verdict),
    )
    verdict.notes = [*verdict.said.lines, *verdict.notes, *_notes(capsule, log, span, verdict, until)]
    verdict.notes += filter(None, [redaction_note(there, seen)])


def _whole_steps(log: RankLog, span: Span, verdict: Verdict) -> int:
    """With that of the end moment only where the replay came past it as the recorded rank did."""
    end = Moment.parse(verdict.moment)
    is_past = verdict.end in AT_END and verdict.is_covered and verdict.outcome in AS_RECORDED
    return span.whole_steps(Moment(end.step + 1) if is_past and ends_its_step(log, span, end) else end)


def _require_possible(tally: Mapping[str, Any], recorded: int) -> None:
    """A verdict names these numbers: they are the rank's own."""
    if (most := max(int(tally.get(name, 0)) for name in COMPARED)) > recorded:
        raise InvalidMessage(f"the rank says that it compared {counted(most, 'collective')}, of {recorded} recorded")


def recorded(capsule: Capsule, log: RankLog, span: Span, stopped: Moment | None = None) -> Recorded:
    """What the log says of the end of the span; `stopped`: of a replay that stops on its way."""
    end = span.records[-1].moment if span.records else Moment(0)
    at_start, incidents = _incidents(capsule, log, span)
    notes = [n for n in incidents if not span.goes_on or _moment_of(n) <= end]
    main = [n for n in notes if not n.data.get("thread")]
    codes = exit_codes(log.notes)
    return Recorded(
        incident=capsule.manifest.incident.kind,
        required=len([r for r in span.records if stopped is None or r.moment <= stopped]),
        goes_on=span.goes_on,
        answered=span.answered,
        was_skipped=_was_skipped(log, capsule.manifest.incident.moment),
        exit_code=codes[-1] if codes and not span.goes_on else None,
        died_with=None if span.goes_on else capsule.rank().get("died_with"),
        raised=recorded_text(main[-1].data) if main else "",
        raised_at=raised_at({"traceback": traceback_of(log.notes, main[-1].data)}) if main else "",
        also_raised=tuple(recorded_text(n.data) for n in notes if n not in main[-1:]),
        raised_later=tuple(recorded_text(n.data) for n in incidents if n not in notes),
        raised_at_start=tuple(recorded_text(n.data) for n in at_start),
    )


def _was_skipped(log: RankLog, moment: Moment | None) -> bool:
    """Whether a gradient scaler kept the gradients of that step from an optimizer."""
    begun = (log.steps[0].step - 1 if log.steps else 0, *(mark.step for mark in log.steps))
    ended = zip(begun, log.steps, strict=False)
    skipped: set[int | None] = {step for step, mark in ended if mark.source is StepSource.SKIPPED_BY_SCALER}
    skipped |= {note.data.get("step") for note in log.notes if note.kind == SKIPPED}
    return moment is not None and moment.step in skipped


def _incidents(capsule: Capsule, log: RankLog, span: Span) -> tuple[list[Note], list[Note]]:
    """Exceptions of which the log does not tell on which side of the start they lie, and those after it. Older ones,
    which a log has as context, no replay raises again."""
    noted = [note for note in log.notes if note.kind == "incident"]
    if capsule.manifest.origin is Origin.START:
        return [], noted
    row = row_of(log, span.past_records)
    last = log.collectives[row - 1].moment if row else Moment(0)
    since = [n for n in noted if span.records and _moment_of(n) >= span.records[0].moment]
    return [n for n in noted if n not in since and _moment_of(n) >= last], since


def _moment_of(note: Note) -> Moment:
    return moment_of(note.data) or Moment(0)


def _seen(verdict: Verdict, span: Span) -> Seen:
    compared = int(verdict.tally.get("compared", 0))
    missing = int(verdict.tally.get("missing", 0))
    if verdict.end is End.DIED:  # without a last word its last tally is not known
        compared = len(span.records) if verdict.is_covered else compared
        missing = 0 if verdict.is_covered or not span.records else max(len(span.records) - compared, 1)
    return Seen(
        end=verdict.end,
        compared=compared,
        fingerprinted=_fingerprinted(verdict.tally),
        by_tolerance=verdict.tolerance > 0,
        within=verdict.tally.get("within", 0),
        unsketched=verdict.tally.get("unsketched", 0),
        has_state=_is_computed(verdict.last_state, span) and not verdict.differs_at,
        missing=0 if verdict.end is End.UNTIL else missing,
        lacking=verdict.lacking,
        exit_code=verdict.exit_code,
        raised=text_of(verdict.raised),
        raised_at=raised_at(verdict.raised),
        also_raised=tuple(map(text_of, verdict.also_raised)),
        parameters_differ_at=verdict.differs_at,
    )


def _is_computed(state: Moment | None, span: Span) -> bool:
    """A state in the step in which the replay begins may be the one that it began with: no evidence."""
    begin = span.records[0].moment.step if span.records else 0
    return state is not None and state.step > begin


def _fingerprinted(tally: Mapping[str, int]) -> int:
    """A pickled object that differs, as a PID or a time does, is no evidence."""
    differing = (tally.get(name, 0) for name in ("object_notes", "within", "unsketched"))
    return tally.get("fingerprints", 0) - sum(differing)


def _notes(capsule: Capsule, log: RankLog, span: Span, verdict: Verdict, until: Moment | None) -> list[str]:
    """What else is worth knowing of the end."""
    manifest, notes = capsule.manifest, []
    if verdict.end is End.UNTIL and verdict.moment != str(until):
        notes.append(f"this run has no moment {until}: the replay stopped at {verdict.moment}")
    elif until is not None and verdict.end is not End.UNTIL and until <= manifest.moment_b:
        notes.append(f"{until} was not reached: the replay ended before it, at {verdict.moment}")
    if verdict.strength.collectives:
        notes.append(
            f"compared from {manifest.moment_a} to {verdict.moment}, "
            f"with {counted(verdict.strength.whole_steps, 'complete step')}"
        )
    if until is None and starts_too_late(manifest.incident.kind, manifest.origin, span, manifest.moment_b):
        notes.append(NO_STEP_BEFORE)
    unanswered = span.unanswered
    if unanswered and verdict.end in (End.NEXT_CALL, End.FINISHED):
        there = f"continued to {verdict.went_on_to}" if verdict.went_on_to else "ended normally"
        hangs = manifest.incident.kind is IncidentKind.HANG
        which = "in which the rank hung" if hangs else "which had no answer when the recording ended"
        call = f"the collective at {unanswered[-1].moment}, {which}, got"
        if not verdict.tally.get("synthesized"):
            notes.append(f"{call} its recorded answer, and the program {there}")
        elif hangs:
            notes.append(f"{call} a synthesized answer: that the program then {there} says nothing about the hang")
        else:
            notes.append(f"{call} a synthesized answer, and the program {there}")
    if verdict.end is End.QUIET and not is_from_outside(capsule.rank().get("died_with")):
        silence = recorded_silence(capsule, log)
        what = "hangs again" if span.answered else "issues a further collective"
        what = "dies again" if manifest.incident.kind is IncidentKind.LOST else what
        notes.append(f"raise --timeout by {silence.bound_s:.3g} s to see whether it {what}: {silence}")
    if verdict.outcome is Outcome.WITHIN and verdict.differs_at:
        notes.append("the parameters differ in their bits; a tolerance compares only what the rank sends")
    if verdict.outcome not in AS_RECORDED or until is not None or verdict.end is End.UNTIL:
        return notes
    if verdict.end is End.DIED:
        known = capsule.rank().get("died_with") is not None and verdict.exit_code is not None
        as_it = "as it did when it was recorded" if known else "and how the recorded rank died is unknown"
        notes.append(f"the rank died here, {as_it}")
    match manifest.incident.kind:
        case IncidentKind.NAN:
            exactly = ", bit for bit" if verdict.strength.fingerprints else ", but what was sent was not compared"
            exactly = ", within the tolerance" if verdict.strength.within else exactly
            notes.append(f"the NaN occurs again{exactly}: {manifest.incident.text}")
        case IncidentKind.HANG if verdict.end is End.SILENT:
            silence = recorded_silence(capsule, log)
            notes.append(f"it hangs again: no further collective within {silence.bound_s:.3g} s; {silence}")
    return notes
