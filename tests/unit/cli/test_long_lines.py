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


HEADER = ("rank", "state", "lost", "content")
ROWS = (("0", "running", "", "nan: rank 2 sends the first NaN or Inf in all_reduce"), ("1", "ended", "-", "short"))


def test_a_table_that_fits_or_is_for_a_program_has_all_its_columns() -> None:
    whole = console.columns(HEADER, ROWS)
    assert whole.splitlines()[0].split() == list(HEADER) and console.columns(HEADER, ROWS, width=200) == whole


def test_in_a_narrow_terminal_a_table_breaks_no_word() -> None:
    """Columns without any value are left out first, then the last one has several rows, below itself."""
    header, first, *more, last = console.columns(HEADER, ROWS, width=40).splitlines()
    assert header.split() == ["rank", "state", "content"] and last.split() == ["1", "ended", "short"]
    at = header.index("content")
    assert all(line[:at].strip() == "" for line in more) and max(map(len, (first, *more))) <= 40
    assert " ".join(line[at:].strip() for line in (first, *more)) == ROWS[0][-1]


def test_a_table_that_cannot_be_narrow_enough_stays_whole() -> None:
    assert console.columns(HEADER, ROWS, width=20) == console.columns(
        (*HEADER[:2], HEADER[3]), [(*r[:2], r[3]) for r in ROWS]
    )


@pytest.mark.usefixtures("narrow")
def test_a_command_behind_many_words_has_a_row_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the line was broken by the terminal, between any two letters."""
    out, stdout = Terminal(), Terminal()
    monkeypatch.setattr("sys.stdout", stdout)
    line = f"{LONG}. What it holds: {COMMAND.removeprefix('try: ')}"
    why._print(why.Console(file=out, highlight=False, no_color=True), Text(line))
    console.emit_lines([line])
    for printed in (out, stdout):
        *rows, command = printed.getvalue().splitlines()
        assert command.strip() == COMMAND.removeprefix("try: ") and max(map(len, rows)) <= 60
        assert " ".join(row.strip() for row in rows) == f"{LONG.strip()}. What it holds:"


def test_a_command_behind_a_few_words_stays_in_their_line() -> None:
    command = COMMAND.removeprefix("try: ")
    assert list(console.in_rows([COMMAND], 60)) == [COMMAND]
    assert list(console.in_rows([f"{'a word ' * 5}{command}"], 60)) == [("a word " * 5).rstrip(), f"  {command}"]
