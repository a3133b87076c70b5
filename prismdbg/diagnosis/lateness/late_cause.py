"""Finds why a rank was late, by the sensors that were read beside the job.

A rank's time between its calls is what it ran, waited in a run queue, was held by a quota, and slept. By how much each
of these is longer than with the other ranks of the group says how much of the lateness it explains. Time that waits
for a CPU grows with the work, too: of that, as much counts as work as the other ranks waited for the same work.
A cause is named only if it explains most of the lateness, and no other comes near.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

from prismdbg.diagnosis.cross_rank import rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.cause import LateCause, Why
from prismdbg.diagnosis.lateness.device_cause import Device, Throttled, devices_of, throttled
from prismdbg.diagnosis.lateness.disk_sleep import disk_sleep, more_asleep_ns
from prismdbg.diagnosis.lateness.late_span import LateSpan, in_collectives_ns, late_span
from prismdbg.diagnosis.lateness.link_cause import link_errors
from prismdbg.diagnosis.lateness.rank_shares import NotAvailable, RankTimes, times_of
from prismdbg.diagnosis.lateness.rivals import clock_ratio, nobody, rivals, why_no_clock
from prismdbg.diagnosis.wording import and_list
from prismdbg.model.durations import brief
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import rank_subject
from prismdbg.telemetry.series import Telemetry

LEAST_EXPLAINED = 0.6  # of the lateness
_RIVAL = 0.6  # of the share of the cause that explains most: another one that comes so near leaves it open
_LEAST_LATE_NS = 100_000_000
_LEAST_PERIODS = 5  # that it was late in all, or the readings are too coarse
_LEAST_READINGS = 10
_SLOWER_CLOCK = 0.85
_OTHER_NODES = 8  # of which readings are compared with those of the rank's node
_SHOWN_SHARE = 0.05
_UNSURE = "why it was late is inconclusive"
_OUTSIDE = (Why.QUOTA, Why.STOLEN, Why.RUN_QUEUE)
_FOR_A_DEVICE = (Why.COMPUTES, Why.CLOCK, Why.ASLEEP, Why.SEVERAL)  # as a thread that waits for its GPU may look
_TITLES = {
    Why.QUOTA: "CPU quota",
    Why.STOLEN: "stolen time",
    Why.RUN_QUEUE: "run queue",
    Why.COMPUTES: "longer computation",
    Why.ASLEEP: "sleep",
    Why.DISK: "disk",
    Why.OTHER_CALLS: "other calls",
}


def why_late(evidence: Evidence, group: str, rank: int) -> LateCause | None:
    """None without telemetry, and where the rank was late too seldom or for too short to say anything."""
    if not evidence.telemetry:
        return None
    telemetry, subject = evidence.telemetry_of(rank), rank_subject(evidence.folder_name(rank))
    if telemetry is None:
        return _cannot_tell(_no_telemetry(evidence, rank))
    own = telemetry.find(subject, names.CPU_TIME)
    if own is None:
        why = telemetry.why_missing(subject, names.CPU_TIME)
        return _cannot_tell(NotAvailable(names.CPU_TIME, subject, why))
    span = late_span(evidence, group, rank, _read(evidence, rank))
    if span is None or not _is_enough(span, telemetry, len(own.within(span.begin_ns, span.end_ns))):
        return None
    compared = _compared(evidence, span)
    mine, *others = (_times(evidence, span, each, group) for each in (rank, *compared))
    if isinstance(mine, NotAvailable):
        return _cannot_tell(mine)
    known = [each for each in others if isinstance(each, RankTimes)]
    lacking = [each for each in others if isinstance(each, NotAvailable)]
    return _decide(evidence, telemetry, span, mine, known) if known else _cannot_tell(lacking[0])


def _compared(evidence: Evidence, span: LateSpan) -> list[int]:
    """Other ranks of the group, of the rank's own node and of the first few others: in a large group, those say enough,
    and readings of all nodes would not fit into memory."""
    own = evidence.nodes.get(span.rank, "")
    nodes = sorted({evidence.nodes.get(each, "") for each in span.others} - {own})[:_OTHER_NODES]
    return [each for each in span.others if evidence.nodes.get(each, "") in (own, *nodes)]


def _bounds(evidence: Evidence, span: LateSpan, rank: int) -> tuple[int, int]:
    """Of the span, by the clock of the node of a rank."""
    ahead_ns = evidence.clock_ahead_ns(rank, span.rank)
    return span.begin_ns + ahead_ns, span.end_ns + ahead_ns


def _times(evidence: Evidence, span: LateSpan, rank: int, group: str) -> RankTimes | NotAvailable:
    telemetry = evidence.telemetry_of(rank)
    if telemetry is None:
        return _no_telemetry(evidence, rank)
    bounds = _bounds(evidence, span, rank)
    held_ns = in_collectives_ns(evidence.columns[rank], *bounds)
    found = times_of(telemetry, evidence.folder_name(rank), bounds, held_ns)
    if isinstance(found, NotAvailable):
        return found
    of_group = rows_of(evidence, group)[rank]
    return replace(found, in_others_ns=in_collectives_ns(evidence.columns[rank], *bounds, without=of_group))


def _no_telemetry(evidence: Evidence, rank: int) -> NotAvailable:
    node = evidence.nodes.get(rank, "")
    why = f"`record` ran without --telemetry on node {node}" if node else "on its node nothing was read"
    return NotAvailable(names.CPU_TIME, rank_subject(evidence.folder_name(rank)), why)


def _read(evidence: Evidence, rank: int) -> tuple[int, int]:
    """When all ranks of the rank's node were read of which there are readings."""
    node, telemetry = evidence.nodes.get(rank, ""), evidence.telemetry_of(rank)
    here = [each for each in evidence.logs if evidence.nodes.get(each, "") == node]
    found = (telemetry.find(rank_subject(evidence.folder_name(each)), names.LAST_CPU) for each in here if telemetry)
    times = [series.times_ns for series in found if series is not None]
    return (max(int(each[0]) for each in times), min(int(each[-1]) for each in times)) if times else (0, 0)


