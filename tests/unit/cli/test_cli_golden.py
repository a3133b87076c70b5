"""Freezes the command line: every command and option, as people and scripts depend on it. `make golden` writes it."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import pytest

from prismdbg.cli import registry
from prismdbg.cli.exit_codes import ExitCode

GOLDEN = Path(__file__).parents[2] / "golden" / "cli.txt"


def describe() -> str:
    lines = [f"exit {code:d} {code.name.lower()}" for code in ExitCode]
    for name, entry in sorted(registry.entries().items()):
        command = entry.load()
        lines += ["", f"prismdbg {name}", *sorted(_describe(param) for param in command.params)]
        for under, each in sorted(command.commands.items() if isinstance(command, click.Group) else ()):
            lines += ["", f"prismdbg {name} {under}", *sorted(_describe(param) for param in each.params)]
    return "\n".join(lines) + "\n"


def _describe(param: click.Parameter) -> str:
    kind = param.type.name if not isinstance(param.type, click.Choice) else "|".join(map(str, param.type.choices))
    if not isinstance(param, click.Option):
        return f"  {(param.name or '').upper()} ({kind}{', several' if param.nargs == -1 else ''})"
    words = ["/".join([*param.opts, *param.secondary_opts])]
    if not param.is_flag:
        words.append(kind)
        if isinstance(param.default, str | int | float) and param.default != sys.executable:
            words.append(f"= {param.default}")
    words += ["several"] * param.multiple + ["required"] * param.required
    return "  " + " ".join(words)


def test_the_command_line_is_the_frozen_one(request: pytest.FixtureRequest) -> None:
    now = describe()
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(now)
    assert now == GOLDEN.read_text(), "changed on purpose? `make golden`, and say it in CHANGELOG.md"
