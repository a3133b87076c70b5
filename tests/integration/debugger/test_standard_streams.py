"""Not a terminal: plain output, an end, no hang; whatever is closed, cut off or dumb."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from capsules import make_capsule
from chain import Taken
from terminal import Terminal
from traces import TraceBuilder

BOUND_S = 240.0  # the first container of an engine waits for its image to be made

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shell(tmp_path: Path, prismdbg_command: tuple[str, ...], child_environment: dict[str, str]) -> Shell:
    """Runs a line in which `prismdbg` is ours and CAPSULE a small one."""
    make_capsule(tmp_path / "capsule")
    environment = {**child_environment, "CAPSULE": str(tmp_path / "capsule")}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        command = f'prismdbg() {{ {shlex.join(prismdbg_command)} "$@"; }}; set -o pipefail; {line}'
        return subprocess.run(
            ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False
        )

    return run


@pytest.mark.parametrize(
    ("line", "code", "out", "err"),
    [
        ("prismdbg open $CAPSULE < /dev/null", 0, "moment\top\tgroup", ""),
        ("prismdbg open $CAPSULE <&-", 0, "moment\top\tgroup", ""),
        ("prismdbg open $CAPSULE | head -1", 0, "moment\top\tgroup", ""),
        ("prismdbg open $CAPSULE >&- 2>&-", 0, "", ""),
        ("TERM=dumb prismdbg open $CAPSULE", 0, "2.2\t", ""),
        ("prismdbg inspect $CAPSULE <&- | head -1", 0, "", ""),
        ("prismdbg inspect $CAPSULE 2>&1 >/dev/null | true", 0, "", ""),
        ("prismdbg why $CAPSULE | true", 0, "", ""),
        ("prismdbg debug $CAPSULE --at 99.1 < /dev/null", 2, "", "capsule capsule ends at 2.2, but --at is 99.1"),
    ],
)  # fmt: skip
def test_it_ends(shell: Shell, line: str, code: int, out: str, err: str) -> None:
    done = shell(line)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert out in done.stdout and err in done.stderr


def test_characters_that_the_encoding_lacks_are_replaced(shell: Shell, tmp_path: Path) -> None:
    trace = TraceBuilder(tmp_path / "trace", from_start=True)
    trace.allocate(4096, "aten::empty")
    trace.write()
    done = shell(f"PYTHONIOENCODING=latin-1 prismdbg memory {tmp_path / 'trace'}")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert "aten::empty" in done.stdout


@pytest.mark.job
@pytest.mark.parametrize(
    ("line", "code", "out"),
    [
        ("prismdbg debug $REPLAYED --runtime local <&-", 0, "stopped at 0.0"),
        (
            "yes next 2>/dev/null | prismdbg debug $REPLAYED --runtime local | head -9; exit ${PIPESTATUS[1]}",
            0,
            "breakpoint 1",
        ),
        ("echo continue | prismdbg debug $REPLAYED --runtime local 2>&-", 0, "(breakpoint 1: nan)"),
    ],
    ids=["closed input", "a reader that has enough", "no error output"],
)
def test_a_replay_ends_with_its_streams(shell: Shell, nan_early: Taken, line: str, code: int, out: str) -> None:
    done = shell(f"export REPLAYED={shlex.quote(str(nan_early.capsule))}; {line}")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr
    assert out in done.stdout


@pytest.mark.job
def test_a_dumb_terminal_has_a_prompt(terminal: Terminal, nan_early: Taken, prismdbg_command: tuple[str, ...]) -> None:
    command = shlex.join([*prismdbg_command, "debug", str(nan_early.capsule), "--runtime", "local"])
    terminal.start(f"TERM=dumb {command}", 100, 30)
    terminal.until("(prismdbg)")
    terminal.type_line("next")
    terminal.until("stopped at 0.1 (next)")
    terminal.keys("C-d")
    terminal.until("ended with 0")
