"""`prismdbg debug`: a captured rank, stopped wherever one asks, forwards and backwards."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.addresses import as_given
from prismdbg.cli.options.archive_keys import archive_keys, as_options
from prismdbg.cli.options.capsule_or_run import CAPSULE_OR_RUN, RANK_OF_RUN, capsule_at
from prismdbg.cli.options.limit_options import limits
from prismdbg.cli.options.param_types import moment, seconds
from prismdbg.cli.options.picture_options import pictured
from prismdbg.cli.options.place_options import ALLOW_WRITES, PORT, RUNTIME, WEB, WITH_FILE
from prismdbg.cli.options.user_code import USER_CODE, tell_children
from prismdbg.cli.terminal import long_work
from prismdbg.cli.terminal.line_history import LineHistory, history_file
from prismdbg.cli.terminal.lines_of_rank import by_lines
from prismdbg.cli.terminal.progress_line import ProgressLine
from prismdbg.cli.terminal.repl import PROMPT
from prismdbg.cli.terminal.typed_lines import from_pipe, from_terminal
from prismdbg.dap.launch import Launch
from prismdbg.dap.server import serve_port
from prismdbg.debugger.recorded_nan import nan_since
from prismdbg.debugger.time_travel import open_travel
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.replay.replay_plan import with_files as by_path
from prismdbg.jobs.replay.span import require_inside
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened, read_manifest
from prismdbg.model.moment import Moment
from prismdbg.render import console
from prismdbg.runtime.limits import Asked
from prismdbg.session.breakpoint_line import first_breakpoints
from prismdbg.session.line import VERBS

if TYPE_CHECKING:
    from prismdbg_tui.still_picture import StillPicture


@click.command()
@CAPSULE_OR_RUN
@RANK_OF_RUN
@RUNTIME
@ALLOW_WRITES
@click.option(
    "--timeout",
    type=seconds,
    default=600.0,
    show_default=True,
    help="Stop waiting after this time without a collective. If commands come from a pipe, exit then, and also after "
    "this time without a command.",
)
@limits
@click.option("--at", type=moment, metavar="MOMENT", help="Go to MOMENT first.")
@click.option("--plain", is_flag=True, help="Print lines instead of a screen, even on a terminal.")
@WEB
@PORT
@click.option(
    "--dap",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Serve one editor on this port of this machine, in the Debug Adapter Protocol.",
)
@pictured
@WITH_FILE
@USER_CODE
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
    dap: int | None,
    picture: StillPicture | None,
    with_files: tuple[str, ...],
    keys: Keys,
    limits: Asked,
) -> int:
    """Step through the rank in CAPSULE and show its collectives, stack, values and peers.

    Example: `prismdbg debug CAPSULE`, or `prismdbg debug RUN --rank 2 --at 11.1`

    For a RUN, --rank selects the rank. The debugger uses the newest capsule of this rank, or creates one from the
    recorded data. For an emulated rank, this data is sufficient unless it received more than
    `emulate --window-bytes`.

    On a terminal, a screen opens. Otherwise, commands come from standard input until it ends. `help` lists the
    commands. The exit code is 0; it is 5 if the replay diverged, 6 if the rank was lost, and 124 after the timeout
    (with commands from a pipe).
    """
    told: list[str] = []
    with long_work.shown():
        capsule = capsule_at(capsule, rank, told)
    if at is not None:
        require_inside(read_manifest(capsule, keys), capsule.name, "--at", at)
    if picture is not None and (web or plain or dap is not None):
        raise UsageError("--picture cannot be combined with --web, --plain or --dap", hint="choose one of them")
    if dap is not None:
        if web or plain:
            raise UsageError("--dap cannot be combined with --web or --plain", hint="choose one of them")
        launch = Launch(
            path=capsule,
            given=as_given("capsule"),
            runtime=runtime or "",
            allow_writes=allow_writes,
            bound_s=timeout,
            at=at,
            with_files=with_files,
            limits=limits,
            keys=keys,
        )
        serve_port(launch, dap, console.announce)
        return ExitCode.OK
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
        code = None if plain else _on_screen(request, capsule.absolute(), timeout, at, picture, told)
        return _on_lines(request, timeout, at) if code is None else code


def _on_lines(request: ReplayRequest, bound_s: float, at: Moment | None) -> int:
    """Commands are typed at a terminal, or come from a pipe."""
    typed = sys.stdin.isatty()
    passing = ProgressLine(sys.stdout, wanted=typed)

    def say(text: str) -> None:
        passing.clear()
        console.announce(text)

    manifest = request.capsule.manifest
    with ExitStack() as stack:
        with long_work.shown():
            travel = stack.enter_context(open_travel(request, say))
        stack.enter_context(long_work.shown(each=True))  # of each command
        console.say(f"recorded as: {manifest.incident.text}")
        for note in manifest.notes if manifest.emulated else ():
            console.say(note)
        lines = (
            from_terminal(PROMPT, list(VERBS), LineHistory(history_file()))
            if typed
            else from_pipe(sys.stdin.fileno(), bound_s)
        )
        begun = first_breakpoints(manifest.incident.kind, nan_since(request.capsule))
        first = [*begun, *([f"goto {at}"] if at is not None else [])]
        return by_lines(travel, chain(first, lines), bound_s=bound_s, echo=not typed, patient=typed, passing=passing)


def _on_screen(
    request: ReplayRequest,
    path: Path,
    bound_s: float,
    at: Moment | None,
    picture: StillPicture | None,
    told: Sequence[str],
) -> int | None:
    """None where there is no terminal for it."""
    drawn = picture is not None or "TEXTUAL_DRIVER" in os.environ  # in a browser
    if not drawn and not (sys.stdin.isatty() and sys.stdout.isatty()):  # a pipe waits for no screen's libraries
        return None
    from prismdbg_tui import start

    if picture is None and not start.on_terminal():
        return None
    return start.debug(request, path.name, sys.stderr, bound_s, at, path=path, picture=picture, told=told)


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
    from prismdbg_tui.browser.server import serve

    tell_children()
    options = ["--timeout", f"{bound_s:g}", *(["--runtime", runtime] if runtime else [])]
    options += ["--allow-writes"] if allow_writes else []
    options += ["--at", str(at)] if at is not None else []
    options += more
    return serve(["debug", str(capsule.absolute()), *options], port, sys.stderr)
