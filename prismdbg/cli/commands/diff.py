"""`prismdbg diff`: the first collective in which two recordings of a rank, or two ranks of a job, differ."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from prismdbg.api.recording import Rank, Recording, open_recording
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.diagnosis.rank_comparison import Aspect, Comparison, Difference, Side, TensorDifference, compare
from prismdbg.errors import UsageError
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.log.rank_log import columns_of
from prismdbg.model.collective import Collective, group_title
from prismdbg.model.plurals import counted
from prismdbg.protocol.values import collective_to_json
from prismdbg.render import console

TIMINGS_SHOWN = 12


@click.command()
@click.argument("first", type=click.Path(path_type=Path), metavar="A")
@click.argument("second", type=click.Path(path_type=Path), metavar="[B]", required=False)
@click.option(
    "--rank",
    "ranks",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Compare this rank of A and B; give it twice for two different ranks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@archive_keys
def command(first: Path, second: Path | None, ranks: tuple[int, ...], as_json: bool, keys: Keys) -> int:
    """Find the first collective in which A and B differ. Each is a RUN or a CAPSULE.

    If both have the same rank, the calls at each moment are compared, with the data that the rank sent (by
    fingerprint) and received (if the payloads were kept). For two ranks of one job, give --rank twice and leave out B:
    the calls with the same group and sequence number are compared, with received data that must be equal on both, such
    as the result of an all_reduce.

    The exit code is 0 if everything that was compared is equal, 5 if something differs, 7 if there was nothing to
    compare.
    """
    if len(ranks) > 2:
        raise UsageError(f"--rank is given {len(ranks)} times", hint="give it once, or twice for two different ranks")
    if second is None and len(ranks) != 2:
        raise UsageError(
            "there is nothing to compare with", hint="give a second recording, or two ranks: --rank 0 --rank 1"
        )
    with open_recording(first, keys) as a, open_recording(second or first, keys) as b:
        sides = _rank(a, ranks[:1]), _rank(b, ranks[-1:])
        compared = compare(*map(_side, sides))
    if as_json:
        console.emit_json(_to_json(compared))
    else:
        for line in _lines(compared, sides):
            console.emit(line)
    if compared.difference is not None:
        return ExitCode.DIVERGED
    return ExitCode.OK if compared.calls else ExitCode.INCONCLUSIVE


def _rank(recording: Recording, chosen: tuple[int, ...]) -> Rank:
    if chosen:
        return recording[chosen[0]]
    if len(recording.ranks) == 1:
        return next(iter(recording.ranks.values()))
    raise UsageError(
        f"{recording.path} has {counted(len(recording.ranks), 'rank')}, and no --rank selects one",
        hint="give --rank N, or --rank N --rank M to compare two ranks",
    )


def _side(rank: Rank) -> Side:
    return Side(log=columns_of(rank.log), payload=rank.payload, arrays=rank.received)


def _lines(compared: Comparison, sides: tuple[Rank, Rank]) -> list[str]:
    how = (
        f"{counted(compared.calls, 'collective')} compared, {compared.sent} by what was sent, "
        if sides[0].number == sides[1].number
        else (f"{counted(compared.calls, 'collective')} compared, ")
    )
    how += f"{compared.received} by what was received"
    if compared.difference is None:
        if not compared.calls:
            return ["nothing to compare: A and B have no collective in common"]
        return [f"no difference: {how}", *_timing_lines(compared)]
    return [*_difference_lines(compared.difference, sides), how, *_timing_lines(compared)]


def _difference_lines(difference: Difference, sides: tuple[Rank, Rank]) -> list[str]:
    lines = [f"first difference: {difference.what}"]
    lines += [f"  {side}: {_call(call, of)}" for side, call, of in zip("AB", difference.calls, sides, strict=True)]
    lines += [f"  output[{each.number}] {each.meta}: {_tensor(each)}" for each in difference.tensors]
    if difference.aspect is Aspect.SENT:
        lines.append(
            "  all data that it received and that was kept is equal up to here: the rank computed something else"
        )
    return lines


def _call(call: Collective | None, rank: Rank) -> str:
    if call is None:
        return "no such call"
    return f"{call.moment} {call.name} in group {group_title(rank.groups, call.group)} at {call.place or '?'}"


def _tensor(found: TensorDifference) -> str:
    parts = [f"{counted(found.differing, 'element')} differ{'s' if found.differing == 1 else ''}"]
    if found.max_abs is not None:
        parts.append(f"by at most {found.max_abs:.3g}")
    if found.max_rel is not None:
        parts.append(f"relatively {found.max_rel:.3g}")
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
    return ["", console.columns(("collective", "group", "calls", "A median", "B median", "B / A"), rows)]


def _duration(median_ns: int | None) -> str:
    return "-" if median_ns is None else f"{median_ns / 1e6:.3f} ms"


def _ratio(medians_ns: tuple[int | None, int | None]) -> str:
    a, b = medians_ns
    return f"{b / a:.2f}" if a and b is not None else "-"


def _to_json(compared: Comparison) -> dict[str, Any]:
    difference = compared.difference
    return {
        "calls": compared.calls,
        "sent": compared.sent,
        "received": compared.received,
        "difference": None
        if difference is None
        else {
            "aspect": str(difference.aspect),
            "what": difference.what,
            "calls": [collective_to_json(call) if call is not None else None for call in difference.calls],
            "tensors": [{**asdict(each), "meta": str(each.meta)} for each in difference.tensors],
        },
        "timings": [asdict(each) for each in compared.timings],
    }
