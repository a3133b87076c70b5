"""What an edited program's replay says about the incident: does it happen again, and what does that rest on?

Up to its first answer after a send that differs, the program stands on what was recorded; later it stands on peers
that are assumed. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.jobs.replay.verdict import Recorded, died_of, ended_by, may_die_again
from prismdbg.model.exit_code import as_shell
from prismdbg.model.moment import Moment
from prismdbg.script.findings import Ending
from prismdbg.session.divergence_text import headline
from prismdbg.session.notices import Departed, ProgramRaised


class Judgement(StrEnum):
    GONE = "gone"  # the incident does not happen any more
    RECURS = "recurs"
    OTHER = "another failure"  # the program fails, but otherwise than it did
    UNKNOWN = "inconclusive"
    UNANSWERED = "unanswered"  # it went past a hang that waited for an answer, and so does each replay
    UNSEEN = "unseen"  # of the kind that no replay shows: it was slow
    NO_INCIDENT = "no incident"  # the capsule was asked for; nothing was wrong
    NOT_REACHED = "not reached"  # the script ends the replay before the incident


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was seen of it. first_nan: the first NaN or Inf sent or received that counts; lasting_overflow: one in a
    step that its gradient scaler skipped, and that may be an incident; has_other_nan: there were others;
    has_nan_where_it_left: one of any kind was sent there. affected: the
    first answer that may not be what it would have been. run_to: where the script ends the replay. exit_code: of the
    program, or of the process that was lost, where it is known. hangs: it was silent for as long as a recorded hang
    says."""

    ending: Ending
    reached: Moment
    departed: Departed | None = None
    affected: Moment | None = None
    first_nan: Moment | None = None
    lasting_overflow: Moment | None = None
    skipped_too_many: bool = False
    has_other_nan: bool = False
    has_nan_where_it_left: bool = False
    raised: ProgramRaised | None = None
    run_to: Moment | None = None
    hangs: bool = False
    exit_code: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FixVerdict:
    """on_record: what the rank sent up to the incident's moment stands on recorded answers alone."""

    judgement: Judgement
    text: str
    left: Moment | None
    affected: Moment | None
    on_record: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "judgement": self.judgement,
            "text": self.text,
            "left": _shown(self.left),
            "affected": _shown(self.affected),
            "on_record": self.on_record,
        }


def judge_fix(run: Run, incident: Incident, end: Moment, recorded: Sequence[Moment], known: Recorded) -> FixVerdict:
    """`end`: the end moment. `recorded`: the moments up to it. `known`: what the record says of its end."""
    judgement, why = _judged(run, incident, end, known)
    left = run.departed.moment if run.departed is not None else None
    decisive = run.first_nan or min(incident.moment or end, run.reached)
    on_record = run.affected is None or run.affected >= decisive
    parts = [_where_it_leaves(run, end, recorded), f"{_went(run)}: {why}"]
    if left is not None:
        parts.append(
            f"what it sent up to {min(run.affected or end, run.reached)} depends only on recorded data"
            + ("" if on_record else f"; what it sent at {decisive} depends on synthesized data")
        )
    return FixVerdict(judgement=judgement, text="; ".join(parts), left=left, affected=run.affected, on_record=on_record)


def _judged(run: Run, incident: Incident, end: Moment, known: Recorded) -> tuple[Judgement, str]:
    if run.raised is not None and _same_exception(run.raised, incident):
        return Judgement.RECURS, f"the exception occurs again: {_text_of(run.raised)}"
    if run.ending is Ending.LOST:
        return _of_a_death(run, incident, end, known)
    if run.raised is not None:
        return Judgement.OTHER, f"the program raised {_text_of(run.raised)}"
    if run.first_nan is not None:
        again = incident.kind is IncidentKind.NAN
        text = f"a NaN or Inf at {run.first_nan}"
        return (Judgement.RECURS, f"{text}, as in the recorded run") if again else (Judgement.OTHER, text)
    if run.ending is not Ending.COMPLETE:
        return Judgement.UNKNOWN, str(run.ending)
    if run.hangs:  # of a good program, too, where the rank waits for what only another rank does, such as a file
        silent = f"it is silent after {run.reached} for as long as the recorded rank was"
        return Judgement.UNKNOWN, f"inconclusive, {silent}; a program that does not hang may be, too"
    if run.exit_code not in (None, 0) and (run.exit_code != known.exit_code or _failed_by_raising(incident, known)):
        return Judgement.OTHER, f"the program ended with exit code {run.exit_code}"
    if run.lasting_overflow is not None:
        overflow = f"a NaN or Inf at {run.lasting_overflow}, in a step that the gradient scaler skipped"
        if known.was_skipped and _is_again(run, incident):
            return Judgement.RECURS, f"{overflow}, as in the recorded run"
        return Judgement.UNKNOWN, f"inconclusive, {overflow}"
    place = min(incident.moment or end, end)
    is_cut = run.run_to is not None and run.run_to <= run.reached <= place  # what comes behind that place has not run
    if TRAITS[incident.kind].is_asked_for and (is_cut or run.reached >= place):
        return Judgement.NO_INCIDENT, f"{_nothing(run)}; the capsule was captured on request and has no incident"
    if is_cut:
        return Judgement.NOT_REACHED, f"the script ends the replay before the incident at {incident.moment or end}"
    if run.reached < place:
        return Judgement.UNKNOWN, f"inconclusive, the program ended before the incident at {incident.moment or end}"
    if incident.kind is IncidentKind.SLOW:
        return Judgement.UNSEEN, "inconclusive, a replay does not show whether the rank is slow"
    if incident.kind is IncidentKind.HANG and not known.answered:
        return Judgement.UNANSWERED, "inconclusive, the answer that the hang waited for is synthesized in every replay"
    if incident.kind is IncidentKind.HANG and run.reached <= end:
        return Judgement.UNKNOWN, "inconclusive, it issued no collective after the place where it hung"
    if incident.kind is IncidentKind.LOST and not may_die_again(known.died_with):
        why = f"inconclusive, a replay cannot reproduce how the recorded rank died: {died_of(known.died_with)}"
        return Judgement.UNKNOWN, why
    if incident.kind is IncidentKind.LOST and run.reached <= end and run.exit_code is None:
        return Judgement.UNKNOWN, "inconclusive, the replay did not go past the place where the recorded rank died"
    if incident.kind is IncidentKind.HANG:
        return Judgement.GONE, f"it went past the place where it hung; {_nothing(run)}"
    return Judgement.GONE, _nothing(run)


