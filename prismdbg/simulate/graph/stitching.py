"""Finds which cohorts meet on which channel, and has it checked that they fit together. Nothing is timed here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.simulate.graph import channel as channels
from prismdbg.simulate.graph.agreement import Agreement
from prismdbg.simulate.graph.channel import Across, Channel, Toward
from prismdbg.simulate.graph.cohorts import Bools, Cohort, Cohorts, Layout, find
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.graph.shared_channels import SharedChannel, Stitching
from prismdbg.simulate.graph.split_sizes import SplitSizes


def stitch(mesh: Mesh, class_at: Ints, entries: Sequence[Entries]) -> Stitching:
    """`class_at`: by position. UsageError where two ranks do not fit together."""
    layout = Layout.of(mesh)
    at = layout.shaped(class_at, mesh)
    named = tuple(tuple(channels.parse(text, mesh) for text in e.channels) for e in entries)
    for e, own in zip(entries, named, strict=True):
        _check_pairs(e, own)
    used = {kind: _users(at, entries, named, kind) for kind in (Kind.COLLECTIVE, Kind.SEND, Kind.RECV)}
    Agreement(mesh, layout).members(at, entries, named, used[Kind.COLLECTIVE])
    uses = [(channel, users) for found in used.values() for channel, users in found.items()]
    cohorts = find(layout, at, uses)
    turns = tuple(_turns(e, own) for e, own in zip(entries, named, strict=True))
    keys: dict[tuple[object, ...], int] = {}
    seams = tuple(_seams(cohorts, cohort, entries, named, mesh, keys) for cohort in cohorts.members)
    stitching = Stitching(cohorts, named, turns, seams, used[Kind.COLLECTIVE] | used[Kind.SEND])
    Agreement(mesh, layout).sequences(stitching, entries)
    SplitSizes(mesh, stitching, entries).check()
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
) -> dict[tuple[int, Kind], SharedChannel]:
    own = entries[cohort.rank_class]
    seams: dict[tuple[int, Kind], SharedChannel] = {}
    lanes = np.unique((own.channel.astype(np.int64) * len(Kind) + own.kind)[own.communicates])
    for place, number in (divmod(int(lane), len(Kind)) for lane in lanes):
        channel, kind = named[cohort.rank_class][place], Kind(number)
        if isinstance(channel, Across):
            seam = _across(cohorts, cohort, channel, keys)
        else:
            seam = _toward(cohorts, cohort, channel, kind, mesh, keys)
        seams[place, kind] = seam
    return seams


def _across(cohorts: Cohorts, cohort: Cohort, channel: Across, keys: dict[tuple[object, ...], int]) -> SharedChannel:
    axes = tuple(cohorts.layout.axis(name) for name in channel.axes)
    group: list[int | slice | list[int]] = list(cohort.first)
    for axis in axes:
        group[axis] = list(channel.members) if channel.members else slice(None)
    parties = tuple(int(number) for number in np.unique(cohorts.at[tuple(group)]))
    key = keys.setdefault((channel, parties), len(keys))
    return SharedChannel(key, channel, parties, axes)


def _toward(
    cohorts: Cohorts,
    cohort: Cohort,
    channel: Toward,
    kind: Kind,
    mesh: Mesh,
    keys: dict[tuple[object, ...], int],
) -> SharedChannel:
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
    return SharedChannel(key, forward, (sender.number, receiver.number), (axis,), None if straight else given)
