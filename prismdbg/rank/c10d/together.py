"""Calls that a backend issues together, as the Python kernels record them: see rank/native/c10d/coalescing.h.

What they receive is kept only where they have no Work: the native recorder waits with a Work of its own, and a Work in
Python has no other that could take its place.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from prismdbg.rank.c10d.completion import Completion


@dataclass(slots=True)
class Together:
    """The calls of one group, from its start to its end."""

    group: str
    calls: list[Completion] = field(default_factory=list)
    nested: list[Completion] = field(default_factory=list)  # of groups that ended inside this one

    @property
    def all(self) -> list[Completion]:
        return [*self.nested, *self.calls]


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.groups: list[Together] = []  # the innermost last


_open = _OfThread()


def start(group: Any) -> None:
    """From here on the calling thread's calls are issued together, until the group's end. A group does not nest in
    itself: what it left open before, because an exception left its block, is given up."""
    if (left := _position(group)) is not None:
        _give_up_from(left)
    _open.groups.append(Together(group.group_name))


def join(completion: Completion) -> bool:
    """Adds a call to them, so that it ends with them. False where none are issued together."""
    if _open.groups:
        _open.groups[-1].calls.append(completion)
    return bool(_open.groups)


def take(group: Any) -> Together:
    """The group's calls, which end now; what is still open inside it is given up."""
    position = _position(group)
    if position is None:
        return Together(group.group_name)
    _give_up_from(position + 1)
    return _open.groups.pop()


def fail(ended: Together, error: Exception) -> None:
    for completion in ended.all:
        completion.fail(error, at_issue=True)


def settle(ended: Together, *, has_work: bool) -> None:
    """They have ended, with or without a Work of all of them."""
    if _open.groups:  # they are not issued yet, whatever the Work says
        _open.groups[-1].nested += ended.all
        return
    for completion in ended.all:
        # Where the group has calls of its own and no Work, the calling thread's stream is behind all of them.
        if not has_work and (ended.calls or not completion.is_async):
            completion.done()
        else:
            completion.abandon()


def _position(group: Any) -> int | None:
    return next((i for i, each in enumerate(_open.groups) if each.group == group.group_name), None)


def _give_up_from(position: int) -> None:
    left = _open.groups[position:]
    del _open.groups[position:]
    for each in reversed(left):
        if calls := each.all:
            why = f"a coalescing block of group {each.group} was never ended, perhaps because of an exception"
            calls[0].note("not_ended", f"{why}: the ends of its calls ({len(calls)}) are unknown")
        for completion in calls:
            completion.abandon()
