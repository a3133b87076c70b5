"""What click finds wrong with a command line, in the form of every other error: what is wrong, then what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from prismdbg.errors import quoted, suggestion

_PLAIN = (  # click's words, and the plain ones
    (re.compile(r"is not a valid (integer range|integer|int)\b"), "is not a whole number"),
    (re.compile(r"^(?:Path|File|Directory) '(.*)' does not exist"), r"no such file or directory: \1"),
    (re.compile(r"^No such command"), "unknown command"),
    (re.compile(r"^Got unexpected extra arguments? \((.*)\)"), r"unexpected argument \1"),
)


class WrongValue(click.BadParameter):
    """The value of an option. `hint` says what to write instead."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def show(error: click.ClickException, say: Callable[[str, str], None], origin: str = "") -> None:
    """Prints the help where a command was given nothing at all. origin: of a wrong value, in brackets."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
    else:
        say(*told(error, origin))


def told(error: click.ClickException, origin: str = "") -> tuple[str, str]:
    """The message and the hint."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f"see `{context.command_path} --help`" if context else ""
    if isinstance(error, click.NoSuchOption):
        return (
            f"unknown option {quoted(error.option_name)}{suggestion(error.option_name, error.possibilities or ())}",
            hint,
        )
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return f"{error.param.param_type_name} {_named(error)} is missing", hint
    message = error.message
    for pattern, plain in _PLAIN:
        message = pattern.sub(plain, message)
    message = message[:1].lower() + message[1:].rstrip(".")
    if isinstance(error, click.BadParameter) and (name := _named(error)):
        return f"{name}{origin}: {message}", error.hint if isinstance(error, WrongValue) else hint
    return message, hint


def _named(error: click.BadParameter) -> str:
    """As it is written: `--rank`, `-o / --output`, `RUN`."""
    if error.param_hint is not None:
        return str(error.param_hint)
    return (
        error.param.get_error_hint(error.ctx).replace("'", "").removeprefix("-- ")
        if error.param is not None and error.ctx
        else ""
    )
