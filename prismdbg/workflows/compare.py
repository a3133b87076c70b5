"""`prismdbg replay`: runs the rank from A to B and says whether it was the run that was."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.model.counted import counted
from prismdbg.model.moment import Moment
from prismdbg.protocol.wire import Message
from prismdbg.session.frames import frames_of, own_frame
from prismdbg.workflows.replay import LiveReplay, Say, redacted_arguments

SOURCE_BOUND_S = 10.0


class Outcome(StrEnum):
    SAME = "same"
    UNHUNG = "un-hung"  # what the rank waited in was answered and it went on; nothing recorded was left to compare
    NOTHING = "nothing to compare"  # between A and B there is no collective
    DIVERGED = "diverged"
    STOPPED = "stopped"
    RANK_LOST = "rank lost"


@dataclass(slots=True)
class Verdict:
    """`moment`: what the outcome reaches to. `went_on_to`: the first call past the recorded ones, where it came to one.

    `story`: the divergence event, `source`: what stands there, as the agent's verb of that name gives it.

    `raised`: the exception that ended the program, if one did.
    """

    outcome: Outcome = Outcome.SAME
    moment: str = ""
    went_on_to: str = ""
    tally: dict[str, Any] = field(default_factory=dict)
    story: Message | None = None
    source: Message | None = None
    raised: Message | None = None
    states: list[Message] = field(default_factory=list)
    synthesized: list[Message] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    exit_code: int | None = None
    elapsed_ns: int = 0

    @property
    def compared(self) -> str:
        collectives, sent = self.tally.get("compared", 0), self.tally.get("fingerprints", 0)
        return f"{counted(collectives, 'collective')} compared, {sent} by what the rank sent"

    @property
    def summary(self) -> str:
        """In one line; of a divergence the story says more."""
        match self.outcome:
            case Outcome.SAME:
                return f"same: the run that was, to {self.moment} ({self.compared})"
            case Outcome.UNHUNG:
                synthesized = self.tally.get("synthesized")
                answer = "a synthesized peer's answer" if synthesized else "its recorded answer"
                there = f"went on to {self.went_on_to}" if self.went_on_to else "came to its end"
                return f"un-hung: what the rank waited in at {self.moment} got {answer}, and it {there}"
            case Outcome.NOTHING:
                return f"nothing to compare: the rank issued no collective between A and B, {self.moment}"
        return f"{self.outcome}: at {self.moment} ({self.compared})"


def require_ahead(capsule: Capsule, until: Moment | None) -> None:
    """`UsageError` where `until` lies before the place at which the capsule begins. A bare step is its first call."""
    first = capsule.manifest.moment_a
    if until is not None and until < first and until != Moment(first.step):
        raise UsageError(
            f"{until} is before the capsule's beginning; it goes from {first} to {capsule.manifest.moment_b}",
            hint="give a later moment, or none: then it runs to the end",
        )


def run_to_end(live: LiveReplay, *, until: Moment | None, strict: bool, timeout_s: float, say: Say) -> Verdict:
    """Resumes the rank once and follows it to B, to `until`, or to its own end."""
    started = time.monotonic_ns()
    if live.end_record < live.first_record:
        verdict = Verdict(outcome=Outcome.NOTHING, moment=str(live.capsule.manifest.moment_b))
        verdict.notes.append("it was brought back to A and stands there: look at it with `prismdbg debug`")
        return verdict
    live.client.ask("resume", until=str(until) if until else None, end=live.end_record, strict=strict)
    verdict = Verdict()
    deadline = time.monotonic() + timeout_s
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimeout(f"the replay did not reach its end within {timeout_s:g} s; it was at {_where(live)}")
        try:
            event = live.client.next_event(left, "the replayed rank")
        except WaitTimeout:
            continue
        except RankLost:
            _lost(live, verdict)
            break
        if _take(event, verdict, live, say):
            break
    verdict.elapsed_ns = time.monotonic_ns() - started
    judge(live.capsule, verdict, until)
    other_end = verdict.outcome in (Outcome.DIVERGED, Outcome.RANK_LOST) or verdict.raised is not None
    if other_end and (text := redacted_arguments(live.capsule)):
        verdict.notes.append(text)
    return verdict


def _where(live: LiveReplay) -> str:
    try:
        return str(live.client.ask("progress", timeout_s=5)["moment"])
    except PrismError:
        return "an unknown moment"


def _take(event: Message, verdict: Verdict, live: LiveReplay, say: Say) -> bool:
    """Adds one event to the verdict; True when it is the last."""
    kind = event["event"]
    verdict.moment = str(event.get("moment", verdict.moment))
    verdict.tally = event.get("tally", verdict.tally)
    if kind == "diverged":
        verdict.outcome, verdict.story = Outcome.DIVERGED, event
        verdict.source = _source(live, event)
        return True
    if kind == "exception":
        verdict.raised = event
    elif kind == "state":
        verdict.states.append(event)
    elif kind == "synthesized":
        verdict.synthesized.append(event)
    elif kind == "note":
        verdict.notes.append(str(event["text"]))
    elif kind == "stopped" and event["reason"] == "until":
        verdict.outcome = Outcome.STOPPED
        verdict.tally = live.client.ask("progress")["tally"]
        return True
    elif kind == "end_of_log":
        verdict.moment, verdict.went_on_to = str(live.capsule.manifest.moment_b), str(event["moment"])
        return True
    elif kind == "finished":
        verdict.exit_code = int(event["code"])
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
    verdict.outcome = Outcome.RANK_LOST
    verdict.moment = verdict.moment or str(live.capsule.manifest.moment_a)
    verdict.notes.append(f"its process ended without a last word: {ended_by(verdict.exit_code)}")


def ended_by(code: int) -> str:
    """`SIGILL (exit code 132)`: shells and containers give 128 and the signal's number, Python its negative."""
    with contextlib.suppress(ValueError):
        return f"{signal.Signals(-code if code < 0 else code - 128).name} (exit code {code})"
    return f"exit code {code}"


