"""`prismdbg diff`: the first collective in which two recordings of a rank, or two ranks of a job, differ."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from prismdbg.api.recording import Rank, Recording, open_recording
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.diagnosis.rank_comparison import Comparison, Side, compare
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.log.rank_log import columns_of
from prismdbg.model.plurals import counted
from prismdbg.protocol.values import collective_to_json
from prismdbg.render import console
from prismdbg.render.comparison_text import comparison_lines


@click.command()
@click.argument("first", type=Fetched(), metavar="A")
@click.argument("second", type=Fetched(), metavar="[B]", required=False)
@click.option(
    "--rank",
    "ranks",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="N",
    help="Compare this rank of A and B; give it twice for two different ranks.",
)
@click.option(
    "--whole",
    is_flag=True,
    help="Compare long logs completely, not only their ends. This takes about 350 MiB of memory per million "
    "collectives of all ranks.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@USER_CODE
@archive_keys
def command(first: Path, second: Path | None, ranks: tuple[int, ...], whole: bool, as_json: bool, keys: Keys) -> int:
    """Find the first collective in which A and B differ. Each is a RUN or a CAPSULE.

    Example: `prismdbg diff RUN_A RUN_B --rank 0`

    If both have the same rank, the calls at each moment are compared, with the data that the rank sent (by fingerprint)
    and received (if the payloads were kept). Sent data is not kept. If a rank sent different values, the first call
    from there on in which it received different values is also shown. For two ranks of one job, give --rank twice and
    leave out B: the calls with the same group and sequence number are compared, with received data that must be equal
    on both, such as the result of an all_reduce.

    It reads the newest 192 MiB of all logs of a RUN together, or 96 MiB of each of two RUNs. If a log is longer, the
    output (and `begins` with --json) says where the comparison starts.

    The exit code is 0 if everything that was compared is equal, 5 if something differs, 7 if there was nothing to
    compare, or if nothing differs in the part of a long log that was read.
    """
    if len(ranks) > 2:
        raise UsageError(f"--rank is given {len(ranks)} times", hint="give it once, or twice for two different ranks")
    if second is None and len(ranks) != 2:
        raise UsageError(
            "there is nothing to compare with", hint="give a second recording, or two ranks: --rank 0 --rank 1"
        )
    at_once = 1 if second is None else 2
    with long_work.shown(), ExitStack() as stack:
        one = stack.enter_context(open_recording(first, keys, whole=whole, at_once=at_once, say=console.announce))
        other = one
        if second is not None:
            other = stack.enter_context(
                open_recording(second, keys, whole=whole, at_once=at_once, say=console.announce)
            )
        sides = _rank(one, ranks[:1]), _rank(other, ranks[-1:])
        compared = compare(*map(_side, sides))
    with console.also_unread():
        if as_json:
            console.emit_json(_to_json(compared))
        else:
            a, b = sides
            for line in comparison_lines(compared, (a.groups, b.groups), same_rank=a.number == b.number):
                console.emit(line)
    return {True: ExitCode.OK, False: ExitCode.DIVERGED, None: ExitCode.INCONCLUSIVE}[compared.is_equal]


def _rank(recording: Recording, chosen: tuple[int, ...]) -> Rank:
    if chosen:
        return recording[chosen[0]]
    if len(recording.ranks) == 1:
        return next(iter(recording.ranks.values()))
    if not recording.ranks:
        path = recording.path
        raise CapsuleError(f"{path} has no log that can be read", hint=f"see why: prismdbg why {path}")
    raise UsageError(
        f"{recording.path} has {counted(len(recording.ranks), 'rank')}, and no --rank selects one",
        hint="give --rank N, or --rank N --rank M to compare two ranks",
    )


def _side(rank: Rank) -> Side:
    return Side(log=columns_of(rank.log), payload=rank.payload, arrays=rank.received)


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
            "received_in": [collective_to_json(call) for call in difference.received_in or ()],
            "received": difference.received,
            "damage": difference.damage,
            "tensors": [{**asdict(each), "meta": str(each.meta)} for each in difference.tensors],
            "why_no_tensors": difference.why_no_tensors,
        },
        "begins": [
            {
                "moment": str(begin.moment) if begin.moment is not None else None,
                "earlier": begin.earlier,
                "is_cut": begin.is_cut,
            }
            for begin in compared.begins
        ],
        "timings": [asdict(each) for each in compared.timings],
    }
