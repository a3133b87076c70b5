"""A Docker engine of our own, for machines where Docker is installed and none runs: its own data, no network of its
own, and only the one started here is ever stopped."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from prismdbg.errors import FacilityError, WaitTimeout
from prismdbg.runtime.runtime import fact_and_advice
from prismdbg.settings.process_stat import start_ticks

_START_S, _SLOW_START_S, _STOP_S = 60.0, 20.0, 30.0


class Daemon:
    """`cache`: images are kept below it. One engine per cache folder, shared by all who use that folder."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache.resolve()  # runc refuses a container below a symbolic link
        name = hashlib.sha256(str(self.cache).encode()).hexdigest()[:8]
        self._data = self.cache / "docker"
        self._run = Path("/run") / f"prismdbg-docker-{name}"  # short: socket paths end at 108 bytes
        self.log = self._data / "dockerd.log"
        self.url = f"unix://{self._run}/docker.sock"

    def cannot_start(self) -> str | None:
        """Why none can be started here, as a sentence with what to do."""
        if shutil.which("dockerd") is None:
            return "Docker is not installed: run apt-get install docker.io"
        if os.geteuid() != 0:
            return "only root can start a Docker engine: start it as root, or join the docker group"
        return None

    def start(self, answers: Callable[[], bool]) -> None:
        """Returns when it answers, also when another process was first. `FacilityError` with its log's last words."""
        if reason := self.cannot_start():
            fact, advice = fact_and_advice(reason)
            raise FacilityError(f"no Docker engine answers, and none can be started: {fact}", hint=advice)
        self._data.mkdir(parents=True, exist_ok=True)
        self._run.mkdir(mode=0o700, exist_ok=True)
        with (self._run / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # bounded by the holder's own wait below
            if self.running_pid() is not None and not self._comes_to_answer(answers):
                self._end()  # whoever began to end it was ended first
            if self.running_pid() is None:
                self._remember(self._spawn())
            self._wait_for_answer(answers)

    def _comes_to_answer(self, answers: Callable[[], bool]) -> bool:
        """It may be starting still. One that was told to end, and does not, has no socket any more."""
        deadline = time.monotonic() + _SLOW_START_S
        while not answers():
            if self.running_pid() is None or time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _spawn(self) -> int:
        """Through a shell that ends at once, so that the engine is nobody's child and outlives this command."""
        script = 'dockerd "$@" >> "$PRISMDBG_LOG" 2>&1 & echo $!'
        ran = subprocess.run(
            ["sh", "-c", script, "sh", *self._options()],
            env={**os.environ, "PRISMDBG_LOG": str(self.log)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            timeout=_START_S,
            check=True,
        )
        return int(ran.stdout)

    def _wait_for_answer(self, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S
        while not answers():
            if self.running_pid() is None:
                self._forget()
                raise FacilityError(f"the Docker engine ended: {self._last_words()}", hint=f"see {self.log}")
            if time.monotonic() > deadline:
                raise WaitTimeout(f"waited {_START_S:g} s for the Docker engine to answer", hint=f"see {self.log}")
            time.sleep(0.05)

    def running_pid(self) -> int | None:
        """The engine that `start` started, by PID and start time, so that no other process is taken for it."""
        try:
            known = json.loads(self._memory.read_text())
            pid, ticks = int(known["pid"]), int(known["started_ticks"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return pid if start_ticks(pid) == ticks else None

    def stop(self) -> bool:
        """Stops the engine that was started here, with its containers. False when none runs."""
        if self.running_pid() is None:
            return False
        self._end()
        shutil.rmtree(self._run, ignore_errors=True)
        return True

    def _end(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            if (pid := self.running_pid()) is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            if self._wait_for_end():
                break
        (self._run / "docker.pid").unlink(missing_ok=True)  # of one that was killed: the next would take it for alive

    @property
    def _memory(self) -> Path:
        return self._run / "engine.json"

    def _options(self) -> list[str]:
        """No bridge and no packet filter rules: replays have no network."""
        return [
            *("--host", self.url),
            *("--data-root", str(self._data / "data")),
            *("--exec-root", str(self._run / "exec")),
            *("--pidfile", str(self._run / "docker.pid")),
            *("--bridge", "none"),
            "--iptables=false",
            "--ip6tables=false",
        ]

    def _remember(self, pid: int) -> None:
        self._memory.write_text(json.dumps({"pid": pid, "started_ticks": start_ticks(pid)}))

    def _forget(self) -> None:
        self._memory.unlink(missing_ok=True)

    def _wait_for_end(self) -> bool:
        deadline = time.monotonic() + _STOP_S
        while self.running_pid() is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it printed nothing"
