"""`prismdbg completion`: what a shell needs to complete our commands, options and files. The scripts are click's."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from prismdbg.cli.options import output_file
from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.typed_path import home
from prismdbg.render import console

_PROGRAM, _VARIABLE = "prismdbg", "_PRISMDBG_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_NEXT = {
    "bash": "start a new shell; it needs the package bash-completion",
    "zsh": "add to ~/.zshrc, before compinit: fpath+=({folder})",
    "fish": "start a new shell",
}


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
@click.option(
    "--install", is_flag=True, help="Write the script to where your shell looks for it, and print where that is."
)
def command(shell: str, install: bool) -> None:
    """Print a script that lets your shell complete commands, options and files.

    Example: `eval "$(prismdbg completion bash)"` for this shell, or `prismdbg completion bash --install` for all new
    shells.
    """
    script = _script(shell)
    if not install:
        console.emit(script.rstrip())
        return
    place = _place(shell)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{place.parent} cannot be created: {error.strerror}", hint="print the script and keep it elsewhere"
        ) from error
    with output_file.whole(place) as temporary:
        temporary.write_text(script, encoding="utf-8")
    console.emit(str(place))
    console.say(f"next: {_NEXT[shell].format(folder=place.parent)}")


def _script(shell: str) -> str:
    found = get_completion_class(shell)
    if found is None:
        raise FacilityError(f"click has no completion for {shell}", hint="install a newer click")
    return found(click.Group(), {}, _PROGRAM, _VARIABLE).source()


def _place(shell: str) -> Path:
    match shell:
        case "bash":
            return _home("XDG_DATA_HOME", ".local/share") / "bash-completion" / "completions" / _PROGRAM
        case "zsh":
            return _home("XDG_DATA_HOME", ".local/share") / "zsh" / "site-functions" / f"_{_PROGRAM}"
    return _home("XDG_CONFIG_HOME", ".config") / "fish" / "completions" / f"{_PROGRAM}.fish"


def _home(variable: str, otherwise: str) -> Path:
    """An XDG folder; a relative one counts as none."""
    given = os.environ.get(variable, "")
    return Path(given) if given.startswith("/") else home() / otherwise
