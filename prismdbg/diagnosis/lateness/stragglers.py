"""Ranks for which the others wait most often. By waits, not by clocks: who comes last waits least, on any machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.cross_rank import groups, is_ascending, is_op, met, rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.cause import LateCause, lines_of
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.log.columns import NOT_ENDED, Bools, LogColumns
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Group
from prismdbg.model.durations import brief
from prismdbg.model.ops import BARRIERS, FOR_ALL, FROM_ROOT, Movement, ops_of
from prismdbg.model.plurals import counted

FEWEST_COLLECTIVES = 8
LEAST_SHARE = 0.75
LEAST_LATENESS_NS = 1_000_000
WAIT_FOR_ALL = FOR_ALL | ops_of(Movement.ALL_TO_ALL)
WAIT_FOR_ROOT = ops_of(*FROM_ROOT)
FOR_HOSTS = ("", "gloo", "mpi")  # backends; "" is not known
LEAST_OF_THE_TIME = 0.1  # that the collectives took, with what lay between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Verdict):
    """Came last in `times` of `of` collectives of the group, by `lateness_ns` in the middle, which is `share` of the
    time."""

    group: Group
    times: int
    of: int
    lateness_ns: int
    share: float
    cause: LateCause | None = None

    kind = "straggler"

    @property
    def text(self) -> str:
        where = f"{self.times} of {counted(self.of, 'collective')} of group {self.group.title}"
        return f"rank {self.ranks[0]} came last in {where}, by {brief(self.lateness_ns)}: {self.share:.0%} of the time"

    @property
    def lines(self) -> tuple[str, ...]:
        return lines_of(self.cause)

    def details(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "times": self.times,
            "of": self.of,
            "lateness_ns": self.lateness_ns,
            "share": self.share,
            "cause": self.cause and self.cause.to_json(),
        }


def find_stragglers(evidence: Evidence) -> list[Straggler]:
    """One rank a group at most, where most of its collectives waited for that rank, and not for nothing."""
    found: list[Straggler] = []
    for name, waits in waits_by_group(evidence).items():
        if len(waits.seqs) < FEWEST_COLLECTIVES:
            continue
        times_last = np.bincount(waits.last, minlength=len(waits.ranks))
        place = int(times_last.argmax())
        rank, times = waits.ranks[place], int(times_last[place])
        lateness_ns = round(float(np.median(waits.lateness_ns(place))))
        share = lateness_ns * times / max(_lasted_ns(evidence, name, rank), 1)
        matters = lateness_ns >= LEAST_LATENESS_NS and share >= LEAST_OF_THE_TIME
        if times >= LEAST_SHARE * len(waits.seqs) and matters:
            found.append(
                Straggler(
                    certainty=Certainty.HINT,
                    began_wall_ns=0,
                    ranks=(rank,),
                    group=evidence.group(name),
                    times=times,
                    of=len(waits.seqs),
                    lateness_ns=lateness_ns,
                    share=min(share, 1.0),
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long each member of a group waited in the collectives that all of them completed. rows: for each rank, the
    rows of its log. waited_ns: shape (collectives, ranks), in nanoseconds."""

    seqs: Ints
    ranks: tuple[int, ...]
    rows: tuple[Ints, ...]
    waited_ns: Ints

    @property
    def last(self) -> Ints:
        """By collective the position of the rank that waited least: the others waited for it."""
        least: Ints = self.waited_ns.argmin(axis=1)
        return least

    @property
    def longer_ns(self) -> Ints:
        """By collective and rank, how much longer it waited than the rank that came last."""
        longer: Ints = self.waited_ns - self.waited_ns.min(axis=1, keepdims=True)
        return longer

    @property
    def late_ns(self) -> Ints:
        """By collective how much longer than the rank that came last the others waited, the median of them."""
        return median_of_others(self.longer_ns)

    def lateness_ns(self, place: int) -> NDArray[np.float64]:
        """By collective how much longer than this rank the others waited, in the middle."""
        others = np.median(np.delete(self.waited_ns, place, axis=1), axis=1)
        late: NDArray[np.float64] = others - self.waited_ns[:, place]
        return late


def wait_begins_ns(log: LogColumns, rows: Ints) -> Ints:
    """When each of these calls held its rank: an asynchronous one from when it was waited for; NOT_ENDED where that is
    not known."""
    begins: Ints = np.where(log.is_async[rows], log.waited_ns[rows], log.begun_ns[rows])
    return begins


def held_ns(evidence: Evidence, waits: Waits) -> Ints:
    """As `longer_ns`, of the time that the calls held their ranks; 0 where it is not known when that began."""
    held = waits.longer_ns
    for place, (rank, rows) in enumerate(zip(waits.ranks, waits.rows, strict=True)):
        log = evidence.columns[rank]
        begins = wait_begins_ns(log, rows)
        left = held[:, place] - (begins - log.begun_ns[rows])
        held[:, place] = np.where(begins == NOT_ENDED, 0, left.clip(min=0))
    return held


