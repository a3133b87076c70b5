"""A real terminal through tmux: keys are sent, what is seen is read back. Every wait is bounded."""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import time
from pathlib import Path

import psutil
from waiting import wait_for

from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.replay.session_folder import sessions_base
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import engine

BOUND_S = 240.0  # the first container of an engine waits for its image to be made
SETTLED_S = 0.5


class Terminal:
    """A tmux server of its own, with one window."""

    def __init__(self, socket: Path, environment: dict[str, str]) -> None:
        self._tmux = ("tmux", "-S", str(socket), "-f", os.devnull)
        self._environment = {k: v for k, v in environment.items() if k not in ("TMUX", "NO_COLOR")}

    def start(self, command: str, columns: int, lines: int) -> None:
        size = ("-x", str(columns), "-y", str(lines))
        self._run("new-session", "-d", *size, f"{command}; echo ended with $?; exec sleep {BOUND_S:.0f}")

    def keys(self, *keys: str) -> None:
        """As tmux names them; what is no name is typed."""
        self._run("send-keys", *keys)

    def mouse(self, button: int, column: int, line: int, *, up: bool = False) -> None:
        """As a terminal reports it (SGR): 0 is the left button, 32 more while it moves, 64 and 65 the wheel."""
        self._run("send-keys", "-l", f"\x1b[<{button};{column};{line}{'m' if up else 'M'}")

    def type_line(self, text: str) -> None:
        self._run("send-keys", "-l", text)
        self.keys("Enter")

    def resize(self, columns: int, lines: int) -> None:
        self._run("resize-window", "-x", str(columns), "-y", str(lines))

    @property
    def seen(self) -> str:
        return self._run("capture-pane", "-p")

    @property
    def said(self) -> str:
        """With what has scrolled away, lines joined that were wrapped."""
        return self._run("capture-pane", "-p", "-J", "-S", "-")

    def pane(self, what: str) -> str:
        return self._run("display-message", "-p", what).strip()

    def until(self, text: str) -> str:
        """What is seen once `text` is."""
        return self.until_match(re.escape(text)).string

    def until_match(self, pattern: str, *, scrolled: bool = False) -> re.Match[str]:
        """`scrolled`: also in what has scrolled away."""

        def found() -> re.Match[str] | None:
            return re.search(pattern, self.said if scrolled else self.seen)

        try:
            return wait_for(found, BOUND_S, f"{pattern!r} on the terminal")
        except AssertionError as error:
            raise AssertionError(f"{error}, which shows:\n{self.seen}") from None

    def until_gone(self, text: str) -> str:
        wait_for(lambda: text not in self.seen, BOUND_S, f"{text!r} to go from the terminal")
        return self.seen

    def until_as(self, before: str) -> None:
        """Until it shows what it showed then."""
        try:
            wait_for(lambda: self.seen == before, BOUND_S, "the screen to be as it was")
        except AssertionError as error:
            lines = difflib.unified_diff(before.splitlines(), self.seen.splitlines(), "before", "now", n=0)
            raise AssertionError("\n".join([str(error), *lines])) from None

    def settled(self) -> str:
        """What is seen once nothing has changed for a while."""
        last, since = self.seen, time.monotonic()

        def quiet() -> bool:
            nonlocal last, since
            if (now := self.seen) != last:
                last, since = now, time.monotonic()
            return time.monotonic() - since > SETTLED_S

        wait_for(quiet, BOUND_S, "the screen to come to rest")
        return last

    @property
    def debugger(self) -> psutil.Process:
        """What was started in it."""
        (process,) = psutil.Process(int(self.pane("#{pane_pid}"))).children()
        return process

    def kill_rank(self, script: str) -> None:
        """kill -9 of the rank, or of the container that it lives in, below the debugger in the terminal."""
        session = session_of(self.debugger)
        ranks = [one for one in self.debugger.children(recursive=True) if script in " ".join(one.cmdline())]
        if ranks:
            ranks[0].kill()
        else:
            docker_kill(session)

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, timeout=20, check=False)

    def _run(self, *words: str) -> str:
        done = subprocess.run(
            [*self._tmux, *words], env=self._environment, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout


def session_of(debugger: psutil.Process) -> str:
    """The name of the folder of its replay, which it holds open."""
    folders = (link.readlink() for link in Path(f"/proc/{debugger.pid}/fd").iterdir())
    return next(folder.name for folder in folders if folder.parent == sessions_base())


def docker_kill(session: str) -> None:
    with engine(Daemon(cache_dir()), may_start=False) as docker:
        (container,) = docker.labelled(session)
        subprocess.run(["docker", "-H", docker.url, "kill", container], check=True, timeout=60, capture_output=True)