def explain(span: LateSpan, mine: RankTimes, others: Sequence[RankTimes]) -> dict[Why, float]:
    """How much of the lateness each cause explains: 1 is all of it."""
    ran = mine.ran_ns - median(each.ran_ns for each in others)
    waited = mine.waited_ns - median(each.waited_ns for each in others)
    quota = mine.quota_ns - median(each.quota_ns for each in others)
    stolen = mine.stolen_ns - median(each.stolen_ns for each in others)
    waits_per_work = median(each.waited_ns / max(each.ran_ns, 1.0) for each in others)
    with_the_work = max(ran, 0.0) * waits_per_work
    sleeps = Why.DISK if disk_sleep(span, mine, others).is_for_disk else Why.ASLEEP
    found = {
        Why.QUOTA: quota,
        Why.STOLEN: stolen,
        Why.RUN_QUEUE: waited - with_the_work,
        Why.COMPUTES: ran + min(with_the_work, max(waited, 0.0)) - max(stolen, 0.0),
        sleeps: more_asleep_ns(span, mine, others),
        Why.OTHER_CALLS: mine.in_others_ns - median(each.in_others_ns for each in others),
    }
    return {why: min(max(time_ns / span.late_ns, 0.0), 1.0) for why, time_ns in found.items()}


def _is_enough(span: LateSpan, telemetry: Telemetry, readings: int) -> bool:
    least_ns = max(_LEAST_LATE_NS, _LEAST_PERIODS * telemetry.period_ns)
    return span.late_ns >= least_ns and readings >= _LEAST_READINGS


def _cannot_tell(lacks: NotAvailable) -> LateCause:
    return LateCause(why=Why.UNKNOWN, text=f"{_UNSURE}: {lacks.text}", explained={})


def _decide(
    evidence: Evidence, telemetry: Telemetry, span: LateSpan, mine: RankTimes, others: Sequence[RankTimes]
) -> LateCause:
    explained = explain(span, mine, others)
    parts = _parts(span, explained)
    found = _of_host(evidence, telemetry, span, mine, others, explained, parts)
    if max(explained[why] for why in _OUTSIDE) >= LEAST_EXPLAINED:
        return found
    slowed = throttled(_devices(evidence, span, span.rank), _of_others(evidence, span))
    return found if slowed is None else _with_device(span, mine, slowed, found)


def _with_device(span: LateSpan, mine: RankTimes, slowed: Throttled, of_host: LateCause) -> LateCause:
    """A GPU that was throttled is the cause where that can explain most of the lateness: its rank ran or slept, as its
    host saw it, until the GPU was done."""
    if slowed.lacks:
        if of_host.why not in _FOR_A_DEVICE:
            return of_host
        text = f"{_UNSURE}: {slowed.text}, but {slowed.lacks}"
        return replace(
            of_host,
            why=Why.UNKNOWN,
            text=text,
            lines=(f"as its host saw it: {of_host.text}", *slowed.lines, *of_host.lines),
            is_fake=slowed.is_fake,
        )
    slower_ns = slowed.slower_ns(span.lasted_ns, mine.in_collectives_ns)
    most = f"by its clock, that took at most {brief(round(slower_ns))} of {brief(span.late_ns)} that it was late"
    if slower_ns < LEAST_EXPLAINED * span.late_ns or of_host.why not in _FOR_A_DEVICE:
        return replace(of_host, lines=(*of_host.lines, f"{slowed.text}; {most}"))
    return LateCause(
        why=slowed.why,
        text=slowed.text,
        lines=(most, *slowed.lines, *of_host.lines[-1:]),
        explained=of_host.explained,
        is_fake=slowed.is_fake,
    )


