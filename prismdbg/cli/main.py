"""The `prismdbg` command: finds the subcommand, runs it, and turns what happened into an exit code.

stdout is data, stderr is talk. An error says what happened and what to do next; a traceback means a defect.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import FrameType
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

import prismdbg
from prismdbg.capsule.secrets import own_rules
from prismdbg.cli import click_errors, registry
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options import addresses, user_code
from prismdbg.cli.options.config_defaults import apply_defaults, origin_of, require_commands, showing
from prismdbg.cli.terminal import long_work
from prismdbg.errors import PrismError, UsageError, quoted, suggestion
from prismdbg.model.exit_code import as_shell
from prismdbg.model.plain_text import one_line, plain
from prismdbg.render import console
from prismdbg.render.machine_refusal import machine_refusal
from prismdbg.settings.user_config import user_config


class _HasEnough(Exception):
    """Whoever reads what we print reads no more."""


class LazyGroup(click.Group):
    """Imports a subcommand when it is called, never to list it."""

    def invoke(self, ctx: click.Context) -> Any:
        """click would make a failure, without a word, of a reader that has enough."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if not console.readers_gone():
                raise PrismError(
                    f"a connection was closed unexpectedly: {error}", hint="report this: it is a bug in prismdbg"
                ) from error
            raise _HasEnough from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(registry.entries())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = registry.entries().get(cmd_name)
        return None if entry is None else entry.load()

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """As click's, which would load every command for its one line."""
        found = [entry for entry in registry.entries().values() if entry.name.startswith(incomplete)]
        commands = [CompletionItem(entry.name, help=entry.summary) for entry in found]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which suggests nothing where commands are not listed before they are loaded."""
        if args and not args[0].startswith("-") and args[0] not in registry.entries():
            near = suggestion(args[0], registry.entries())
            raise UsageError(f"unknown command {quoted(args[0])}{near}", hint="see `prismdbg --help`")
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            config = user_config()
            require_commands(config, registry.entries())
            own_rules.use(config.secret_names, config.secret_values)
            user_code.begin(config)
            apply_defaults(ctx, name, command, config)
            command = showing(command, (ctx.default_map or {}).get(name, {}), user_code.as_default())
            ctx.meta[addresses.SHOWN] = long_work.shown
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in registry.SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(entry.name, entry.summary) for entry in entries])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(prismdbg.__version__, prog_name="prismdbg")
def cli() -> None:
    """Capture one rank of a distributed PyTorch job and replay it without the other ranks.

    RUN is the folder that `record` or `emulate` writes. CAPSULE holds one rank of a run with everything that a replay
    needs. Its start moment is a checkpoint of the process, a state snapshot or the start of the program; its last
    moment is the end moment. MOMENT is STEP.COLLECTIVE.OP: 12.3 is the third collective after 12 optimizer steps, and
    12.3.4 is the fourth operator after that collective.

    `prismdbg COMMAND --help` explains each command.
    """


_JUDGES = (
    "diff",
    "doctor",
    "emulate",
    "replay",
    "setup",
    "sweep",
    "verify",
)  # of these, code 0 says that something holds


def main() -> NoReturn:
    _have_streams()
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _terminate)
    try:
        code = run(sys.argv[1:])
        _let_go_of_outputs()
        sys.exit(code)
    except _Terminated as arrived:
        _all_arrived(arrived)
        raise
    finally:
        for number in (signal.SIGTERM, signal.SIGALRM):
            signal.signal(number, _end)


def run(arguments: Sequence[str]) -> int:
    """The exit code. A subcommand that returns a number gives its own."""
    try:
        answer = cli.main(args=list(arguments), prog_name="prismdbg", standalone_mode=False)
        sys.stdout.flush()
    except PrismError as error:
        _say_error(str(error), error.hint)
        return _failed(error.exit_code, arguments)
    except click.ClickException as error:
        click_errors.show(error, _say_error, origin_of(error))
        return _failed(error.exit_code, arguments)
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except (BrokenPipeError, _HasEnough):
        console.forget(console.readers_gone())
        if _bisects(arguments):
            return ExitCode.NO_VERDICT
        return ExitCode.UNREAD if arguments[0] in _JUDGES else ExitCode.OK
    except OSError as error:
        if (refusal := machine_refusal(error)) is None:
            raise
        with contextlib.suppress(OSError):  # it may be standard error that is full
            _say_error(str(refusal), refusal.hint)
        return _failed(refusal.exit_code, arguments)
    if not isinstance(answer, int):
        return ExitCode.OK
    return as_shell(int(answer))


def _let_go_of_outputs() -> None:
    """What cannot be written any more is dropped: Python would make 120 of the exit code."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            console.forget([stream.fileno()])


def _failed(code: int, arguments: Sequence[str]) -> int:
    """A wrong line says nothing of any commit, and 2 would tell `git bisect run` that this one is bad."""
    return ExitCode.NO_VERDICT if code == ExitCode.USAGE and _bisects(arguments) else code


def _bisects(arguments: Sequence[str]) -> bool:
    """As the line has it, for it may not even be readable: `--bisec` is meant, too. What follows `--` is of a job."""
    mine = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument.startswith("--bis") for argument in mine)


def _have_streams() -> None:
    """Whoever started us may have closed a standard stream: the next file that is opened must not take its place. What
    the terminal's encoding lacks is replaced, as in a curve of memory."""
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.set_inheritable(descriptor, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode))
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def _say_error(message: str, hint: str) -> None:
    first, *rest = message.splitlines() or [""]
    lines = [f"error: {first}", *(f"  {line}" for line in rest)]
    if hint:
        lines.append(f"  try: {one_line(hint)}")
    click.echo(plain("\n".join(console.terminal_rows(lines, sys.stderr))).encode("utf-8", "replace").decode(), err=True)


_AGAIN_S = 0.01  # at once would be in the same destructor


class _Terminated(SystemExit):
    """Comes again if it is discarded on its way: a handler may run in the middle of numpy's look-up of an attribute,
    of a destructor or of a weak reference's callback, and these discard whatever is raised in them."""

    is_here = False

    def __del__(self) -> None:
        if not self.is_here:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


def _all_arrived(last: BaseException) -> None:
    """With those that were raised before it: `timeout` sends SIGTERM to a process and to its group."""
    error: BaseException | None = last
    while error is not None:
        if isinstance(error, _Terminated):
            error.is_here = True
        error = error.__context__


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """SIGTERM ends it as an exception does: temporary files, containers and locks are cleaned up."""
    raise _Terminated(ExitCode.TERMINATED)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    """While the interpreter ends, nobody catches an exception any more: it would be printed, and its code be lost."""
    os._exit(ExitCode.TERMINATED)
