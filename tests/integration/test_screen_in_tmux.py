"""The screen in a real terminal: keys sent through tmux, what is seen read back from it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from capsules import make_capsule
from chain import Taken
from waiting import wait_for

BOUND_S = 60.0

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class Terminal:
    """A tmux server of its own, with one window."""

    def __init__(self, socket: Path, environment: dict[str, str]) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", os.devnull)
        self._environment = {k: v for k, v in environment.items() if k not in ("TMUX", "NO_COLOR")}

    def start(self, command: str, columns: int, lines: int) -> None:
        size = ("-x", str(columns), "-y", str(lines))
        self._run("new-session", "-d", *size, f"{command}; echo ended with $?; exec sleep {BOUND_S:.0f}")

    def keys(self, *keys: str) -> None:
        self._run("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def seen(self) -> str:
        return self._run("capture-pane", "-p")

    def pane(self, what: str) -> str:
        return self._run("display-message", "-p", what).strip()

    def until(self, text: str) -> str:
        try:
            wait_for(lambda: text in self.seen, BOUND_S, f"{text!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}, which shows:\n{self.seen}") from None
        return self.seen

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=20, check=False)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environment, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout


@pytest.fixture
def terminal(tmp_path: Path, child_environment: dict[str, str]) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "tmux", child_environment)
    yield terminal
    terminal.end()


def test_open_walk_resize_and_quit(terminal: Terminal, tmp_path: Path, prismdbg_command: tuple[str, ...]) -> None:
    capsule = make_capsule(tmp_path / "capsule").path
    python, option, code = prismdbg_command
    terminal.start(f"{python} {option} '{code}' open {capsule}", 160, 45)
    terminal.until("▲ 2.2")
    terminal.keys("g")
    terminal.until("▲ 0.1")
    terminal.keys("/", "1.2", "Enter")
    terminal.until("hit 1 of 1")
    terminal.resize(80, 24)
    shown = terminal.until("Collectives  Memory  Source")
    assert "▲ 1.2" in shown and "q quit" in shown
    terminal.keys("?")
    terminal.until("Keys")
    terminal.keys("Escape")
    wait_for(lambda: "esc closes" not in terminal.seen, BOUND_S, "the help to close")
    terminal.keys("q")
    terminal.until("ended with 0")


@pytest.mark.job
@pytest.mark.criu
def test_a_rank_goes_back_dies_and_comes_back_by_keys(
    terminal: Terminal, nan_with_checkpoints: Taken, prismdbg_command: tuple[str, ...]
) -> None:
    """To the NaN, back from it, its rank killed under the session, and brought back; then at 80 columns."""
    capsule, incident = nan_with_checkpoints.capsule, nan_with_checkpoints.manifest.incident.moment
    python, option, code = prismdbg_command
    terminal.start(f"{python} {option} '{code}' debug {capsule} --runtime local", 160, 45)
    terminal.until(" stopped ")
    terminal.keys("/", "nan", "Enter")
    terminal.until(f"▲ {incident}")
    terminal.keys("t")
    shown = terminal.until(f"stopped   {incident} ")
    assert "✕ first NaN" in shown and "nan" in shown
    terminal.keys("m")
    terminal.until(f"at {incident} in ")
    kill_replayed(terminal, "train.py")
    terminal.until("the rank is gone")
    terminal.keys("R")
    terminal.until(f"stopped   {incident} ")
    terminal.keys("N")  # to the collective before, or as far as the capsule goes
    elsewhere = f" stopped   {incident} "
    wait_for(lambda: " stopped " in terminal.seen and elsewhere not in terminal.seen, BOUND_S, "a place before it")
    terminal.keys("n")
    terminal.until(f"stopped   {incident} ")
    terminal.resize(80, 24)
    shown = terminal.until("Collectives  Memory  Source")
    assert f"▲ {incident}" in shown
    terminal.keys("q")
    terminal.until("ended with 0")


def kill_replayed(terminal: Terminal, script: str) -> None:
    """The rank below the debugger that runs in the terminal."""
    shell = psutil.Process(int(terminal.pane("#{pane_pid}")))
    ranks = [process for process in shell.children(recursive=True) if script in " ".join(process.cmdline())]
    assert ranks, "a rank lives below the terminal"
    ranks[0].kill()


def test_without_a_terminal_a_table(
    tmp_path: Path, prismdbg_command: tuple[str, ...], child_environment: dict[str, str]
) -> None:
    capsule = make_capsule(tmp_path / "capsule").path
    done = subprocess.run(
        [*prismdbg_command, "open", str(capsule)],
        env=child_environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    header, *rows = done.stdout.splitlines()
    assert header.split("\t")[:3] == ["moment", "op", "group"]
    assert [row.split("\t")[0] for row in rows] == ["0.1", "0.2", "1.1", "1.2", "2.1", "2.2"]
