"""A rank under a starter, wherever it runs: waiting until it is there, its exit code, its PID, its end."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

from prismdbg.errors import CapsuleError, RuntimeFailure, WaitTimeout
from prismdbg.runtime.foreign_files import MAX_LOG_BYTES, read_regular
from prismdbg.runtime.limits import reached
from prismdbg.runtime.parent_death_fifo import ParentDeathFifo
from prismdbg.runtime.spec import ProgramOrigin, ReplaySpec
from prismdbg.runtime.starter_spec import RESTORE_LOG, STARTER_LOG, Progress, read_progress
from prismdbg.runtime.status_socket import StatusSocket
from prismdbg.settings.process_stat import text_of

_POLL_S = 0.01
_END_S = 10.0
_LAST_LINES = 5  # of what a starter wrote that ended without a message


class Place(Protocol):
    """What a runtime made for one rank: the starter's process or its container."""

    def outer_pid(self) -> int | None:
        """The starter's PID on this machine; None once it has ended."""

    def ended(self) -> int | None:
        """The starter's exit code; None while it runs."""

    def limits_met(self) -> tuple[str, ...]:
        """As this machine counted them, once the starter has ended; before `remove`."""

    def last_words(self) -> str:
        """What the starter wrote elsewhere than into its log, once it has ended; before `remove` and `runs`."""

    def runs(self) -> None:
        """The rank runs: what the starter wrote is no longer asked for."""

    def remove(self) -> None:
        """Kills what runs and removes what was made. Harmless when called again."""

    def describe(self) -> str: ...


class StartedRank:
    """`RunningRank` for every place that has a starter in it."""

    def __init__(
        self, spec: ReplaySpec, place: Place, lifeline: ParentDeathFifo, status: StatusSocket | None = None
    ) -> None:
        """status: of a starter that does not write its own."""
        self._spec = spec
        self._status = status
        self._place = place
        self._lifeline = lifeline
        self._code: int | None = None
        self._met: tuple[str, ...] = ()  # where the starter was killed itself, as the next victim of a full memory

    def until_running(self) -> StartedRank:
        """Returns itself when the rank runs (or has run and ended); otherwise removes the place and raises."""
        try:
            self._wait_for_rank()
            self._place.runs()
        except BaseException:
            self.kill()
            raise
        return self

    def rank_pid(self) -> int | None:
        inside = self._progress().pid
        outer = self._place.outer_pid()
        if inside is None or outer is None or self.exit_code() is not None:
            return None
        return find_below(outer, inside)

    def exit_code(self) -> int | None:
        """Not kept where the rank can come back to life."""
        if self._code is None and (said := self._progress().exit_code) is not None:
            return said
        if self._code is None and (ended := self._place.ended()) is not None:
            # The starter writes its last line before it ends, so a second look decides.
            said = self._progress().exit_code
            self._code = ended if said is None else said
            self._met = self._place.limits_met() if said is None else ()
        return self._code

    def describe(self) -> str:
        return f"{self._spec.name} in {self._place.describe()}, output in {self._spec.output}"

    def kill(self) -> None:
        self._place.remove()
        self._lifeline.let_go()
        if self._code is None:
            said = self._progress().exit_code
            self._code = 137 if said is None else said
        if self._status is not None:
            self._status.close()

    def wait(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while (code := self.exit_code()) is None:
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"waited {timeout_s:g} s for {self._spec.name} to end",
                    hint="give a longer --timeout, or see the rank's output",
                )
            time.sleep(_POLL_S)
        self.kill()
        self.require_within_limits()
        return code

    def require_within_limits(self) -> None:
        """`LimitReached` where it ended, and not well, after it had met a limit."""
        said = self._progress()
        if self.exit_code() and (limits := said.limits or self._met):
            raise reached(limits[0], self._spec.limits)

    def require_no_limit_met(self, *, ends: bool) -> None:
        deadline = time.monotonic() + (_END_S if ends else 0)
        while self.exit_code() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        if limits := self._progress().limits or self._met:
            raise reached(limits[0], self._spec.limits)

    def _progress(self) -> Progress:
        if self._status is not None:
            self._status.take()
        return read_progress(self._spec.session)

    def _wait_for_rank(self) -> None:
        until = time.monotonic() + self._spec.start_s
        while True:
            progress = self._progress()
            if progress.failure:
                raise self._error(progress)
            if progress.pid is not None:
                return
            if (code := self._place.ended()) is not None and not self._progress().pid:
                raise self._error(self._progress(), code)
            self._spec.deadline.require(f"the start of {self._spec.name} in {self._place.describe()}")
            if time.monotonic() > until:
                raise WaitTimeout(
                    f"waited {self._spec.start_s:g} s for {self._spec.name} to start in {self._place.describe()}",
                    hint="try again when the machine is less busy, or with another --runtime",
                )
            time.sleep(_POLL_S)

    def _error(self, progress: Progress, code: int | None = None) -> Exception:
        if progress.engine_failed and (restoring := self._spec.restoring) is not None:
            # The starter's words come last, so they count only where the engine's log gives no reason: it hung, say.
            log = _read(self._spec.control / RESTORE_LOG)
            explain = restoring.engine.explain_foreign if self._spec.restores_capsule else restoring.engine.explain
            return explain(restoring.doing, f"{log}\nError (starter): {progress.failure}\n")
        if progress.field and (unfit := self._unfit(progress)):
            return unfit
        where = self._place.describe()
        if progress.failure:
            return RuntimeFailure(
                f"{self._spec.name} could not be started in {where}: {progress.failure}",
                hint="run `prismdbg doctor` to see what this machine lacks",
            )
        said = _read(self._spec.control / STARTER_LOG).strip() or self._place.last_words().strip()
        lines = said.splitlines()[-_LAST_LINES:]
        words = "".join(f": {line}" for line in lines) if len(lines) < 2 else "\n".join((":", *lines))
        return RuntimeFailure(
            f"the process that starts the rank in {where} ended with exit code {code} and no message{words}",
            hint="run `prismdbg doctor` to see what this machine lacks, or use another --runtime",
        )

    def _unfit(self, progress: Progress) -> CapsuleError | None:
        """None where this machine lacks what the capsule lists: a plain process works in the folders that are here."""
        origin, environment = self._spec.origin, self._spec.environment
        if not isinstance(origin, ProgramOrigin) or (origin.cwd in self._spec.folders and progress.field == "cwd"):
            return None
        if progress.field == "cwd":
            return _unfit("cwd", origin.cwd, "a folder that the capsule lists", progress.failure)
        if environment is not None:
            environment.check_unchanged()
        return _unfit("executable", origin.executable, "the interpreter that the capsule lists", progress.failure)


def _unfit(field: str, value: str, wanted: str, reason: str) -> CapsuleError:
    return CapsuleError(
        f"rank.json: {field} must be {wanted}, not {value[:80]!r} ({reason})",
        hint="capture or fetch it again: the capsule is damaged or altered",
    )


def find_below(outer: int, inside: int) -> int | None:
    """The descendant of `outer` whose PID in its own namespace is `inside`."""
    waiting = [outer]
    while waiting:
        pid = waiting.pop()
        try:
            status = text_of(Path(f"/proc/{pid}/status"))
            children = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
        except OSError:
            continue
        names = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()
        if int(names[-1]) == inside and pid != outer:
            return pid
        waiting += [int(child) for text in children for child in text.split()]
    return None


def _read(path: Path) -> str:
    return read_regular(path, MAX_LOG_BYTES).decode("utf-8", "replace")
