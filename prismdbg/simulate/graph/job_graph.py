"""The execution graph of the whole job: what each class does, once, and which rank is of which class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.graph.origin import Origin, Standings
from prismdbg.simulate.graph.shared_channels import Stitching
from prismdbg.simulate.graph.stitching import stitch
from prismdbg.simulate.quantities import MILLION

_AS_RANK = "as rank "


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankClass:
    """Ranks that do the same, entry by entry, on channels that mean the same relative to where they are."""

    name: str
    entries: Entries


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobGraph:
    """`class_at`, `compute_ppm_at`: by position. compute_ppm_at: how much slower than its class, in millionths."""

    mesh: Mesh
    classes: tuple[RankClass, ...]
    class_at: Ints
    compute_ppm_at: Ints
    stitching: Stitching
    origin: Origin = field(default_factory=Origin)

    @classmethod
    def build(
        cls,
        mesh: Mesh,
        classes: Sequence[tuple[RankClass, Iterable[int]]],
        *,
        compute_ppm: Sequence[int] | Ints | None = None,
    ) -> JobGraph:
        """Of classes with their ranks. UsageError where a rank has no class or two, or where ranks do not match."""
        class_at = _class_at(mesh, classes)
        return cls.placed(
            mesh,
            tuple(rank_class for rank_class, _ in classes),
            class_at,
            np.full(mesh.world, MILLION) if compute_ppm is None else by_position(mesh, compute_ppm),
        )

    @classmethod
    def placed(cls, mesh: Mesh, classes: tuple[RankClass, ...], class_at: Ints, compute_ppm_at: Ints) -> JobGraph:
        return cls(
            mesh=mesh,
            classes=classes,
            class_at=class_at,
            compute_ppm_at=compute_ppm_at.astype(np.int64),
            stitching=stitch(mesh, class_at, [rank_class.entries for rank_class in classes]),
        )

    @property
    def in_short(self) -> str:
        """`8,192 ranks in 16 classes, 16,560 events`."""
        ranks, classes = counted(self.mesh.world, "rank"), counted(len(self.classes), "class", "classes")
        return f"{ranks} in {classes}, {counted(self.events, 'event')}"

    @property
    def stored_bytes(self) -> int:
        """What the graph takes: its columns and its vectors over ranks."""
        vectors = self.class_at.nbytes + self.compute_ppm_at.nbytes + _nbytes(self.origin.standing_at)
        return vectors + sum(rank_class.entries.stored_bytes for rank_class in self.classes)

    @property
    def events(self) -> int:
        """Entries of all ranks."""
        return sum(n * len(c.entries) for n, c in zip(self.class_sizes, self.classes, strict=True))

    @property
    def class_sizes(self) -> list[int]:
        """How many ranks each class has."""
        sizes: list[int] = np.bincount(self.class_at, minlength=len(self.classes)).tolist()
        return sizes

    @property
    def peak_bytes(self) -> Ints:
        """By rank: the most of its class's memory events at once."""
        peaks = np.array([rank_class.entries.peak_bytes() for rank_class in self.classes], dtype=np.int64)
        return vector_by_rank(self.mesh, peaks[self.class_at])

    def reordered(self, order: Sequence[str]) -> JobGraph:
        """The same job with its ranks laid out over the machines in another order of the axes. How much slower one
        computes than its class moves with what it does."""
        mesh = self.mesh.reordered(order)
        doubt = f"the behavior of ranks laid out as {','.join(order)}: nothing ran"
        origin = replace(self.origin.changed(), doubts=(*self.origin.doubts, doubt))
        return replace(self, mesh=mesh, origin=origin)

    def stretched(self, axis: str, size: int) -> JobGraph:
        """The same classes on another number of ranks along an axis on which they do not depend.

        Message sizes stay: what a real job would split among more ranks is not split here.
        """
        number = self.mesh.axis(axis)
        at = self.class_at.reshape(self.mesh.sizes)
        first = at.take([0], number)
        if (odd := np.argwhere(at != first)).size:
            here = dict(zip(self.mesh.names, odd[0].tolist(), strict=True))
            one, other = self.mesh.rank(**here | {axis: 0}), self.mesh.rank(**here)
            raise UsageError(
                f"{self.mesh.say(one)} and {self.mesh.say(other)} differ along {axis}, so its size cannot be changed",
                hint="use --stretch for an axis along which all ranks do the same work, such as data parallelism",
            )
        text = ",".join(
            f"{n}={size if n == axis else old}" for n, old in zip(self.mesh.names, self.mesh.sizes, strict=True)
        )
        mesh = Mesh.parse(text, order=",".join(self.mesh.order))
        class_at = np.broadcast_to(first, mesh.sizes).ravel()
        repeated = np.arange(size) % self.mesh.size(axis)
        slower = self.compute_ppm_at.reshape(self.mesh.sizes).take(repeated, number).ravel()
        origin = self.origin.stretched_along(number, self.mesh.sizes, size, axis)
        return replace(JobGraph.placed(mesh, _renamed(self.classes, class_at, mesh), class_at, slower), origin=origin)

    def with_rank(self, rank: int, alone: RankClass) -> JobGraph:
        """The same job in which this rank did that by itself."""
        place = position(self.mesh, rank)
        class_at, slower = self.class_at.copy(), self.compute_ppm_at.copy()
        class_at[place], slower[place] = len(self.classes), MILLION
        graph = JobGraph.placed(self.mesh, (*self.classes, alone), class_at, slower)
        return replace(graph, origin=self.origin.with_own(place))

    def class_of(self, rank: int) -> RankClass:
        return self.classes[int(self.class_at[position(self.mesh, rank)])]


