"""What the overview shows: a job's simulated iteration, as a number a rank, and which of its ranks really ran."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

import numpy as np

from prismdbg.job_graph.job_view import JobView
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.report import heat


class Unit(StrEnum):
    TIME = "ns"
    MEMORY = "bytes"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Metric:
    """`values`: by rank. `says`: what it is, in a few words, for the legend."""

    name: str
    says: str
    unit: Unit
    values: Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class OverviewJob:
    """`ran`: ranks that really ran. stands_for: by rank who ran for it, -1 where nobody is named."""

    name: str
    timeline: Timeline
    ran: frozenset[int] = frozenset()
    stands_for: Ints | None = None
    cluster: str = ""

    @property
    def mesh(self) -> Mesh:
        return self.timeline.graph.mesh

    @cached_property
    def class_of(self) -> Ints:
        """By rank, a number in `class_names`."""
        graph = self.timeline.graph
        found = np.empty(graph.mesh.world, dtype=np.int64)
        found[graph.mesh.ranks().ravel()] = graph.class_at
        return found

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.timeline.graph.classes)

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """What is always known, memory where the graph has it, then the waiting by channel, the longest first."""
        timeline = self.timeline
        nothing = np.zeros_like(timeline.computed_ns)
        late = sum(timeline.late_ns.values(), nothing)
        latest = heat.values(timeline, heat.Measure.ARRIVAL)
        times = [
            ("waiting", "time spent waiting for others", late),
            ("late", "total delay after the first with the same calls", latest),
            ("done", "when its last work ends", timeline.ended_ns),
            ("computed", "time spent computing", timeline.computed_ns),
            ("exposed", "exposed communication", timeline.exposed_ns),
        ]
        found = [Metric(name=name, says=says, unit=Unit.TIME, values=values) for name, says, values in times]
        if (peaks := timeline.graph.peak_bytes).any():
            found.append(Metric(name="memory", says="peak memory", unit=Unit.MEMORY, values=peaks))
        by_channel = sorted(timeline.late_ns.items(), key=lambda item: -int(item[1].sum()))
        found += [
            Metric(
                name=f"on {channel}", says=f"time spent waiting for others on {channel}", unit=Unit.TIME, values=values
            )
            for channel, values in by_channel
            if len(by_channel) > 1 and values.any()
        ]
        return tuple(found)

    def who_ran(self, rank: int) -> str:
        """Whether what is shown of it is its own."""
        if rank in self.ran:
            return "ran here"
        other = int(self.stands_for[rank]) if self.stands_for is not None else -1
        if other >= 0:
            return f"represented by rank {other}"
        return "did not run here" if self.ran else "simulated"


def overview_job(view: JobView) -> OverviewJob:
    """Simulates the job that is to be shown. `UsageError` if its ranks wait for each other in a circle."""
    timeline = simulate(view.graph, view.cluster)
    if view.passed is not None:
        timeline = replace(timeline, fidelity=view.passed.told(timeline.fidelity))
    return OverviewJob(
        name=view.name,
        timeline=timeline,
        ran=view.ran,
        stands_for=view.stands_for,
        cluster=view.cluster_text,
    )
