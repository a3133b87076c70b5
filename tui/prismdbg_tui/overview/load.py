"""Simulates the job that is to be looked at."""

from __future__ import annotations

from prismdbg.predict.simulate import simulate
from prismdbg.workflows.job_view import JobView
from prismdbg_tui.overview.job import OverviewJob


def overview_job(view: JobView) -> OverviewJob:
    """`UsageError` where its ranks wait for each other in a circle."""
    return OverviewJob(
        name=view.name,
        timeline=simulate(view.graph, view.cluster),
        ran=view.ran,
        stands_for=view.stands_for,
        cluster=view.cluster_text,
    )
