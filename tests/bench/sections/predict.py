"""What `predict` says against what was measured: operators and collectives of A100 nodes, by shapes held out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from prismdbg.predict.operators.operators import OPERATORS
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.predict.samples.samples import Samples
from tests.bench.held_out import NARROW, ONE_OF, WIDE, Errors, errors, errors_beyond, in_short
from tests.bench.jobs import BenchError
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Prediction, against what was measured"
OPERATORS_GOAL, COLLECTIVES_GOAL = 4.0, 1.2
_PHASES = {"fwd": "forward", "bwd": "backward", "dur": "whole"}
_PUBLISHED = "published_errors.csv"
Published = dict[tuple[str, ...], float]


def measure(settings: Settings, folder: Path) -> Measured:
    if settings.data is None or not settings.data.is_dir():
        raise BenchError("give --data PATH, the folder of measured figures: the project holds none of them")
    parts = [_operators(settings.data / "a100-operators"), _collectives(settings.data / "a100-collectives")]
    return Measured(
        rows=[row for part in parts for row in part.rows],
        notes=[
            f"Every family of operators and every collective is fitted to {ONE_OF - 1} of {ONE_OF} shapes; errors are "
            "those of the others. A hash of the shape decides which. All have the same two regressors with the same "
            "settings.",
            *(note for part in parts for note in part.notes),
        ],
    )


def _operators(folder: Path) -> Measured:
    known = [samples for operator, samples in read_folder(folder).items() if operator in OPERATORS]
    published = {(r["Function"], _PHASES[r["Propagation"]]): r for r in _published(folder)}
    theirs: Published = {key: _percent(row) for key, row in published.items()}
    found: dict[tuple[str, ...], Errors] = {(error.operator, str(error.phase)): error for error in errors(known)}
    table = _table("A100 operators", found, theirs, OPERATORS_GOAL)
    return Measured(rows=table.rows, notes=[*table.notes, *_beyond(known)])


def _beyond(known: Sequence[Samples]) -> list[str]:
    """Shapes that no sample is near."""
    found = list(errors_beyond(known))
    means = [error.mean for error in found]
    return [
        f"A100 operators, fitted to widths of up to {NARROW:,} and asked for those above {WIDE:,}: mean errors of "
        f"{len(found)} operators and phases: median {median(means):.2f} %, mean {mean(means):.2f} %, "
        f"signed {mean(mean(error.signed) for error in found):+.2f} %",
        *(
            f"A100 operators, {error.operator} {error.phase}, widths above {WIDE:,}: {in_short(error.signed)}"
            for error in found
        ),
    ]


def _collectives(folder: Path) -> Measured:
    theirs: Published = {
        (r["Function"], r["Nodes"], r["GPUsPerNode"]): _percent(r) for r in _published(folder) if r["Nodes"] != "0"
    }
    found: dict[tuple[str, ...], Errors] = {}
    for error in errors(list(read_folder(folder).values())):
        places = sorted(set(zip(error.columns["nodes"], error.columns["GPUsPerNode"], strict=True)))
        for nodes, gpus in places:
            found[error.operator, f"{nodes:g}", f"{gpus:g}"] = error.where(nodes=nodes, GPUsPerNode=gpus)
    return _table("A100 collectives", found, theirs, COLLECTIVES_GOAL)


def _table(what: str, found: dict[tuple[str, ...], Errors], theirs: Published, goal: float) -> Measured:
    means = [error.mean for error in found.values()]
    shared = sorted(set(theirs) & set(found))
    against = f"published: {median(theirs[key] for key in shared):.2f} % for the same"
    rows = [Row(what=f"{what}: mean error of each", values=means, unit="%", against=against, goal=goal, digits=2)]
    beside = {key: f"; published mean {theirs[key]:.2f} %" if key in theirs else "" for key in found}
    return Measured(
        rows=rows,
        notes=[f"{what}, {' '.join(key)}: {in_short(error.signed)}{beside[key]}" for key, error in found.items()],
    )


def _published(folder: Path) -> list[dict[str, str]]:
    with (folder / _PUBLISHED).open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def _percent(row: dict[str, str]) -> float:
    return 100 * float(row["Best_error%"])
