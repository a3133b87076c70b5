"""The verdict on a replay: identical, diverged or inconclusive, from what the record says and what was seen. Pure."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum

from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.log.coverage import NOTHING_TO_COMPARE
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.capsule.secrets.masking import (
    REDACTED,
)
from prismdbg.capsule.spawned import NOT_RECORDED
from prismdbg.model.exit_code import as_shell
from prismdbg.model.plurals import counted

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


class Outcome(StrEnum):
    IDENTICAL = "identical"  # every collective from the start to the end moment was compared and is the recorded one
    WITHIN = "within tolerance"  # the same, but some values that the rank sent are only close to the recorded ones
    DIVERGED = "diverged"
    INCONCLUSIVE = "inconclusive"  # neither of the two can be said
    RANK_LOST = "rank lost"  # the replayed process died where the recorded process did not


class End(StrEnum):
    """How a replay ended."""

    NEXT_CALL = "next call"  # the rank issued a collective after the end moment
    UNTIL = "until"  # it stopped where it was told to
    FINISHED = "finished"  # the program ended by itself
    DIED = "died"  # the process ended without a last word
    SILENT = "silent"  # everything was compared, and no further collective came: a hang has happened again
    QUIET = "quiet"  # as SILENT, but the replay's time was up before that could be said
    NOT_RUN = "not run"  # no collective lies between the start and the end moment
    DIFFERED = "differed"  # the rank stands at the first difference


AS_RECORDED = (Outcome.IDENTICAL, Outcome.WITHIN)
AT_END = (End.NEXT_CALL, End.FINISHED, End.DIED, End.SILENT, End.QUIET)  # not on the way there


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the record says of its own end.

    required: the collectives that a replay must compare. goes_on: the log holds a collective after the end moment.
    answered: each of them was complete when the record ended. was_skipped: a gradient scaler skipped the step of the
    incident. exit_code: of the program that ended by itself;
    died_with: of a process that died without a word, 128 and the number for a signal; None where it is not known.
    Exceptions that nothing caught, as `Type: text`: `raised` is the main thread's last one, `also_raised` are all
    others up to the end moment, `raised_later` all after it, `raised_at_start` those that came before the start or soon
    after it. raised_at: the program's line of `raised`, if it is known.
    """

    incident: IncidentKind
    required: int
    goes_on: bool = False
    answered: bool = True
    was_skipped: bool = False
    exit_code: int | None = None
    died_with: int | None = None
    raised: str = ""
    raised_at: str = ""
    also_raised: tuple[str, ...] = ()
    raised_later: tuple[str, ...] = ()
    raised_at_start: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a replay did. fingerprinted: of the collectives compared, those of which what the rank sent was compared,
    too. by_tolerance: values may differ by it. within: those of which what was sent differs by no more than that;
    unsketched: those of which it differs, by an unknown amount. has_state: a state of the parameters was compared and
    is the recorded one. missing: recorded collectives up to its end that it did not issue. lacking: synthesized answers
    where the recorded rank had received one."""

    end: End
    compared: int = 0
    fingerprinted: int = 0
    by_tolerance: bool = False
    within: int = 0
    unsketched: int = 0
    has_state: bool = False
    missing: int = 0
    lacking: int = 0
    exit_code: int | None = None
    raised: str = ""
    raised_at: str = ""
    also_raised: tuple[str, ...] = ()
    parameters_differ_at: str = ""

    def is_redacted(self, recorded: Recorded) -> bool:
        """Whether the main thread raised the recorded exception as far as its redacted text tells."""
        return REDACTED in recorded.raised and recorded.raised == self.raised


@dataclass(frozen=True, slots=True)
class Decision:
    """`why` is empty only where the outcome speaks for itself."""

    outcome: Outcome
    why: str = ""


def decide(recorded: Recorded, seen: Seen) -> Decision:
    """Conservative: what is not known to be identical or to differ is inconclusive."""
    if seen.raised != recorded.raised and seen.raised in recorded.raised_at_start:  # the program went on
        seen = replace(seen, raised="", also_raised=(*seen.also_raised, seen.raised))
    for rule in (
        _differs, _asked_for_more, _incomplete, _lacks_answers, _other_end, _other_exceptions, _raised_elsewhere,
        _too_little, _not_comparable, _did_not_die_again,
    ):  # fmt: skip
        if (found := rule(recorded, seen)) is not None:
            return found
    return Decision(Outcome.WITHIN if seen.within else Outcome.IDENTICAL)


def _differs(_: Recorded, seen: Seen) -> Decision | None:
    if seen.end is End.DIFFERED:
        return Decision(Outcome.DIVERGED)
    if seen.parameters_differ_at and not seen.by_tolerance:
        return Decision(Outcome.DIVERGED, f"the parameters at {seen.parameters_differ_at} are not the recorded ones")
    return None


def _asked_for_more(_: Recorded, seen: Seen) -> Decision | None:
    """What it does then is no answer to the question whether it is the same program."""
    lacks = next((text for text in (seen.raised, *seen.also_raised) if NOT_RECORDED in text), None)
    return None if lacks is None else Decision(Outcome.INCONCLUSIVE, f"the program raised {lacks}")


def _incomplete(_: Recorded, seen: Seen) -> Decision | None:
    """It ended before the end moment."""
    if not seen.missing:
        return None
    left = counted(seen.missing, "collective")
    if seen.end is End.FINISHED:
        return Decision(Outcome.DIVERGED, f"the program ended {left} earlier than the recorded program")
    if seen.end is End.DIED:
        return Decision(Outcome.RANK_LOST, f"the process ended {left} earlier than the recorded process")
    return Decision(Outcome.INCONCLUSIVE, f"{left} were not issued" if seen.missing > 1 else f"{left} was not issued")


def _lacks_answers(_: Recorded, seen: Seen) -> Decision | None:
    if not seen.lacking:
        return None
    answers = counted(seen.lacking, "answer")
    return Decision(
        Outcome.INCONCLUSIVE,
        f"{answers} up to the end moment had to be synthesized: the capsule lacks the recorded ones",
    )


def _other_end(recorded: Recorded, seen: Seen) -> Decision | None:
    """Every collective was issued; what came then is held against what the record says came then."""
    match seen.end:
        case End.NEXT_CALL:
            return _other_exception(recorded, seen) or _goes_on(recorded)
        case End.FINISHED:
            return _other_exception(recorded, seen) or _finished(recorded, seen)
        case End.DIED:
            return _died(recorded, seen)
        case End.SILENT | End.QUIET if recorded.incident is IncidentKind.LOST and not recorded.goes_on:
            return None  # see `_did_not_die_again`
        case End.SILENT if recorded.incident is not IncidentKind.HANG or recorded.goes_on:
            return Decision(Outcome.INCONCLUSIVE, "the replay reached no further collective")
        case End.SILENT if not recorded.answered:
            why = "no further collective came after an answer that the recorded rank was still waiting for"
            return Decision(Outcome.INCONCLUSIVE, why)
        case End.QUIET:
            why = "--timeout ended too early to tell whether the rank hangs after the last recorded collective"
            return Decision(Outcome.INCONCLUSIVE, why)
        case End.NOT_RUN:
            return Decision(Outcome.INCONCLUSIVE, NOTHING_TO_COMPARE)
    return None


def _differing(recorded: Recorded, why: str) -> Decision:
    """After the end moment. Where the recorded rank still waited for an answer, the replay's answer is synthesized."""
    if recorded.answered:
        return Decision(Outcome.DIVERGED, why)
    return Decision(Outcome.INCONCLUSIVE, f"{why}; the recorded rank was still waiting for an answer there")


