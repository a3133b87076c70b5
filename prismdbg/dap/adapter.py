"""The debug adapter: takes a client's requests one after the other, and answers each."""

from __future__ import annotations

import queue
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from prismdbg.dap.arguments import Request
from prismdbg.dap.breakpoints import FILTERS
from prismdbg.dap.client import Client
from prismdbg.dap.control import Control
from prismdbg.dap.inbox import MOVES, Inbox
from prismdbg.dap.launch import Launch
from prismdbg.dap.replaying import Replaying, Settled
from prismdbg.dap.telling import Telling
from prismdbg.errors import Defect, PrismError, UsageError, quoted, suggestion

IDLE_S = 1.0
LAST_S = 5.0  # after `terminate`, until the client disconnects

Json = dict[str, Any]

CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsHitConditionalBreakpoints": True,
    "supportsLogPoints": True,
    "supportsDataBreakpoints": True,
    "supportsBreakpointLocationsRequest": True,
    "supportsExceptionFilterOptions": True,
    "supportsExceptionInfoRequest": True,
    "exceptionBreakpointFilters": list(FILTERS),
    "supportsStepBack": True,
    "supportsSteppingGranularity": True,
    "supportsGotoTargetsRequest": True,
    "supportsRestartRequest": True,
    "supportsEvaluateForHovers": True,
    "supportsReadMemoryRequest": True,
    "supportsTerminateRequest": True,
    "supportsCancelRequest": True,
}


class Adapter:
    """One client, one replay. `serve` returns when the client has disconnected or is gone, and the rank is gone."""

    def __init__(self, client: Client, inbox: Inbox, control: Control, launch: Launch) -> None:
        self._client, self._inbox, self._control, self._launch = client, inbox, control, launch
        self._telling = Telling(client)
        self._replaying: Replaying | None = None
        self._first_line = 1
        self._is_initialized = self._is_over = False
        self._open = ExitStack()

    def serve(self) -> None:
        self._inbox.start()
        try:
            with self._open:
                while not self._is_over and (request := self._next()) is not None:
                    self._take(request)
        finally:
            self._control.closed()
        if self._inbox.failed is not None:
            raise self._inbox.failed

    def _next(self) -> Request | None:
        while True:
            try:
                return self._inbox.next(LAST_S if self._control.is_closing else IDLE_S)
            except queue.Empty:
                if self._control.is_closing:
                    return None
                if self._replaying is not None:
                    self._replaying.poll()

    def _take(self, request: Request) -> None:
        try:
            self._carry_out(request)
        except PrismError as error:
            self._client.refuse(request, error)
        except Exception as error:  # a defect here must not cost the session
            self._client.refuse(request, Defect.of(error))
        finally:
            if request.command in MOVES:
                self._control.done_with_move()
        if self._replaying is not None and not self._control.is_closing:
            self._replaying.report()

    def _carry_out(self, request: Request) -> None:
        own: dict[str, Callable[[Request], None]] = {
            "initialize": self._initialize,
            "launch": self._start,
            "attach": self._start,
            "configurationDone": self._configured,
            "terminate": self._terminate,
            "disconnect": self._disconnect,
        }
        if not self._is_initialized and request.command not in ("initialize", "disconnect"):
            raise UsageError(f"{quoted(request.command)} came before initialize")
        if request.command in own:
            own[request.command](request)
            return
        replaying = self._require_replay(request.command)
        if request.command in replaying.moves:
            line = replaying.moves[request.command](request.arguments)
            replaying.require(line)
            self._client.respond(request, {"allThreadsContinued": True} if request.command == "continue" else None)
            replaying.run(line)
        elif request.command in replaying.answers:
            self._client.respond(request, replaying.answers[request.command](request.arguments))
        else:
            known = [*own, *replaying.moves, *replaying.answers, "pause", "cancel"]
            near = suggestion(request.command, known)
            raise UsageError(
                f"{quoted(request.command)} is not supported{near}", hint="see the capabilities that initialize lists"
            )

    def _require_replay(self, command: str) -> Replaying:
        if self._control.is_closing:
            raise UsageError("the session ends")
        if self._replaying is None:
            raise UsageError(f"{quoted(command)} needs a replay, and none is started", hint="send launch first")
        return self._replaying

    def _initialize(self, request: Request) -> None:
        if self._is_initialized:
            raise UsageError("initialize came twice")
        arguments = request.arguments
        if (form := arguments.text("pathFormat", "path")) != "path":
            raise UsageError(f"the path format {quoted(form)} is not supported", hint="use path")
        self._first_line = 1 if arguments.flag("linesStartAt1", True) else 0
        self._telling.is_vscode = arguments.text("clientID", "") == "vscode"
        self._telling.wants_progress = arguments.flag("supportsProgressReporting")
        self._is_initialized = True
        self._client.respond(request, CAPABILITIES)

    def _start(self, request: Request) -> None:
        if self._replaying is not None:
            raise UsageError("a replay is started already")
        launch = self._launch.told(request.arguments)
        self._control.starts()
        try:
            settled = Settled(
                client=self._client,
                control=self._control,
                telling=self._telling,
                launch=launch,
                first_line=self._first_line,
                on_quit=self._quit,
            )
            self._replaying = self._open.enter_context(Replaying.opened(settled))
        finally:
            self._control.stands()
            self._telling.over()
        self._client.respond(request)
        self._client.event("initialized")

    def _configured(self, request: Request) -> None:
        replaying = self._require_replay(request.command)
        self._client.respond(request)
        replaying.begin()

    def _quit(self) -> None:
        """Typed in the console: the client is asked to disconnect."""
        self._control.close()
        self._end_replay()

    def _terminate(self, request: Request) -> None:
        self._client.respond(request)
        self._end_replay()

    def _end_replay(self) -> None:
        self._replaying = None
        self._open.close()
        self._control.closed()
        self._client.event("terminated")

    def _disconnect(self, request: Request) -> None:
        """Answered when everything is gone: a client may end this process at once."""
        self._is_over = True
        self._replaying = None
        self._open.close()
        self._client.respond(request)
