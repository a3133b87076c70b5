"""The captures that are asked of a supervisor through RUN, each in a thread of its own: the watch goes on meanwhile.

A command that was killed leaves its request behind. Nobody answers one again, nor one that nobody waits for. Each
supervisor finds out once whose a request is, which takes a list of all log folders, and then looks at it seldom.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from prismdbg.capsule.manifest import Origin
from prismdbg.errors import NotReplayable, PrismError
from prismdbg.jobs.capture.capture import CaptureRequest, capture
from prismdbg.jobs.capture.requests import TAKEN_BOUND_S, RequestFolder, RequestJson, requests_in
from prismdbg.jobs.storage.job_nodes import NodeFolder, node_of
from prismdbg.jobs.storage.run_folder import RunFolder

LOOK_NS = 500_000_000
AGAIN_NS = 60_000_000_000  # at one that is of another node, or that was left
STALE_S = 3600.0  # untouched, and a request is removed; file servers tell of what others touch a minute late, or later
_FORGOTTEN = "the command that requested it has ended"


class RequestAnswers:
    """`tell`: what the ledger keeps as a problem."""

    def __init__(self, run: RunFolder, node: NodeFolder, tell: Callable[[str], None]) -> None:
        self._run = run
        self._node = node
        self._tell = tell
        self._begun: set[str] = set()  # and those that are damaged
        self._known_ns: dict[str, int] = {}  # when it was found whose a request is, and what to do with it
        self._looked_ns = 0

    def look(self) -> None:
        if time.monotonic_ns() - self._looked_ns < LOOK_NS:
            return
        self._looked_ns = time.monotonic_ns()
        since_ns = self._looked_ns - AGAIN_NS
        self._known_ns = {name: ns for name, ns in self._known_ns.items() if ns > since_ns}
        for request in requests_in(self._run):
            if request.path.name not in self._begun and request.path.name not in self._known_ns:
                with suppress(OSError):  # what cannot be read of one hides no other; the next look may read it
                    self._consider(request)

    def _consider(self, request: RequestFolder) -> None:
        try:
            asked = request.request()
            owner = node_of(RunFolder(self._run.path).latest(asked["rank"]))
            if owner == self._node.name:
                self._begin_or_remove(request, asked)
            if owner:  # else the rank has not described itself, as far as can be seen from here
                self._known_ns[request.path.name] = self._looked_ns
        except PrismError as error:  # a damaged one, or of a rank that nobody knows: who asked has a bound
            self._begun.add(request.path.name)
            if request.path.exists():
                self._tell(f"request {request.path.name} is not answered: {error}")

    def _begin_or_remove(self, request: RequestFolder, asked: RequestJson) -> None:
        untouched_s = request.untouched_s()
        if request.is_open() and untouched_s < TAKEN_BOUND_S:
            self._begun.add(request.path.name)
            Thread(target=self._answer, args=(request, asked), name="prismdbg-request", daemon=True).start()
        elif untouched_s > STALE_S:
            if (made := Path(request.answered().get("capsule", "/nowhere"))).is_dir():
                self._tell(f"request {request.path.name}: {_FORGOTTEN}; its capsule is {made}")
            shutil.rmtree(request.path, ignore_errors=True)

    def _answer(self, request: RequestFolder, asked: RequestJson) -> None:
        output = self._run.capsules / f"request-rank{asked['rank']}-{request.path.name}"
        lines: list[str] = []

        def say(text: str) -> None:
            lines.append(text)
            request.report(lines)

        try:
            request.report(lines)
            output.parent.mkdir(exist_ok=True, mode=0o700)
            made = capture(
                CaptureRequest(
                    run=self._run,
                    rank=asked["rank"],
                    output=output,
                    window_steps=asked["window_steps"],
                    origin=_origin(asked["origin"]),
                    timeout_s=asked["timeout_s"],
                    node=self._node.name,
                    given_up=lambda: not request.path.exists(),
                ),
                say,
            )
            request.answer(capsule=str(made.path))
        except Exception as error:
            self._failed(request, error, output)
        finally:
            self._begun.discard(request.path.name)

    def _failed(self, request: RequestFolder, error: Exception, output: Path) -> None:
        if not request.path.exists():
            made = error.evidence if isinstance(error, NotReplayable) else output
            shutil.rmtree(made, ignore_errors=True)  # no ledger names it
            self._tell(f"request {request.path.name}: {_FORGOTTEN}")
            return
        known = error if isinstance(error, PrismError) else PrismError(f"the supervisor failed: {error!r}")
        with suppress(OSError):  # RUN is out of reach, also for whoever asked
            request.answer(error=str(known), hint=known.hint, exit_code=known.exit_code)


def _origin(name: str) -> Origin:
    return next((origin for origin in Origin if name == origin), Origin.IMAGE)
