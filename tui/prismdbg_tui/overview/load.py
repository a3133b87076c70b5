"""Simulates the job that is to be looked at."""

from __future__ import annotations

from dataclasses import replace

from prismdbg.job_graph.job_view import JobView
from prismdbg.simulate.engine.simulate import simulate
from prismdbg_tui.overview.job import OverviewJob


def overview_job(view: JobView) -> OverviewJob:
    """`UsageError` where its ranks wait for each other in a circle."""
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
