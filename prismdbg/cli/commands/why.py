"""`prismdbg why`: what went wrong in a run, from its logs alone."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.errors import CapsuleError
from prismdbg.importers.nccl_log import read_nccl_logs
from prismdbg.jobs.capture.agent_sockets import remove_dead_sockets
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.log.columns import while_folded
from prismdbg.model.plain_text import one_line
from prismdbg.render import console
from prismdbg.render.nccl_text import nccl_json, nccl_lines

MISSING_SHOWN = 4
_COLORS = {Certainty.CERTAIN: "bold red", Certainty.LIKELY: "yellow", Certainty.HINT: "cyan"}


class _Terminal(Console):
    def on_broken_pipe(self) -> NoReturn:
        """rich would end the command with 1; `cli.main` knows what a reader that has enough means."""
        raise


@click.command()
@click.argument("run", type=Fetched(), metavar="RUN|CAPSULE|TRACES")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option(
    "--whole",
    is_flag=True,
    help="Read long logs completely. This takes about 350 MiB of memory per million collectives of all ranks. By "
    "default, only their ends and a summary of earlier steps are read.",
)
@click.option(
    "--nccl-log",
    "nccl_logs",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Add what the output of NCCL_DEBUG=INFO in FILE says: channels, rings, transports, warnings.",
)
@USER_CODE
@archive_keys
def command(run: Path, as_json: bool, whole: bool, nccl_logs: tuple[Path, ...], keys: Keys) -> None:
    """Diagnose a crash, hang, NaN or straggler from the logs of RUN, while the job runs or afterwards.

    Example: `prismdbg why RUN`

    It finds ranks that raised an exception or died, ranks that never joined a collective and where they are instead,
    mismatched collectives, the first NaN, and stragglers. It reads the ranks' logs and the stacks that were taken at a
    hang. A CAPSULE (folder or packed file) contains the log of one rank. TRACES is a folder with one file per rank from
    another tool: dumps of PyTorch's Flight Recorder (also torchcomms'), traces of torch.profiler, PyTorch execution
    traces, or Chakra traces. It may also contain the stacks that torch's debug server writes.

    The most certain findings come first. A finding is `certain` if the logs show it, `likely` if it explains the logs,
    and a `hint` if it is worth checking.
    """
    remove_dead_sockets()
    nccl = read_nccl_logs(nccl_logs) if nccl_logs else None
    with long_work.shown():
        diagnosis = while_folded(lambda: diagnose(gather(run, keys, whole=whole, say=console.announce)))
    _require_log(diagnosis)
    if as_json:
        more = {"nccl": nccl_json(nccl)} if nccl is not None else {}
        console.emit_json({"run": str(run), **diagnosis.to_json(), **more})
        return
    terminal = _Terminal(highlight=False)
    _show(diagnosis, terminal)
    for line in nccl_lines(nccl) if nccl is not None else ():
        _print(terminal, _one(f"nccl: {line}"))


def _require_log(diagnosis: Diagnosis) -> None:
    """What was seen of the ranks from outside is a diagnosis, too."""
    if not diagnosis.ranks and not diagnosis.verdicts and not diagnosis.stacks:
        raise CapsuleError(
            "; ".join((diagnosis.summary, *diagnosis.missing[:MISSING_SHOWN])),
            hint="read the output of the job and of `prismdbg record`, which says why a rank has no log",
        )


def _show(diagnosis: Diagnosis, terminal: Console) -> None:
    if not diagnosis.verdicts:
        _print(terminal, _one(diagnosis.summary))
    for verdict in diagnosis.verdicts:
        _print(terminal, _heading(verdict))
        for line in (*diagnosis.places(verdict), *verdict.lines):
            _print(terminal, _one(f"    {line}"))
    for line in diagnosis.positions:
        _print(terminal, _one(line))
    for line in diagnosis.missing:
        _print(terminal, _one(f"missing: {line}", style="dim"))


def _print(terminal: Console, text: Text) -> None:
    """In one line, but for a terminal: that would break words."""
    words, command = console.command_apart(text.plain, terminal.width)
    if not terminal.is_terminal or not words:
        terminal.print(text, soft_wrap=True)
        return
    indent = len(text.plain) - len(text.plain.lstrip())
    terminal.print(Padding(text[indent : len(words)], (0, 0, 0, indent), expand=False))
    if command:
        terminal.print(Text(f"{' ' * indent}{command}"), soft_wrap=True)


def _one(line: str, style: str = "") -> Text:
    """It may hold names and texts of the program."""
    return Text(console.plain(one_line(line)), style=style)


def _heading(verdict: Verdict) -> Text:
    certainty = Text(f"{verdict.certainty}: ", style=_COLORS[verdict.certainty])
    return certainty.append(console.plain(one_line(verdict.text)), style="bold")