def _of_host(
    evidence: Evidence,
    telemetry: Telemetry,
    span: LateSpan,
    mine: RankTimes,
    others: Sequence[RankTimes],
    explained: Mapping[Why, float],
    parts: str,
) -> LateCause:
    why = max(explained, key=lambda one: explained[one])
    nearest = max(share for one, share in explained.items() if one is not why)
    if explained[why] < LEAST_EXPLAINED or max(nearest, _threads(span, mine, others, why)) > _RIVAL * explained[why]:
        text = f"{_UNSURE}: no single cause explains it"
        return LateCause(why=Why.SEVERAL, text=text, lines=(parts,), explained=explained)
    if why is Why.OTHER_CALLS:
        return _in_other_calls(evidence, telemetry, span, explained, parts)
    if why is Why.COMPUTES:
        return _computes(telemetry, span, mine, others, explained)
    text, lines = _say(evidence, telemetry, span, mine, others, why)
    return LateCause(why=why, text=text, lines=(*lines, parts), explained=explained)


def _in_other_calls(
    evidence: Evidence, telemetry: Telemetry, span: LateSpan, explained: Mapping[Why, float], parts: str
) -> LateCause:
    """Messages and collectives of other groups held it longer than they held the others: who or what is slow there is
    known only if its node's network lost data."""
    by_node = {evidence.nodes.get(rank, ""): rank for rank in reversed(_compared(evidence, span))}
    by_node.pop(evidence.nodes.get(span.rank, ""), None)
    there = [
        (found, _bounds(evidence, span, rank)) for rank in by_node.values() if (found := evidence.telemetry_of(rank))
    ]
    errors = link_errors(telemetry, _bounds(evidence, span, span.rank), there)
    held = "messages and collectives of other groups held it longer than the others"
    if errors is None:
        text = f"{_UNSURE}: {held}, by slow peers or links"
        return LateCause(why=Why.SEVERAL, text=text, lines=(parts,), explained=explained)
    text = f"{held}, while its node had link errors or retransmits"
    return LateCause(why=Why.LINK, text=text, lines=(errors.text, parts), explained=explained)


def _devices(evidence: Evidence, span: LateSpan, rank: int) -> list[Device]:
    telemetry = evidence.telemetry_of(rank)
    bounds = _bounds(evidence, span, rank)
    return [] if telemetry is None else devices_of(telemetry, evidence.folder_name(rank), bounds)


def _of_others(evidence: Evidence, span: LateSpan) -> list[Device]:
    return [device for rank in _compared(evidence, span) for device in _devices(evidence, span, rank)]


def _threads(span: LateSpan, mine: RankTimes, others: Sequence[RankTimes], why: Why) -> float:
    """How much of the lateness it may be that other threads of the rank waited for a CPU, and its main thread for them:
    spinning, which looks like computation, or asleep."""
    if why not in (Why.COMPUTES, Why.ASLEEP):
        return 0.0
    more_ns = mine.other_threads_waited_ns - median(each.other_threads_waited_ns for each in others)
    return more_ns / span.late_ns


def _computes(
    telemetry: Telemetry,
    span: LateSpan,
    mine: RankTimes,
    others: Sequence[RankTimes],
    explained: Mapping[Why, float],
) -> LateCause:
    parts = _parts(span, explained)
    ratio = clock_ratio(mine, others)
    if ratio is not None and ratio <= _SLOWER_CLOCK:
        text = f"its CPU ran at {ratio:.0%} of the clock of the other ranks' CPUs"
        return LateCause(why=Why.CLOCK, text=text, lines=(parts,), explained=explained)
    no_clock = why_no_clock(telemetry)
    lines = (f"a slower clock of its CPU is not excluded: {no_clock}",) if no_clock else ()
    text = f"it computes longer than the other ranks, {_where(span)}"
    return LateCause(why=Why.COMPUTES, text=text, lines=(*lines, parts), explained=explained)


def _say(
    evidence: Evidence,
    telemetry: Telemetry,
    span: LateSpan,
    mine: RankTimes,
    others: Sequence[RankTimes],
    why: Why,
) -> tuple[str, tuple[str, ...]]:
    cpus = ", ".join(map(str, mine.cpus[:4])) + (", ..." if len(mine.cpus) > 4 else "")
    match why:
        case Why.QUOTA:
            return f"the CPU quota of its control group held it for {brief(round(mine.quota_ns))}", ()
        case Why.STOLEN:
            return f"the hypervisor gave CPU {cpus} to others for {brief(round(mine.stolen_ns))}", ()
        case Why.RUN_QUEUE:
            ran = rivals(evidence, telemetry, span, mine) or [f"not known: {nobody(telemetry)}"]
            lines = tuple(f"processes that ran there instead: {one}" for one in ran)
            return f"it waited {brief(round(mine.waited_ns))} in the run queue of CPU {cpus}", lines
    slept = disk_sleep(span, mine, others)
    if why is Why.DISK:
        return f"it slept for a disk or a file server ({slept.text}), {_where(span)}", slept.lines
    return f"it neither ran nor waited for a CPU: it slept, or waited for something else, {_where(span)}", slept.lines


def _where(span: LateSpan) -> str:
    return f"between {span.before} and {span.place}" if span.before else f"before {span.place}"


def _parts(span: LateSpan, explained: Mapping[Why, float]) -> str:
    said = [
        f"{_TITLES[why]} {brief(round(share * span.late_ns))}"
        for why, share in explained.items()
        if share >= _SHOWN_SHARE
    ]
    return f"of {brief(span.late_ns)} that it was late: {and_list(said) if said else 'nothing is explained'}"