def judge(capsule: Capsule, verdict: Verdict, until: Moment | None = None) -> None:
    """The recorded end decides what the replayed one must be."""
    incident = capsule.manifest.incident
    if verdict.outcome is Outcome.RANK_LOST and incident.kind in (IncidentKind.LOST, IncidentKind.OUT_OF_MEMORY):
        verdict.outcome = Outcome.SAME
        verdict.notes.append("the rank died here, as it did when it was recorded")
    if verdict.outcome is not Outcome.SAME:
        return
    if until is not None:
        verdict.notes.append(f"{until} was not reached: the replay ended before it, at {verdict.moment}")
    if incident.kind is IncidentKind.NAN:
        verdict.notes.append(f"the NaN is there again, bit for bit: {incident.text}")
    if verdict.raised is not None and incident.kind not in (IncidentKind.EXCEPTION, IncidentKind.OUT_OF_MEMORY):
        verdict.notes.append(f"the program raised {verdict.raised['type']}: {verdict.raised['text']}")
    differing = [s for s in verdict.states if not s["equal"]]
    if differing:
        verdict.outcome = Outcome.DIVERGED
        verdict.notes.append(f"the parameters at {differing[0]['moment']} are not the recorded ones")
    if verdict.exit_code is not None and verdict.tally.get("missing"):
        verdict.outcome = Outcome.DIVERGED
        missing = counted(verdict.tally["missing"], "collective")
        verdict.notes.append(f"the program ended {missing} before the recorded one did")
    if verdict.raised is not None and incident.kind is IncidentKind.EXCEPTION:
        text = f"{verdict.raised['type']}: {verdict.raised['text']}"
        if text != incident.text:
            verdict.outcome = Outcome.DIVERGED
            verdict.notes.append(f"another exception than the recorded one: {text}")
    elif incident.kind is IncidentKind.EXCEPTION and verdict.exit_code == 0:
        verdict.outcome = Outcome.DIVERGED
        verdict.notes.append("the recorded exception was not raised")
    if verdict.outcome is Outcome.SAME and verdict.tally.get("compared") == 0:
        _judge_uncompared(capsule, verdict)


def _judge_uncompared(capsule: Capsule, verdict: Verdict) -> None:
    """ "Same" would rest on nothing: the rank was captured in works that did not complete, or A is B."""
    verdict.moment = str(capsule.manifest.moment_b)
    if not capsule.rank().get("in_flight"):
        verdict.outcome = Outcome.NOTHING
        return
    verdict.outcome = Outcome.UNHUNG
    verdict.notes.append("nothing recorded was left to compare; what follows the answer never was")