def _other_exception(recorded: Recorded, seen: Seen) -> Decision | None:
    """Of the main thread."""
    if recorded.raised == seen.raised:
        return None
    if not seen.raised:
        return _differing(recorded, f"the recorded exception was not raised: {recorded.raised}")
    if recorded.raised:
        return _differing(recorded, f"the exception is not the recorded exception: {seen.raised}")
    why = f"the program raised {seen.raised}"
    if recorded.goes_on or recorded.exit_code is not None:
        return _differing(recorded, f"{why}; the recorded program did not")
    return Decision(Outcome.INCONCLUSIVE, f"{why}; the recording ends before that")


def _other_exceptions(recorded: Recorded, seen: Seen) -> Decision | None:
    """Of all threads, however the replay ended. When a thread raises is not in the record, so none decides that it
    diverged."""
    there = Counter(filter(None, (recorded.raised, *recorded.also_raised)))
    here = Counter(filter(None, (seen.raised, *seen.also_raised)))
    if new := here - there - Counter(recorded.raised_later) - Counter(recorded.raised_at_start):
        why = f"the replay raised an exception that the recording does not have: {next(iter(new))}"
        return Decision(Outcome.INCONCLUSIVE, why)
    if seen.end is not End.UNTIL and (lacking := there - here):
        return Decision(Outcome.INCONCLUSIVE, f"a recorded exception was not raised: {next(iter(lacking))}")
    return None


def _raised_elsewhere(recorded: Recorded, seen: Seen) -> Decision | None:
    """Where the text is redacted, little else tells an exception from another one of its type."""
    known = recorded.raised_at and seen.raised_at
    if not seen.is_redacted(recorded) or not known or recorded.raised_at == seen.raised_at:
        return None
    return Decision(
        Outcome.INCONCLUSIVE,
        "the text of the recorded exception is redacted, and one of its type was raised elsewhere: "
        f"{seen.raised_at}, not {recorded.raised_at}",
    )


def _goes_on(recorded: Recorded) -> Decision | None:
    """The replay issued a further collective."""
    if recorded.goes_on or recorded.raised:
        return None
    if recorded.exit_code is not None:
        code = recorded.exit_code
        return _differing(
            recorded, f"the program issued a further collective; the recorded program ended with exit code {code}"
        )
    if recorded.incident is IncidentKind.HANG and recorded.answered:
        return Decision(
            Outcome.INCONCLUSIVE, "the rank issued a further collective; the recorded rank hung and issued none"
        )
    return None


