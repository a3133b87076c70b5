"""What a cluster file from measured files has, for people and programs: by collective and layout, and how close."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median
from typing import Any

from prismdbg.render import console
from prismdbg.render.calibration_text import tier_lines, tier_values
from prismdbg.simulate.cluster.collective_tables import Table, Tabulated

_HEADER = ("operation", "layout", "sizes", "from", "to", "points", "median", "largest", "formula")


def lines(found: Tabulated) -> list[str]:
    return [
        *tier_lines(found.cluster),
        "",
        console.columns(_HEADER, [_row(table) for table in found.tables], right=_HEADER[2:]),
        "layout: nodes x ranks on each. sizes: how many were measured. points: how many the table has.",
        "median, largest: errors of a table made of every other size, at the sizes left out.",
        "formula: median error without a table.",
        "",
        *found.notes,
    ]


def values(found: Tabulated) -> dict[str, Any]:
    return {
        "ranks_per_node": found.cluster.ranks_per_node,
        "tiers": tier_values(found.cluster),
        "tables": [
            {
                "op": table.op,
                "nodes": table.where.nodes,
                "ranks": table.where.members,
                "sizes": table.sizes,
                "sizes_bytes": list(table.curve.sizes_bytes),
                "times_ns": list(table.curve.times_ns),
                "errors": _summary(table.errors),
                "formula_errors": _summary(table.formula_errors),
            }
            for table in found.tables
        ],
    }


def _row(table: Table) -> tuple[str, ...]:
    first, last = (console.size(table.curve.sizes_bytes[at]) for at in (0, -1))
    about = (f"{value(list(map(abs, table.errors))):.1%}" if table.errors else "-" for value in (median, max))
    formula = f"{median(map(abs, table.formula_errors)):.1%}"
    layout = f"{table.where.nodes}x{table.where.local}"
    return table.op, layout, str(table.sizes), first, last, str(len(table.curve.sizes_bytes)), *about, formula


def _summary(errors: Sequence[float]) -> dict[str, float] | None:
    absolute = [abs(error) for error in errors]
    if not absolute:
        return None
    return {"mean": mean(absolute), "median": median(absolute), "largest": max(absolute), "signed_mean": mean(errors)}
