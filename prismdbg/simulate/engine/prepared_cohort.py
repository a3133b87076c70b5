"""A cohort with everything the simulation needs to know about it beforehand: durations, transfers, whom it meets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import (
    collective_ns,
    has_unknown_links,
    is_carried,
    point_to_point_ns,
)
from prismdbg.simulate.engine.changes import Delay
from prismdbg.simulate.engine.program import Program, Step, compile_class
from prismdbg.simulate.engine.topology import Placed, Topology, slowed_ns
from prismdbg.simulate.graph.channel import Channel, Toward
from prismdbg.simulate.graph.cohorts import Cohort
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, MODELLED_NS, Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.graph.shared_channels import SharedChannel
from prismdbg.simulate.quantities import LONGEST_TRANSFER_NS, MILLION, say_rate, say_time

Amount = int | Ints  # of nanoseconds: the same for all ranks of the cohort, or shaped like it
MOST_CACHED_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Asked:
    """What is the same in many communications of a class."""

    place: int  # in the class's channels
    kind: Kind
    op: str
    size_bytes: int
    duration_ns: int
    beside_ns: int  # computed while it may be under way, with the cost of overlap


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One `Asked` as this cohort does it. `nodes`: how many its group spans. carried: 1 where its time was measured in
    another group or of another size. guessed: 1 where nothing says how many links a node has for it. alone: nobody
    outside the cohort takes part, and it is a collective.
    """

    seam: SharedChannel
    place: int
    kind: Kind
    transfer_ns: Amount
    nodes: Amount
    carried: Amount
    guessed: Amount
    alone: bool
    eager: bool
    axis: int | tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClassPlan:
    """What all cohorts of a class share. durations_ns: with the cost of overlap. run_kinds: the same for equal runs."""

    entries: Entries
    program: Program
    durations_ns: Ints
    asked: tuple[Asked, ...]
    call_of: list[int]
    turns: list[int]
    ends_on: list[int]
    run_kinds: Ints
    kinds: tuple[Ints, ...]  # the durations in a run of each kind


@dataclass(slots=True, eq=False)
class PreparedCohort:
    cohort: Cohort
    plan: ClassPlan
    calls: list[Call]
    compute_ppm: Amount
    run_ns: list[Any]  # of each run an Amount, None where it is computed when it is needed
    extra_ns: dict[int, Ints] = field(default_factory=dict)  # by run
    delayed: list[tuple[int, Ints]] = field(default_factory=list)  # by entry

    def slow_ns(self, run: int) -> Amount:
        slowed: Amount = _slowed(self.plan.kinds[self.plan.run_kinds[run]], self.compute_ppm)
        return slowed + self.extra_ns[run] if run in self.extra_ns else slowed

    def computed_ns(self) -> Amount:
        """On the compute stream, all of it."""
        plan = self.plan
        own = plan.program.run_stream == COMPUTE_STREAM
        counts = np.bincount(plan.run_kinds[own], minlength=len(plan.kinds))
        total: Amount = 0
        for kind in np.flatnonzero(counts):
            total = total + int(counts[kind]) * _slowed(plan.kinds[kind], self.compute_ppm)
        for run, extra_ns in self.extra_ns.items():
            total = total + extra_ns if own[run] else total
        return total


