"""Writes a man page for each command from the click commands: `python docs/hooks/man_pages.py FOLDER` (`make man`)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click
from click_man.core import write_man_pages

import prismdbg
from prismdbg.cli import registry
from prismdbg.cli.main import cli

AS_IT_IS = "\b"  # before a paragraph that click leaves as it is


def write(folder: Path) -> list[Path]:
    """The pages, of which there were none before."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = {entry.name: entry.load() for entry in registry.entries().values()}
    for name, entry in registry.entries().items():
        commands[name].short_help = entry.summary
    whole = click.Group("prismdbg", commands=commands, help=cli.help, params=cli.params)
    whole.short_help = "debugger for one rank of a distributed PyTorch job"
    for command in (whole, *commands.values()):
        _escape(command)
    write_man_pages("prismdbg", whole, version=prismdbg.__version__, target_dir=str(folder))
    pages = sorted(folder.glob("*.1"))
    for page in pages:
        _name_as_its_file(page)
    return pages


def _name_as_its_file(page: Path) -> None:
    """In its header, which click-man writes with spaces: `PRISMDBG-SWEEP(1)`, as `man prismdbg-sweep` finds it."""
    text = page.read_text()
    page.write_text(re.sub(r'^\.TH "[^"]*"', f'.TH "{page.stem.upper()}"', text, count=1, flags=re.MULTILINE))


def _escape(command: click.Command) -> None:
    """click-man takes texts as they are: what groff would read as its own is made plain."""
    command.help = _plain(command.help or "")
    for option in command.params:
        if isinstance(option, click.Option) and option.help:
            option.help = _plain(option.help)
    for inner in command.commands.values() if isinstance(command, click.Group) and command.name != "prismdbg" else ():
        _escape(inner)


def _plain(text: str) -> str:
    text = text.replace(AS_IT_IS + "\n", "").replace(AS_IT_IS, "").replace("\\", "\\e")
    return re.sub(r"^([ \t]*)([.'])", r"\1\\&\2", text, flags=re.MULTILINE)


if __name__ == "__main__":
    for page in write(Path(sys.argv[1])):
        print(page)
