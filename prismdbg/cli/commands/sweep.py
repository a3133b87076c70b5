"""`prismdbg sweep`: configurations of one job, each emulated or really run, and compared."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from prismdbg.cli.click_errors import WrongValue
from prismdbg.cli.commands.predict import read_words
from prismdbg.cli.commands.record import DEFAULT_PERIOD
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options import output_file
from prismdbg.cli.options.launched_job import JOB, TAKES_JOB
from prismdbg.cli.options.param_types import period, seconds, size
from prismdbg.emulate.request import USUAL_STEPS
from prismdbg.errors import UsageError
from prismdbg.job_graph.job_view import ASSUMED_CLUSTER
from prismdbg.render import console, sweep_text
from prismdbg.render.sweep_page import page
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.graph.mesh import LARGEST_WORLD
from prismdbg.sweep.place import Engine, Place
from prismdbg.sweep.predictor import PREDICTION_ERROR, Predictor
from prismdbg.sweep.request import How, SweepRequest
from prismdbg.sweep.result import Result, State, fastest, pareto
from prismdbg.sweep.search import Regret, Search, search
from prismdbg.sweep.space import Space
from prismdbg.sweep.stored import keep_comparison
from prismdbg.sweep.sweep import kept_predictions, sweep, sweep_of_predictions


def _place(text: str) -> Place:
    try:
        return Place.parse(str(text))
    except UsageError as error:
        raise WrongValue(str(error), hint=error.hint) from error


@click.command(context_settings=TAKES_JOB)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="S",
    help="Write to this folder. If it contains a sweep with the same options, continue it. With --how predict, all "
    "configurations are predicted again; without -o, nothing is kept.",
)  # fmt: skip
@click.option(
    "--world", type=click.IntRange(1, LARGEST_WORLD), required=True, metavar="N", help="Set the number of ranks."
)
@click.option(
    "--mesh", required=True, metavar="AXES",
    help="Set the mesh axes, as in pp,dp,tp. Sizes come from --try, from AXIS=SIZE, or from the rest of --world.",
)  # fmt: skip
@click.option(
    "--try", "tried", multiple=True, required=True, metavar="NAME=VALUES",
    help="Try each of these values for {NAME} in COMMAND, as in mbs=1,2,4. All combinations are tried.",
)  # fmt: skip
@click.option(
    "--how", type=click.Choice([how.value for how in How]), default=How.EMULATE.value, show_default=True,
    help="Emulate each configuration and simulate its job, record the real job on this machine, or predict it.",
)  # fmt: skip
@click.option("--cluster", type=click.Path(path_type=Path), metavar="YAML", help="Simulate this cluster.")
@click.option("--classes", default="", metavar="AXES", help="Name the axes along which ranks differ, if you know them.")
@click.option(
    "--steps", type=click.IntRange(2), default=USUAL_STEPS, show_default=True, metavar="N",
    help="Emulate N steps of each configuration.",
)  # fmt: skip
@click.option(
    "--ops",
    type=click.Path(path_type=Path),
    metavar="OPS",
    help="With --how predict or --search, use the times of operators here.",
)
@click.option(
    "--search", "line", metavar="LINE",
    help="Predict all configurations, and run only those with the shortest predicted times. LINE holds the arguments "
    "of `prismdbg predict` and may contain {NAME}.",
)  # fmt: skip
@click.option(
    "--keep", type=click.IntRange(1), metavar="N",
    help="With --search, run N configurations.  [default: a quarter, at least 2]",
)  # fmt: skip
@click.option("--memory", is_flag=True, help="Trace memory, too. This makes steps longer.")
@click.option(
    "--memory-cap", type=size, default=0, metavar="SIZE",
    help="Mark configurations in which a rank needs more memory than SIZE. Implies --memory.",
)  # fmt: skip
@click.option(
    "--tokens",
    default="",
    metavar="PRODUCT",
    help="Set the tokens of an iteration, as in 1024*{mbs}*{dp}, to show tokens per second.",
)
@click.option(
    "--jobs", type=click.IntRange(1), default=None, metavar="N",
    help="Run N configurations at once.  [default: the number of CPUs with emulate, 1 with record, no limit with --on]",
)  # fmt: skip
@click.option(
    "--on", "place", type=_place, default="local", show_default=True, metavar="PLACE",
    help="Run here (local), as one job array of Slurm (slurm[:OPTIONS], those of sbatch), or by Ray (ray[:ADDRESS]).",
)  # fmt: skip
@click.option(
    "--timeout",
    type=seconds,
    default="1h",
    show_default=True,
    help="Limit the time of each emulated rank, or recorded job.",
)
@click.option(
    "--telemetry", type=period, is_flag=False, flag_value=DEFAULT_PERIOD, metavar="[PERIOD]",
    help="With --how record, read the machine's sensors, as `record` does, for energy and power.",
)  # fmt: skip
@click.option("--html", "page_path", type=click.Path(path_type=Path), metavar="FILE", help="Also write a page to FILE.")
@click.option("--json", "as_json", is_flag=True, help="Print the values as JSON.")
@JOB
def command(
    output: Path | None,
    how: str,
    cluster: Path | None,
    ops: Path | None,
    line: str | None,
    keep: int | None,
    memory_cap: int,
    page_path: Path | None,
    as_json: bool,
    job: tuple[str, ...],
    **asked: Any,
) -> int:
    """Try configurations of COMMAND and compare their times and memory.

    Example: `prismdbg sweep -o S --world 64 --mesh pp,dp,tp --try pp=1,2,4 --try tp=1,2 -- python train.py --pp {pp}
    --tp {tp}`

    In COMMAND, {NAME} stands for a value that is tried or for the size of a mesh axis, {world} for the number of ranks,
    and {folder} for a folder of this configuration alone. With --how record, COMMAND starts all ranks itself, as
    torchrun does.

    With --how predict, nothing runs, and COMMAND holds the arguments of `prismdbg predict`: a model's file and options,
    as in -- llama.yaml --batch 512 --microbatch {mbs}.

    With --search, the last line says how much slower the fastest result can be than a configuration that was left out.

    A configuration whose mesh sizes do not multiply to --world is skipped. If one fails, the others still run. The exit
    code is 1 if one failed, or if none has a time. If the intervals of the fastest ones overlap, there is no winner.

    Run the same command again to continue an interrupted sweep. If you change only --cluster, the finished runs are
    simulated on the new cluster, and nothing runs again.
    """
    request = _request(How(how), output, cluster, job, memory_cap=memory_cap, **asked)
    regret: Regret | None = None
    if line is not None:
        if request.how is How.PREDICT:
            raise UsageError(
                "--search cannot be combined with --how predict: it runs the configurations that it chooses",
                hint="leave one of them out",
            )
        wanted = Search(line=line, keep=keep or 0, cap_bytes=memory_cap)
        results, regret = search(request, wanted, _predictor(ops, cluster), console.announce)
    elif request.how is How.PREDICT:
        predict = sweep_of_predictions if output is None else kept_predictions
        results = predict(request, _predictor(ops, cluster), console.announce)
    else:
        if cluster is not None:
            cluster_file.read(cluster)  # what is wrong with it is an error before anything runs
        results = sweep(request, console.announce)
    if output is not None:
        keep_comparison(output, results, memory_cap)
    if page_path is not None:
        with output_file.whole(page_path) as path:
            path.write_text(page(results, memory_cap), encoding="utf-8")
    with console.also_unread():
        if as_json:
            console.emit_json(_values(results, memory_cap) | ({"regret": asdict(regret)} if regret else {}))
        else:
            _show(results, memory_cap, request)
            if regret is not None:
                console.emit(sweep_text.regret(regret))
        if cluster is None and request.how is How.EMULATE:
            console.say(ASSUMED_CLUSTER)
    states = {each.state for each in results}
    return ExitCode.FAILED if State.FAILED in states or State.DONE not in states else ExitCode.OK


def _request(
    how: How,
    output: Path | None,
    cluster: Path | None,
    job: tuple[str, ...],
    *,
    world: int,
    mesh: str,
    tried: tuple[str, ...],
    classes: str,
    steps: int,
    memory: bool,
    memory_cap: int,
    tokens: str,
    jobs: int | None,
    place: Place,
    timeout: float,
    telemetry: int | None,
) -> SweepRequest:
    if telemetry and how is not How.RECORD:
        raise UsageError("--telemetry reads the sensors of a job that runs", hint="add --how record, or leave it out")
    if output is None and how is not How.PREDICT:
        raise UsageError("no folder for the runs was given", hint="give a new folder with -o")
    if place.engine is not Engine.LOCAL and how is How.PREDICT:
        raise UsageError(f"--on {place.engine} runs configurations, and predictions do not run", hint="leave --on out")
    return SweepRequest(
        output=output or Path(),
        space=Space.parse(world, mesh, tried),
        command=job,
        how=how,
        steps=steps,
        classes=tuple(name.strip() for name in classes.split(",") if name.strip()),
        memory=memory or memory_cap > 0 or how is How.PREDICT,
        jobs=jobs or _at_once(how, place),
        bound_s=timeout,
        cluster=cluster,
        tokens=tokens,
        telemetry_ns=telemetry or 0,
        place=place,
    )


def _at_once(how: How, place: Place) -> int:
    if place.engine is not Engine.LOCAL:
        return 0
    return len(os.sched_getaffinity(0)) if how is How.EMULATE else 1


def _predictor(ops: Path | None, cluster: Path | None) -> Predictor:
    if ops is None or cluster is None:
        raise UsageError("predictions need --ops and --cluster", hint="give both, as for `prismdbg predict`")
    predictor = Predictor(read_words, ops, cluster, console.say)
    if predictor.not_used:
        console.announce(predictor.not_used)
    return predictor


def _show(results: Sequence[Result], cap_bytes: int, request: SweepRequest) -> None:
    table = _table(sweep_text.rows(results, cap_bytes))
    console.emit(console.columns(table.header, table.rows, right=sweep_text.NUMBERS))
    said = [
        *table.notes,
        *sweep_text.conclusion(results, cap_bytes),
        *sweep_text.worth(results, cap_bytes),
        *sweep_text.doubts(results, cap_bytes),
        *sweep_text.energy(results),
    ]
    if request.telemetry_ns and not sweep_text.energy(results):
        said.append(sweep_text.NO_ENERGY)
    said += sweep_text.certainty(results, PREDICTION_ERROR)
    console.emit_lines(["", *said])
    if table.left_out:
        console.say(f"no room for {', '.join(table.left_out)}; a wider terminal, a pipe and --json have them")


def _table(rows: list[tuple[str, ...]]) -> sweep_text.Table:
    """A program gets all of it, whatever the terminal."""
    if not sys.stdout.isatty():
        return sweep_text.Table(sweep_text.HEADER, rows)
    return sweep_text.fitted(rows, shutil.get_terminal_size((80, 24)).columns)


def _values(results: list[Result], cap_bytes: int) -> dict[str, object]:
    return {
        "results": [
            {
                **each.to_json(),
                "interval_ns": [each.time.low, each.time.high]
                if each.state is State.DONE and each.time.is_known
                else None,
                "fits": each.fits(cap_bytes),
            }
            for each in results
        ],
        "fastest": [each.name for each in fastest(results, cap_bytes)],
        "pareto": [each.name for each in pareto(results)],
    }
