"""What a run of one configuration says: its iteration simulated step by step, or as it was measured. What a prediction
says of one that does not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.memory_reader import is_trace
from prismdbg.emulate.steps_alike import AlikeSteps, steps_alike
from prismdbg.errors import NotLogged, UsageError
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.log.rank_log import read_log
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import open_trace
from prismdbg.model.moment import Moment
from prismdbg.predict.job.modelled_job import recomputed_share
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.cluster.cluster import ClusterModel, example
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.report.report import by_axis
from prismdbg.sweep import energy
from prismdbg.sweep.messages import axes_of, link_shares, message_bytes
from prismdbg.sweep.request import How, Trial
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.space import Configuration
from prismdbg.telemetry.reader import read_telemetry

MOST_BLOCKS = 64  # of ranks


def evaluate(trial: Trial) -> Result:
    """`PrismError` where its run has no rank or no complete step, or its ranks do not fit together."""
    run = RunFolder.existing(trial.run)
    ranks = {rank_of(folder): folder for folder in run.rank_folders()}
    if not ranks:
        raise UsageError("no rank was recorded", hint="run a program that imports torch.distributed")
    logs = [read_log(folder) for folder in ranks.values()]
    alike = steps_alike(logs)
    if trial.request.how is How.EMULATE:
        return _emulated(trial, alike)
    marks = [{mark.step: mark.time_ns for mark in log.steps} for log in logs]
    each_ns = [max(of[step + 1] - of[step] for of in marks) for step in alike.steps]
    return _with_energy(_recorded(trial, alike.typical, each_ns, ranks.values()), run, alike.steps)


def _emulated(trial: Trial, alike: AlikeSteps) -> Result:
    cluster = _cluster(trial)
    request = GraphRequest(run=trial.run, like_it=alike.steps, step=alike.typical)
    typical = simulate(build_graph(request), cluster, keep=Keep.NONE)
    each_ns = [_simulated_ns(trial, step, cluster) for step in alike.steps]
    return _of_run(trial, typical, typical.iteration_ns, each_ns)


def _recorded(trial: Trial, step: int, each_ns: list[int], folders: Iterable[Path]) -> Result:
    """`step`: the typical one. folders: of the ranks."""
    middle_ns = round(median(each_ns))
    request = GraphRequest(run=trial.run, mesh=trial.mesh, step=step, as_recorded=True)
    try:
        typical = simulate(build_graph(request), _cluster(trial), keep=Keep.NONE)
    except NotLogged as error:
        return _measured(trial, middle_ns, each_ns, _peak_bytes(step, folders), str(error))
    return _measured_links(_of_run(trial, typical, middle_ns, each_ns), typical, trial)


def _of_run(trial: Trial, typical: Timeline, middle_ns: int, each_ns: list[int]) -> Result:
    memory = trial.request.memory
    return _result(trial.configuration, typical, middle_ns, each_ns, tokens=trial.tokens, has_memory=memory)


def _measured(trial: Trial, middle_ns: int, each_ns: list[int], peak_bytes: int | None, why: str) -> Result:
    """Of steps on devices: their marks and their memory are known, whatever they spent the time on."""
    return Result(
        name=trial.configuration.name,
        values=trial.configuration.values,
        state=State.DONE,
        mesh=str(trial.mesh),
        middle_ns=middle_ns,
        iteration_ns=tuple(each_ns),
        idle_share=None,
        peak_bytes=peak_bytes,
        doubts=(f"idle, exposed and messages: {why}",),
        tokens=trial.tokens,
    )


def _peak_bytes(step: int, folders: Iterable[Path]) -> int | None:
    """Of the rank that held most in this step; None where no memory was traced."""
    traces = [open_trace(folder / RANK_MEMORY) for folder in folders if is_trace(folder / RANK_MEMORY)]
    peaks = [peak(trace, Moment(step), Moment(step + 1)) for trace in traces]
    return max((each.size_bytes for each in peaks if each is not None), default=None)


def _measured_links(result: Result, typical: Timeline, trial: Trial) -> Result:
    """Of recorded transfers: of the links of a cluster that was given, else of none."""
    known = trial.request.cluster is not None
    return replace(result, link_share=link_shares(typical, _cluster(trial)) if known else {})


def _with_energy(result: Result, run: RunFolder, steps: Sequence[int]) -> Result:
    """Between the first and the last of these steps, by the clock of rank 0."""
    telemetry = read_telemetry(run.telemetry)
    if telemetry is None:
        return result
    at_ns = {mark.step: mark.time_ns for mark in read_log(run.rank_folders()[0]).steps}
    taken, peak_watts = energy.of_steps(telemetry, at_ns, steps)
    return replace(result, joules=taken, peak_watts=peak_watts)


def predicted(one: Configuration, timeline: Timeline, tokens: int, error: float | None) -> Result:
    """`error`: a share, on each side; None where it is not known."""
    error_ns = round((error or 0) * timeline.iteration_ns)
    each_ns = [] if error is None else [timeline.iteration_ns - error_ns, timeline.iteration_ns + error_ns]
    result = _result(one, timeline, timeline.iteration_ns, each_ns, tokens=tokens, has_memory=True)
    computed = float(timeline.computed_ns.mean()) / max(timeline.iteration_ns, 1)
    return replace(result, recomputed=recomputed_share(timeline.graph) * computed)


def _cluster(trial: Trial) -> ClusterModel:
    path = trial.request.cluster
    return cluster_file.read(path) if path is not None else example()


def _simulated_ns(trial: Trial, step: int, cluster: ClusterModel) -> int:
    return simulate(build_graph(GraphRequest(run=trial.run, step=step)), cluster, keep=Keep.NONE).iteration_ns


def _result(
    configuration: Configuration,
    timeline: Timeline,
    middle_ns: int,
    each_ns: list[int],
    *,
    tokens: int,
    has_memory: bool,
) -> Result:
    rows, whole_ns = by_axis(timeline), max(timeline.iteration_ns, 1)
    peaks = [rank_class.entries.peak_bytes() for rank_class in timeline.graph.classes]
    return Result(
        name=configuration.name,
        values=configuration.values,
        state=State.DONE,
        mesh=str(configuration.mesh),
        middle_ns=middle_ns,
        iteration_ns=tuple(each_ns),
        idle_share=timeline.bubble_share,
        exposed=_by_axes({row.channel: row.shown_ns / whole_ns for row in rows}),
        late=_by_axes({row.channel: row.late_ns / whole_ns for row in rows}),
        peak_bytes=max(peaks) if has_memory else None,
        worth=timeline.fidelity.summary(),
        doubts=timeline.fidelity.doubts,
        tokens=tokens,
        message_bytes=message_bytes(timeline),
        link_share=link_shares(timeline, timeline.cluster),
        computed=_in_blocks(timeline.computed_ns / whole_ns),
    )


def _in_blocks(by_rank: NDArray[np.float64]) -> tuple[float, ...]:
    """Means of consecutive ranks."""
    blocks = np.array_split(by_rank, min(len(by_rank), MOST_BLOCKS))
    return tuple(round(float(block.mean()), 4) for block in blocks)


def _by_axes(shares: Mapping[str, float]) -> dict[str, float]:
    """Of `pp+1#f` and `pp-1#b` together: `pp`."""
    found: dict[str, float] = {}
    for channel, share in shares.items():
        axes = axes_of(channel)
        found[axes] = found.get(axes, 0.0) + share
    return found
