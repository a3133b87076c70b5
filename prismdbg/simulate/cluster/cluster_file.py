"""A cluster model as YAML. Strict: unknown names, missing units and tiers in the wrong order are errors with a line.

measured: false                          # whether these figures were measured on these machines
ranks_per_node: 8
tiers:                                   # from the nearest to the farthest; without node_bandwidth each rank has a link
  nvlink: {spans: node, latency: 2 us, bandwidth: 450 GB/s}
  fabric: {spans: job, latency: 6 us, bandwidth: 50 GB/s, node_bandwidth: 400 GB/s}
algorithms:
  all_reduce: [{use: tree, up_to: 256 KiB}, {use: ring}]
  default: [{use: ring}]                 # without a choice, all_reduce is the faster of tree and ring
point_to_point: {eager: 0 B}
overlap: {compute: 1.0, communication: 1.0}
contention: {processors: {4: 2.1}, links: {2: 1.8}}   # by ranks that compute, by groups that communicate in a node
slower: {compute: {617: 1.1, 64-127: 1.02}, links: {8: 2}}
times: {fabric: {all_reduce: {2x8: {1 MiB: 95 us, 64 MiB: 2.9 ms}}}}  # measured on two nodes of 8; they count first
calibration: ...                         # written by `prismdbg calibrate` (`calibration_text`)
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from prismdbg.simulate import quantities
from prismdbg.simulate.cluster import checked_yaml
from prismdbg.simulate.cluster.checked_yaml import Value
from prismdbg.simulate.cluster.cluster import (
    Algorithm,
    Calibration,
    Choice,
    ClusterModel,
    Factor,
    FactorFit,
    Fit,
    Tier,
)
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.slowdown import Slowdown
from prismdbg.simulate.cluster.transfer import OPS, SEND

_MOST_RANKS = 1 << 24
_MOST_SLOWER = 1 << 20  # ranks with a factor in one mapping
_EXAMPLE = "examples/emulation/cluster.yaml"
_NAMES = (
    "measured",
    "ranks_per_node",
    "tiers",
    "algorithms",
    "point_to_point",
    "overlap",
    "contention",
    "slower",
    "times",
    "calibration",
)


def read(path: Path) -> ClusterModel:
    return _cluster(checked_yaml.read(path, example=_EXAMPLE))


def parse(text: str, file: str = "cluster.yaml") -> ClusterModel:
    return _cluster(checked_yaml.parse(text, file, example=_EXAMPLE))


def _cluster(top: Value) -> ClusterModel:
    fields = top.known(*_NAMES)
    ranks_per_node = top.required(fields, "ranks_per_node").whole(1)
    overlap = fields["overlap"].known("compute", "communication") if "overlap" in fields else {}
    contention = fields["contention"].known("processors", "links") if "contention" in fields else {}
    slower = fields["slower"].known("compute", "links") if "slower" in fields else {}
    p2p = fields["point_to_point"].known("eager") if "point_to_point" in fields else {}
    tiers = _tiers(top.required(fields, "tiers"), ranks_per_node)
    return ClusterModel(
        tiers=_with_times(tiers, fields["times"]) if "times" in fields else tiers,
        ranks_per_node=ranks_per_node,
        algorithms=_algorithms(fields["algorithms"]) if "algorithms" in fields else {},
        eager_bytes=p2p["eager"].read(quantities.size_bytes) if "eager" in p2p else 0,
        compute_overlap_ppm=_factor(overlap.get("compute")),
        transfer_overlap_ppm=_factor(overlap.get("communication")),
        processors=_slowdown(contention.get("processors")),
        shared_links=_slowdown(contention.get("links")),
        compute_ppm=_by_rank(slower["compute"]) if "compute" in slower else {},
        link_ppm=_by_rank(slower["links"]) if "links" in slower else {},
        is_measured="measured" in fields and fields["measured"].flag(),
        calibration=_calibration(fields["calibration"], tiers) if "calibration" in fields else None,
    )


def _factor(value: Value | None) -> int:
    return quantities.MILLION if value is None else value.read(quantities.factor_ppm)


def _slowdown(value: Value | None) -> Slowdown:
    points = [] if value is None else [_point(text, field) for text, field in value.fields().items()]
    counts = [count for count, _ in points]
    if value is not None and counts != sorted(set(counts)):
        value.fail("must be factors by number, from the smallest number to the largest", "write {2: 1.1, 4: 2.1}")
    return Slowdown(tuple(points))


def _point(text: str, value: Value) -> tuple[int, int]:
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and int(text) > 1):
        value.fail(f"{text[:40]!r} is not a number from 2", "give factors by how many do it at once: {2: 1.1, 4: 2.1}")
    ppm = value.read(quantities.factor_ppm)
    if ppm < quantities.MILLION:
        value.fail("is below 1: contention makes nothing faster", "give a factor from 1")
    return int(text), ppm


def _tiers(value: Value, ranks_per_node: int) -> tuple[Tier, ...]:
    tiers: list[Tier] = []
    for name, field in value.fields().items():
        tier = _tier(name, field, ranks_per_node)
        if tiers and not 0 < tiers[-1].spans < (tier.spans or _MOST_RANKS):
            field.fail(f"spans no more than {tiers[-1].name} before it", "write tiers from the nearest to the farthest")
        tiers.append(tier)
    if not tiers or tiers[-1].spans:
        value.fail("no tier spans the job", "give the last one spans: job")
    return tuple(tiers)


def _tier(name: str, value: Value, ranks_per_node: int) -> Tier:
    fields = value.known("spans", "latency", "bandwidth", "node_bandwidth")
    spans = value.required(fields, "spans")
    named = {"node": ranks_per_node, "job": 0}
    if spans.text() not in named and not spans.text().isdecimal():
        spans.fail(f"{spans.text()[:40]!r} is not a span of links", "write node, job, or a number of ranks")
    rate = value.required(fields, "bandwidth").read(quantities.rate)
    if not rate:
        fields["bandwidth"].fail("is zero", "give the bandwidth of one rank, per second")
    return Tier(
        name=name,
        spans=named[spans.text()] if spans.text() in named else spans.whole(2),
        latency_ns=value.required(fields, "latency").read(quantities.time_ns),
        rate=rate,
        node_rate=fields["node_bandwidth"].read(quantities.rate) if "node_bandwidth" in fields else 0,
    )


def _with_times(tiers: tuple[Tier, ...], value: Value) -> tuple[Tier, ...]:
    by_tier = value.known(*(tier.name for tier in tiers))
    return tuple(replace(t, measured=_curves(by_tier[t.name])) if t.name in by_tier else t for t in tiers)


def _curves(value: Value) -> dict[str, tuple[Curve, ...]]:
    found: dict[str, tuple[Curve, ...]] = {}
    for op, field in value.fields().items():
        if op not in OPS and op != SEND:
            field.fail("is not a collective", f"give one of: {SEND}, {', '.join(sorted(OPS))}")
        by_members = field.fields()
        if not by_members:
            field.fail("contains no times", "give them by ranks of the group, then by size")
        found[op] = tuple(_curve(text, times) for text, times in by_members.items())
    return found


def _curve(group: str, value: Value) -> Curve:
    """`group`: nodes and ranks in each, as 2x8, or only the number of ranks."""
    nodes, _, local = group.rpartition("x") if "x" in group else ("0", "", group)
    counts = [int(part) if part.isascii() and part.isdecimal() and len(part) < 9 else -1 for part in (nodes, local)]
    members = max(counts[0], 1) * counts[1]
    if members < 2 or counts[0] < ("x" in group):
        value.fail(
            f"{group[:40]!r} is neither a number of ranks from 2 nor a layout such as 2x8",
            "give times by nodes and ranks in each of them, as in 2x8, then by size",
        )
    points = [(field.named(quantities.size_bytes), field.read(quantities.time_ns)) for field in value.fields().values()]
    sizes_bytes = [size_bytes for size_bytes, _ in points]
    if not points or sizes_bytes != sorted(set(sizes_bytes)):
        value.fail("must be times by size, from the smallest to the largest", "write {1 KiB: 80 us, 1 MiB: 1.2 ms}")
    if not all(time_ns for _, time_ns in points):
        value.fail("contains a time of zero", "leave out times that were too short to be measured")
    return Curve(
        members=members, nodes=counts[0], sizes_bytes=tuple(sizes_bytes), times_ns=tuple(ns for _, ns in points)
    )


def _calibration(value: Value, tiers: tuple[Tier, ...]) -> Calibration:
    fields = value.known("machine", "backend", "date", "nodes", "ranks_of_a_node", "errors", "factors")
    errors = fields["errors"].fields() if "errors" in fields else {}
    factors = fields["factors"].known(*Factor) if "factors" in fields else {}
    return Calibration(
        machine=value.required(fields, "machine").text(),
        backend=value.required(fields, "backend").text(),
        date=value.required(fields, "date").text(),
        fits={op: _fit(op, field) for op, field in errors.items()},
        factors={Factor(name): _factor_fit(field) for name, field in factors.items()},
        nodes=fields["nodes"].whole(1) if "nodes" in fields else int(len(tiers) == 1),
        ranks_of_a_node=fields["ranks_of_a_node"].whole(1) if "ranks_of_a_node" in fields else 0,
    )


def _factor_fit(value: Value) -> FactorFit:
    fields = value.known("median", "largest", "cases")
    return FactorFit(
        median_ppm=value.required(fields, "median").read(quantities.percent_ppm),
        largest_ppm=value.required(fields, "largest").read(quantities.percent_ppm),
        cases=value.required(fields, "cases").whole(1),
    )


def _fit(op: str, value: Value) -> Fit:
    if op not in OPS and op != SEND:
        value.fail("is not a collective", f"give one of: {SEND}, {', '.join(sorted(OPS))}")
    fields = value.known("median", "largest", "ranks", "sizes")
    ranks, sizes = (_two(value.required(fields, name)) for name in ("ranks", "sizes"))
    return Fit(
        median_ppm=value.required(fields, "median").read(quantities.percent_ppm),
        largest_ppm=value.required(fields, "largest").read(quantities.percent_ppm),
        groups=(ranks[0].whole(2), ranks[1].whole(2)),
        sizes_bytes=(sizes[0].read(quantities.size_bytes), sizes[1].read(quantities.size_bytes)),
    )


def _two(value: Value) -> list[Value]:
    items = value.items()
    if len(items) != 2:
        value.fail("must be the minimum and the maximum", "write for instance [2, 8]")
    return items


def _algorithms(value: Value) -> dict[str, tuple[Choice, ...]]:
    found: dict[str, tuple[Choice, ...]] = {}
    for op, field in value.fields().items():
        if op not in OPS and op != "default":
            field.fail("is not a collective", f"use one of: default, {', '.join(sorted(OPS))}")
        choices = field.items()
        found[op] = tuple(_choice(choice, choice is choices[-1]) for choice in choices)
        limits = [choice.up_to_bytes for choice in found[op][:-1]]
        if not choices or limits != sorted(limits, key=lambda limit: limit or 0):
            field.fail("must be choices from the smallest messages to the largest")
    return found


def _choice(value: Value, is_last: bool) -> Choice:
    fields = value.known("use", "up_to")
    name = value.required(fields, "use")
    if name.text() not in list(Algorithm):
        name.fail(f"{name.text()!r} is not an algorithm", f"give one of: {', '.join(Algorithm)}")
    if is_last == ("up_to" in fields):
        value.fail("the last choice, and only it, has no up_to", "end the list with a choice for every other size")
    limit = fields["up_to"].read(quantities.size_bytes) if "up_to" in fields else None
    return Choice(Algorithm(name.text()), limit)


def _by_rank(value: Value) -> dict[int, int]:
    found: dict[int, int] = {}
    for text, field in value.fields().items():
        first, _, last = text.partition("-")
        if not all(part.isascii() and part.isdecimal() and len(part) < 9 for part in (first, last or first)):
            field.fail(f"{text!r} is neither a rank nor ranks", "write 617 or 64-127")
        ranks = range(int(first), int(last or first) + 1)
        if not 0 < len(ranks) <= _MOST_SLOWER - len(found):
            field.fail(
                f"{text!r} is in descending order, or contains too many ranks",
                f"write 64-127: {_MOST_SLOWER:,} at most, in all keys together",
            )
        ppm = field.read(quantities.factor_ppm)
        for rank in ranks:
            if rank in found:
                field.fail(f"rank {rank} has two factors", "name each rank once")
            found[rank] = ppm
    return found
