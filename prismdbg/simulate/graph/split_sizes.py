"""Whether what one member of an all-to-all sends to another is what that one expects of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

import numpy as np

from prismdbg.errors import MismatchError
from prismdbg.simulate.graph.channel import Across
from prismdbg.simulate.graph.cohorts import Cohort
from prismdbg.simulate.graph.entries import Entries, Kind, splits_of
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.graph.shared_channels import SharedChannel, Stitching


class SplitSizes:
    """Of ranks that agree in all else. Parts that are not known agree with any."""

    def __init__(self, mesh: Mesh, stitching: Stitching, entries: Sequence[Entries]) -> None:
        self._mesh = mesh
        self._stitching = stitching
        self._entries = entries

    def check(self) -> None:
        """MismatchError where one sends more or less than another expects."""
        for cohort in self._stitching.cohorts.members:
            own = self._entries[cohort.rank_class]
            if not own.splits.any():
                continue
            for (_place, kind), seam in self._stitching.seams[cohort.number].items():
                if kind == Kind.COLLECTIVE and isinstance(seam.channel, Across):
                    mine = self._issued(cohort, seam)
                    if own.splits[mine].any():
                        self._sends(cohort, mine, seam, seam.channel)

    def _sends(self, cohort: Cohort, mine: Ints, seam: SharedChannel, channel: Across) -> None:
        own, senders = self._entries[cohort.rank_class], self._places(cohort, channel)
        for number in seam.parties:
            other = self._stitching.cohorts.members[number]
            theirs, receivers = self._issued(other, seam), self._places(other, channel)
            told = self._entries[other.rank_class]
            for turn, (here, there) in enumerate(zip(mine.tolist(), theirs.tolist(), strict=False)):
                sent, _ = splits_of(own.texts[own.splits[here]])
                _, expected = splits_of(told.texts[told.splits[there]])
                size = len(channel.members) or prod(map(self._mesh.size, channel.axes))
                if len(sent) != size or len(expected) != size:
                    continue
                wrong = np.argwhere(np.array(expected)[senders][:, None] != np.array(sent)[receivers][None, :])
                if len(wrong):
                    source, target = int(senders[wrong[0][0]]), int(receivers[wrong[0][1]])
                    raise MismatchError(
                        f"#{turn + 1} on {channel} does not match: {self._rank(cohort, channel, source)} sends "
                        f"{sent[target]:,} bytes to {self._rank(cohort, channel, target)} in {own.say(here)}, which "
                        f"expects {expected[source]:,} bytes from it in {told.say(there)}",
                        hint="check how these ranks agree on the sizes: the job hangs here or mixes up data",
                    )

    def _issued(self, cohort: Cohort, seam: SharedChannel) -> Ints:
        own = self._entries[cohort.rank_class]
        seams = self._stitching.seams[cohort.number].items()
        places = [place for (place, kind), each in seams if kind == Kind.COLLECTIVE and each.key == seam.key]
        return np.flatnonzero(np.isin(own.channel, places) & (own.kind == Kind.COLLECTIVE))

    def _places(self, cohort: Cohort, channel: Across) -> Ints:
        """Where members of the cohort stand in the group: groups are in the order of the ranks."""
        axes = self._in_order(channel)
        layout = self._stitching.cohorts.layout
        along = [cohort.coordinates[layout.axis(name)].tolist() for name in axes]
        if channel.members:
            return np.array([channel.members.index(at) for at in along[0] if at in channel.members], dtype=np.int64)
        sizes = [self._mesh.size(name) for name in axes]
        return np.array([int(np.ravel_multi_index(at, sizes)) for at in product(*along)], dtype=np.int64)

    def _rank(self, cohort: Cohort, channel: Across, place: int) -> str:
        """In the group of the cohort's first rank."""
        layout = self._stitching.cohorts.layout
        at = dict(zip(layout.names, cohort.first, strict=True))
        axes = self._in_order(channel)
        if channel.members:
            at[axes[0]] = channel.members[place]
        else:
            sizes = [self._mesh.size(name) for name in axes]
            at |= dict(zip(axes, map(int, np.unravel_index(place, sizes)), strict=True))
        return f"rank {self._mesh.rank(**at)}"

    def _in_order(self, channel: Across) -> list[str]:
        return [name for name in self._mesh.order if name in channel.axes]