def _nothing(run: Run) -> str:
    others = " or Inf but recorded ones and those of steps that a gradient scaler skipped" if run.has_other_nan else ""
    return f"no exception, no NaN{others}"


def _failed_by_raising(incident: Incident, known: Recorded) -> bool:
    """Then the recorded exit code is part of the incident: a program that catches the exception and ends with the same
    code is not well."""
    return TRAITS[incident.kind].is_raised or bool(known.raised)


def _of_a_death(run: Run, incident: Incident, end: Moment, known: Recorded) -> tuple[Judgement, str]:
    """It is the incident only at its place, and if the process ended as the recorded one did."""
    if run.exit_code in (None, 0):  # os._exit, as programs end that are well, or nobody knows
        how = "with exit code 0, without its last message" if run.exit_code == 0 else "for an unknown reason"
        return Judgement.UNKNOWN, f"inconclusive, the process ended {how}"
    died = f"the rank died: {ended_by(run.exit_code)}"
    if not TRAITS[incident.kind].may_die or run.reached < (incident.moment or end):
        return Judgement.OTHER, died
    if known.died_with is None:
        return Judgement.UNKNOWN, f"inconclusive, {died}; the recording does not contain how the recorded rank died"
    if as_shell(run.exit_code) != as_shell(known.died_with):
        return Judgement.OTHER, f"{died}, not {ended_by(known.died_with)} as in the recorded run"
    return Judgement.RECURS, f"{died}, as in the recorded run"


def _is_again(run: Run, incident: Incident) -> bool:
    """Whether overflows that last are the incident once more: as many as make one, or in its own step, behind which its
    capsule may have no other one."""
    overflow, moment = run.lasting_overflow, incident.moment
    in_its_step = overflow is not None and moment is not None and overflow.step == moment.step
    return incident.kind is IncidentKind.NAN and (run.skipped_too_many or in_its_step)


def _same_exception(raised: ProgramRaised, incident: Incident) -> bool:
    """By its type: a text may name what a fix changes."""
    if not TRAITS[incident.kind].is_raised:
        return False
    return incident.text.partition(":")[0].strip() == raised.kind


def _text_of(raised: ProgramRaised) -> str:
    return f"{raised.kind}: {raised.text}".strip()


def _where_it_leaves(run: Run, end: Moment, recorded: Sequence[Moment]) -> str:
    if run.departed is None and recorded and run.reached < recorded[0]:
        return "the program issued no collective"
    if run.departed is None:
        return f"identical up to {min(run.reached, end)}"
    left, story = run.departed.moment, run.departed.story
    before = max((moment for moment in recorded if moment < left), default=None)
    same = f"identical up to {before}" if before is not None else "different from the first collective on"
    if story.get("assumed"):
        return f"{same}; from {left} on peers are assumed to send other data"
    differs = f"from {left} on it sends other data ({headline(story)})"
    if (story.get("expected") or {}).get("sent_nonfinite") and not run.has_nan_where_it_left:
        differs += "; the recorded NaN or Inf does not occur there, as expected of a fix"
    return f"{same}; {differs}"


def _went(run: Run) -> str:
    if run.departed is None:
        return f"it continued to {run.reached}"
    return f"continued with synthesized peers to {run.reached}"


def _shown(moment: Moment | None) -> str | None:
    return str(moment) if moment is not None else None
