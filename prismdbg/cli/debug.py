"""`prismdbg debug`: a captured rank, stopped at every collective that one asks for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.cli.param_types import seconds
from prismdbg.cli.repl import PROMPT, run_repl
from prismdbg.cli.typed_lines import from_pipe, from_terminal
from prismdbg.errors import PrismError
from prismdbg.session.line import VERBS
from prismdbg.workflows.pack import opened
from prismdbg.workflows.replay import LiveReplay, ReplayRequest, open_replay

MAX_OUTPUT_BYTES = 64 << 10
END_BOUND_S = 10.0


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path))
@click.option("--runtime", type=click.Choice(["docker", "local", "plain"]), help="[default: the best there is]")
@click.option("--allow-writes", is_flag=True, help="Let a plain process repeat the program's side effects.")
@click.option(
    "--timeout", type=seconds, default=600.0, show_default=True, help="Seconds without a collective or a command."
)
@click.option("--plain", is_flag=True, help="Lines instead of a screen, also on a terminal.")
def command(capsule: Path, runtime: str | None, allow_writes: bool, timeout: float, plain: bool) -> int:
    """Step through the rank in CAPSULE: its collectives, stack, values and peers. `help` lists the commands.

    On a terminal a screen opens; else commands come from standard input until its end. Exits 0, or 5 when the replay
    diverged, 6 when the rank was lost, 124 when the time is over.
    """
    with opened(capsule) as whole:
        request = ReplayRequest(capsule=whole, runtime=runtime or "", allow_writes=allow_writes)
        if not plain and (code := _on_screen(request, capsule.name)) is not None:
            return code
        with open_replay(request, lambda text: render.say(f"prismdbg: {text}")) as live:
            render.say(f"recorded as: {whole.manifest.incident.text}")
            typed = sys.stdin.isatty()
            lines = from_terminal(PROMPT, list(VERBS)) if typed else from_pipe(sys.stdin.fileno(), timeout)
            return run_repl(
                live.client,
                lines,
                sys.stdout,
                program=LiveProgram(live),
                end_record=live.end_record,
                bound_s=timeout,
                echo=not typed,
                patient=typed,
            )


def _on_screen(request: ReplayRequest, name: str) -> int | None:
    """None where there is no terminal for it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):  # a pipe need not wait for the screen's libraries
        return None
    from prismdbg_tui import start

    return start.debug(request, name, sys.stderr) if start.on_terminal() else None


class LiveProgram:
    """The rank's own output as it grows, and its end."""

    def __init__(self, live: LiveReplay) -> None:
        self._live = live
        self._read_bytes = 0

    def new_output(self) -> str:
        """At most `MAX_OUTPUT_BYTES` of it, the newest."""
        try:
            with self._live.output.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                start = max(self._read_bytes, end - MAX_OUTPUT_BYTES)
                file.seek(start)
                data = file.read(end - start)
        except OSError:
            return ""
        skipped = start - self._read_bytes
        self._read_bytes = start + len(data)
        return (f"... {skipped} bytes left out\n" if skipped else "") + data.decode("utf-8", "replace")

    def how_it_ended(self) -> str:
        try:
            return f"its process ended with {self._live.running.wait(END_BOUND_S)}"
        except PrismError as error:
            return str(error)
