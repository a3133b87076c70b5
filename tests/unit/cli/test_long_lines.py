"""Lines that are longer than a terminal is wide: between words there, whole for a program."""

from __future__ import annotations

import io

import pytest
from rich.text import Text

from prismdbg.cli.commands import why
from prismdbg.render import console

LONG = "    " + "a rank waited for what prismdbg does not count " * 5 + "in-one-piece"
COMMAND = f"try: prismdbg debug {'a/very/long/path/' * 6}capsule --at 11.1"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_terminal_breaks_no_word_and_no_command(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(f"sys.{stream}", terminal)
    if stream == "stdout":
        console.emit_lines([LONG, COMMAND, "short"])
    else:
        console.say(LONG, COMMAND, "short")
    *rows, command, short = terminal.getvalue().splitlines()
    assert len(rows) > 1 and max(map(len, rows)) <= 60
    assert " ".join(row.strip() for row in rows) == LONG.strip()
    assert rows[0].startswith("    a") and all(row.startswith("      ") for row in rows[1:])
    assert (command, short) == (COMMAND, "short")


def test_a_program_gets_each_line_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    pipe = io.StringIO()
    monkeypatch.setattr("sys.stdout", pipe)
    console.emit_lines([LONG, COMMAND])
    assert pipe.getvalue().splitlines() == [LONG, COMMAND]


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("is_terminal", [True, False])
def test_why_does_the_same(is_terminal: bool) -> None:
    out = Terminal() if is_terminal else io.StringIO()
    terminal = why.Console(file=out, highlight=False, no_color=True)
    for line in (LONG, COMMAND):
        why._print(terminal, Text(line))
    *rows, command = out.getvalue().splitlines()
    assert command == COMMAND
    if not is_terminal:
        assert rows == [LONG]
        return
    assert len(rows) > 1 and max(map(len, rows)) <= 60
    assert {len(row) - len(row.lstrip()) for row in rows} == {4}
    assert " ".join(row.strip() for row in rows) == LONG.strip()
