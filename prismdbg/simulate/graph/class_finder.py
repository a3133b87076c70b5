"""Finds the classes of ranks of a job by running few of them: two ranks are one class only if what they did agrees.

Along each axis from rank 0 the coordinates 0, 1 and the last one are run. Where these agree, all of the axis are taken
to be alike; where only the first, or only the last one, is another, the rest is; else every coordinate is run, and
where several axes matter, all their combinations. Then a second member of each class runs, as far from the first as
the class goes, and must agree. Of a class that begins past the first coordinate it is one that begins a node or a pair:
what every second or every eighth rank does is then not taken to be what all do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import prod

from prismdbg.errors import UsageError
from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.folding import Difference, first_difference, shape_of
from prismdbg.simulate.graph.kinds import Kinds
from prismdbg.simulate.graph.mesh import Mesh

Run = Callable[[int], Entries]
MOST_BASES = 256
DEFAULT_CHECKS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundClass:
    """`bases`: of its kinds; the first one represents the class. checked_with: members that ran besides, and agreed."""

    bases: tuple[int, ...]
    ranks: int
    checked_with: tuple[int, ...]

    @property
    def representative(self) -> int:
        return self.bases[0]

    @property
    def is_assumed(self) -> bool:
        """Whether nothing but the mesh says that its other members do the same."""
        return self.ranks > len(self.bases) and not self.checked_with


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClasses:
    """`probed`: axes whose kinds were found by running ranks; of the others the user said it. ran: in that order."""

    kinds: Kinds
    probed: tuple[str, ...]
    classes: tuple[FoundClass, ...]
    ran: tuple[int, ...]


def find_classes(
    mesh: Mesh,
    run: Run,
    *,
    differ: tuple[str, ...] | None = None,
    checks: int = DEFAULT_CHECKS,
    most_bases: int = MOST_BASES,
) -> RankClasses:
    """`run`: what this rank did in an iteration. differ: the axes along which ranks differ, where the user knows.

    At most `checks` second members run, spread over the classes. UsageError where a second member does not agree, or
    where more than `most_bases` ranks would have to run.
    """
    return _Finder(mesh, run).find(differ, checks, most_bases)


def probes(size: int) -> tuple[int, ...]:
    """Coordinates of an axis that are looked at first."""
    return tuple(sorted({0, min(1, size - 1), size - 1}))


def begins_of(size: int, differ: tuple[str, ...] | None, axis: str) -> tuple[int, ...]:
    """Where the user said which axes matter."""
    return tuple(range(size)) if differ is not None and axis in differ else (0,)


class _Finder:
    def __init__(self, mesh: Mesh, run: Run) -> None:
        self._mesh = mesh
        self._run = run
        self._done: dict[int, Entries] = {}
        self._shapes: dict[int, Hashable] = {}

    def find(self, differ: tuple[str, ...] | None, checks: int, most_bases: int) -> RankClasses:
        mesh = self._mesh
        for axis in differ or ():
            mesh.axis(axis)
        if differ is None:
            begins = {name: self._begins(name) for name in mesh.names}
        else:
            begins = {name: begins_of(mesh.size(name), differ, name) for name in mesh.names}
        kinds = Kinds(mesh=mesh, begins=begins)
        self._check_number(kinds, most_bases)
        members: dict[Hashable, list[int]] = {}
        for base in kinds.bases():
            members.setdefault(self._shape(base), []).append(base)
        classes = [tuple(bases) for bases in members.values()]
        for number in _spread_over(self._unchecked(kinds, classes), checks):
            self._check(kinds, classes[number], number)
        return RankClasses(
            kinds=kinds,
            probed=() if differ is not None else tuple(n for n in mesh.names if mesh.size(n) > 1),
            classes=tuple(self._found(kinds, bases) for bases in classes),
            ran=tuple(self._done),
        )

    def _shape(self, rank: int) -> Hashable:
        if rank not in self._done:
            self._done[rank] = self._run(rank)
            self._shapes[rank] = shape_of(self._done[rank])
        return self._shapes[rank]

    def _begins(self, axis: str) -> tuple[int, ...]:
        size = self._mesh.size(axis)
        last = size - 1
        shapes = {at: self._shape(self._mesh.rank(**{axis: at})) for at in probes(size)}
        if len(set(shapes.values())) == 1:
            return (0,)
        if size > 2 and shapes[1] == shapes[last]:
            return (0, 1)
        if size > 2 and shapes[0] == shapes[1]:
            return (0, last)
        return tuple(range(size))

    def _check_number(self, kinds: Kinds, most_bases: int) -> None:
        count = prod(len(begins) for begins in kinds.begins.values())
        if count <= most_bases:
            return
        matter = {name: len(begins) for name, begins in kinds.begins.items() if len(begins) > 1}
        why = ""
        for name in matter:
            other = next((r for r in self._done if r and self._shapes[r] != self._shapes[0] and self._only(r, name)), 0)
            if other:
                why += f"; along {name}: {self._say(0, other)}"
        raise UsageError(
            f"{counted(count, 'rank')} would have to run, because they differ along "
            f"{', '.join(f'{name} ({n} kinds)' for name, n in matter.items())}{why}",
            hint="give the relevant axes (--classes pp), or the ranks (--ranks 0,37)",
        )

    def _only(self, rank: int, axis: str) -> bool:
        """Whether it is off rank 0 along this axis alone."""
        return [name for name, at in self._mesh.coordinates(rank).items() if at] == [axis]

    def _unchecked(self, kinds: Kinds, classes: list[tuple[int, ...]]) -> list[int]:
        return [
            number
            for number, bases in enumerate(classes)
            if self._second(kinds, bases, number) is not None and not self._is_known(kinds, bases)
        ]

    def _is_known(self, kinds: Kinds, bases: tuple[int, ...]) -> bool:
        """Whether another member ran already that differs from its base along all axes along which members do."""
        for rank in self._done:
            base = kinds.base_of(rank)
            if base in bases and rank != base:
                here, there = self._mesh.coordinates(base), self._mesh.coordinates(rank)
                intervals = {name: kinds.interval(name, at) for name, at in here.items()}
                if all(_is_elsewhere(alike, there[n]) for n, alike in intervals.items() if len(alike) > 1):
                    return True
        return False

    def _second(self, kinds: Kinds, bases: tuple[int, ...], number: int) -> int | None:
        """A member off its base along every axis along which there are such, elsewhere for every class."""
        base = max(bases, key=kinds.size_of)
        place = self._mesh.coordinates(base)
        for name, at in place.items():
            alike = kinds.interval(name, at)
            if len(alike) > 1:
                place[name] = _elsewhere(alike, number)
        member = self._mesh.rank(**place)
        return None if member == base else member

    def _check(self, kinds: Kinds, bases: tuple[int, ...], number: int) -> None:
        member = self._second(kinds, bases, number)
        assert member is not None
        base = kinds.base_of(member)
        if self._shape(member) == self._shape(base):
            return
        here, there = self._mesh.coordinates(base), self._mesh.coordinates(member)
        suspects = [name for name in here if here[name] != there[name]]
        matter = [name for name in here if len(kinds.begins[name]) > 1]
        named = ",".join(name for name in self._mesh.names if name in (*suspects, *matter))
        raise UsageError(
            f"{self._mesh.say(base)} and {self._mesh.say(member)} were assumed to be alike but differ: "
            f"{self._say(base, member)}",
            hint=f"name all axes along which ranks differ: --classes {named}, or fewer of {', '.join(suspects)}; where "
            "every second or eighth rank differs, split the axis in the mesh: dp=64 into pair=32,dp=2",
        )

    def _say(self, one: int, other: int) -> str:
        difference: Difference = first_difference(self._done[one], self._done[other])
        return f"call #{difference.number} is {difference.one} on rank {one}, {difference.other} on rank {other}"

    def _found(self, kinds: Kinds, bases: tuple[int, ...]) -> FoundClass:
        return FoundClass(
            bases=bases,
            ranks=sum(kinds.size_of(base) for base in bases),
            checked_with=tuple(rank for rank in self._done if rank not in bases and kinds.base_of(rank) in bases),
        )


def _is_elsewhere(alike: range, at: int) -> bool:
    """Whether a rank there is a check of those alike: of the first and the last one the search has decided itself."""
    return at != alike[0] and (not alike[0] or len(alike) < 3 or (at - alike[0]) % 2 == 1)


def _elsewhere(alike: range, number: int) -> int:
    """Not the first of them, and another one for every class."""
    at = alike[1 + (len(alike) // 2 + 7 * number) % (len(alike) - 1)]
    for size in (8, 4, 2) if alike[0] else ():
        for begin in (at // size * size, at // size * size + size):
            if begin in alike[1:]:
                return begin
    return at


def _spread_over(numbers: list[int], count: int) -> list[int]:
    """So many of them, from the first to the last."""
    if count >= len(numbers):
        return numbers
    if count <= 1:
        return numbers[:count]
    return [numbers[round(place * (len(numbers) - 1) / (count - 1))] for place in range(count)]
