"""Why a simulation cannot go on: who waits for whom, in the ranks' own words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prismdbg.errors import MismatchError
from prismdbg.simulate.engine.engine import Team, Track
from prismdbg.simulate.engine.program import Step
from prismdbg.simulate.graph.job_graph import JobGraph

_SHOWN = 4


def explain(graph: JobGraph, stuck: Sequence[Track]) -> MismatchError:
    lines = [f"{_first(graph, track.team)} waits in {_waits(track)}" for track in _telling(stuck)[:_SHOWN]]
    more = f" ({len(stuck) - _SHOWN} more streams wait)" if len(stuck) > _SHOWN else ""
    return MismatchError(
        "deadlock: ranks wait for each other:  " + "; ".join(lines) + more,
        hint="compare the order in which these ranks issue these calls",
    )


def _telling(stuck: Sequence[Track]) -> list[Track]:
    """Those first that wait for other ranks, not for a stream of their own."""
    return sorted(stuck, key=lambda track: track.steps[track.at] == Step.JOIN)


def _waits(track: Track) -> str:
    entries = track.team.crew.plan.entries
    return f"entry {track.numbers[track.at]}, {entries.say(track.numbers[track.at])}"


def _first(graph: JobGraph, team: Team) -> str:
    names = graph.stitching.cohorts.layout.names
    rank = graph.mesh.rank(**dict(zip(names, team.crew.cohort.first, strict=True)))
    others = int(np.prod(team.crew.cohort.shape)) - 1
    return graph.mesh.say(rank) + (f" with {others:,} more" if others else "")