def plan_class(entries: Entries, turns: Ints, cluster: ClusterModel, *, has_contention: bool = False) -> ClassPlan:
    """`has_contention`: what is computed beside a transfer took longer when it was timed."""
    program = compile_class(entries)
    durations_ns = entries.duration_ns
    if cluster.compute_overlap_ppm != MILLION and not has_contention:
        overlapped = _overlapped(entries)
        durations_ns = np.where(overlapped, durations_ns * cluster.compute_overlap_ppm // MILLION, durations_ns)
    beside_ns = _beside_ns(entries, durations_ns) if cluster.transfer_overlap_ppm != MILLION else None
    asked, call_of = _asked(entries, program, beside_ns)
    run_kinds, kinds = _run_kinds(program, durations_ns)
    return ClassPlan(
        entries, program, durations_ns, asked, call_of, turns.tolist(), program.ends_on.tolist(), run_kinds, kinds
    )


def _overlapped(entries: Entries) -> NDArray[np.bool_]:
    """Computed between the issue of an asynchronous collective and the wait for it."""
    change = np.zeros(len(entries) + 1, dtype=np.int64)
    begun = np.flatnonzero((entries.kind == Kind.COLLECTIVE) & (entries.blocking == 0))
    np.add.at(change, begun, 1)
    np.add.at(change, _first_waits(entries)[begun], -1)
    overlapped: NDArray[np.bool_] = (np.cumsum(change)[:-1] > 0) & (entries.kind == Kind.COMPUTE)
    return overlapped


def _first_waits(entries: Entries) -> Ints:
    """By entry, the first wait for it; where there is none, how many entries there are."""
    waits = np.flatnonzero(entries.kind == Kind.WAIT)
    targets, first = np.unique(entries.target[waits], return_index=True)
    found = np.full(len(entries), len(entries), dtype=np.int64)
    found[targets] = waits[first]
    return found


def _beside_ns(entries: Entries, durations_ns: Ints) -> Ints:
    """Of each asynchronous collective that is modelled: what its issuer's stream computes until it waits for it."""
    found = np.zeros(len(entries), dtype=np.int64)
    computes = entries.kind == Kind.COMPUTE
    asynchronous = (entries.kind == Kind.COLLECTIVE) & (entries.blocking == 0) & (entries.stream != entries.issuer)
    until = np.minimum(_first_waits(entries), len(entries) - 1)
    for issuer in np.unique(entries.issuer[asynchronous]):
        so_far_ns = np.cumsum(np.where(computes & (entries.stream == issuer), durations_ns, 0))
        calls = np.flatnonzero(asynchronous & (entries.issuer == issuer))
        found[calls] = so_far_ns[until[calls]] - so_far_ns[calls]
    return found


def beside_computation_ns(transfer_ns: int, beside_ns: int, overlap_ppm: int) -> int:
    """How long a transfer takes beside so much computation: it is slower while that lasts, then as fast as alone."""
    hidden_ns = min(beside_ns, transfer_ns * overlap_ppm // MILLION)
    return transfer_ns + hidden_ns - hidden_ns * MILLION // overlap_ppm


def _asked(entries: Entries, program: Program, beside_ns: Ints | None) -> tuple[tuple[Asked, ...], list[int]]:
    found: dict[tuple[int, ...], int] = {}
    call_of = [-1] * len(entries)
    which = np.flatnonzero(entries.communicates)
    columns = (entries.channel, entries.kind, entries.op, entries.size_bytes, entries.duration_ns)
    rows = zip(
        which.tolist(),
        *(column[which].tolist() for column in columns),
        [0] * len(which) if beside_ns is None else beside_ns[which].tolist(),
        strict=True,
    )
    for entry, *row in rows:
        call_of[entry] = found.setdefault(tuple(row), len(found))
    asked = (Asked(c, Kind(k), entries.texts[op], size, ns, beside) for c, k, op, size, ns, beside in found)
    return tuple(asked), call_of


def _run_kinds(program: Program, durations_ns: Ints) -> tuple[Ints, tuple[Ints, ...]]:
    found: dict[bytes, int] = {}
    kinds: list[Ints] = []
    numbers: list[int] = []
    flat = durations_ns[program.runs]
    bounds = [*program.run_starts.tolist(), len(flat)]
    for start, end in pairwise(bounds):
        part = flat[start:end]
        key = part.tobytes()
        if key not in found:
            found[key] = len(kinds)
            kinds.append(part)
        numbers.append(found[key])
    return np.array(numbers, dtype=np.int64), tuple(kinds)


def _slowed(durations_ns: Ints, ppm: Amount) -> Amount:
    """Their sum, each with the factor; rounded down one by one."""
    if isinstance(ppm, int):
        return int((durations_ns * ppm // MILLION).sum())
    return sum((int(ns) * ppm // MILLION for ns in durations_ns), np.zeros(1, dtype=np.int64))


def assemble(
    graph: JobGraph,
    cohort: Cohort,
    plan: ClassPlan,
    topology: Topology,
    placed: dict[Channel, Placed],
    compute_ppm: Ints,
    delays: list[Delay],
) -> PreparedCohort:
    """`compute_ppm`: in layout. delays: of entries."""
    made = _Calls(graph, cohort, topology, placed)
    calls = [made.of(ask) for ask in plan.asked]
    ppm = amount(cohort.cut(compute_ppm))
    crew = PreparedCohort(cohort, plan, calls, ppm, [])
    for delay in delays:
        assert delay.entry is not None, "a start is an entry, too"
        run = plan.program.run_of(delay.entry)
        extra_ns = cohort.cut(np.where(topology.ranks == delay.rank, delay.delay_ns, 0))
        crew.delayed.append((delay.entry, extra_ns))
        crew.extra_ns[run] = crew.extra_ns.get(run, np.zeros(1, dtype=np.int64)) + extra_ns
    size = 1 if isinstance(ppm, int) else ppm.size
    if len(plan.kinds) * size * 8 <= MOST_CACHED_BYTES:
        kinds = [_slowed(durations, ppm) for durations in plan.kinds]
        crew.run_ns = [kinds[kind] for kind in plan.run_kinds.tolist()]
    else:
        crew.run_ns = [None] * len(plan.run_kinds)
    for run in crew.extra_ns:
        crew.run_ns[run] = crew.slow_ns(run)
    return crew


def amount(array: Ints) -> Amount:
    return int(array.item()) if array.size == 1 else array


class _Calls:
    """Of a cohort. What differs only in the computation beside it is timed once, and is one call if equally long."""

    def __init__(self, graph: JobGraph, cohort: Cohort, topology: Topology, placed: dict[Channel, Placed]) -> None:
        self._graph, self._cohort, self._topology, self._placed = graph, cohort, topology, placed
        self._alone_ns: dict[Asked, list[int]] = {}  # by geometry
        self._made: dict[tuple[Asked, tuple[int, ...]], Call] = {}

    def of(self, ask: Asked) -> Call:
        cluster, where = self._topology.cluster, self._where(ask)
        alone = replace(ask, beside_ns=0)
        if alone not in self._alone_ns:
            self._alone_ns[alone] = [_alone_ns(cluster, ask, where, i) for i in range(len(where.geometries))]
        times = self._alone_ns[alone]
        if ask.kind == Kind.COLLECTIVE and ask.duration_ns == MODELLED_NS:
            times = [beside_computation_ns(ns, ask.beside_ns, cluster.transfer_overlap_ppm) for ns in times]
        for number, time_ns in enumerate(times):
            _check_bound(cluster, ask, where, number, time_ns)
        key = alone, tuple(times)
        if key not in self._made:
            self._made[key] = self._call(ask, where, np.array(times))
        return self._made[key]

    def _where(self, ask: Asked) -> Placed:
        channel = self._seam(ask).channel
        if channel not in self._placed:
            self._placed[channel] = self._topology.place(channel, self._graph.stitching.users[channel])
        return self._placed[channel]

    def _seam(self, ask: Asked) -> SharedChannel:
        return self._graph.stitching.seams[self._cohort.number][ask.place, ask.kind]

    def _call(self, ask: Asked, where: Placed, times: Ints) -> Call:
        seam, which = self._seam(ask), where.which
        if ask.kind == Kind.RECV and isinstance(seam.channel, Toward):  # placed by sender
            which = np.roll(which, seam.channel.offset, seam.axes[0])
        is_collective = ask.kind == Kind.COLLECTIVE
        at = self._cohort.cut(which)
        cluster, geometries = self._topology.cluster, where.geometries
        modelled = is_collective and ask.duration_ns == MODELLED_NS
        carried = [modelled and is_carried(cluster, ask.op, ask.size_bytes, each) for each in geometries]
        guessed = [modelled and has_unknown_links(cluster, ask.op, each) for each in geometries]
        return Call(
            seam=seam,
            place=ask.place,
            kind=ask.kind,
            transfer_ns=amount(times[at]),
            nodes=amount(np.array([each.nodes for each in geometries])[at]),
            carried=amount(np.array(carried, dtype=np.int64)[at]),
            guessed=amount(np.array(guessed, dtype=np.int64)[at]),
            alone=is_collective and seam.parties == (self._cohort.number,),
            eager=not is_collective and 0 < cluster.eager_bytes >= ask.size_bytes,
            axis=seam.axes[0] if len(seam.axes) == 1 else seam.axes,
        )


def _check_bound(cluster: ClusterModel, ask: Asked, where: Placed, number: int, time_ns: int) -> None:
    """So that the sum of all stays within 64 bits."""
    if time_ns > LONGEST_TRANSFER_NS and ask.duration_ns == MODELLED_NS:
        tier = cluster.tiers[where.geometries[number].tier]
        raise UsageError(
            f"{ask.op or 'a message'} of {ask.size_bytes:,} bytes over {tier.name} would take {time_ns // 10**9:,} s",
            hint=f"check its latency of {say_time(tier.latency_ns)} and its bandwidth of {say_rate(tier.rate)}",
        )


def _alone_ns(cluster: ClusterModel, ask: Asked, where: Placed, number: int) -> int:
    """Beside no computation."""
    geometry, slower_ppm = where.geometries[number], where.slower_ppm[number]
    if ask.duration_ns != MODELLED_NS:
        return slowed_ns(ask.duration_ns, slower_ppm)
    if ask.kind == Kind.COLLECTIVE:
        return slowed_ns(collective_ns(cluster, ask.op, ask.size_bytes, geometry), slower_ppm)
    return slowed_ns(point_to_point_ns(cluster, ask.size_bytes, geometry.tier, geometry.sharing), slower_ppm)


def here_alone(crew: PreparedCohort) -> dict[int, int]:
    """How often each call is made by the compute stream itself, within the cohort."""
    steps, numbers = crew.plan.program.steps[COMPUTE_STREAM], crew.plan.program.numbers[COMPUTE_STREAM]
    made = np.array(crew.plan.call_of, dtype=np.int64)[np.array(numbers)[np.array(steps) == Step.HERE]] if steps else []
    counts = np.bincount(made, minlength=len(crew.calls)) if len(made) else np.zeros(len(crew.calls), dtype=np.int64)
    return {call: int(n) for call, n in enumerate(counts) if n and crew.calls[call].alone}
