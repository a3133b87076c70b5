"""One iteration of the whole job on a cluster: the graph, the model, what is changed; out comes the timeline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.meanwhile import one_by_one
from prismdbg.simulate.assessment import measured_iteration
from prismdbg.simulate.assessment.assessment import Part, judge
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import SEND
from prismdbg.simulate.engine.changes import Changes, factors
from prismdbg.simulate.engine.deadlock import explain
from prismdbg.simulate.engine.engine import OTHER_STREAMS, Engine, Keep, Team, Track
from prismdbg.simulate.engine.late_start import with_starts
from prismdbg.simulate.engine.prepared_cohort import (
    Amount,
    Asked,
    Call,
    ClassPlan,
    PreparedCohort,
    assemble,
    here_alone,
    plan_class,
)
from prismdbg.simulate.engine.timeline import OTHER_STREAMS as OTHER_NAME
from prismdbg.simulate.engine.timeline import Timeline, find_team
from prismdbg.simulate.engine.topology import Placed, Topology, processors_ppm
from prismdbg.simulate.graph.channel import Channel, Toward
from prismdbg.simulate.graph.cohorts import Layout
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, MODELLED_NS
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.graph.origin import Standing
from prismdbg.simulate.quantities import MILLION

NO_CHANGES = Changes()


def simulate(
    graph: JobGraph,
    cluster: ClusterModel,
    changes: Changes = NO_CHANGES,
    *,
    keep: Keep = Keep.FIRST,
    of_rank: int | None = None,
    trace: bool = False,
) -> Timeline:
    """`trace`: also what the critical path needs. of_rank: whose timeline `Keep.FIRST` keeps, not that of the first of
    its cohort. UsageError where ranks wait for each other in a circle.
    """
    cluster = changes.cluster(cluster)
    teams = [_team(crew, keep, trace) for crew in _crews(graph, cluster, changes)]
    if of_rank is not None:
        team, place = find_team(graph, teams, of_rank)
        team.kept_place = place
    engine = Engine(teams, keep=keep, trace=trace)
    stuck = engine.run()
    if stuck:
        raise explain(graph, stuck)
    return _timeline(graph, cluster, engine, keep, is_as_it_ran=changes == NO_CHANGES)


def _crews(graph: JobGraph, cluster: ClusterModel, changes: Changes) -> list[PreparedCohort]:
    stitching = graph.stitching
    layout = stitching.cohorts.layout
    entries, turns, late = with_starts(graph, changes.entries(graph), changes.delays)
    had = graph.origin.has_contention
    plans = [plan_class(e, n, cluster, has_contention=had) for e, n in zip(entries, turns, strict=True)]
    topology = Topology.of(graph.mesh, layout, cluster, factors(graph, cluster.link_ppm, changes.link_ppm))
    slower = factors(graph, cluster.compute_ppm, changes.compute_ppm)[topology.ranks]
    if not had:
        slower = slower * processors_ppm(cluster, graph.mesh.world)[topology.ranks] // MILLION
    compute_ppm = layout.shaped(graph.compute_ppm_at, graph.mesh) * slower // MILLION
    delays = defaultdict(list)
    for delay in late:
        place = graph.mesh.coordinates(delay.rank)
        delays[int(stitching.cohorts.at[tuple(place[name] for name in layout.names)])].append(delay)
    placed: dict[Channel, Placed] = {}
    return [
        assemble(graph, cohort, plans[cohort.rank_class], topology, placed, compute_ppm, delays[cohort.number])
        for cohort in one_by_one(stitching.cohorts.members, "preparing cohorts of ranks")
    ]


def _team(crew: PreparedCohort, keep: Keep, trace: bool) -> Team:
    alone = here_alone(crew)
    places: dict[int, int] = defaultdict(int)
    for call, count in alone.items():
        places[crew.calls[call].place] += count
    team = Team(
        crew=crew,
        derived=max(places, key=lambda place: places[place], default=None),
        kept=None if keep is Keep.NONE else {},
        joins=list(crew.plan.program.joins),
        last_member={} if trace else None,
        launched_ends={} if trace else None,
        other_won={} if trace else None,
    )
    for call, count in alone.items():
        place = crew.calls[call].place
        team.shown_ns[place] = team.shown_ns[place] + crew.calls[call].transfer_ns * count
    start = np.zeros((1,) * len(crew.cohort.shape), dtype=np.int64)
    program = crew.plan.program
    for stream, (steps, numbers) in enumerate(zip(program.steps, program.numbers, strict=True)):
        team.tracks.append(Track(team=team, stream=stream, steps=steps, numbers=numbers, clock=start))
    return team


def _timeline(graph: JobGraph, cluster: ClusterModel, engine: Engine, keep: Keep, *, is_as_it_ran: bool) -> Timeline:
    layout = graph.stitching.cohorts.layout
    computed, ended = (np.zeros(layout.sizes, dtype=np.int64) for _ in range(2))
    by_channel: tuple[dict[str, Ints], ...] = ({}, {}, {})
    for team in engine.teams:
        computed_ns = team.crew.computed_ns()
        _put(computed, team, computed_ns)
        _put(ended, team, _ended(team))
        _derive(team, computed_ns)
        for found, amounts in zip(by_channel, (team.shown_ns, team.late_ns, _transfers(team)), strict=True):
            for place, taken in amounts.items():
                name = OTHER_NAME if place == OTHER_STREAMS else _name(graph, team, place)
                _put(found.setdefault(name, np.zeros(layout.sizes, dtype=np.int64)), team, taken, add=True)
    shown, late, transfer = ({n: _by_rank(graph, layout, v) for n, v in found.items()} for found in by_channel)
    computed_by_rank, ended_by_rank = (_by_rank(graph, layout, values) for values in (computed, ended))
    none = np.zeros_like(computed_by_rank)
    errors = measured_iteration.signed_errors(
        graph.origin.truths if is_as_it_ran else (),
        against=f"the {graph.origin.source} run",
        ended_ns=ended_by_rank,
        computed_ns=computed_by_rank,
        shown_ns=sum(shown.values(), none),
        late_ns=sum(late.values(), none),
        peak_bytes=graph.peak_bytes if graph.origin.truths else none,
    )
    return Timeline(
        graph=graph,
        cluster=cluster,
        iteration_ns=int(ended.max()),
        computed_ns=computed_by_rank,
        shown_ns=shown,
        late_ns=late,
        transfer_ns=transfer,
        ended_ns=ended_by_rank,
        fidelity=judge(
            _parts(graph, cluster, engine.teams), cluster, graph.origin, errors, is_changed=not is_as_it_ran
        ),
        keep=keep,
        teams=tuple(engine.teams),
        meetings=engine.meetings,
    )


def _name(graph: JobGraph, team: Team, place: int) -> str:
    return team.crew.plan.entries.channels[place]


def _ended(team: Team) -> Ints:
    ended = team.launched_end
    for track in team.tracks:
        ended = track.clock if ended is None else np.maximum(ended, track.clock)
    assert ended is not None, "every class has a compute stream"
    return ended


def _derive(team: Team, computed_ns: Amount) -> None:
    """The compute stream's time that is nothing else was lateness on the channel that was not added up."""
    if team.derived is None:
        return
    rest: Any = team.tracks[COMPUTE_STREAM].clock - computed_ns
    for taken in (*team.shown_ns.values(), *team.late_ns.values()):
        rest = rest - taken
    team.late_ns[team.derived] = team.late_ns[team.derived] + rest


