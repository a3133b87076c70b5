"""What the parts of a script must be to each other: names that are there, kinds that fit. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.script.language import END, BackTo, Forbid, GoBack, Script, StopAt, When
from prismdbg.script.place import Place
from prismdbg.session.breakpoint_line import LABELS

_SPEAK_FOR_THEMSELVES = (BreakpointKind.EXCEPTION, BreakpointKind.NAN, BreakpointKind.DIVERGENCE)


def check(script: Script) -> None:
    """`UsageError` at the first entry that cannot be carried out."""
    if not (script.expect or script.forbid or script.record or script.back_to):
        raise script.place.complaint(
            "the script has nothing to do",
            hint="write one of expect, forbid, record and back_to; `replay` without a script only compares",
        )
    stops = {name for name, _ in _named_places(script)}
    for stop in script.stop_at:
        _check_stop(stop)
    for past in script.back_to:
        _check_back(past)
    for when in (*(entry.at for entry in script.expect), *(entry.at for entry in script.record)):
        _check_when(when, script, stops)
    for forbidden in script.forbid:
        _check_forbidden(forbidden)
    for assumed in script.peers:
        if assumed.until is not None and assumed.until <= assumed.since:
            raise assumed.place.complaint(f"it ends at {assumed.until}, but begins at {assumed.since}")
        if assumed.answer is None and assumed.late is None and not assumed.missing:
            raise assumed.place.complaint(
                "this entry assumes nothing about its peers", hint="give answer, late or missing"
            )
        if assumed.missing and assumed.late is not None:
            raise assumed.place.complaint("a peer cannot be both late and missing")
    _check_names(script)


def _check_stop(stop: StopAt) -> None:
    wrong: dict[BreakpointKind, Callable[[], str]] = {
        BreakpointKind.PEER: lambda: "" if stop.peer is not None else "`on: peer` needs the key peer",
        BreakpointKind.CHANGE: lambda: "" if stop.value is not None else "`on: change` needs the key value",
    }
    if problem := wrong.get(stop.on, lambda: "")():
        raise stop.place.complaint(problem)
    if stop.op and stop.on is BreakpointKind.COLLECTIVE and stop.op not in LABELS:
        near = difflib.get_close_matches(stop.op, LABELS, 1)
        hint = f"did you mean {near[0]}?" if near else f"collectives: {', '.join(LABELS)}"
        raise stop.place.complaint(f"unknown collective {stop.op!r}", hint=hint)
    if stop.peer is not None and stop.on is not BreakpointKind.PEER:
        raise stop.place.complaint("the key peer belongs to `on: peer`")
    if stop.value is not None and stop.on is not BreakpointKind.CHANGE:
        raise stop.place.complaint("the key value belongs to `on: change`")


def _check_back(past: GoBack) -> None:
    if past.of is None and past.to is not BackTo.ORIGIN:
        raise past.place.complaint(f"`to: {past.to}` needs the key of", hint="name the value, as in model.head.weight")


def _check_when(when: When, script: Script, stops: set[str]) -> None:
    place = when.place or script.place
    if when.moment is None and when.text != END and when.text not in stops:
        known = f"use one of: {', '.join(sorted(stops))}" if stops else "name places with stop_at or back_to"
        raise place.complaint(f"unknown breakpoint or place {when.text!r}", hint=known)
    if when.moment is not None and script.run_to is not None and when.moment > script.run_to:
        raise place.complaint(f"{when.moment} is after run_to, {script.run_to}")


def _check_forbidden(forbidden: Forbid) -> None:
    if forbidden.when is None and forbidden.on not in _SPEAK_FOR_THEMSELVES:
        raise forbidden.place.complaint(
            f"`on: {forbidden.on}` needs the key when", hint="add when, or leave the entry out"
        )
    if forbidden.on in (BreakpointKind.PEER, BreakpointKind.CHANGE):
        raise forbidden.place.complaint(
            f"{forbidden.on} cannot be forbidden", hint="use `on: collective` with a condition"
        )


def _check_names(script: Script) -> None:
    """Reports are read by name."""
    _check_different(_named_places(script))
    _check_different((record.name, record.place) for record in script.record)
    expected = ((check.title, check.place) for check in script.expect)
    _check_different((*expected, *((check.title, check.place) for check in script.forbid)))


def _named_places(script: Script) -> list[tuple[str, Place]]:
    """What `at` may name."""
    stops = [(stop.name.text, stop.place) for stop in script.stop_at]
    return stops + [(past.name.text, past.place) for past in script.back_to]


def _check_different(named: Iterable[tuple[str, Place]]) -> None:
    seen: dict[str, Place] = {}
    for name, place in named:
        if name in seen:
            raise place.complaint(
                f"{name!r} is already the name of the entry at {seen[name]}", hint="give each its own `name`"
            )
        seen[name] = place
