"""The verdict on a replay: identical, diverged or inconclusive, from what the record says and what was seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.model.counted import counted

MAY_DIE = (IncidentKind.LOST, IncidentKind.OUT_OF_MEMORY)


class Outcome(StrEnum):
    IDENTICAL = "identical"  # every collective from the start to the end moment was compared and is the recorded one
    DIVERGED = "diverged"
    INCONCLUSIVE = "inconclusive"  # neither of the two can be said
    RANK_LOST = "rank lost"  # the replayed process died where the recorded one did not


class End(StrEnum):
    """How a replay ended."""

    NEXT_CALL = "next call"  # the rank issued a collective after the end moment
    UNTIL = "until"  # it stopped where it was told to
    FINISHED = "finished"  # the program ended by itself
    DIED = "died"  # the process ended without a last word
    SILENT = "silent"  # everything was compared, and no further collective came: it hangs again
    NOT_RUN = "not run"  # no collective lies between the start and the end moment
    DIFFERED = "differed"  # the rank stands at the first difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the record says of its own end.

    required: the collectives that a replay must compare. goes_on: the log holds a collective after the end moment.
    answered: each of them was complete when the record ended. exit_code, raised, raised_in_thread: of the program,
    where the log says so; an exception as `Type: text`.
    """

    incident: IncidentKind
    required: int
    goes_on: bool = False
    answered: bool = True
    exit_code: int | None = None
    raised: str = ""
    raised_in_thread: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a replay did. missing: recorded collectives up to its end that it did not issue. lacking: synthesized
    answers where the recorded rank had received one."""

    end: End
    compared: int = 0
    missing: int = 0
    lacking: int = 0
    exit_code: int | None = None
    raised: str = ""
    raised_in_thread: str = ""
    parameters_differ_at: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """`why` is empty only where the outcome speaks for itself."""

    outcome: Outcome
    why: str = ""


def decide(recorded: Recorded, seen: Seen) -> Decision:
    """Conservative: what is not known to be identical or to differ is inconclusive."""
    for rule in (_differs, _incomplete, _lacks_answers, _other_end, _too_little):
        if (found := rule(recorded, seen)) is not None:
            return found
    return Decision(Outcome.IDENTICAL)


def _differs(_: Recorded, seen: Seen) -> Decision | None:
    if seen.end is End.DIFFERED:
        return Decision(Outcome.DIVERGED)
    if seen.parameters_differ_at:
        return Decision(Outcome.DIVERGED, f"the parameters at {seen.parameters_differ_at} are not the recorded ones")
    return None


def _incomplete(_: Recorded, seen: Seen) -> Decision | None:
    """It ended before the end moment."""
    if not seen.missing:
        return None
    left = counted(seen.missing, "collective")
    if seen.end is End.FINISHED:
        return Decision(Outcome.DIVERGED, f"the program ended {left} before the recorded one did")
    if seen.end is End.DIED:
        return Decision(Outcome.RANK_LOST, f"the process ended {left} before the recorded one did")
    return Decision(Outcome.INCONCLUSIVE, f"{left} did not come")


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
        case End.SILENT if recorded.incident is not IncidentKind.HANG or recorded.goes_on:
            return Decision(Outcome.INCONCLUSIVE, "the replay came to no further collective")
        case End.NOT_RUN:
            return Decision(Outcome.INCONCLUSIVE, "the rank issued no collective between the start and the end moment")
    return None


def _differing(recorded: Recorded, why: str) -> Decision:
    """After the end moment. Where the recorded rank still waited for an answer, the replay's answer is synthesized."""
    if recorded.answered:
        return Decision(Outcome.DIVERGED, why)
    return Decision(Outcome.INCONCLUSIVE, f"{why}; the recorded rank still waited for an answer there")


def _other_exception(recorded: Recorded, seen: Seen) -> Decision | None:
    if recorded.raised_in_thread and recorded.raised_in_thread not in (seen.raised_in_thread, seen.raised):
        why = f"the exception of the recorded program's thread was not raised: {recorded.raised_in_thread}"
        return Decision(Outcome.INCONCLUSIVE, why)
    if recorded.raised == seen.raised:
        return None
    if not seen.raised:
        return _differing(recorded, f"the recorded exception was not raised: {recorded.raised}")
    if recorded.raised:
        return _differing(recorded, f"another exception than the recorded one: {seen.raised}")
    why = f"the program raised {seen.raised}"
    if recorded.goes_on or recorded.exit_code is not None:
        return _differing(recorded, f"{why}, and the recorded one did not")
    return Decision(Outcome.INCONCLUSIVE, f"{why}; the record ends before that")


def _goes_on(recorded: Recorded) -> Decision | None:
    """The replay issued a further collective."""
    if recorded.goes_on or recorded.raised:
        return None
    if recorded.exit_code is not None:
        code = recorded.exit_code
        return _differing(
            recorded, f"the program issued a further collective; the recorded one ended with exit code {code}"
        )
    if recorded.incident is IncidentKind.HANG and recorded.answered:
        return Decision(
            Outcome.INCONCLUSIVE, "the rank issued a further collective; the recorded one hung and issued none"
        )
    return None


def _finished(recorded: Recorded, seen: Seen) -> Decision | None:
    """The replayed program ended by itself, with the recorded exception where there is one."""
    code = f"the program ended with exit code {seen.exit_code}"
    if recorded.goes_on:
        return _differing(recorded, f"{code}; the recorded one issued further collectives")
    if recorded.exit_code is not None:
        return (
            None if recorded.exit_code == seen.exit_code else _differing(recorded, f"{code}, not {recorded.exit_code}")
        )
    if recorded.raised or (not recorded.answered and not seen.exit_code):
        return None
    if recorded.incident is IncidentKind.LOST:
        return Decision(Outcome.INCONCLUSIVE, f"{code}; the recorded rank died, and the record does not say of what")
    if recorded.incident is IncidentKind.HANG:
        return Decision(Outcome.INCONCLUSIVE, f"{code}; the recorded one hung")
    if seen.exit_code:
        return Decision(Outcome.INCONCLUSIVE, f"{code}; the record ends before the program does")
    return None


def _died(recorded: Recorded, seen: Seen) -> Decision | None:
    """A death counts only at the recorded place, and where the log has no other end of the program."""
    ends_there = not recorded.goes_on and recorded.exit_code is None and recorded.raised == seen.raised
    if ends_there and (recorded.raised or recorded.incident in MAY_DIE):
        return None
    return Decision(Outcome.RANK_LOST, "the recorded rank did not die there")


def _too_little(recorded: Recorded, seen: Seen) -> Decision | None:
    if not seen.compared:
        return Decision(Outcome.INCONCLUSIVE, "no collective was compared")
    if seen.compared < recorded.required:
        return Decision(Outcome.INCONCLUSIVE, f"only {seen.compared} of {recorded.required} collectives were compared")
    return None
