"""Where a graph built from a run's logs comes from: which ranks did it themselves, and how long it really took them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from prismdbg.capsule.log.events import RankLog
from prismdbg.job_graph.recorded_step import recorded_step
from prismdbg.model.collective import Collective
from prismdbg.simulate.graph.class_finder import RankClasses
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, Entries, Kind
from prismdbg.simulate.graph.job_graph import by_position, position
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.origin import NOT_KNOWN, Origin, Source, Standing, Standings, Truth


def origin_of(
    mesh: Mesh,
    recorded: Mapping[int, Entries],
    logs: Mapping[int, RankLog],
    step: int,
    *,
    is_emulated: bool,
    classes: RankClasses | None = None,
) -> Origin:
    """`recorded`: of the ranks whose log is in the graph. logs: of all ranks that have one. classes: where ranks stand
    for others. What an emulated rank took is no truth: its peers were not there.
    """
    standing = _by_mesh(mesh, set(recorded)) if classes is None else _by_class(classes)
    if is_emulated:
        return Origin(source=Source.EMULATED, standing_at=standing)
    came = _Came(logs, step)
    truths = tuple(_truth(rank, entries, logs[rank], came) for rank, entries in sorted(recorded.items()))
    return Origin(source=Source.RECORDED, standing_at=standing, truths=truths)


def _by_mesh(mesh: Mesh, own: set[int]) -> Standings | None:
    """None where every rank has a log."""
    by_rank = np.full(mesh.world, Standing.ASSUMED, dtype=np.int64)
    by_rank[sorted(own)] = Standing.OWN
    return by_position(mesh, by_rank).astype(np.uint8) if by_rank.any() else None


def _by_class(classes: RankClasses) -> Standings | None:
    kinds = classes.kinds
    assumed = {base for found in classes.classes if found.is_assumed for base in found.bases}
    of_kind = np.array([Standing.ASSUMED if base in assumed else Standing.CHECKED for base in kinds.bases()])
    standing: Standings = of_kind[kinds.by_position()].astype(np.uint8)
    standing[[position(kinds.mesh, base) for base in kinds.bases()]] = Standing.OWN
    return standing if standing.any() else None


class _Came:
    """When the last member came to a collective of this step, where all members' logs tell."""

    def __init__(self, logs: Mapping[int, RankLog], step: int) -> None:
        self._times: dict[str, dict[int, int]] = {}
        for rank, log in logs.items():
            for call in log.collectives:
                if call.moment.step == step and not call.is_p2p:
                    came_ns = call.time_created_ns + log.wall_offset_ns
                    self._times.setdefault(str(call.identity), {})[rank] = came_ns
        self.step = step

    def last_ns(self, call: Collective, log: RankLog) -> int | None:
        """log: the rank's own, for another rank's group can have the same name."""
        times = self._times.get(str(call.identity), {})
        ranks = log.groups[call.group].ranks if call.group in log.groups else ()
        return max(times[rank] for rank in ranks) if ranks and times.keys() >= set(ranks) else None


def _truth(rank: int, entries: Entries, log: RankLog, came: _Came) -> Truth:
    main = (entries.kind == Kind.COMPUTE) & (entries.stream == COMPUTE_STREAM)
    computed_ns = int(entries.duration_ns[main].sum())
    calls = [call for call in log.collectives if call.moment.step == came.step]
    blocked = [_blocked(call, came, log) for call in calls if call.thread_id == calls[0].thread_id]
    known = [pair for pair in blocked if pair is not None]
    blocked_ns = sum(own_ns for own_ns, _ in known)
    is_split = all(waited_ns is not None for _, waited_ns in known)
    return Truth(
        rank=rank,
        iteration_ns=_iteration_ns(log, came.step) or computed_ns + blocked_ns,
        computed_ns=computed_ns,
        blocked_ns=blocked_ns,
        waited_ns=sum(waited_ns or 0 for _, waited_ns in known) if is_split else NOT_KNOWN,
    )


def _iteration_ns(log: RankLog, step: int) -> int:
    """0 where its end is not known."""
    recorded = recorded_step(log, step)
    return max(recorded.end_ns - recorded.begin_ns, 0) if recorded is not None else 0


def _blocked(call: Collective, came: _Came, log: RankLog) -> tuple[int, int | None] | None:
    """How long the thread stood for it, and how much of that until the last member came."""
    if call.time_completed_ns is None:
        return None
    since_ns = call.time_waited_ns if call.is_async or call.is_p2p else call.time_created_ns
    if since_ns is None:  # it is not known that the thread stood
        return None
    own_ns = max(call.time_completed_ns - since_ns, 0)
    last_ns = came.last_ns(call, log)
    if last_ns is None:
        return own_ns, None if own_ns else 0
    return own_ns, min(max(last_ns - log.wall_offset_ns - since_ns, 0), own_ns)
