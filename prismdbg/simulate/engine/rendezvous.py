"""Where cohorts meet: what each brought, and when it ends for each once the last is there."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from prismdbg.simulate.engine.prepared_cohort import Amount, Call, PreparedCohort
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.mesh import Ints


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    crew: PreparedCohort
    entry: int
    call: Call
    arrived: Ints  # of a collective reduced over its axes


@dataclass(frozen=True, slots=True)
class Ending:
    """`who`: for the critical path, who was last: see `Rendezvous.meet`."""

    crew: PreparedCohort
    entry: int
    end: Ints


@dataclass(slots=True, eq=False)
class Rendezvous:
    """`open`: by key of the seam and turn on it."""

    open: dict[tuple[int, int], dict[tuple[int, Kind], Arrival]] = field(default_factory=dict)
    last: dict[tuple[int, int], tuple[list[Arrival], Ints]] | None = None  # kept for the critical path

    def meet(self, key: tuple[int, int], arrival: Arrival) -> list[Ending]:
        """What is known to end now. `last` gets the arrivals and, shaped like the group, who of them was last."""
        there = self.open.setdefault(key, {})
        seam, kind = arrival.call.seam, arrival.call.kind
        there[arrival.crew.cohort.number, kind] = arrival
        if len(there) < len(seam.parties):
            return [_sent(arrival)] if kind == Kind.SEND and arrival.call.eager else []
        del self.open[key]
        arrivals = list(there.values())
        if kind == Kind.COLLECTIVE:
            return self._collective(key, arrivals)
        sender, receiver = sorted(arrivals, key=lambda a: a.call.kind)
        return self._pair(key, sender, receiver, is_sent=sender is not arrival)

    def _collective(self, key: tuple[int, int], arrivals: list[Arrival]) -> list[Ending]:
        last = arrivals[0].arrived
        transfer: Amount = arrivals[0].call.transfer_ns
        who = np.zeros((1,) * last.ndim, dtype=np.int64)
        for number, arrival in enumerate(arrivals[1:], 1):
            if self.last is not None:
                who = np.where(arrival.arrived > last, number, who)
            last = np.maximum(last, arrival.arrived)
            transfer = longest(transfer, arrival.call.transfer_ns)
        if self.last is not None:
            self.last[key] = (arrivals, who)
        return [Ending(arrival.crew, arrival.entry, last + transfer) for arrival in arrivals]

    def _pair(self, key: tuple[int, int], sender: Arrival, receiver: Arrival, *, is_sent: bool) -> list[Ending]:
        """`is_sent`: an eager send ended before, when it was made."""
        axis, order = receiver.call.seam.axes[0], receiver.call.seam.from_sender
        sent = turned(sender.arrived, axis, order)
        transfer = receiver.call.transfer_ns
        if self.last is not None:
            self.last[key] = ([sender, receiver], np.where(sent + _carried(receiver) > receiver.arrived, 0, 1))
        if sender.call.eager:
            early = [] if is_sent else [_sent(sender)]
            return [*early, Ending(receiver.crew, receiver.entry, np.maximum(receiver.arrived, sent + transfer))]
        end: Ints = np.maximum(sent, receiver.arrived)
        end = end + longest(transfer, turned_amount(sender.call.transfer_ns, axis, order))
        back = None if order is None else np.argsort(order)
        return [Ending(receiver.crew, receiver.entry, end), Ending(sender.crew, sender.entry, turned(end, axis, back))]


def _sent(arrival: Arrival) -> Ending:
    return Ending(arrival.crew, arrival.entry, arrival.arrived + arrival.call.transfer_ns)


def _carried(receiver: Arrival) -> Amount:
    """An eager message is on its way before its receiver asks."""
    return receiver.call.transfer_ns if receiver.call.eager else 0


def longest(a: Amount, b: Amount) -> Amount:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def turned(array: Ints, axis: int, order: Ints | None) -> Ints:
    return array if order is None or array.shape[axis] == 1 else array.take(order, axis)


def turned_amount(amount: Amount, axis: int, order: Ints | None) -> Amount:
    return amount if isinstance(amount, int) else turned(amount, axis, order)
