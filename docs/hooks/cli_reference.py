"""Makes the page reference/cli.md of the site from the click commands, so that it is always the current one."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from prismdbg.cli import registry
from prismdbg.cli.main import cli

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

PAGE = "reference/cli.md"
AS_IT_IS = "\b"  # before a paragraph that click leaves as it is


def on_files(files: Files, config: MkDocsConfig) -> Files:
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page()))
    return files


def page() -> str:
    """All commands by section, as Markdown."""
    parts = ["# Command line", *_texts(cli.help)]
    parts += ["[Scripts and CI](../ci.md#exit-codes) lists the exit codes."]
    for title, entries in registry.SECTIONS.items():
        parts += [f"## {title}"]
        for entry in entries:
            parts += _described(entry.load(), f"prismdbg {entry.name}", 3)
    return "\n\n".join(parts) + "\n"


def _described(command: click.Command, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield f"{'#' * level} {name}"
    yield f"```text\n{' '.join([name, *command.collect_usage_pieces(context)])}\n```"
    yield from _texts(command.help)
    records = [param.get_help_record(context) for param in command.params if isinstance(param, click.Option)]
    rows = [f"| `{option}` | {_cell(text)} |" for option, text in filter(None, records)]
    if rows:
        yield "\n".join(["| option | meaning |", "|---|---|", *rows])
    for under, each in command.commands.items() if isinstance(command, click.Group) else ():
        yield from _described(each, f"{name} {under}", level + 1)


def _texts(text: str | None) -> Iterator[str]:
    """Paragraphs of a help text."""
    for paragraph in inspect.cleandoc(text or "").split("\n\n"):
        if paragraph.startswith(AS_IT_IS):
            yield f"```text\n{paragraph.removeprefix(AS_IT_IS).strip(chr(10))}\n```"
        elif paragraph.strip():
            yield _escaped(" ".join(paragraph.split()))


def _cell(text: str) -> str:
    return _escaped(text).replace("|", "&#124;")


def _escaped(text: str) -> str:
    """Signs that Markdown would take for its own; what stands in backquotes is code already."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        for sign in "<*_[":
            parts[at] = parts[at].replace(sign, f"\\{sign}" if sign != "<" else "&lt;")
    return "`".join(parts)
