"""Whether ranks that meet agree on what they do there. A complaint names ranks and source lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from prismdbg.errors import MismatchError, UsageError
from prismdbg.model.meanwhile import one_by_one
from prismdbg.simulate.graph.channel import Across, Channel, Toward
from prismdbg.simulate.graph.cohorts import Bools, Cohort, Layout
from prismdbg.simulate.graph.entries import OBJECTS, Entries, Kind
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.graph.shared_channels import SharedChannel, Stitching

UNEVEN = frozenset({"all_to_all", "gather", "scatter"})  # members may give different sizes
_SHOWN_RANKS = 4
_UNKNOWN = 0  # of the texts, the first is empty


class Agreement:
    """Of the classes of one mesh."""

    def __init__(self, mesh: Mesh, layout: Layout) -> None:
        self._ranks = layout.ranks(mesh)
        self._mesh = mesh
        self._layout = layout

    def members(
        self,
        at: Ints,
        entries: Sequence[Entries],
        named: Sequence[Sequence[Channel]],
        used: dict[Channel, Bools],
    ) -> None:
        """Everyone in a group that is used must use it."""
        for channel, users in used.items():
            if not isinstance(channel, Across):
                self._fail_kind(channel, users)
            axes = tuple(self._layout.axis(name) for name in channel.axes)
            inside = self._inside(channel, axes)
            issued = self._first_on(int(at[users][0]), entries, named, channel)
            if (users & ~inside).any():
                raise UsageError(
                    f"{self._some(users & ~inside, 'issue')} {issued}, outside the group {channel}",
                    hint=f"leave {', '.join(channel.axes)} out of --alike, or split the axis in --mesh: these ranks do "
                    "not issue the same collectives as the rank that represents them",
                )
            silent = np.logical_or.reduce(users, axis=axes, keepdims=True) & inside & ~users
            if silent.any():
                raise MismatchError(
                    f"{self._some(silent, 'never issue')} {issued}, which {self._some(users, 'wait')} for",
                    hint="check --mesh: if it is right, the job hangs at this collective; if not, it names other "
                    "groups than the job uses",
                )

    def _inside(self, channel: Across, axes: tuple[int, ...]) -> Bools:
        inside = np.ones(self._layout.sizes, dtype=bool)
        if channel.members:
            chosen = np.isin(np.arange(self._layout.sizes[axes[0]]), channel.members)
            inside &= chosen.reshape([-1 if axis == axes[0] else 1 for axis in range(inside.ndim)])
        return inside

    def sequences(self, stitching: Stitching, entries: Sequence[Entries]) -> None:
        compared: set[tuple[int, int, int]] = set()
        for cohort in one_by_one(stitching.cohorts.members, "comparing the calls of cohorts"):
            for (_place, kind), seam in stitching.seams[cohort.number].items():
                for other in _others(seam, cohort, kind):
                    pair = (seam.key, cohort.number, other)
                    if pair in compared and kind == Kind.COLLECTIVE:
                        continue
                    compared.add(pair)
                    self._compare(stitching, entries, seam, cohort, stitching.cohorts.members[other], kind)

    def _compare(
        self,
        stitching: Stitching,
        entries: Sequence[Entries],
        seam: SharedChannel,
        one: Cohort,
        other: Cohort,
        kind: Kind,
    ) -> None:
        matching = {Kind.SEND: Kind.RECV, Kind.RECV: Kind.SEND, Kind.COLLECTIVE: Kind.COLLECTIVE}[kind]
        a, b = entries[one.rank_class], entries[other.rank_class]
        mine = _issued(a, stitching, one, seam, kind)
        theirs = _issued(b, stitching, other, seam, matching)
        shared = min(len(mine), len(theirs))
        different = np.flatnonzero(_differ(a, mine[:shared], b, theirs[:shared], kind))
        here, there = self._members(one), self._members(other)
        if kind != Kind.COLLECTIVE:
            there = self._peers(here, seam, kind) & there
        if len(different):
            turn = int(different[0])
            sides = [(a, int(mine[turn])), (b, int(theirs[turn]))]
            in_detail = len({e.texts[e.detail[entry]] for e, entry in sides}) > 1
            ours, others = (e.say(entry, in_detail=in_detail) for e, entry in sides)
            raise MismatchError(
                f"#{turn + 1} on {seam.channel} does not match: {self._some(here, 'issue')} {ours}, "
                f"{self._some(there, 'issue')} {others}",
                hint="check the mesh: either the job hangs here, or the mesh describes other groups",
            )
        if len(mine) > len(theirs):
            last = f" (the last there is #{len(theirs)}, {b.say(int(theirs[-1]))})" if len(theirs) else ""
            if kind == Kind.COLLECTIVE:
                here, there = self._sides(stitching, entries, seam, len(theirs))
            raise MismatchError(
                f"{self._some(here, 'issue')} {a.say(int(mine[len(theirs)]))} as #{len(theirs) + 1}, which "
                f"{self._some(there, 'never answer')}{last}",
                hint="check the logs: either the job hangs here, or a rank ended early",
            )

    def _sides(
        self, stitching: Stitching, entries: Sequence[Entries], seam: SharedChannel, turn: int
    ) -> tuple[Bools, Bools]:
        """Of all that meet here: those that come to this turn, and those that do not."""
        here, there = (np.zeros(self._ranks.shape, dtype=bool) for _ in range(2))
        for number in seam.parties:
            cohort = stitching.cohorts.members[number]
            issued = _issued(entries[cohort.rank_class], stitching, cohort, seam, Kind.COLLECTIVE)
            mask = here if len(issued) > turn else there
            mask |= self._members(cohort)
        return here, there

    def _first_on(
        self, number: int, entries: Sequence[Entries], named: Sequence[Sequence[Channel]], channel: Channel
    ) -> str:
        own = entries[number]
        place = named[number].index(channel)
        first = np.flatnonzero((own.channel == place) & own.communicates)[0]
        return own.say(int(first))

    def _fail_kind(self, channel: Channel, users: Bools) -> NoReturn:
        raise UsageError(
            f"{self._some(users, 'issue')} a collective on {channel}, which is a single peer",
            hint="name the axes of the group, as in tp",
        )

    def _members(self, cohort: Cohort) -> Bools:
        mask = np.zeros(self._ranks.shape, dtype=bool)
        mask[np.ix_(*cohort.coordinates)] = True
        return mask

    def _peers(self, ranks: Bools, seam: SharedChannel, kind: Kind) -> Bools:
        """Whom these ranks send to, or receive from."""
        assert isinstance(seam.channel, Toward), "a message has one peer"
        peers: Bools = np.roll(ranks, seam.channel.offset if kind == Kind.SEND else -seam.channel.offset, seam.axes[0])
        return peers

    def _some(self, mask: Bools, verb: str) -> str:
        """`rank 2 waits`, `ranks 0, 1 wait`."""
        ranks = np.sort(self._ranks[mask])
        shown = ", ".join(str(rank) for rank in ranks[:_SHOWN_RANKS])
        more = f" and {len(ranks) - _SHOWN_RANKS:,} more" if len(ranks) > _SHOWN_RANKS else ""
        return f"ranks {shown}{more} {verb}" if len(ranks) > 1 else f"rank {shown} {verb}s"


def _others(seam: SharedChannel, cohort: Cohort, kind: Kind) -> Sequence[int]:
    if kind == Kind.COLLECTIVE:
        return [number for number in seam.parties if number != cohort.number]
    return seam.parties[1:] if kind == Kind.SEND else seam.parties[:1]


def _issued(entries: Entries, stitching: Stitching, cohort: Cohort, seam: SharedChannel, kind: Kind) -> Ints:
    """The entries of this cohort that meet on the seam, in order."""
    places = [
        place for (place, own), other in stitching.seams[cohort.number].items() if own == kind and other.key == seam.key
    ]
    return np.flatnonzero(np.isin(entries.channel, places) & (entries.kind == kind))


def _differ(a: Entries, mine: Ints, b: Entries, theirs: Ints, kind: Kind) -> Bools:
    """Another operation, another size where sizes must agree, or other tensors where both are known."""
    uneven = np.array([text in UNEVEN for text in a.texts])[a.op[mine]]
    uneven |= np.array([text.endswith(OBJECTS) for text in a.texts])[a.detail[mine]]
    different: Bools = (a.size_bytes[mine] != b.size_bytes[theirs]) & ~uneven
    if kind == Kind.COLLECTIVE:
        place = {text: number for number, text in enumerate(a.texts)}
        translated = np.array([place.get(text, -1) for text in b.texts], dtype=np.int64)
        both_known = (a.detail[mine] != _UNKNOWN) & (b.detail[theirs] != _UNKNOWN)
        different |= a.op[mine] != translated[b.op[theirs]]
        different |= (a.detail[mine] != translated[b.detail[theirs]]) & both_known
    return different
