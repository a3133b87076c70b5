"""Runs a program that must not outlive its bound: then exactly the process group started is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import WaitTimeout
from prismdbg.model.meanwhile import unheard, working

TOLD_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    returncode: int
    output: str


def run_bounded(
    argv: Sequence[str],
    *,
    timeout_s: float,
    what: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    let_finish: bool = False,
    doing: str = "",
) -> Finished:
    """Standard output and error in one text. `WaitTimeout` says `what` was waited for. `environment`: instead of ours.
    `doing`: told as long work.

    `let_finish`: who interrupts us (Ctrl-C, SIGTERM) waits until the program has ended by itself, within the bound.
    """
    deadline = time.monotonic() + timeout_s
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )
    try:
        output = _output(process, deadline, doing)
        if output is None:
            raise WaitTimeout(
                f"waited {timeout_s:g} s for {what}; it was killed",
                hint="try again when the machine is less busy, and see `prismdbg doctor`",
            )
    except BaseException:
        while let_finish and process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(BaseException):  # the second Ctrl-C waits, too
                process.communicate(timeout=max(deadline - time.monotonic(), 0.01))
        raise
    finally:
        _end_group(process)
    return Finished(returncode=process.returncode, output=output.decode(errors="replace"))


def _output(process: subprocess.Popen[bytes], deadline: float, doing: str) -> bytes | None:
    """Nothing where it has not ended by then."""
    with working() if doing else nullcontext(unheard) as tell:  # else it would end what is told of a longer work
        while (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=min(left_s, TOLD_S))[0]
            tell(doing)
    return None


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """Also the children that a program which ended by itself may have left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
