"""Whether RUN may be of another node of the job that is started here, by a launcher that nobody knows."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from prismdbg.capsule.secrets.masking import redact_arguments
from prismdbg.jobs.storage.job_nodes import supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder, read_if_whole

RECENT_S = 900.0  # since its end: the others of a job may have failed because one could not begin
_NUMBER = re.compile("[0-9]+")


def may_be_of_same_job(run: RunFolder, command: Sequence[str]) -> bool:
    """Whether the job of RUN goes on or has just ended, and was started by the same command, but for numbers: those of
    nodes, in their ranks, names and addresses."""
    told = read_if_whole(run.run_json).get("command", ())
    if not told or _without_numbers(told) != _without_numbers(redact_arguments(command).words):
        return False
    report = supervisor_report(run)
    if "exit_code" not in report:
        return True
    ended_ns = report.get("ended_wall_ns", 0)
    return isinstance(ended_ns, int) and time.time_ns() - ended_ns < RECENT_S * 1e9


def _without_numbers(words: Sequence[object]) -> list[str]:
    return [_NUMBER.sub("#", str(word)) for word in words]
