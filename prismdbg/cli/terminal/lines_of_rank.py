"""The line debugger on a rank that stands: commands in, what came of them on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from prismdbg.cli.terminal.progress_line import ProgressLine
from prismdbg.cli.terminal.repl import Tell, run_repl
from prismdbg.debugger.debugger import Debugger, Settings, debug
from prismdbg.debugger.program import LiveProgram
from prismdbg.debugger.time_travel import Travel


def by_lines(
    travel: Travel,
    lines: Iterable[str],
    *,
    bound_s: float,
    echo: bool,
    patient: bool = False,
    strict: bool = False,
    passing: ProgressLine | None = None,
) -> int:
    """The line debugger on stdout; its exit code."""
    program = LiveProgram(travel)

    def make(tell: Tell) -> Debugger:
        return debug(travel, tell, settings=Settings(bound_s=bound_s), how_it_ended=program.how_it_ended)

    return run_repl(
        make, lines, sys.stdout, program=program, echo=echo, patient=patient, strict=strict, passing=passing
    )
