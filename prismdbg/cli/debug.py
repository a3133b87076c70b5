"""`prismdbg debug`: a captured rank, stopped wherever one asks, forwards and backwards."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.cli.archive_keys import archive_keys, as_options
from prismdbg.cli.limit_options import limits
from prismdbg.cli.of_run import RANK_OF_RUN, capsule_at
from prismdbg.cli.param_types import moment, seconds
from prismdbg.cli.passing_line import PassingLine
from prismdbg.cli.program import LiveProgram
from prismdbg.cli.repl import PROMPT, Tell, run_repl
from prismdbg.cli.typed_lines import from_pipe, from_terminal
from prismdbg.model.moment import Moment
from prismdbg.runtime.limits import Asked
from prismdbg.session.line import VERBS
from prismdbg.session.stop_line import stop_at_once
from prismdbg.workflows.debugger import Debugger, Settings, debug
from prismdbg.workflows.pack import opened, read_manifest
from prismdbg.workflows.replay import ReplayRequest
from prismdbg.workflows.replay_plan import with_files as by_path
from prismdbg.workflows.sealed import Keys
from prismdbg.workflows.span import require_inside
from prismdbg.workflows.travel import Travel, open_travel


@click.command()
@click.argument("capsule", type=click.Path(path_type=Path), metavar="CAPSULE|RUN")
@RANK_OF_RUN
@click.option(
    "--runtime",
    type=click.Choice(["docker", "local", "plain"]),
    help="Where: a container, namespaces of this machine, a plain process.  [default: the best there is]",
)
@click.option("--allow-writes", is_flag=True, help="Let a plain process repeat the program's side effects.")
@click.option(
    "--timeout", type=seconds, default=600.0, show_default=True, help="Seconds without a collective or a command."
)
@limits
@click.option("--at", type=moment, metavar="MOMENT", help="Go there first.")
@click.option("--plain", is_flag=True, help="Lines instead of a screen, also on a terminal.")
@click.option("--web", is_flag=True, help="In a browser of this machine, at an address that is printed.")
@click.option("--port", type=click.IntRange(1, 65535), default=8765, show_default=True, help="For --web.")
@click.option(
    "--with-file", "with_files", multiple=True, metavar="PATH[=MINE]",
    help="Lay your own file where the capsule lacks one of credentials.",
)  # fmt: skip
@archive_keys
def command(
    capsule: Path,
    rank: int | None,
    runtime: str | None,
    allow_writes: bool,
    timeout: float,
    at: Moment | None,
    plain: bool,
    web: bool,
    port: int,
    with_files: tuple[str, ...],
    keys: Keys,
    limits: Asked,
) -> int:
    """Step through the rank in CAPSULE: its collectives, stack, values and peers. `help` lists the commands.

    Of a RUN, --rank chooses the rank: the newest capsule of it, or one made of what the run kept, which of an
    emulated rank is always enough.

    On a terminal a screen opens; else commands come from standard input until its end. Exits 0, or 5 when the replay
    diverged, 6 when the rank was lost, 124 when the time is over.
    """
    capsule = capsule_at(capsule, rank)
    if at is not None:
        require_inside(read_manifest(capsule, keys), at)
    if web:
        more = [*as_options(keys), *limits.options(), *(word for text in with_files for word in ("--with-file", text))]
        return _in_browser(capsule, runtime, allow_writes, timeout, at, port, more)
    with opened(capsule, keys) as whole:
        request = ReplayRequest(
            capsule=whole,
            runtime=runtime or "",
            allow_writes=allow_writes,
            with_files=by_path(whole, with_files),
            limits=limits,
        )
        if not plain and (code := _on_screen(request, capsule.name, timeout, at)) is not None:
            return code
        typed = sys.stdin.isatty()
        passing = PassingLine(sys.stdout, wanted=typed)

        def say(text: str) -> None:
            passing.clear()
            render.say(f"prismdbg: {text}")

        with open_travel(request, say) as travel:
            render.say(f"recorded as: {whole.manifest.incident.text}")
            for note in whole.manifest.notes if whole.manifest.emulated else ():
                render.say(note)
            lines = from_terminal(PROMPT, list(VERBS)) if typed else from_pipe(sys.stdin.fileno(), timeout)
            first = [*stop_at_once(whole.manifest.incident.kind), *([f"goto {at}"] if at is not None else [])]
            lines = chain(first, lines)
            return by_lines(travel, lines, bound_s=timeout, echo=not typed, patient=typed, passing=passing)


def by_lines(
    travel: Travel,
    lines: Iterable[str],
    *,
    bound_s: float,
    echo: bool,
    patient: bool = False,
    strict: bool = False,
    passing: PassingLine | None = None,
) -> int:
    """The line debugger on stdout; its exit code."""
    program = LiveProgram(travel)

    def make(tell: Tell) -> Debugger:
        return debug(travel, tell, settings=Settings(bound_s=bound_s), how_it_ended=program.how_it_ended)

    return run_repl(
        make, lines, sys.stdout, program=program, echo=echo, patient=patient, strict=strict, passing=passing
    )


def _on_screen(request: ReplayRequest, name: str, bound_s: float, at: Moment | None) -> int | None:
    """None where there is no terminal for it."""
    served = "TEXTUAL_DRIVER" in os.environ  # in a browser
    if not served and not (sys.stdin.isatty() and sys.stdout.isatty()):  # a pipe waits for no screen's libraries
        return None
    from prismdbg_tui import start

    return start.debug(request, name, sys.stderr, bound_s, at) if start.on_terminal() else None


def _in_browser(
    capsule: Path,
    runtime: str | None,
    allow_writes: bool,
    bound_s: float,
    at: Moment | None,
    port: int,
    more: list[str],
) -> int:
    """Each visit runs a replay of its own."""
    from prismdbg_tui.web import serve

    options = ["--timeout", f"{bound_s:g}", *(["--runtime", runtime] if runtime else [])]
    options += ["--allow-writes"] if allow_writes else []
    options += ["--at", str(at)] if at is not None else []
    options += more
    return serve(["debug", str(capsule.absolute()), *options], port, sys.stderr)
