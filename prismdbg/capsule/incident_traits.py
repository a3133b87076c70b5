"""What follows from the kind of an incident, in one table: a new kind states every trait, or the import fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prismdbg.capsule.manifest import IncidentKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """is_asked_for: nothing was wrong, somebody wanted a capsule. is_raised: the program raised an exception.
    ends_the_log: it is at the recording's end. may_die: a replay of it may end with the death of the rank. can_recur: a
    replay shows it again, so that it can be searched for; a hang, say, is answered in every replay. takes_stacks: those
    of all ranks are taken when it is seen."""

    is_asked_for: bool
    is_raised: bool
    ends_the_log: bool
    may_die: bool
    can_recur: bool
    takes_stacks: bool


def _traits(*true: str) -> Traits:
    return Traits(**{name: name in true for name in Traits.__dataclass_fields__})


TRAITS: Mapping[IncidentKind, Traits] = MappingProxyType({
    IncidentKind.REQUEST: _traits("is_asked_for"),
    IncidentKind.SIGNAL: _traits("is_asked_for", "takes_stacks"),
    IncidentKind.EXCEPTION: _traits("is_raised", "ends_the_log", "can_recur"),
    IncidentKind.OUT_OF_MEMORY: _traits("is_raised", "ends_the_log", "may_die", "can_recur"),
    IncidentKind.NAN: _traits("ends_the_log", "can_recur"),
    IncidentKind.HANG: _traits("ends_the_log", "takes_stacks"),
    IncidentKind.LOST: _traits("ends_the_log", "may_die", "can_recur"),
    IncidentKind.SLOW: _traits(),
})  # fmt: skip

if missing := set(IncidentKind) - TRAITS.keys():
    raise TypeError(f"capsule/incident_traits.py lacks {', '.join(sorted(missing))}")