def _transfers(team: Team) -> dict[int, Amount]:
    call_of = np.array(team.crew.plan.call_of, dtype=np.int64)
    counts = np.bincount(call_of[call_of >= 0], minlength=len(team.crew.calls))
    found: dict[int, Amount] = {}
    for call, count in zip(team.crew.calls, counts.tolist(), strict=True):
        found[call.place] = found.get(call.place, 0) + call.transfer_ns * count
    return found


def _parts(graph: JobGraph, cluster: ClusterModel, teams: list[Team]) -> list[Part]:
    standing = graph.origin.standing_at
    layout = graph.stitching.cohorts.layout
    shaped = None if standing is None else layout.shaped(standing, graph.mesh)
    return [_part(graph, cluster, team, shaped) for team in teams]


def _part(graph: JobGraph, cluster: ClusterModel, team: Team, standing_at: Any) -> Part:
    plan, cohort, calls = team.crew.plan, team.crew.cohort, team.crew.calls
    asked = list(zip(calls, plan.asked, strict=True))
    ranks = {Standing.OWN: cohort.size}
    if standing_at is not None:
        counts = np.bincount(standing_at[np.ix_(*cohort.coordinates)].ravel(), minlength=len(Standing)).tolist()
        ranks = {standing: counts[standing] for standing in Standing if counts[standing]}
    return Part(
        plan.entries,
        plan.durations_ns.tolist(),
        _by_entry(plan, [call.transfer_ns for call in calls]),
        ranks,
        _by_entry(plan, [_beyond_ns(graph, cluster, *each) for each in asked]),
        _by_entry(plan, [_apart_ns(cluster, *each) for each in asked]),
        _by_entry(plan, [call.transfer_ns * call.guessed for call in calls]),
    )


def _by_entry(plan: ClassPlan, amounts: Sequence[Amount]) -> NDArray[np.float64]:
    """`amounts`: by call. On average over the ranks of the cohort; 0 where an entry is no communication."""
    return np.array([*(float(np.mean(each)) for each in amounts), 0.0])[plan.call_of]


def _beyond_ns(graph: JobGraph, cluster: ClusterModel, call: Call, asked: Asked) -> Amount:
    """How much of its transfer nothing like it was measured of."""
    return call.transfer_ns * (1 if _is_beyond(graph, cluster, call, asked) else call.carried)


def _is_beyond(graph: JobGraph, cluster: ClusterModel, call: Call, asked: Asked) -> bool:
    """Whether the calibration has measured no such group, or no such size."""
    if cluster.calibration is None or asked.duration_ns != MODELLED_NS:
        return False
    channel = call.seam.channel
    op = SEND if isinstance(channel, Toward) else asked.op
    members = 2 if isinstance(channel, Toward) else len(channel.members) or prod(map(graph.mesh.size, channel.axes))
    fit = cluster.calibration.fits.get(op)
    if fit is None:
        return members > 1
    (least, most), (smallest, largest) = fit.groups, fit.sizes_bytes
    return members > 1 and not (least <= members <= most and smallest <= asked.size_bytes <= largest)


def _apart_ns(cluster: ClusterModel, call: Call, asked: Asked) -> Amount:
    """How much of its transfer is between more nodes than were measured together."""
    most = 0 if cluster.calibration is None else cluster.calibration.nodes
    if not most or asked.duration_ns != MODELLED_NS:
        return 0
    return call.transfer_ns * np.greater(call.nodes, most).astype(np.int64)


def _put(vector: Ints, team: Team, amount: Amount, *, add: bool = False) -> None:
    index = np.ix_(*team.crew.cohort.coordinates)
    vector[index] = vector[index] + amount if add else amount


def _by_rank(graph: JobGraph, layout: Layout, shaped: Ints) -> Ints:
    values = np.empty(graph.mesh.world, dtype=np.int64)
    values[layout.ranks(graph.mesh).ravel()] = shaped.ravel()
    return values
