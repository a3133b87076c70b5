"""`prismdbg export`: a recording in the files that other tools read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import click

from prismdbg.cli.options import output_file
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.exporters import chakra, flight_recorder, perfetto
from prismdbg.exporters.perfetto_packets import messages
from prismdbg.exporters.source import Source, source_at
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.log.timeline_file import MOST_CALLS, TIMELINE, require_writer
from prismdbg.model.plurals import counted
from prismdbg.render import console

_PERFETTO, _DUMPS, _JSON_DUMPS, _CHAKRA = "perfetto", "flight-recorder", "flight-recorder-json", "chakra"
_LAST = 10_000  # collectives of each rank, where `--last` is not given


@click.command()
@click.argument("path", type=Fetched(), metavar="RUN|CAPSULE|TRACES")
@click.option(
    "--format",
    "kind",
    type=click.Choice([_PERFETTO, _DUMPS, _JSON_DUMPS, _CHAKRA, TIMELINE]),
    required=True,
    help="Write this format.",
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="PATH", help="Write to PATH.")
@click.option(
    "--last",
    type=click.IntRange(min=1, max=100_000),
    metavar="N",
    help=f"Write the last N collectives of each rank.  [default: {_LAST}; with --format timeline: all in a table, "
    f"{MOST_CALLS} in a picture]",
)
@USER_CODE
@archive_keys
def command(path: Path, kind: str, output: Path, last: int | None, keys: Keys) -> None:
    """Write a recording in a format that other tools read.

    Example: `prismdbg export RUN --format flight-recorder -o DUMPS`, then `torchfrtrace DUMPS`

    perfetto: a file for ui.perfetto.dev, with steps, collectives, waits, stacks, memory and telemetry of each rank,
    and flows between the ranks. It needs the package perfetto.

    flight-recorder: a new folder with a dump of each rank, as PyTorch's Flight Recorder writes them.
    flight-recorder-json: the same as JSON, which torchfrtrace does not read.

    chakra: a new folder with a Chakra execution trace of each rank, for ASTRA-sim, and the members of the groups.

    timeline: a picture (PATH ends in .svg) with the last collectives of each rank, or a table (.csv) of all
    collectives. A picture shows at most 64 ranks and 2,000 collectives of each.
    """
    if kind == _PERFETTO:
        messages()  # whether it is installed
    if kind == TIMELINE:
        require_writer(output, last)
    with long_work.shown(), source_at(path, keys) as source:
        if kind == TIMELINE:
            lines = list(_write_timeline(source, output, last))
        elif kind == _PERFETTO:
            lines = list(_write_trace(source, output, last or _LAST))
        elif kind == _CHAKRA:
            lines = list(_write_chakra(source, output, last or _LAST))
        else:
            lines = list(_write_dumps(source, output, last or _LAST, as_json=kind == _JSON_DUMPS))
    for line in lines:
        console.say(line)


def _write_trace(source: Source, output: Path, last: int) -> Iterator[str]:
    with output_file.whole(output) as path, path.open("wb") as file:
        found = source.evidence
        comparable = found.clocks_agree and not found.emulated
        written = perfetto.write_trace(
            found.logs,
            source.memory,
            file,
            last=last,
            clocks_agree=comparable,
            telemetry=source.telemetry,
            nodes=found.nodes,
        )
    what = f"{counted(written.ranks, 'rank')}, {counted(written.calls, 'collective')}"
    what += f", {counted(written.sensors, 'sensor')}" if written.sensors else ""
    yield f"{output}: {what}, {console.size(output.stat().st_size)}: open it at https://ui.perfetto.dev"
    yield from _earlier(written.earlier)
    yield from source.damaged
    for node, telemetry in source.telemetry.items():
        if telemetry.damage:
            yield f"telemetry{f' of node {node}' if node else ''} was read only in part: {telemetry.damage}"


def _write_timeline(source: Source, output: Path, last: int | None) -> Iterator[str]:
    logs = source.evidence.logs
    with output_file.whole(output) as path:
        count = require_writer(output, last)(path, logs)
    ranks = sum(bool(log.collectives) for log in logs.values())
    yield f"{output}: {counted(ranks, 'rank')}, {counted(count, 'collective')}, {console.size(output.stat().st_size)}"
    yield from source.damaged


def _write_dumps(source: Source, output: Path, last: int, *, as_json: bool) -> Iterator[str]:
    with output_file.whole_folder(output) as folder:
        written = flight_recorder.write_dumps(source.evidence.logs, folder, last=last, as_json=as_json)
    absent = source.evidence.absent
    yield f"{output}: {counted(len(written.ranks), 'dump')} with {counted(written.calls, 'collective')}"
    yield from (f"left out: {counted(count, 'call')}: {why}" for why, count in sorted(written.left_out.items()))
    yield from _earlier(written.earlier)
    if absent:
        few = f"{', '.join(map(str, absent[:8]))}{', ...' if len(absent) > 8 else ''}"
        yield f"no log of rank {few}: torchfrtrace needs --allow-incomplete-ranks"
    if not as_json:
        yield f"next: torchfrtrace {'--allow-incomplete-ranks ' if absent else ''}{quote(str(output))}"


def _write_chakra(source: Source, output: Path, last: int) -> Iterator[str]:
    with output_file.whole_folder(output) as folder:
        written = chakra.write_traces(source.evidence.logs, folder, last=last)
    what = f"{counted(len(written.ranks), 'trace')} with {counted(written.calls, 'call')}"
    yield f"{output}: {what}, and {chakra.GROUPS_FILE}"
    if written.on_device:
        calls = f"{counted(written.on_device, 'call')} on a device"
        yield f"{calls}: the log does not show what was computed between them; the traces have the host's times there"
    yield from (f"left out: {counted(count, 'call')}: {why}" for why, count in sorted(written.left_out.items()))
    yield from _earlier(written.earlier)


def _earlier(calls: int) -> Iterator[str]:
    if calls:
        yield f"left out: {counted(calls, 'earlier call')}; --last N writes more"
