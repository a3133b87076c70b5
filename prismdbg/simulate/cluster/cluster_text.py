"""A cluster model as the text of a cluster file. What `cluster_file` reads of it is the same model again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prismdbg.simulate import quantities
from prismdbg.simulate.cluster.cluster import Calibration, Choice, ClusterModel, FactorFit, Fit, Tier
from prismdbg.simulate.cluster.curve import Curve
from prismdbg.simulate.cluster.slowdown import Slowdown
from prismdbg.simulate.quantities import MILLION


def write(cluster: ClusterModel, notes: Sequence[str] = ()) -> str:
    """`notes`: comments at the top."""
    return "\n".join([*(f"# {note}" for note in notes), *_lines(cluster)]) + "\n"


def _lines(cluster: ClusterModel) -> Iterator[str]:
    yield f"measured: {'true' if cluster.is_measured else 'false'}"
    yield f"ranks_per_node: {cluster.ranks_per_node}"
    yield "tiers:"
    for tier in cluster.tiers:
        yield f"  {_name(tier.name)}: {_tier(tier, cluster.ranks_per_node)}"
    if cluster.algorithms:
        yield "algorithms:"
    for op, choices in cluster.algorithms.items():
        yield f"  {op}: [{', '.join(map(_choice, choices))}]"
    if cluster.eager_bytes:
        yield f"point_to_point: {{eager: {quantities.say_size(cluster.eager_bytes)}}}"
    compute, transfer = cluster.compute_overlap_ppm, cluster.transfer_overlap_ppm
    if (compute, transfer) != (MILLION, MILLION):
        say = quantities.say_factor
        yield f"overlap: {{compute: {say(compute)}, communication: {say(transfer)}}}"
    contention = {"processors": cluster.processors, "links": cluster.shared_links}
    if any(slowdown.points for slowdown in contention.values()):
        said = (f"{name}: {{{_slowdown(slowdown)}}}" for name, slowdown in contention.items() if slowdown.points)
        yield f"contention: {{{', '.join(said)}}}"
    if cluster.compute_ppm or cluster.link_ppm:
        yield "slower:"
        yield f"  compute: {{{_by_rank(cluster.compute_ppm)}}}"
        yield f"  links: {{{_by_rank(cluster.link_ppm)}}}"
    if any(tier.measured for tier in cluster.tiers):
        yield from _times(cluster.tiers)
    if cluster.calibration is not None:
        yield from _calibration(cluster.calibration)


def _tier(tier: Tier, ranks_per_node: int) -> str:
    spans = {0: "job", ranks_per_node: "node"}.get(tier.spans, str(tier.spans))
    shared = f", node_bandwidth: {quantities.say_rate(tier.node_rate)}" if tier.node_rate else ""
    latency, rate = quantities.write_time(tier.latency_ns), quantities.say_rate(tier.rate)
    return f"{{spans: {spans}, latency: {latency}, bandwidth: {rate}{shared}}}"


def _choice(choice: Choice) -> str:
    limit = "" if choice.up_to_bytes is None else f", up_to: {quantities.say_size(choice.up_to_bytes)}"
    return f"{{use: {choice.algorithm}{limit}}}"


def _slowdown(slowdown: Slowdown) -> str:
    return ", ".join(f"{count}: {quantities.say_factor(ppm)}" for count, ppm in slowdown.points)


def _by_rank(factors: Mapping[int, int]) -> str:
    return ", ".join(f"{rank}: {quantities.say_factor(ppm)}" for rank, ppm in factors.items())


def _times(tiers: Sequence[Tier]) -> Iterator[str]:
    yield "times:"
    for tier in tiers:
        if tier.measured:
            yield f"  {_name(tier.name)}:"
        for op, curves in tier.measured.items():
            yield f"    {op}:"
            yield from (f"      {_group(curve)}: {{{_points(curve)}}}" for curve in curves)


def _group(curve: Curve) -> str:
    return f"{curve.nodes}x{curve.members // curve.nodes}" if curve.nodes else str(curve.members)


def _points(curve: Curve) -> str:
    points = zip(curve.sizes_bytes, curve.times_ns, strict=True)
    return ", ".join(f"{quantities.say_size(size)}: {quantities.write_time(time)}" for size, time in points)


def _calibration(calibration: Calibration) -> Iterator[str]:
    yield "calibration:"
    yield f"  machine: {_quoted(calibration.machine)}"
    yield f"  backend: {_quoted(calibration.backend)}"
    yield f"  date: {_quoted(calibration.date)}"
    if calibration.nodes:
        yield f"  nodes: {calibration.nodes}"
    if calibration.ranks_of_a_node:
        yield f"  ranks_of_a_node: {calibration.ranks_of_a_node}"
    if calibration.fits:
        yield "  errors:"
    for op, fit in calibration.fits.items():
        yield f"    {op}: {_fit(fit)}"
    if calibration.factors:
        yield "  factors:"
    for factor, found in calibration.factors.items():
        yield f"    {factor}: {_factor_fit(found)}"


def _factor_fit(fit: FactorFit) -> str:
    return f"{{{_errors(fit.median_ppm, fit.largest_ppm)}, cases: {fit.cases}}}"


def _errors(median_ppm: int, largest_ppm: int) -> str:
    return f"median: {quantities.say_percent(median_ppm)}, largest: {quantities.say_percent(largest_ppm)}"


def _fit(fit: Fit) -> str:
    sizes = ", ".join(map(quantities.say_size, fit.sizes_bytes))
    return (
        f"{{{_errors(fit.median_ppm, fit.largest_ppm)}, ranks: [{fit.groups[0]}, {fit.groups[1]}], sizes: [{sizes}]}}"
    )


def _name(name: str) -> str:
    """A name that YAML takes as it stands, else quoted."""
    return name if name.isidentifier() else _quoted(name)


def _quoted(text: str) -> str:
    plain = (c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{"".join(plain)}"'