def as_rank(rank: int) -> str:
    """The name of a class, after one of its ranks."""
    return f"{_AS_RANK}{rank}"


def _renamed(classes: Sequence[RankClass], class_at: Ints, mesh: Mesh) -> tuple[RankClass, ...]:
    """Those that are named after a rank are named after one of this mesh."""

    def first(number: int) -> int:
        place = np.unravel_index(int((class_at == number).argmax()), mesh.sizes)
        return mesh.rank(**dict(zip(mesh.names, map(int, place), strict=True)))

    return tuple(
        replace(each, name=as_rank(first(number))) if each.name.startswith(_AS_RANK) else each
        for number, each in enumerate(classes)
    )


def _nbytes(vector: Standings | None) -> int:
    return 0 if vector is None else vector.nbytes


def position(mesh: Mesh, rank: int) -> int:
    found = 0
    for name, at in mesh.coordinates(rank).items():
        found = found * mesh.size(name) + at
    return found


def by_position(mesh: Mesh, by_rank: Sequence[int] | Ints) -> Ints:
    values = np.asarray(by_rank, dtype=np.int64)
    if values.shape != (mesh.world,):
        raise UsageError(f"{values.size} values for the {mesh.world} ranks of {mesh}", hint="give one for each rank")
    return values[mesh.ranks().ravel()]


def vector_by_rank(mesh: Mesh, by_position: Ints) -> Ints:
    values = np.empty_like(by_position)
    values[mesh.ranks().ravel()] = by_position
    return values


def _class_at(mesh: Mesh, classes: Sequence[tuple[RankClass, Iterable[int]]]) -> Ints:
    by_rank = np.full(mesh.world, -1, dtype=np.int64)
    for number, (rank_class, members) in enumerate(classes):
        ranks = np.fromiter(members, dtype=np.int64)
        if len(ranks) and not 0 <= ranks.min() <= ranks.max() < mesh.world:
            mesh.check_rank(int(ranks.min() if ranks.min() < 0 else ranks.max()))
        taken = ranks[by_rank[ranks] >= 0]
        if len(taken):
            other = classes[int(by_rank[taken[0]])][0].name
            raise UsageError(
                f"rank {taken[0]} is in class {other!r} and in {rank_class.name!r}", hint="give each rank one class"
            )
        by_rank[ranks] = number
    missing = np.flatnonzero(by_rank < 0)
    if len(missing):
        lacking = f"{counted(len(missing), 'rank')} {'has' if len(missing) == 1 else 'have'}"
        raise UsageError(
            f"{lacking} no class; the first is {mesh.say(int(missing[0]))}",
            hint="run one of each role (emulate --classes), or give the axes along which ranks do the "
            "same: --alike dp,tp",
        )
    return by_position(mesh, by_rank)
