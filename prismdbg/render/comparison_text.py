"""Two recordings compared, as text: the first difference, tensor by tensor, and both sides' times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prismdbg.diagnosis.rank_comparison import Aspect, Comparison, Difference, TensorDifference
from prismdbg.model.collective import Collective, Group, group_title
from prismdbg.model.plain_text import one_line
from prismdbg.model.plurals import counted
from prismdbg.render.console import columns

TIMINGS_SHOWN = 12
Sides = tuple[Mapping[str, Group], Mapping[str, Group]]


def comparison_lines(compared: Comparison, groups: Sides, *, same_rank: bool) -> list[str]:
    """`groups`: of either side, by name. same_rank: both sides are one rank, of two runs."""
    how = (
        f"{counted(compared.calls, 'collective')} compared, {compared.sent} by what was sent, "
        if same_rank
        else (f"{counted(compared.calls, 'collective')} compared, ")
    )
    how += f"{compared.received} by what was received"
    begins = list(_begin_lines(compared))
    where = " in what was read of both" if compared.is_cut else ""
    if compared.difference is None:
        if not compared.calls:
            return [f"nothing to compare: A and B have no collective in common{where}", *begins]
        verdict = "inconclusive: no difference" if compared.is_cut else "no difference"
        return [f"{verdict}{where}: {how}", *begins, *_timing_lines(compared)]
    return [
        *_difference_lines(compared.difference, groups, where, compared.received),
        how,
        *begins,
        *_timing_lines(compared),
    ]


def _begin_lines(compared: Comparison) -> Iterator[str]:
    for side, begin in zip("AB", compared.begins, strict=True):
        before = f"{counted(begin.earlier, 'earlier collective')} of the rank"
        if begin.is_cut:
            at = f"from {begin.moment} on" if begin.moment is not None else "not at all"
            yield f"{side} was read {at}, without {before}: `prismdbg diff --whole` reads all that is kept"
        elif begin.earlier:
            yield f"{side} does not contain {before}"


def _difference_lines(difference: Difference, groups: Sides, where: str, received: int) -> list[str]:
    """received: how many collectives were compared by what they received, up to there."""
    lines = [f"first difference{where}: {difference.what}"]
    lines += [f"  {side}: {_call(call, of)}" for side, call, of in zip("AB", difference.calls, groups, strict=True)]
    if difference.aspect is Aspect.SENT:
        equal = "all data that it received is equal up to here, as far as it was kept: its own computation differs"
        unknown = "no data that it received up to here could be compared: it may have received other values before"
        lines.append(f"  {equal if received else unknown}")
        lines.append(f"  {_received_text(difference)}")
    lines += [f"  output[{each.number}] {each.meta}: {_tensor(each)}" for each in difference.tensors]
    if difference.why_no_tensors:
        lines.append(f"  {difference.why_no_tensors}")
    return list(map(one_line, lines))


def _received_text(difference: Difference) -> str:
    """Of calls that sent other values: which data that it received differs first, or why that is not known."""
    if difference.damage:
        return f"data that it received from here on cannot be compared, because it is damaged: {difference.damage}"
    if not difference.received:
        return "no received data from here on was kept by both: record both with --window all, or a larger window"
    if difference.received_in is None:
        return "all data that it received from here on is equal, too, as far as it was kept"
    if difference.received_in == difference.calls:
        return "it received other values in the same call"
    at = difference.received_in[0].moment
    return f"it received other values at {at}, the first call from here on whose kept data differs"


def _call(call: Collective | None, groups: Mapping[str, Group]) -> str:
    if call is None:
        return "no such call"
    return f"{call.moment} {call.name} in group {group_title(groups, call.group)} at {call.place or '?'}"


def _tensor(found: TensorDifference) -> str:
    parts = [f"{counted(found.differing, 'element')} differ{'s' if found.differing == 1 else ''}"]
    if found.max_abs is not None:
        parts.append(f"by at most {found.max_abs:.3g}")
    if found.max_rel is not None:
        parts.append(f"relatively {found.max_rel:.3g}")
    if found.at:  # a single number has no indexes
        parts.append(f"the largest at {list(found.at)}")
    if any(found.nans):
        parts.append(f"NaN {found.nans[0]} and {found.nans[1]}")
    return ", ".join(parts)


def _timing_lines(compared: Comparison) -> list[str]:
    if not compared.timings:
        return []
    rows = [
        (each.name, each.group, str(each.counts[0]), *map(_duration, each.medians_ns), _ratio(each.medians_ns))
        for each in compared.timings[:TIMINGS_SHOWN]
    ]
    numbers = ("calls", "A median", "B median", "B / A")
    return ["", columns(("collective", "group", *numbers), rows, right=numbers)]


def _duration(median_ns: int | None) -> str:
    return "-" if median_ns is None else f"{median_ns / 1e6:.3f} ms"


def _ratio(medians_ns: tuple[int | None, int | None]) -> str:
    a, b = medians_ns
    return f"{b / a:.2f}" if a and b is not None else "-"
