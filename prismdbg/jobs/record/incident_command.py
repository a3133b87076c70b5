"""`record --on-incident CMD`: tells a command of the user's of each incident, and then of its capsules, as JSON on its
standard input.

Nothing waits for it while the job runs. It has a time limit, and it ends with the supervisor, however that ends.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import prismdbg
from prismdbg.jobs.record import guarded_command

BOUND_S = 30.0
STARTING_S = 5.0  # more than that nobody waits for a command that has been ended
MOST_AT_ONCE, MOST_IN_ALL = 8, 200
MOST_TEXT = 32 << 10  # characters of the incident's text


class IncidentCommand:
    """`problem` is told of each failure, as a sentence. An empty command tells nobody."""

    def __init__(self, command: str, run: Path, problem: Callable[[str], None]) -> None:
        self._command = command
        self._run = run
        self._problem = problem
        self._running: list[subprocess.Popen[bytes]] = []
        self._told = 0
        self._lifeline: tuple[int, int] | None = None

    def tell(self, event: str, incident: Mapping[str, Any]) -> None:
        """Starts the command for an incident as `supervisor.json` has it. event: `incident`, or `captured`."""
        if not self._command:
            return
        self.look()
        if len(self._running) >= MOST_AT_ONCE or self._told >= MOST_IN_ALL:
            self._problem(f"the command of --on-incident is not started again: {self._too_many()}")
            return
        try:
            self._start(self._message(event, incident))
        except OSError as error:
            self._problem(f"the command of --on-incident cannot be started: {error}")

    def _too_many(self) -> str:
        if self._told >= MOST_IN_ALL:
            return f"it was started {MOST_IN_ALL} times"
        return f"{MOST_AT_ONCE} of it still run"

    def look(self) -> None:
        """Notes those that have ended."""
        for started in [started for started in self._running if started.poll() is not None]:
            self._ended(started)

    def finish(self) -> None:
        """Waits for those that run, as long as each may take."""
        for started in list(self._running):
            try:
                started.wait(BOUND_S + STARTING_S)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
            self._ended(started)

    def end(self) -> None:
        """Whatever still runs is ended, at once."""
        if self._lifeline is not None:
            for end in self._lifeline:
                os.close(end)
            self._lifeline = None

    def _start(self, message: bytes) -> None:
        if self._lifeline is None:
            self._lifeline = os.pipe()
        lifeline = self._lifeline[0]
        script = [sys.executable, "-I", guarded_command.__file__, str(lifeline), str(BOUND_S), self._command]
        with os.fdopen(os.memfd_create("incident"), "w+b") as stdin:
            stdin.write(message)
            stdin.seek(0)
            self._running.append(
                subprocess.Popen(
                    script,
                    stdin=stdin,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[lifeline],
                    start_new_session=True,
                )
            )
        self._told += 1

    def _ended(self, started: subprocess.Popen[bytes]) -> None:
        self._running.remove(started)
        if started.returncode == guarded_command.TOO_LONG:
            self._problem(f"the command of --on-incident was ended: it took longer than {BOUND_S:.0f} s")
        elif started.returncode:
            self._problem(f"the command of --on-incident failed with exit code {started.returncode}")

    def _message(self, event: str, incident: Mapping[str, Any]) -> bytes:
        told = {
            "event": event,
            "run": str(self._run),
            "kind": str(incident["kind"]),
            "text": str(incident["text"])[:MOST_TEXT],
            "moment": incident["moment"],
            "ranks": list(incident["ranks"]),
            "attempt": incident["attempt"],
            "capsules": list(incident["capsules"]),
            "evidence": list(incident.get("evidence", [])),
            "told_wall_ns": time.time_ns(),
            "host": platform.node(),
            "version": prismdbg.__version__,
        }
        return json.dumps(told).encode() + b"\n"
