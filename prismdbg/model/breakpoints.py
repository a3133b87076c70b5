"""Kinds of breakpoints and reasons to stop: words that a client and a rank have in common, as they are on the wire."""

from __future__ import annotations

from enum import StrEnum

from prismdbg.model.moment import Moment

MAX_LOGGED = 16  # expressions in the text of a logpoint


class BreakpointKind(StrEnum):
    """What a breakpoint waits for."""

    COLLECTIVE = "collective"
    ALLOCATION = "allocation"
    EXCEPTION = "exception"
    NAN = "nan"  # also an infinity, in what is sent or received
    DIVERGENCE = "divergence"
    PEER = "peer"
    CHANGE = "change"


class StopReason(StrEnum):
    """Why a rank stands."""

    START = "start"  # nothing of the program has run
    RESTORED = "restored"  # at the program's restore point, with the state of a snapshot
    PARKED = "parked"  # where it was captured
    NEXT = "next"
    STEP = "step"  # the event that was counted to
    UNTIL = "until"  # a moment
    FINISH = "finish"
    STOP = "stop"  # a breakpoint
    PAUSED = "paused"
    SPACING = "spacing"  # time for a checkpoint
    EXCEPTION = "exception"
    DIVERGED = "diverged"
    END_OF_LOG = "end of the log"


ON_THE_WAY = (StopReason.UNTIL, StopReason.NEXT, StopReason.STEP, StopReason.SPACING)  # how a verb was carried out
AT_NO_EVENT = (StopReason.PARKED, StopReason.START, StopReason.RESTORED)


def place_of(moment: Moment, reason: str) -> Moment:
    """Of a stop: by this it is before or after other places."""
    return moment.behind if reason == StopReason.EXCEPTION else moment
