"""What a calibration found, for people and programs: how close the model is to what was measured, by operation."""

from __future__ import annotations

from statistics import median
from typing import Any

from prismdbg.jobs.record.calibrate import Measurement
from prismdbg.model.durations import four_digits
from prismdbg.render import console
from prismdbg.simulate import quantities
from prismdbg.simulate.cluster.calibration import Compared
from prismdbg.simulate.cluster.cluster import ClusterModel, Factor
from prismdbg.simulate.cluster.factor_fit import FittedFactor
from prismdbg.simulate.quantities import MILLION

MOST_ROWS = 8
_RIGHT = ("median", "largest", "repeat", "measured", "model", "error", "ranks", "size", "slowdown", "cases")
_WHAT = {
    Factor.COMPUTE_OVERLAP: "computation beside a transfer",
    Factor.COMMUNICATION_OVERLAP: "a transfer beside computation",
    Factor.LINKS: "{count} groups that communicate",
    Factor.PROCESSORS: "{count} ranks that compute",
}


def lines(measurement: Measurement) -> list[str]:
    cluster, compared = measurement.calibrated.cluster, measurement.calibrated.compared
    eager = quantities.say_size(cluster.eager_bytes) if cluster.eager_bytes else "none"
    rows = [_operation(measurement, op) for op in dict.fromkeys(c.sample.op for c in compared)]
    worst = sorted(compared, key=lambda c: -abs(c.error))[:MOST_ROWS]
    return [
        *tier_lines(cluster),
        f"a send does not wait for its receiver up to: {eager}",
        "",
        console.columns(("operation", "model", "median", "largest", "repeat"), rows, right=_RIGHT),
        "median, largest: the model's error; of a table, the error of each size interpolated from its neighbours.",
        "repeat: the difference between the odd and the even measurements.",
        "",
        *_factor_lines(measurement),
        "the worst:",
        console.columns(
            ("operation", "ranks", "size", "measured", "model", "error"), [_row(c) for c in worst], right=_RIGHT
        ),
        *([measurement.unrest] if measurement.unrest else []),
        *measurement.left_out,
        *measurement.assumed,
    ]


def tier_lines(cluster: ClusterModel) -> list[str]:
    return [
        f"{t.name}: latency {quantities.say_time(t.latency_ns)}, bandwidth {quantities.say_rate(t.rate)}"
        + (f", of all links of a node {quantities.say_rate(t.node_rate)}" if t.node_rate else "")
        for t in cluster.tiers
    ]


def tier_values(cluster: ClusterModel) -> dict[str, Any]:
    return {
        t.name: {
            "latency_ns": t.latency_ns,
            "bytes_per_s": t.rate,
            "node_bytes_per_s": t.node_rate,
            "tables": sorted(t.measured),
        }
        for t in cluster.tiers
    }


def values(measurement: Measurement) -> dict[str, Any]:
    cluster = measurement.calibrated.cluster
    return {
        "ranks_per_node": cluster.ranks_per_node,
        "nodes": 0 if cluster.calibration is None else cluster.calibration.nodes,
        "rounds": measurement.rounds,
        "taken_s": measurement.taken_s,
        "eager_bytes": cluster.eager_bytes,
        "again": measurement.again,
        "unsupported": dict(measurement.unsupported),
        "not_measured": dict(measurement.not_measured),
        "factors": {name: _factor_values(fitted) for name, fitted in measurement.factors.items()},
        "tiers": tier_values(cluster),
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


def _factor_lines(measurement: Measurement) -> list[str]:
    if not measurement.factors:
        return []
    rows = [
        (_WHAT[name].format(count=count), quantities.say_factor(ppm), *_residuals(fitted, count))
        for name, fitted in measurement.factors.items()
        for count, ppm in fitted.ppm.items()
    ]
    return [
        console.columns(("at once", "slowdown", "median", "largest", "repeat", "cases"), rows, right=_RIGHT),
        "slowdown: the factor compared with running alone. median, largest: its error over the measured cases.",
        "",
    ]


def _residuals(fitted: FittedFactor, count: int) -> tuple[str, ...]:
    cases = [(case, abs(error)) for case, error in fitted.cases if case.count == count]
    errors = [error for _, error in cases]
    again = median(case.again for case, _ in cases) if len(cases[0][0].alone_ns) > 1 else None
    return f"{median(errors):.1%}", f"{max(errors):.1%}", _again(again), str(len(cases))


def _again(share: float | None) -> str:
    """A dash where nothing was repeated."""
    return "-" if share is None else f"{share:.1%}"


def _factor_values(fitted: FittedFactor) -> dict[str, Any]:
    return {
        "by_count": {str(count): ppm / MILLION for count, ppm in fitted.ppm.items()},
        "again": fitted.again,
        "cases": [
            {
                "kind": case.kind,
                "count": case.count,
                "ranks": case.members,
                "size_bytes": case.size_bytes,
                "factor": case.factor,
                "error": error,
                "alone_ns": list(case.alone_ns),
                "at_once_ns": list(case.at_once_ns),
            }
            for case, error in fitted.cases
        ],
    }


def _operation(measurement: Measurement, op: str) -> tuple[str, ...]:
    cluster = measurement.calibrated.cluster
    assert cluster.calibration is not None
    fit = cluster.calibration.fits[op]
    kind = "table" if any(op in tier.measured for tier in cluster.tiers) else "formula"
    choices = [choice.algorithm for choice in cluster.algorithms.get(op, ())]
    samples = [c.sample for c in measurement.calibrated.compared if c.sample.op == op]
    again = median(each.again for each in samples) if len(samples[0].times_ns) > 1 else None
    name = kind if kind == "table" or not choices else f"{kind}, {' then '.join(choices)}"
    return op, name, f"{fit.median_ppm / 1e4:.1f}%", f"{fit.largest_ppm / 1e4:.1f}%", _again(again)


def _row(compared: Compared) -> tuple[str, ...]:
    sample = compared.sample
    known = compared.model_ns if compared.unseen_ns is None else round(compared.unseen_ns)
    return (
        sample.op,
        str(sample.where.members),
        quantities.say_size(sample.size_bytes),
        four_digits(round(sample.time_ns)),
        four_digits(known),
        f"{compared.error:+.1%}",
    )
