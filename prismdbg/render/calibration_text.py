"""What a calibration found, for people and programs: how close the model is to what was measured, by operation."""

from __future__ import annotations

from statistics import median
from typing import Any

from prismdbg.jobs.record.calibrate import Measurement
from prismdbg.render import console
from prismdbg.simulate import quantities
from prismdbg.simulate.cluster.calibration import Compared
from prismdbg.simulate.report.charts import duration

MOST_ROWS = 8
_RIGHT = ("median", "largest", "again", "measured", "model", "error", "ranks", "size")


def lines(measurement: Measurement) -> list[str]:
    cluster, compared = measurement.calibrated.cluster, measurement.calibrated.compared
    tiers = [
        f"{t.name}: latency {quantities.say_time(t.latency_ns)}, bandwidth {quantities.say_rate(t.rate)}"
        for t in cluster.tiers
    ]
    eager = quantities.say_size(cluster.eager_bytes) if cluster.eager_bytes else "none"
    rows = [_operation(measurement, op) for op in dict.fromkeys(c.sample.op for c in compared)]
    worst = sorted(compared, key=lambda c: -abs(c.error))[:MOST_ROWS]
    return [
        *tiers,
        f"a send does not wait for its receiver up to: {eager}",
        "",
        console.columns(("operation", "model", "median", "largest", "again"), rows, right=_RIGHT),
        "median, largest: the model's error; of a table, the error of each size interpolated from its neighbours.",
        "again: how far the odd and the even measurements differ.",
        "",
        "the worst:",
        console.columns(
            ("operation", "ranks", "size", "measured", "model", "error"), [_row(c) for c in worst], right=_RIGHT
        ),
        *([measurement.unrest] if measurement.unrest else []),
        *(f"not measured: {op}: {why}" for op, why in measurement.unsupported.items()),
    ]


def values(measurement: Measurement) -> dict[str, Any]:
    return {
        "rounds": measurement.rounds,
        "taken_s": measurement.taken_s,
        "eager_bytes": measurement.calibrated.cluster.eager_bytes,
        "again": measurement.again,
        "unsupported": dict(measurement.unsupported),
        "tiers": {
            t.name: {"latency_ns": t.latency_ns, "bytes_per_s": t.rate, "tables": sorted(t.measured)}
            for t in measurement.calibrated.cluster.tiers
        },
        "compared": [
            {
                "op": c.sample.op,
                "ranks": c.sample.where.members,
                "nodes": c.sample.where.nodes,
                "size_bytes": c.sample.size_bytes,
                "measured_ns": c.sample.time_ns,
                "model_ns": c.model_ns,
                "unseen_ns": c.unseen_ns,
                "error": c.error,
                "times_ns": list(c.sample.times_ns),
            }
            for c in measurement.calibrated.compared
        ],
    }


def _operation(measurement: Measurement, op: str) -> tuple[str, ...]:
    cluster = measurement.calibrated.cluster
    assert cluster.calibration is not None
    fit = cluster.calibration.fits[op]
    kind = "table" if any(op in tier.measured for tier in cluster.tiers) else "formula"
    choices = [choice.algorithm for choice in cluster.algorithms.get(op, ())]
    again = median(c.sample.again for c in measurement.calibrated.compared if c.sample.op == op)
    name = kind if kind == "table" or not choices else f"{kind}, {' then '.join(choices)}"
    return op, name, f"{fit.median_ppm / 1e4:.1f} %", f"{fit.largest_ppm / 1e4:.1f} %", f"{again:.1%}"


def _row(compared: Compared) -> tuple[str, ...]:
    sample = compared.sample
    known = compared.model_ns if compared.unseen_ns is None else round(compared.unseen_ns)
    return (
        sample.op,
        str(sample.where.members),
        quantities.say_size(sample.size_bytes),
        duration(round(sample.time_ns)),
        duration(known),
        f"{compared.error:+.1%}",
    )
