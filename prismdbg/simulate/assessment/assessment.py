"""What a simulation is worth: the provenance of its times and bytes, what it rests on, and its errors where known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.plurals import counted
from prismdbg.simulate.assessment.fidelity import COMPONENTS, Fidelity, Ran, Share, SignedError
from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Factor
from prismdbg.simulate.graph.entries import MODELLED_NS, PROVENANCES, Entries, Kind, Provenance
from prismdbg.simulate.graph.origin import Origin, Source, Standing
from prismdbg.simulate.quantities import MILLION

_SIZES_FROM = {
    Source.RECORDED: Provenance.RECORDED,
    Source.EMULATED: Provenance.REAL,
    Source.ARITHMETIC: Provenance.ASSUMED,
}
_ASSUMED = PROVENANCES.index(Provenance.ASSUMED)
_AS_ANOTHER = {Standing.CHECKED: PROVENANCES.index(Provenance.MODELLED), Standing.ASSUMED: _ASSUMED}
SYNTHESIZED_VALUES = "all values, including the loss: the data of peers was synthesized"
_SOME = 0.005  # of the communication: less is not worth a doubt


@dataclass(frozen=True, slots=True)
class Part:
    """One cohort: its ranks do `entries`, their communication taking `transfer_ns` on average, by entry.

    ranks: how many, by standing. The rest is by entry, how much of `transfer_ns` is not reliable: beyond_ns, in groups
    or of sizes that were not measured; apart_ns, between more nodes than were measured together; guessed_ns, over as
    many links of a node as a group has ranks in it, where nothing says that there are so many.
    """

    entries: Entries
    computed_ns: Sequence[int]
    transfer_ns: NDArray[np.float64]
    ranks: Mapping[Standing, int]
    beyond_ns: NDArray[np.float64]
    apart_ns: NDArray[np.float64]
    guessed_ns: NDArray[np.float64]


def judge(
    parts: Sequence[Part],
    cluster: ClusterModel,
    origin: Origin,
    errors: Sequence[SignedError] = (),
    *,
    is_changed: bool = False,
) -> Fidelity:
    """A model whose parameters nobody measured makes what it says assumed. `is_changed`: what if."""
    time = np.zeros((len(COMPONENTS), len(PROVENANCES)))
    sizes = np.zeros_like(time)
    for part in parts:
        which = np.where(part.entries.communicates, 1, np.where(part.entries.kind == Kind.MEMORY, 2, 0))
        spent = np.where(part.entries.kind == Kind.COMPUTE, part.computed_ns, 0) + part.transfer_ns
        moved = np.abs(part.entries.size_bytes)
        for standing, count in part.ranks.items():
            of_time, of_size = _provenances(part.entries, standing, cluster, origin)
            np.add.at(time, (which, of_time), spent * count)
            np.add.at(sizes, (which, of_size), moved * count)
    shares = tuple(
        Share(component=name, provenance=p, time_ns=round(time[i, j]), size_bytes=round(sizes[i, j]))
        for i, name in enumerate(COMPONENTS)
        for j, p in enumerate(PROVENANCES)
        if time[i, j] or sizes[i, j]
    )
    changed = ("the behavior of the changed job: nothing ran",) if is_changed else ()
    doubts = (*_Doubts(parts, shares, cluster, origin).all(), *changed)
    return Fidelity(shares=shares, doubts=doubts, errors=tuple(errors), ran=_ran(parts, origin))


def _provenances(
    entries: Entries, standing: Standing, cluster: ClusterModel, origin: Origin
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """Of times and of sizes. What a rank did that stands for another is at best a model of what that one does."""
    provenance = entries.provenance.astype(np.int64)
    by_model = entries.communicates & (entries.duration_ns == MODELLED_NS)
    of_size = provenance
    if origin.source in _SIZES_FROM:
        of_size = np.where(entries.communicates, PROVENANCES.index(_SIZES_FROM[origin.source]), provenance)
    of_time = provenance if cluster.is_measured else np.where(by_model, _ASSUMED, provenance)
    if standing is Standing.OWN:
        return of_time, of_size
    least = _AS_ANOTHER[standing]
    return np.where(by_model, of_time, np.maximum(of_time, least)), np.maximum(of_size, least)


def _ran(parts: Sequence[Part], origin: Origin) -> Ran | None:
    if origin.source in (Source.ARITHMETIC, Source.UNSAID) and origin.standing_at is None:
        return None
    count = {standing: sum(part.ranks.get(standing, 0) for part in parts) for standing in Standing}
    return Ran(own=count[Standing.OWN], checked=count[Standing.CHECKED], assumed=count[Standing.ASSUMED])


@dataclass(frozen=True, slots=True)
class _Doubts:
    """What is not reliable, and why."""

    parts: Sequence[Part]
    shares: Sequence[Share]
    cluster: ClusterModel
    origin: Origin

    def all(self) -> tuple[str, ...]:
        return tuple(filter(None, (*self._times(), *self._ranks(), *self.origin.doubts, self._values())))

    def _times(self) -> list[str]:
        found = {(share.component, share.provenance) for share in self.shares}
        by_formula = self._is_by_formula
        assumed = {component for component, provenance in found if provenance is Provenance.ASSUMED}
        unmeasured = by_formula and not self.cluster.is_measured
        return [
            "queues on links that channels share: contention is modelled per channel, without queues"
            if by_formula
            else "",
            "absolute times of communication: its parameters were assumed" if unmeasured else "",
            self._calibrated(self.cluster.calibration) if by_formula and self.cluster.calibration else "",
            self._beyond() if by_formula else "",
            self._apart(self.cluster.calibration) if by_formula and self.cluster.calibration else "",
            self._guessed() if by_formula else "",
            "the slowdown of computation and communication at the same time: the cluster file has no values for it"
            if by_formula and self._overlaps()
            else "",
            self._contended(),
            self._assumed_computation(),
            "times of single operators: the recording has only the time between two calls, and a replay splits it"
            if ("computation", Provenance.REPLAYED) in found
            else "",
            self._assumed_memory() if "memory" in assumed else "",
        ]

    @property
    def _is_by_formula(self) -> bool:
        return any((p.entries.communicates & (p.entries.duration_ns == MODELLED_NS)).any() for p in self.parts)

    def _assumed_memory(self) -> str:
        if any(part.entries.holds_more for part in self.parts):
            return (
                "memory peaks as upper bounds: blocks that only C++ held before the checkpoint of a captured rank "
                "(DDP buckets, saved tensors) are not included"
            )
        return "memory peaks: sizes were assumed"

    def _assumed_computation(self) -> str:
        own = ((p.entries.kind == Kind.COMPUTE) & (p.entries.provenance == _ASSUMED) for p in self.parts)
        if not any(chosen.any() for chosen in own):
            return ""
        if self.origin.source in (Source.RECORDED, Source.EMULATED):
            return (
                "the times at which a rank waited for asynchronous collectives: the log has no wait() for some, and "
                "the rank is assumed to compute until they are complete"
            )
        return "absolute times of computation: durations were assumed"

    def _calibrated(self, calibration: Calibration) -> str:
        """The worst of the operations that are used."""
        used = {p.entries.texts[n] for p in self.parts for n in np.unique(p.entries.op[p.entries.communicates])}
        fits = [(fit.largest_ppm, op) for op, fit in calibration.fits.items() if {op, _received(op)} & used]
        if not fits:
            return ""
        largest_ppm, op = max(fits)
        largest = float(f"{largest_ppm / 1e4:.3g}")
        return (
            f"times of communication closer than {largest:,g}%: this is the largest error of the model of {op} on "
            f"{calibration.machine}"
        )

    def _beyond(self) -> str:
        share = self._of_communication([float(part.beyond_ns.sum()) for part in self.parts])
        return (
            f"{share:.0%} of the communication time, which is in groups or of sizes that were not measured"
            if share > _SOME
            else ""
        )

    def _apart(self, calibration: Calibration) -> str:
        share = self._of_communication([float(part.apart_ns.sum()) for part in self.parts])
        between = "nodes" if calibration.nodes == 1 else f"more than {calibration.nodes} nodes"
        measured = f"the calibration measured {counted(calibration.nodes, 'node')}"
        return f"links between {between}, {share:.0%} of the communication time: {measured}" if share > _SOME else ""

    def _guessed(self) -> str:
        share = self._of_communication([float(part.guessed_ns.sum()) for part in self.parts])
        why = "the number of links of a node is unknown, and without node_bandwidth each rank has its own"
        return f"rates between nodes, {share:.0%} of the communication time: {why}" if share > _SOME else ""

    def _of_communication(self, times_ns: Sequence[float]) -> float:
        """`times_ns`: of a rank of each part."""
        ranks = [sum(part.ranks.values()) for part in self.parts]
        total = sum(float(part.transfer_ns.sum()) * count for part, count in zip(self.parts, ranks, strict=True))
        return sum(map(mul, times_ns, ranks)) / total if total else 0.0

    def _overlaps(self) -> bool:
        plain = self.cluster.compute_overlap_ppm == self.cluster.transfer_overlap_ppm == MILLION
        measured = self.cluster.calibration.factors if self.cluster.calibration is not None else {}
        return (
            plain
            and Factor.COMPUTE_OVERLAP not in measured
            and any(((p.entries.kind == Kind.COLLECTIVE) & (p.entries.blocking == 0)).any() for p in self.parts)
        )

    def _contended(self) -> str:
        world = sum(sum(part.ranks.values()) for part in self.parts)
        ppm = self.cluster.processors.ppm(min(world, self.cluster.ranks_per_node))
        if ppm == MILLION or self.origin.source is Source.RECORDED:  # there they did
            return ""
        return (
            "times of computation: all ranks of a node are assumed to compute at the same time, each "
            f"{ppm / MILLION:.3g} times as long as alone"
        )

    def _ranks(self) -> list[str]:
        count = {standing: sum(part.ranks.get(standing, 0) for part in self.parts) for standing in Standing}
        world = sum(count.values())
        return [
            f"the work of {count[Standing.ASSUMED]:,} of {world:,} ranks: only the mesh implies that it is the work of "
            "the ranks that ran, no rank of their class was checked"
            if count[Standing.ASSUMED]
            else "",
            f"differences in speed among ranks: {count[Standing.CHECKED]:,} of {world:,} have the times of another rank"
            if count[Standing.CHECKED]
            else "",
            *(
                f"sizes of messages and memory along {what}: they are unchanged, where a real job would split them anew"
                for what in self.origin.stretched
            ),
        ]

    @property
    def _ran_all(self) -> bool:
        return all(standing is Standing.OWN or not count for p in self.parts for standing, count in p.ranks.items())

    def _values(self) -> str:
        if self.origin.source is Source.EMULATED:
            return SYNTHESIZED_VALUES
        if self.origin.source is Source.RECORDED and not self._is_by_formula and self._ran_all:
            return ""  # these are the times of a job that really computed
        if self.origin.source is Source.ARITHMETIC:
            return "the behavior of a program: the graph is calculated, nothing ran"
        return "all values: nothing was computed, only timed"


def _received(op: str) -> str:
    """Sends and receives are measured as one."""
    return "recv" if op == "send" else op
