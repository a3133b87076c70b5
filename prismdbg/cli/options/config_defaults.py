"""Defaults of options from the user's `config.toml` and from variables such as PRISMDBG_REPLAY_RUNTIME.

The command line comes first, then a variable, then the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from copy import copy
from typing import Any

import click
from click.core import ParameterSource

from prismdbg.errors import UsageError, quoted, suggestion
from prismdbg.settings.user_config import UserConfig

PREFIX = "PRISMDBG"
_USUAL = re.compile(r" *\[default: [^]]*\]$")  # in a help text
_ORIGINS = "prismdbg.origins"  # in a context's meta: where the default of a parameter is from

Values = Mapping[str, Any]


def apply_defaults(context: click.Context, name: str, command: click.Command, config: UserConfig) -> None:
    """To the command `name` below `context`, and to its subcommands."""
    origins: dict[tuple[str, ...], str] = {}
    values = dict(_defaults(command, (name,), config.commands.get(name, {}), str(config.path), origins))
    context.default_map = {name: values} if values else None
    context.meta[_ORIGINS] = origins


def showing(command: click.Command, values: Values, of_all: Values) -> click.Command:
    """A copy of the command whose help shows these defaults, where it names the usual ones in words or not at all.
    `of_all`: those of the same option of every command, which come last."""
    shown, own = copy(command), {**of_all, **values}
    shown.params = [_showing(each, own[each.name]) if each.name in own else each for each in command.params]
    if isinstance(command, click.Group) and isinstance(shown, click.Group):
        shown.commands = {n: showing(below, values.get(n, {}), of_all) for n, below in command.commands.items()}
    return shown


def require_commands(config: UserConfig, known: Collection[str]) -> None:
    for name in config.commands:
        if name not in known:
            raise UsageError(
                f"{config.path}: unknown command {quoted(name)}{suggestion(name, known)}",
                hint="name the tables after commands, such as [replay]",
            )


def origin_of(error: click.ClickException) -> str:
    """Where a wrong value is from, in brackets; empty if it is from the command line."""
    if not isinstance(error, click.BadParameter) or error.ctx is None or error.param is None or not error.param.name:
        return ""
    if error.ctx.get_parameter_source(error.param.name) is not ParameterSource.DEFAULT_MAP:
        return ""
    names = tuple(error.ctx.command_path.split()[1:])
    origin = error.ctx.meta.get(_ORIGINS, {}).get((*names, error.param.name), "")
    return f" (in {origin})" if origin else ""


def _defaults(
    command: click.Command, names: tuple[str, ...], written: Values, path: str, origins: dict[tuple[str, ...], str]
) -> Iterator[tuple[str, Any]]:
    """Values by the names of click's parameters; those of a subcommand by its name."""
    below = command.commands if isinstance(command, click.Group) else {}
    options = {name: option for option in command.params if isinstance(option, click.Option) for name in _names(option)}
    table = f"{path}: [{'.'.join(names)}]"
    for name, value in written.items():
        if not (isinstance(value, dict) and name in below):
            option = _option(options, name, table, [*options, *below])
            origins[*names, str(option.name)] = path
            yield str(option.name), _value(value, option, f"{table} {name}")
    for name, option in options.items():
        variable = "_".join((PREFIX, *names, name)).upper().replace("-", "_")
        if value := os.environ.get(variable, ""):
            origins[*names, str(option.name)] = variable
            yield str(option.name), _value(value, option, variable)
    for name, subcommand in below.items():
        inner = written.get(name, {})
        yield name, dict(_defaults(subcommand, (*names, name), inner, path, origins))


def _showing(parameter: click.Parameter, value: Any) -> click.Parameter:
    if not isinstance(parameter, click.Option) or parameter.show_default or parameter.help is None:
        return parameter
    shown, text = copy(parameter), ", ".join(value) if isinstance(value, list) else str(value)
    shown.help = f"{_USUAL.sub('', parameter.help)}  [default: {text}]"
    return shown


def _option(options: Mapping[str, click.Option], name: str, table: str, known: Collection[str]) -> click.Option:
    if name not in options:
        raise UsageError(
            f"{table}: unknown option {quoted(name)}{suggestion(name, known)}",
            hint="write a long option of this command without the hyphens before it",
        )
    return options[name]


def _names(option: click.Option) -> list[str]:
    """As they are written, without their hyphens."""
    return [name.removeprefix("--") for name in option.opts if name.startswith("--") and not option.is_eager]


def _value(value: Any, option: click.Option, where: str) -> Any:
    """Numbers as text, as on a command line: option types read text."""
    if option.multiple:
        return [_plain(one, where) for one in (value if isinstance(value, list) else [value])]
    return _plain(value, where)


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return str(value)
    raise UsageError(f"{where} has a value that no option takes", hint="write a text, a number, true or false")
