"""What an emulated rank is told: which rank of which world it is, and how its peers are played. No torch."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import lru_cache
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.model.ops import OPS

WORLD = "world"
STORE_KEY = "key of the store"  # what a rank lacks that it does not receive in a call
RANK_PROCESS = "PRISMDBG_RANK_PROCESS"  # in the environment of a rank: its process, for those that it starts
STEP_KEY = "step "  # before the number of the step up to which a rank runs, in place of a value that it sends
NO_STEP = 1 << 62
LEFT_EXIT = 93  # of a rank that was run for its values only, and is needed no more
_RULE = re.compile(r"(?:(?P<axis>[^:=]*))(?::(?P<op>[^:=]*))?=(?P<policy>[a-z]+)")
LABELS = frozenset(spec.label for spec in OPS.values())


def step_of(until: str) -> int:
    """Up to which step a rank runs; `NO_STEP` where it runs until something else."""
    return int(until.removeprefix(STEP_KEY)) if until.startswith(STEP_KEY) else NO_STEP


class ClockKind(StrEnum):
    WALL = "wall"  # the machine's
    VIRTUAL = "virtual"  # moved by nothing but the schedule


class Policy(StrEnum):
    """How the peers play their part in a collective.

    AUTO echoes where peers do what this rank does; where only a peer knows the value it is a donor's, else noise, and
    for control data (anything that is not floating point) a donor's or nothing.
    """

    AUTO = "auto"
    ECHO = "echo"  # peers send what this rank sends or holds; sums scale with the group
    ZEROS = "zeros"
    NOISE = "noise"  # seeded, with the donor's mean and deviation where there is a donor
    DONOR = "donor"  # a donor's values, or an error
    BALANCED = "balanced"  # all-to-all counts: every peer sends every rank the same share


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`axis` is a mesh axis, several joined by +, or world; empty means any. `op` as users write it, or empty."""

    policy: Policy
    axis: str = ""
    op: str = ""

    @classmethod
    def parse(cls, text: str) -> Rule:
        """`noise`, `tp=echo`, `dp:all_to_all_single=balanced`, `:broadcast=zeros`."""
        match = _RULE.fullmatch(text if "=" in text else f"={text}")
        if match is None or match["policy"] not in set(Policy):
            raise UsageError(
                f"{text!r} is not a peer policy",
                hint=f"write [AXIS][:OP]=POLICY, as in tp:all_reduce=echo; policies: {', '.join(Policy)}",
            )
        op = match["op"] or ""
        if op and op not in LABELS:
            raise UsageError(f"{text!r}: unknown collective {op!r}", hint=f"give one of: {', '.join(sorted(LABELS))}")
        return cls(axis=match["axis"] or "", op=op, policy=Policy(match["policy"]))

    def holds(self, axis: str, op: str, axes: tuple[tuple[str, int], ...] = ()) -> bool:
        """axes: of the mesh, name and size; `dp` is the world where there is no other axis."""
        return self.op in ("", op) and (not self.axis or axis in (self.axis, named_as_groups_are(self.axis, axes)))


@lru_cache
def named_as_groups_are(axis: str, axes: tuple[tuple[str, int], ...]) -> str:
    """`tp+dp` as `dp+tp`, in the mesh's order; `world` where that is all of it. What is not of the mesh stays."""
    named = axis.split("+")
    if not axis or not set(named) <= {name for name, _ in axes}:
        return axis
    wide = [name for name, size in axes if size > 1]
    chosen = [name for name in wide if name in named]
    if chosen == wide:
        return WORLD
    return "+".join(chosen) or axis


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """`axes`: name and size, the last one with adjacent ranks. `steps`: 0 runs the program to its own end.

    asked: the ranks whose run somebody wants; what peers would send them alone is kept for them.
    donors, external: folders of donor values, this run's own and another run's. until: of its first turn.
    is_exact: only the very value that its sender sends will do; else one of another group over the same axes, too.
    together: axes whose ranks run at once, as real processes; meeting: the folder in which they find each other.
    schedule: a file, when peers are there (`model/schedule.py`); empty: at once. clock: which they go by.
    shapes: a file for the operators of the newest step; empty: they are not noted.
    ask_fd, say_fd: pipes from and to whoever gives the turns.
    """

    rank: int
    world: int
    axes: tuple[tuple[str, int], ...]
    steps: int = 0
    rules: tuple[Rule, ...] = ()
    seed: int = 0
    asked: tuple[int, ...] = ()
    donors: str = ""
    external: str = ""
    is_exact: bool = True
    until: str = ""
    together: tuple[str, ...] = ()
    meeting: str = ""
    ask_fd: int = -1
    say_fd: int = -1
    donor_bytes: int = 1 << 30
    schedule: str = ""
    shapes: str = ""
    clock: ClockKind = ClockKind.WALL

    def policy(self, axis: str, op: str) -> Policy:
        """The last rule that holds decides."""
        return next((rule.policy for rule in reversed(self.rules) if rule.holds(axis, op, self.axes)), Policy.AUTO)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Emulation:
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in data.items() if name in known}
        values["axes"] = tuple((str(name), int(size)) for name, size in data["axes"])
        values["clock"] = ClockKind(data.get("clock", ClockKind.WALL))
        values["together"] = tuple(map(str, data.get("together", ())))
        values["asked"] = tuple(data.get("asked", ()))
        values["rules"] = tuple(Rule(**{**rule, "policy": Policy(rule["policy"])}) for rule in data.get("rules", ()))
        return cls(**values)
