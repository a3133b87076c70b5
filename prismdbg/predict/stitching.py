"""Which cohorts meet on which channel, and whether they agree on what they do there. Nothing is timed here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.predict import channel as channels
from prismdbg.predict.channel import Across, Channel, Toward
from prismdbg.predict.cohorts import Bools, Cohort, Cohorts, Layout, find
from prismdbg.predict.entries import Entries, Kind
from prismdbg.predict.mesh import Ints, Mesh

UNEVEN = frozenset({"all_to_all", "gather", "scatter"})  # members may give different sizes
_SHOWN_RANKS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Seam:
    """One channel as a cohort uses it. Entries of one `key` with the same turn on it meet.

    parties: the cohorts; of a send or receive sender and receiver. axes: of the layout, over which members differ.
    from_sender: for each place of the receiver along `axes` that of its sender, None where it is the same.
    """

    key: int
    channel: Channel
    parties: tuple[int, ...]
    axes: tuple[int, ...]
    from_sender: Ints | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stitching:
    """`channels`: of each class. `seams`: of each cohort, by (channel of its class, whether it sends, receives)."""

    cohorts: Cohorts
    channels: tuple[tuple[Channel, ...], ...]
    turns: tuple[Ints, ...]  # of each class: the entry is the n-th on its channel and of its direction
    seams: tuple[dict[tuple[int, Kind], Seam], ...]
    users: dict[Channel, Bools]  # in layout; of a point-to-point channel the senders


def stitch(mesh: Mesh, class_at: Ints, entries: Sequence[Entries]) -> Stitching:
    """`class_at`: by position. UsageError where two ranks do not fit together."""
    layout = Layout.of(mesh)
    at = layout.shaped(class_at, mesh)
    named = tuple(tuple(channels.parse(text, mesh) for text in e.channels) for e in entries)
    for e, own in zip(entries, named, strict=True):
        _check_pairs(e, own)
    used = {kind: _users(at, entries, named, kind) for kind in (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)}
    _Check(mesh, layout).members(at, entries, named, used[Kind.COLLECTIVE])
    uses = [(channel, users) for found in used.values() for channel, users in found.items()]
    cohorts = find(layout, at, uses)
    turns = tuple(_turns(e, own) for e, own in zip(entries, named, strict=True))
    keys: dict[tuple[object, ...], int] = {}
    seams = tuple(_seams(cohorts, cohort, entries, named, mesh, keys) for cohort in cohorts.members)
    stitching = Stitching(cohorts, named, turns, seams, used[Kind.COLLECTIVE] | used[Kind.SEND])
    _Check(mesh, layout).sequences(stitching, entries)
    return stitching


def _users(
    at: Ints, entries: Sequence[Entries], named: Sequence[Sequence[Channel]], kind: Kind
) -> dict[Channel, Bools]:
    classes: dict[Channel, list[int]] = {}
    for number, (e, own) in enumerate(zip(entries, named, strict=True)):
        for place in np.unique(e.channel[e.kind == kind]):
            classes.setdefault(own[place], []).append(number)
    return {channel: np.isin(at, numbers) for channel, numbers in classes.items()}


def _check_pairs(entries: Entries, named: Sequence[Channel]) -> None:
    groups = [place for place, channel in enumerate(named) if isinstance(channel, Across)]
    pairs = (entries.kind == Kind.SEND) | (entries.kind == Kind.RECV)
    wrong = np.flatnonzero(pairs & np.isin(entries.channel, groups))
    if len(wrong):
        raise UsageError(
            f"{entries.say(int(wrong[0]))} names a group, not a peer", hint="name the neighbour, as in pp+1"
        )


def _turns(entries: Entries, named: Sequence[Channel]) -> Ints:
    """Two texts may name one channel, so it is counted by channel."""
    turns = np.zeros(len(entries), dtype=np.int64)
    first = np.array([named.index(channel) for channel in named] or [0], dtype=np.int64)
    lane = first[entries.channel] * len(Kind) + entries.kind
    for value in np.unique(lane[entries.communicates]):
        where = np.flatnonzero((lane == value) & entries.communicates)
        turns[where] = np.arange(len(where))
    return turns


def _seams(
    cohorts: Cohorts,
    cohort: Cohort,
    entries: Sequence[Entries],
    named: Sequence[Sequence[Channel]],
    mesh: Mesh,
    keys: dict[tuple[object, ...], int],
) -> dict[tuple[int, Kind], Seam]:
    own = entries[cohort.rank_class]
    seams: dict[tuple[int, Kind], Seam] = {}
    lanes = np.unique((own.channel.astype(np.int64) * len(Kind) + own.kind)[own.communicates])
    for place, number in (divmod(int(lane), len(Kind)) for lane in lanes):
        channel, kind = named[cohort.rank_class][place], Kind(number)
        if isinstance(channel, Across):
            seam = _across(cohorts, cohort, channel, keys)
        else:
            seam = _toward(cohorts, cohort, channel, kind, mesh, keys)
        seams[place, kind] = seam
    return seams


def _across(cohorts: Cohorts, cohort: Cohort, channel: Across, keys: dict[tuple[object, ...], int]) -> Seam:
    axes = tuple(cohorts.layout.axis(name) for name in channel.axes)
    group: list[int | slice | list[int]] = list(cohort.first)
    for axis in axes:
        group[axis] = list(channel.members) if channel.members else slice(None)
    parties = tuple(int(number) for number in np.unique(cohorts.at[tuple(group)]))
    key = keys.setdefault((channel, parties), len(keys))
    return Seam(key, channel, parties, axes)


def _toward(
    cohorts: Cohorts,
    cohort: Cohort,
    channel: Toward,
    kind: Kind,
    mesh: Mesh,
    keys: dict[tuple[object, ...], int],
) -> Seam:
    axis = cohorts.layout.axis(channel.axis)
    size = cohorts.layout.sizes[axis]
    place = list(cohort.first)
    place[axis] = (place[axis] + channel.offset) % size
    peer = cohorts.members[int(cohorts.at[tuple(place)])]
    sender, receiver = (cohort, peer) if kind == Kind.SEND else (peer, cohort)
    forward = channel if kind == Kind.SEND else channel.back(mesh)
    wanted = (receiver.coordinates[axis] - forward.offset) % size
    given = np.searchsorted(sender.coordinates[axis], wanted) % len(sender.coordinates[axis])
    straight = bool(np.array_equal(given, np.arange(len(given))))
    key = keys.setdefault((forward, sender.number, receiver.number), len(keys))
    return Seam(key, forward, (sender.number, receiver.number), (axis,), None if straight else given)


class _Check:
    """Complaints name ranks and source lines."""

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
                    f"{self._some(users & ~inside)} issue {issued}, but are not in {channel}",
                    hint="name the coordinates of all members",
                )
            silent = np.logical_or.reduce(users, axis=axes, keepdims=True) & inside & ~users
            if silent.any():
                raise UsageError(
                    f"{self._some(silent)} never issue {issued}, which {self._some(users)} wait for",
                    hint="give the classes of these ranks the same collectives, or name a smaller group",
                )

    def _inside(self, channel: Across, axes: tuple[int, ...]) -> Bools:
        inside = np.ones(self._layout.sizes, dtype=bool)
        if channel.members:
            chosen = np.isin(np.arange(self._layout.sizes[axes[0]]), channel.members)
            inside &= chosen.reshape([-1 if axis == axes[0] else 1 for axis in range(inside.ndim)])
        return inside

    def sequences(self, stitching: Stitching, entries: Sequence[Entries]) -> None:
        compared: set[tuple[int, int, int]] = set()
        for cohort in stitching.cohorts.members:
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
        seam: Seam,
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
        if len(different):
            turn = int(different[0])
            raise UsageError(
                f"#{turn + 1} on {seam.channel} does not match: {self._cohort(one)} issue {a.say(int(mine[turn]))}, "
                f"{self._cohort(other)} issue {b.say(int(theirs[turn]))}",
                hint="the classes of these ranks are not of one job, or the mesh names other groups",
            )
        if len(mine) > len(theirs):
            raise UsageError(
                f"{self._cohort(one)} issue {a.say(int(mine[len(theirs)]))} as #{len(theirs) + 1}, which "
                f"{self._cohort(other)} never answer: they issue {len(theirs)} there",
                hint="the classes of these ranks are not of one job, or one ended early",
            )

    def _first_on(
        self, number: int, entries: Sequence[Entries], named: Sequence[Sequence[Channel]], channel: Channel
    ) -> str:
        own = entries[number]
        place = named[number].index(channel)
        first = np.flatnonzero((own.channel == place) & own.communicates)[0]
        return own.say(int(first))

    def _fail_kind(self, channel: Channel, users: Bools) -> NoReturn:
        raise UsageError(
            f"{self._some(users)} issue a collective on {channel}, which names one peer",
            hint="name the axes of the group, as in tp",
        )

    def _cohort(self, cohort: Cohort) -> str:
        mask = np.zeros(self._ranks.shape, dtype=bool)
        mask[np.ix_(*cohort.coordinates)] = True
        return self._some(mask)

    def _some(self, mask: Bools) -> str:
        ranks = np.sort(self._ranks[mask])
        shown = ", ".join(str(rank) for rank in ranks[:_SHOWN_RANKS])
        more = f" and {len(ranks) - _SHOWN_RANKS:,} more" if len(ranks) > _SHOWN_RANKS else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _others(seam: Seam, cohort: Cohort, kind: Kind) -> Sequence[int]:
    if kind == Kind.COLLECTIVE:
        return [number for number in seam.parties if number != cohort.number]
    return seam.parties[1:] if kind == Kind.SEND else seam.parties[:1]


def _issued(entries: Entries, stitching: Stitching, cohort: Cohort, seam: Seam, kind: Kind) -> Ints:
    """The entries of this cohort that meet on the seam, in order."""
    places = [
        place for (place, own), other in stitching.seams[cohort.number].items() if own == kind and other.key == seam.key
    ]
    return np.flatnonzero(np.isin(entries.channel, places) & (entries.kind == kind))


def _differ(a: Entries, mine: Ints, b: Entries, theirs: Ints, kind: Kind) -> Bools:
    """Another operation, or another size where sizes must agree."""
    place = {text: number for number, text in enumerate(a.texts)}
    translated = np.array([place.get(text, -1) for text in b.texts], dtype=np.int64)
    uneven = np.array([text in UNEVEN for text in a.texts])[a.op[mine]]
    size: Bools = (a.size_bytes[mine] != b.size_bytes[theirs]) & ~uneven
    op: Bools = (a.op[mine] != translated[b.op[theirs]]) & (kind == Kind.COLLECTIVE)
    different: Bools = size | op
    return different
