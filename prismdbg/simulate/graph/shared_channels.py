"""Which cohorts meet on which channel: the values that `stitching` makes and the simulation follows."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.simulate.graph.channel import Channel
from prismdbg.simulate.graph.cohorts import Bools, Cohorts
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.mesh import Ints


@dataclass(frozen=True, slots=True, eq=False)
class SharedChannel:
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
    seams: tuple[dict[tuple[int, Kind], SharedChannel], ...]
    users: dict[Channel, Bools]  # in layout; of a point-to-point channel the senders
