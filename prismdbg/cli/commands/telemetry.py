"""`prismdbg telemetry`: the readings of the machine's sensors that `record --telemetry` took beside a job."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.output_file import whole
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.exporters.perfetto_packets import messages
from prismdbg.exporters.perfetto_telemetry import write_file
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.jobs.telemetry import telemetry_of_capsule, telemetry_of_run
from prismdbg.model.plurals import counted
from prismdbg.render import console, telemetry_text
from prismdbg.telemetry import export
from prismdbg.telemetry.series import Telemetry

_CSV, _PERFETTO = "csv", "perfetto"


@click.command()
@click.argument("path", type=Fetched(), metavar="RUN|CAPSULE")
@click.option("--rank", type=click.IntRange(min=0), metavar="N", help="Show only rank N and its devices.")
@click.option("--node", metavar="NAME", help="In a job of several nodes, show only node NAME.")
@click.option("--export", "form", type=click.Choice([_CSV, _PERFETTO]), help="Write all readings in this format.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the export to FILE. Without it, CSV goes to stdout.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@archive_keys
@long_work.shown()
def command(
    path: Path,
    rank: int | None,
    node: str | None,
    form: str | None,
    output: Path | None,
    as_json: bool,
    keys: Keys,
) -> None:
    """Show the metrics of CPUs, GPUs and the machine that were sampled while the job of RUN ran.

    Example: `prismdbg telemetry RUN`

    RUN must be recorded with --telemetry. A CAPSULE of such a job has the readings of its rank, and of the CPUs, GPUs
    and machine that it ran on. The table shows the minimum, median and maximum of each gauge's value, and of each
    counter's rate per second. A sensor without readings is listed with the reason. Readings of a mock NVML library, as
    tests use it, are marked `fake`.

    --export perfetto needs -o and the package perfetto; the file opens at https://ui.perfetto.dev.
    """
    if output is not None and form is None:
        raise UsageError("-o needs --export", hint="add --export csv or --export perfetto")
    if form == _PERFETTO:
        _require_perfetto(output)
    if form is not None and as_json:
        raise UsageError("--export and --json exclude each other", hint="give one of them")
    whole_job = _of_capsule(path, keys) if _is_capsule(path) else telemetry_of_run(RunFolder.existing(path), node)
    telemetry = whole_job if rank is None else export.of_rank(whole_job, rank)
    if form is not None:
        _export(telemetry, form, output)
    elif as_json:
        console.emit_json({"run": str(path), **telemetry_text.as_json(telemetry)})
    else:
        console.emit(telemetry_text.table(telemetry))


def _is_capsule(path: Path) -> bool:
    return path.is_file() or (path / layout.MANIFEST).is_file()


def _of_capsule(path: Path, keys: Keys) -> Telemetry:
    with opened(path, keys) as capsule:
        return telemetry_of_capsule(capsule, path)


def _require_perfetto(output: Path | None) -> None:
    messages()  # whether it is installed
    if output is None:
        raise UsageError("--export perfetto writes a binary file", hint="add -o FILE")


def _export(telemetry: Telemetry, form: str, output: Path | None) -> None:
    if output is None:
        for line in export.csv_lines(telemetry):
            console.emit(line)
        return
    with whole(output) as path, path.open("wb") as file:
        if form == _PERFETTO:
            write_file(telemetry, file)
        else:
            file.writelines(f"{line}\n".encode() for line in export.csv_lines(telemetry))
    what = f"{counted(len(telemetry.series), 'sensor')}, {console.size(output.stat().st_size)}"
    console.say(f"{output}: {what}{': open it at https://ui.perfetto.dev' if form == _PERFETTO else ''}")
