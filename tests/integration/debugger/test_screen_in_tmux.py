"""The screen in a real terminal: keys sent through tmux, what is seen read back from it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from capsules import make_capsule
from chain import Taken
from incident_run import write_run
from terminal import BOUND_S, Terminal
from waiting import wait_for


def test_open_walk_resize_and_quit(terminal: Terminal, tmp_path: Path, prismdbg_command: tuple[str, ...]) -> None:
    capsule = make_capsule(tmp_path / "capsule").path
    python, option, code = prismdbg_command
    terminal.start(f"{python} {option} '{code}' open {capsule}", 160, 45)
    terminal.until("▲ 2.2")
    terminal.keys("g")
    terminal.until("▲ 0.1")
    terminal.keys("/", "1.2", "Enter")
    terminal.until("match 1 of 1")
    terminal.resize(80, 24)
    terminal.until("1 Calls  2 Mem  3 Source")
    terminal.until("▲ 1.2")
    terminal.until("q quit")
    terminal.keys("?")
    terminal.until("Help")
    terminal.keys("Escape")
    terminal.until_gone("esc closes")
    terminal.keys("q")
    terminal.until("ended with 0")


def test_the_mouse_in_a_real_terminal(terminal: Terminal, tmp_path: Path, prismdbg_command: tuple[str, ...]) -> None:
    """A click on a collective and on a key's word, the wheel and a drag over the timeline."""
    capsule = make_capsule(tmp_path / "capsule", steps=8).path
    python, option, code = prismdbg_command
    terminal.start(f"{python} {option} '{code}' open {capsule}", 120, 36)
    shown = terminal.until("▲ 2.2").splitlines()
    (line,) = (number for number, text in enumerate(shown, 1) if "│ 1.1 " in text)
    terminal.mouse(0, 8, line)
    terminal.mouse(0, 8, line, up=True)
    terminal.until("▲ 1.1")
    column, lane = 80, next(number for number, text in enumerate(shown, 1) if "world 0 1" in text)
    whole = timeline(terminal)
    terminal.mouse(64, column, lane)
    terminal.mouse(64, column, lane)
    wait_for(lambda: timeline(terminal) != whole, BOUND_S, "the wheel to zoom in")
    part = timeline(terminal)
    terminal.mouse(0, column, lane)
    for x in range(column, column - 40, -8):
        terminal.mouse(32, x, lane)
    terminal.mouse(0, column - 40, lane, up=True)
    wait_for(lambda: timeline(terminal) not in (whole, part), BOUND_S, "the timeline to be dragged")
    for _ in range(6):
        terminal.mouse(65, column, lane)
    wait_for(lambda: timeline(terminal) == whole, BOUND_S, "the wheel to zoom out")
    quit_at = terminal.seen.splitlines()[-1].index("q quit") + 1
    terminal.mouse(0, quit_at, 36)
    terminal.mouse(0, quit_at, 36, up=True)
    terminal.until("ended with 0")


def test_all_ranks_of_a_run_and_back_to_them(
    terminal: Terminal, tmp_path: Path, prismdbg_command: tuple[str, ...]
) -> None:
    """Of a rank that cannot be replayed the log is shown; why it cannot be debugged is said above all ranks."""
    run = write_run(tmp_path / "run")
    python, option, code = prismdbg_command
    terminal.start(f"{python} {option} '{code}' open {run.path}", 160, 45)
    terminal.until("rank 1 raised at 1.1: ValueError")
    terminal.keys("Enter")
    terminal.until_match(r"\n rank 1, its log, not replayable: .*\n.*q quit")  # above the keys
    terminal.until("▲ 1.1")
    terminal.keys("Escape")
    terminal.until("open rank")
    terminal.keys("D")
    terminal.until("no capsule of rank 1")
    terminal.until("open rank")
    terminal.keys("q")
    terminal.until("ended with 0")


def timeline(terminal: Terminal) -> str:
    """Its ruler and lanes, as they are seen."""
    return "\n".join(terminal.seen.splitlines()[3:7])


@pytest.mark.job
@pytest.mark.criu
@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_a_rank_goes_back_dies_and_comes_back_by_keys(
    terminal: Terminal, nan_with_checkpoints: Taken, prismdbg_command: tuple[str, ...], runtime: str
) -> None:
    """To the NaN, back from it, its rank or its container killed under the session, and brought back; then at 80
    columns."""
    capsule, incident = nan_with_checkpoints.capsule, nan_with_checkpoints.manifest.incident.moment
    python, option, code = prismdbg_command
    terminal.start(f"{python} {option} '{code}' debug {capsule} --runtime {runtime}", 160, 45)
    terminal.until(" stopped ")
    terminal.keys("/", "nan", "Enter")
    terminal.until(f"▲ {incident}")
    terminal.keys("t")
    terminal.until(f"stopped   {incident} ")
    terminal.until("✕ first NaN")
    terminal.keys("m")
    terminal.until(f"at {incident}: ")
    terminal.kill_rank("train.py")
    terminal.until("the rank is lost")
    terminal.keys("R")
    terminal.until(f"stopped   {incident} ")
    terminal.keys("N")  # to the collective before, or as far as the capsule goes
    elsewhere = f" stopped   {incident} "
    wait_for(lambda: " stopped " in terminal.seen and elsewhere not in terminal.seen, BOUND_S, "a place before it")
    terminal.keys("n")
    terminal.until(f"stopped   {incident} ")
    terminal.resize(80, 24)
    terminal.until("1 Calls  2 Mem  3 Source")
    terminal.until(f"▲ {incident}")
    terminal.keys("q")
    terminal.until("ended with 0")


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
