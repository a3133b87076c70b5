"""One configuration, run in a process of its own that ends with the one that started it, and all it started with it."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from types import FrameType

from prismdbg.emulate.emulate import emulate
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import PrismError
from prismdbg.jobs.record.record import RecordRequest, record
from prismdbg.jobs.record.supervisor import Policy
from prismdbg.sweep.request import How, Trial
from prismdbg.sweep.workers.guardian import fork_guarded, has_parent_ended, hold, longest_end_s

FAILED = 1


def start(trial: Trial, to_end_s: float) -> BaseProcess:
    """It writes all that it and its ranks print into `trial.output`, and ends with exit code 0 where its run is
    whole. to_end_s: once it is told to end, until what it started is killed."""
    process = get_context("spawn").Process(target=_run, args=(trial, to_end_s), name=trial.configuration.name)
    process.start()
    return process


def _run(trial: Trial, to_end_s: float) -> None:
    hold(trial.output.parent, longest_end_s(to_end_s))  # until this process and the new one have ended
    if has_parent_ended(0):
        sys.exit(FAILED)
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)
    output = os.open(trial.output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    fork_guarded(to_end_s)
    try:
        code = _emulated(trial) if trial.request.how is How.EMULATE else _recorded(trial)
    except PrismError as error:
        print(f"error: {error}", f"  try: {error.hint}" if error.hint else "", sep="\n", file=sys.stderr, flush=True)
        code = FAILED
    sys.exit(code)


def _emulated(trial: Trial) -> int:
    request = trial.request
    done = emulate(
        EmulateRequest(
            output=trial.run,
            command=trial.command,
            world=trial.mesh.world,
            mesh=trial.mesh,
            classes=request.classes,
            steps=request.steps,
            memory=request.memory,
            bound_s=request.bound_s,
            verbose=True,
            all_on_stderr=True,
        ),
        _say,
    )
    if done.fit.problem is not None:
        raise done.fit.problem
    return 0


def _recorded(trial: Trial) -> int:
    policy = Policy(triggers={}, keep=0, telemetry_ns=trial.request.telemetry_ns)
    return record(
        RecordRequest(output=trial.run, command=trial.command, memory=trial.request.memory, policy=policy), _say
    )


def _say(text: str) -> None:
    print(f"prismdbg: {text}", file=sys.stderr, flush=True)


def _end(number: int, _frame: FrameType | None) -> None:
    """As an exception does: what was begun is cleaned up."""
    raise SystemExit(128 + number)
