"""The job's parent on its node: follows every rank's log and does what a thread in a rank cannot."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass, field
from types import FrameType

from prismdbg.workflows.run_folder import RunFolder, write_json

POLL_S = 0.2
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What makes an incident and what is then kept. `triggers` maps a trigger to its parameter."""

    triggers: dict[str, str] = field(default_factory=dict)
    checkpoint_every: int = 0


class Supervisor:
    """`watch` returns the job's exit code. Nothing it does may end or hold the job."""

    def __init__(self, run: RunFolder, policy: Policy, job: subprocess.Popen[bytes]) -> None:
        self._run = run
        self._policy = policy
        self._job = job
        self._state: dict[str, object] = {"job_pid": job.pid, "incidents": []}

    def watch(self) -> int:
        for number in FORWARDED:
            signal.signal(number, self._forward)
        while True:
            try:
                code = self._job.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self._state |= {"exit_code": code, "ended_wall_ns": time.time_ns()}
        write_json(self._run.supervisor_json, self._state)
        return code if code >= 0 else 128 - code

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._job.send_signal(number)
