"""Slurm's own commands, as far as an array of tasks needs them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from prismdbg.errors import FacilityError

ENDED = frozenset(
    ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)
_BOUND_S = 120.0  # of a command, whose controller may be busy
_NO_JOB = "Invalid job id"  # what squeue says of one that ended some time ago


class NoSlurm(FacilityError):
    """Its commands do not exist here."""


class Slurm:
    """`options`: of sbatch, as the user gives them. bound_s: of each command."""

    def __init__(self, options: Sequence[str], bound_s: float = _BOUND_S) -> None:
        self._options = options
        self._bound_s = bound_s

    def submit(self, script: str, options: Sequence[str]) -> int:
        """The job's number. `options` go before those of the user. `FacilityError` where Slurm refuses it."""
        return int(_said(["sbatch", *self._options, *options, "--parsable"], self._bound_s, script).partition(";")[0])

    def states(self, job: int) -> Mapping[int, str]:
        """By the number of a task. Those that ended some time ago are missing. `FacilityError` where the controller
        does not answer."""
        try:
            listed = _said(
                ["squeue", "--noheader", "--array", "--states=all", f"--jobs={job}", "--format=%K %T"], self._bound_s
            )
        except FacilityError as error:
            if _NO_JOB in str(error):
                return {}
            raise
        rows = [line.split() for line in listed.splitlines()]
        return {int(row[0]): row[1] for row in rows if len(row) == 2 and row[0].isdecimal()}

    def find(self, name: str) -> int:
        """The job of this name that waits, runs or is about to end; 0 where there is none."""
        listed = _said(["squeue", "--noheader", f"--name={name}", "--format=%F"], self._bound_s)
        return next((int(job) for job in listed.split() if job.isdecimal()), 0)

    def cancel(self, job: int) -> None:
        _said(["scancel", str(job)], self._bound_s)

    def cancel_named(self, name: str) -> None:
        _said(["scancel", f"--name={name}"], self._bound_s)


def _said(command: Sequence[str], bound_s: float, given: str = "") -> str:
    try:
        done = subprocess.run(
            command, input=given, env=_environment(), capture_output=True, text=True, timeout=bound_s, check=False
        )
    except FileNotFoundError as error:
        hint = "install Slurm's client, or leave --on out"
        raise NoSlurm(f"{command[0]} does not exist on this machine", hint=hint) from error
    except subprocess.TimeoutExpired as error:
        hint = "wait until `sinfo` answers, then run the same line again: it joins an array that still runs"
        raise FacilityError(f"{command[0]} did not answer within {bound_s:g} seconds", hint=hint) from error
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise FacilityError(f"{command[0]} failed: {why}", hint="check that Slurm runs, and the options of --on")
    return done.stdout


def _environment() -> dict[str, str]:
    """Without what changes the columns of squeue."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