def _finished(recorded: Recorded, seen: Seen) -> Decision | None:
    """The replayed program ended by itself, with the recorded exception where there is one."""
    code = f"the program ended with exit code {seen.exit_code}"
    if recorded.goes_on:
        return _differing(recorded, f"{code}; the recorded program issued further collectives")
    if recorded.exit_code is not None:
        return (
            None if recorded.exit_code == seen.exit_code else _differing(recorded, f"{code}, not {recorded.exit_code}")
        )
    if recorded.raised or recorded.incident is IncidentKind.LOST or (not recorded.answered and not seen.exit_code):
        return None
    if recorded.incident is IncidentKind.HANG:
        return Decision(Outcome.INCONCLUSIVE, f"{code}; the recorded rank hung")
    if seen.exit_code:
        return Decision(Outcome.INCONCLUSIVE, f"{code}; the recording ends before the program does")
    return None


def _died(recorded: Recorded, seen: Seen) -> Decision | None:
    """A death counts only at the recorded place, and where the log has no other end of the program."""
    ends_there = not recorded.goes_on and recorded.exit_code is None and recorded.raised == seen.raised
    known_to_end = recorded.raised or TRAITS[recorded.incident].may_die
    if ends_there and not known_to_end and recorded.also_raised:  # the hook of its threads may have ended it
        why = f"the process died there: {ended_by(seen.exit_code)}; the end of the recorded process is not recorded"
        return Decision(Outcome.INCONCLUSIVE, why)
    if not ends_there or not known_to_end:
        return Decision(Outcome.RANK_LOST, "the recorded rank did not die there")
    if recorded.died_with is None or seen.exit_code is None or as_shell(seen.exit_code) == as_shell(recorded.died_with):
        return None
    how, was = ended_by(seen.exit_code), ended_by(recorded.died_with)
    return _differing(recorded, f"the process died there, but not as the recorded process did: {how}, not {was}")


def ended_by(code: int | None) -> str:
    """`SIGILL (exit code 132)`: shells and containers give 128 and the signal's number, Python its negative."""
    if code is None:
        return "the recording does not contain the cause"
    with contextlib.suppress(ValueError):
        return f"{signal.Signals(as_shell(code) - 128).name} (exit code {code})"
    return f"exit code {code}"


def died_of(code: int | None) -> str:
    """As `ended_by`, and what a signal that others send to end a process says of a replay."""
    outside = ", a signal that usually comes from outside the program" * is_from_outside(code)
    return ended_by(code) + outside


def may_die_again(code: int | None) -> bool:
    """Whether a process is known to have died of what it did itself, so that a replay may show it."""
    return code is not None and not is_from_outside(code)


def is_from_outside(code: int | None) -> bool:
    """Whether it is a signal that others send: no replay shows that again."""
    return code is not None and as_shell(code) - 128 in FROM_OUTSIDE


def _too_little(recorded: Recorded, seen: Seen) -> Decision | None:
    if not seen.compared:
        return Decision(Outcome.INCONCLUSIVE, "no collective was compared")
    if seen.compared < recorded.required:
        return Decision(Outcome.INCONCLUSIVE, f"only {seen.compared} of {recorded.required} collectives were compared")
    same_exception = bool(recorded.raised) and recorded.raised == seen.raised
    is_redacted = seen.is_redacted(recorded)
    if seen.fingerprinted + seen.within + seen.unsketched > 0 or seen.has_state or (same_exception and not is_redacted):
        return None
    also = " and the type of its exception, whose text is redacted" * is_redacted
    return Decision(Outcome.INCONCLUSIVE, f"nothing that the rank computed was compared, only its calls{also}")


def _not_comparable(_: Recorded, seen: Seen) -> Decision | None:
    """By tolerance: what differs by an amount that nobody knows."""
    if seen.unsketched:
        calls = counted(seen.unsketched, "collective")
        why = f"{calls} sent different bits from the recorded run, and the recording has no sketch of their values"
        return Decision(Outcome.INCONCLUSIVE, why)
    if seen.parameters_differ_at and not seen.within:
        at = seen.parameters_differ_at
        return Decision(Outcome.INCONCLUSIVE, f"the parameters at {at} differ in their bits, by an unknown amount")
    return None


_LIVES = {
    End.NEXT_CALL: "the rank issued a further collective",
    End.FINISHED: "the program ended with exit code {code}",
    End.SILENT: "the rank stayed alive and issued no further collective",
    End.QUIET: "the rank stayed alive and issued no further collective until --timeout ended",
}


def _did_not_die_again(recorded: Recorded, seen: Seen) -> Decision | None:
    """All that was compared is identical, but nothing in it is the recorded death."""
    if recorded.incident is not IncidentKind.LOST or seen.end not in _LIVES:
        return None
    then = _LIVES[seen.end].format(code=seen.exit_code)
    how = "within the tolerance" if seen.within else "identical"
    return Decision(
        Outcome.INCONCLUSIVE,
        f"the incident did not happen again: the replay is {how} up to the end moment, then "
        f"{then}; the recorded rank died: {died_of(recorded.died_with)}",
    )