def median_of_others(longer_ns: Ints) -> Ints:
    """By collective, the median of all ranks but the one that came last, whose own is 0."""
    in_order = np.sort(longer_ns, axis=1)
    size = longer_ns.shape[1]
    found: Ints = (in_order[:, size // 2] + in_order[:, (size + 1) // 2]) // 2
    return found


def waits_by_group(evidence: Evidence) -> dict[str, Waits]:
    """Of groups of more than one rank of which all have logs, in calls in which all wait for all, or for a root that
    came last: in others whoever comes last keeps nobody waiting, or the root alone. Without the steps in which a rank
    was parked."""
    if not evidence.waits:
        evidence.waits.update(_waits_by_group(evidence))
    return evidence.waits


def _waits_by_group(evidence: Evidence) -> dict[str, Waits]:
    parked = _parked(evidence)
    found = {}
    for name in groups(evidence):
        wanted = _of_hosts(evidence.group(name))
        rows = {
            rank: _completed(evidence.columns[rank], each, parked, wanted)
            for rank, each in rows_of(evidence, name).items()
        }
        seqs, places = met(evidence, rows)
        if 1 < evidence.group(name).size == len(rows):
            logs = [(evidence.columns[rank], places[rank]) for rank in rows]
            waited_ns = np.stack([log.ended_ns[at] - log.begun_ns[at] for log, at in logs], axis=1)
            kept = _others_waited(evidence.group(name), tuple(rows), *logs[0], waited_ns)
            by_rank = tuple(places[rank][kept] for rank in rows)
            found[name] = Waits(seqs=seqs[kept], ranks=tuple(rows), rows=by_rank, waited_ns=waited_ns[kept])
    return found


def _others_waited(group: Group, ranks: tuple[int, ...], log: LogColumns, rows: Ints, waited_ns: Ints) -> Bools:
    """For whoever waited least."""
    from_root = is_op(log, WAIT_FOR_ROOT, rows)
    last = np.array(ranks, dtype=np.int64)[waited_ns.argmin(axis=1)] if len(rows) else rows
    root = log.root[rows]
    in_group = (root >= 0) & (root < group.size)
    came_last: Bools = in_group & (np.array(group.ranks)[np.where(in_group, root, 0)] == last)
    kept: Bools = ~from_root | came_last
    return kept


def unknown_waits(evidence: Evidence, known: Mapping[str, Waits]) -> Counter[int]:
    """By rank how many of its collectives with other ranks ended and are not in `known`, which is of `waits_by_group`:
    they are on a device, or did not end in the logs of all members. Without the steps in which a rank was parked."""
    parked = _parked(evidence)
    found: Counter[int] = Counter()
    for name in groups(evidence):
        if evidence.group(name).size != 1:
            told = len(known[name].seqs) if name in known else 0
            for rank, rows in rows_of(evidence, name).items():
                log = evidence.columns[rank]
                seqs = log.seq[_ended(log, rows, parked)]
                found[rank] += len(seqs if is_ascending(seqs) else np.unique(seqs)) - told
    return found


def _parked(evidence: Evidence) -> Ints:
    return np.array(sorted(evidence.parked_steps()), dtype=np.int64)


def _of_hosts(group: Group) -> frozenset[str]:
    """Operators whose waits are the hosts' where the log does not say otherwise: a barrier of a backend for devices
    holds a host first until its own device comes to it. Of several backends, torch chooses the one for the CPU unless
    the program names a device."""
    is_for_hosts = group.backend in FOR_HOSTS or "cpu:" in group.backend
    return WAIT_FOR_ALL - (set() if is_for_hosts else BARRIERS) | WAIT_FOR_ROOT


def _completed(log: LogColumns, rows: Ints, parked: Ints, wanted: frozenset[str]) -> Ints:
    """On a device only the host's way ahead of it is known, not who waited."""
    return _ended(log, rows[~are_on_device(log, rows) & is_op(log, wanted, rows)], parked)


def are_on_device(log: LogColumns, rows: Ints) -> Bools:
    """Which of these calls were issued and left. A program may name a device for a barrier of a backend for hosts: it
    holds its host all the same."""
    for_hosts = [number for number, name in log.texts.items() if _is_for_hosts(log.groups.get(name))]
    hold_host = is_op(log, BARRIERS, rows) & np.isin(log.group[rows], for_hosts)
    found: Bools = log.on_device[rows] & ~hold_host
    return found


def _is_for_hosts(group: Group | None) -> bool:
    """Whether it is known to have no other backend, whatever the device: `gloo`, `cpu:gloo,cuda:gloo`."""
    backends = group.backend.split(",") if group is not None else [""]
    return all(backend and backend.rpartition(":")[2] in FOR_HOSTS for backend in backends)


def _ended(log: LogColumns, rows: Ints, parked: Ints) -> Ints:
    kept: Ints = rows[(log.ended_ns[rows] != NOT_ENDED) & ~np.isin(log.step[rows], parked)]
    return kept


def _lasted_ns(evidence: Evidence, group: str, rank: int) -> int:
    """From the rank's first collective of the group to the end of its last."""
    log = evidence.columns[rank]
    rows = rows_of(evidence, group)[rank]
    return int(log.ended_ns[rows].max() - log.begun_ns[rows[log.ended_ns[rows] != NOT_ENDED]].min())
