"""The map of all ranks: a picture a measure, the values behind it for whoever points at a rank."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.durations import four_digits
from prismdbg.model.sizes import size
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.report import heat
from prismdbg.simulate.report.heat import Grid, Measure
from prismdbg.simulate.report.page.markup import Markup, joined, picture, tag

MOST_ROW_LABELS = 32
_STEPS = 65535
_ANCHORS = (  # viridis, by eighths
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
)
_MEANING = {
    Measure.WAIT: "how long a rank waits for others in the iteration",
    Measure.ARRIVAL: "how much later it comes than the first in its groups with the same calls: stragglers are bright",
    Measure.MEMORY: "the peak memory of a rank",
    Measure.COMPUTE: "how long a rank computes",
}


def heat_map(timeline: Timeline) -> Markup:
    mesh = timeline.graph.mesh
    grid = heat.grid(mesh)
    choices, maps = [], []
    for measure in Measure:
        values = heat.values(timeline, measure)
        say = size if measure is Measure.MEMORY else four_digits
        name = f"measure-{measure.name.lower()}"
        checked = "checked" if measure is Measure.WAIT else None
        choices.append(tag("input", type="radio", name="measure", id=name, checked=checked))
        choices.append(tag("label", measure.value, for_=name))
        maps.append(tag("div", tag("p", _MEANING[measure]), _map(timeline, grid, values, say), class_=f"map {name}"))
    axes = [{"name": name, "size": mesh.size(name)} for name in mesh.order]
    pointed = tag("p", "Point at a rank to see its number and value.", id="pointed")
    return tag("div", *choices, *maps, pointed, id="heat", data_axes=json.dumps(axes))


def palette() -> list[tuple[int, int, int]]:
    at = np.linspace(0, len(_ANCHORS) - 1, 256)
    columns = [np.interp(at, range(len(_ANCHORS)), part).round().astype(int) for part in zip(*_ANCHORS, strict=True)]
    return [(int(r), int(g), int(b)) for r, g, b in zip(*columns, strict=True)]


def _map(timeline: Timeline, grid: Grid, values: Ints, say: Callable[[int], str]) -> Markup:
    least, most = int(values.min()), int(values.max())
    if least == most:
        return tag("p", f"The same on every rank: {say(least)}.", class_="same")
    scaled = (values - least) / (most - least)
    by_place: NDArray[np.float64] = scaled[grid.ranks]
    indexes = (by_place * 255).round().astype(np.uint8)
    held = base64.b64encode((scaled * _STEPS).round().astype("<u2").tobytes()).decode()
    height = min(max(8, 320 // len(grid.ranks)), 24) * len(grid.ranks)
    image = tag(
        "img",
        src=picture(indexes, palette()),
        alt="a rank is a cell",
        style=f"height:{min(height, 800)}px",
        data_values=held,
        data_least=least,
        data_most=most,
        data_unit="bytes" if say is size else "ns",
    )
    worst = int(values.argmax())
    said = f"Most: {say(most)}, {timeline.graph.mesh.say(worst)}. Least: {say(least)}."
    scale = tag("p", say(least), " ", tag("i", class_="ramp"), " ", say(most), class_="scale")
    return joined(
        tag("div", _rows(timeline, grid), image, class_="grid"), _columns(timeline, grid), scale, tag("p", said)
    )


def _rows(timeline: Timeline, grid: Grid) -> Markup:
    count = len(grid.ranks)
    each = -(-count // MOST_ROW_LABELS)
    mesh = timeline.graph.mesh
    labels = [tag("span", grid.label_of_row(mesh, row) if grid.rows else "all") for row in range(0, count, each)]
    return tag("div", *labels, class_="rows")


def _columns(timeline: Timeline, grid: Grid) -> Markup:
    mesh = timeline.graph.mesh
    count = grid.ranks.shape[1]
    ends = [grid.label_of_column(mesh, column) for column in (0, count - 1)]
    inner = f"{grid.columns[-1]} is innermost" if len(grid.columns) > 1 else ""
    return tag("div", tag("span", ends[0]), tag("span", inner), tag("span", ends[1]), class_="columns")
