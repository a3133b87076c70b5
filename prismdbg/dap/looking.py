"""What a client asks of a rank that stands: its thread, stack, scopes, variables, values, memory. Moves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.handles import Handles
from prismdbg.dap.motion import THREAD
from prismdbg.dap.sources import Sources
from prismdbg.dap.threads import Threads
from prismdbg.dap.values import Held, Piece, Variables, is_tensor
from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import UsageError
from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.collective import Frame
from prismdbg.render.stop_text import stop_line
from prismdbg.session.answers import Phase
from prismdbg.session.breakpoint_line import require_change
from prismdbg.session.divergence_text import render_divergence
from prismdbg.session.frames import event_names, is_library, own_names

OF_ANOTHER_THREAD = -1  # in the place of a frame's number: nothing is looked up there
_SENT_AND_RECEIVED = ("input", "out")  # lists of tensors, by the names that expressions have for them

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scope:
    """kind: locals, event, tensors or watches."""

    kind: str
    frame: int


class Looking:
    def __init__(self, debugger: Debugger, sources: Sources, first_line: int, title: str) -> None:
        self._debugger, self._sources, self._first_line = debugger, sources, first_line
        self._threads = Threads(debugger.inspection, title)
        self._frames: Handles[int] = Handles("frame")
        self._scopes: dict[int, Scope] = {}  # by their number among the variables
        self.variables = Variables()

    def requests(self) -> dict[str, Callable[[Arguments], Json]]:
        return {
            "threads": self._threads_of,
            "stackTrace": self._stack,
            "scopes": self._scopes_of,
            "variables": self._variables,
            "dataBreakpointInfo": self._data_info,
            "exceptionInfo": self._exception,
            "source": self._sources.content,
        }

    def forget(self) -> None:
        """The rank moves: what was asked of it is not so any more."""
        self._threads.forget()
        self._frames.clear()
        self._scopes.clear()
        self.variables.clear()

    def frame_of(self, arguments: Arguments) -> int:
        """Of a frame's number; the program's own frame where none is given."""
        if not arguments.has("frameId"):
            return self._debugger.stack().chosen
        if (frame := self._frames.get(arguments.number("frameId"))) == OF_ANOTHER_THREAD:
            raise UsageError("values of another thread are not known", hint=f"choose a frame of thread {THREAD}")
        return frame

    def in_frame(self, frame: int) -> None:
        """Values are looked up from there on."""
        session = self._debugger.session
        if not session.frames:
            self._debugger.stack()
        if session.frames and frame != session.frame:
            self._debugger.choose_frame(frame - session.frame)

    def value_in(self, frame: int, text: str) -> Json:
        """As far as it is known without a trace: looking does not run the rank again."""
        self.in_frame(frame)
        return self._debugger.inspection.value_untraced(text)

    def _threads_of(self, _: Arguments) -> Json:
        names = self._threads.names(is_stopped=self._stands_in_the_program)
        return {"threads": [{"id": number, "name": name} for number, name in names.items()]}

    def _stack(self, arguments: Arguments) -> Json:
        is_other = (thread := arguments.number("threadId")) != THREAD
        frames = self._threads.frames(thread) if is_other else self._rank_frames()
        first, levels = arguments.number("startFrame", 0), arguments.number("levels", 0)
        shown = list(enumerate(frames))[first : first + levels if levels else None]
        return {
            "stackFrames": [self._frame(OF_ANOTHER_THREAD if is_other else n, frame) for n, frame in shown],
            "totalFrames": len(frames),
        }

    @property
    def _stands_in_the_program(self) -> bool:
        """Not where the rank has ended, is lost, hangs, or stands where it was captured."""
        session = self._debugger.session
        return session.astray is not None or (session.stop is not None and session.stop.reason != StopReason.PARKED)

    def _rank_frames(self) -> tuple[Frame, ...]:
        session = self._debugger.session
        session.require_no_run()
        return self._debugger.stack().frames if self._stands_in_the_program or session.other_frames[0] else ()

    def _frame(self, number: int, frame: Frame) -> Json:
        hint = {"presentationHint": "subtle"} if is_library(frame) else {}
        line = max((frame.line or 0) + self._first_line - 1, 0)
        source = {} if frame.filename.startswith("<") else {"source": self._sources.of(frame.filename)}
        return {"id": self._frames.add(number), "name": frame.name or "?", "line": line, "column": 0, **source, **hint}

    def _scopes_of(self, arguments: Arguments) -> Json:
        frame = self._frames.get(arguments.number("frameId"))
        if frame == OF_ANOTHER_THREAD:
            return {"scopes": []}
        stop = self._debugger.session.stop
        scopes = []
        if stop is not None and stop.collective:
            name = "Collective" if not stop.is_between else str(stop.collective["kind"]).capitalize()
            scopes.append(self._scope(name, Scope("event", frame)))
        scopes.append(self._scope("Locals", Scope("locals", frame), {"presentationHint": "locals"}))
        scopes.append(self._scope("Tensors", Scope("tensors", frame), {"expensive": True}))
        if self._debugger.session.watches.all:
            scopes.append(self._scope("Watch expressions", Scope("watches", frame)))
        return {"scopes": scopes}

    def _scope(self, name: str, scope: Scope, more: Json | None = None) -> Json:
        number = self.variables.held.add(Held(frame=scope.frame))
        self._scopes[number] = scope
        return {"name": name, "variablesReference": number, "expensive": False, **(more or {})}

    def _variables(self, arguments: Arguments) -> Json:
        number = arguments.number("variablesReference")
        held = self.variables.held.get(number)
        if (scope := self._scopes.get(number)) is not None:
            return {"variables": self._of_scope(scope) if arguments.text("filter", "") != "indexed" else []}
        piece = Piece(arguments.text("filter", ""), arguments.number("start", 0), arguments.number("count", 0))
        return {"variables": self.variables.inside(held, piece, lambda text: self.value_in(held.frame, text))}

    def _of_scope(self, scope: Scope) -> list[Json]:
        self.in_frame(scope.frame)
        if scope.kind == "watches":
            return [self._watched(watch.text, scope.frame) for watch in self._debugger.session.watches.all]
        known = self._debugger.local_names()
        if scope.kind == "tensors":
            return [
                *self._sent_and_received(known, scope.frame),
                *self._listed(scope, filter(is_tensor, own_names(known))),
            ]
        chosen = [name for name in known if (name["from"] == "stop") is (scope.kind == "event")]
        return self._listed(scope, chosen)

    def _listed(self, scope: Scope, names: Iterable[Json]) -> list[Json]:
        return [self.variables.listed(name, _named(scope, name["name"]), scope.frame) for name in names]

    def _sent_and_received(self, known: Sequence[Json], frame: int) -> Iterator[Json]:
        """The tensors of the event, each by itself: `input[0]`."""
        for name in filter(event_names(known).__contains__, _SENT_AND_RECEIVED):
            held = Held(frame=frame, text=name)
            for found in self.variables.inside(held, Piece("indexed"), lambda text: self.value_in(frame, text)):
                yield {**found, "name": f"{name}{found['name']}"}

    def _watched(self, text: str, frame: int) -> Json:
        try:
            return self.variables.variable(text, self.value_in(frame, text), text, frame)
        except UsageError as error:
            return {"name": text, "value": f"error: {str(error).partition(chr(10))[0]}", "variablesReference": 0}

    def _data_info(self, arguments: Arguments) -> Json:
        """Which expression a data breakpoint watches; `name` itself where it is of no variable."""
        name = arguments.text("name")
        text = name
        if arguments.has("variablesReference") and (number := arguments.number("variablesReference")):
            scope, held = self._scopes.get(number), self.variables.held.get(number)
            inside = f"{held.text}{name}" if name.startswith("[") else f"{held.text}.{name}"
            text = _named(scope, name) if scope is not None else inside if held.text else ""
        try:
            if not text:
                raise UsageError(f"no expression gives {name}")
            parse(text)
            require_change(text)
        except UsageError as error:
            return {"dataId": None, "description": str(error).partition("\n")[0]}
        return {"dataId": text, "description": f"{text}, compared at each collective", "accessTypes": ["write"]}

    def _exception(self, arguments: Arguments) -> Json:
        session = self._debugger.session
        stop = session.stop
        if session.phase is Phase.LOST:
            return {"exceptionId": "lost", "description": session.lost_because, "breakMode": "always"}
        if stop is not None and stop.reason == StopReason.DIVERGED and session.divergence is not None:
            text = render_divergence(session.divergence.story, [])
            return {"exceptionId": "divergence", "description": text, "breakMode": "always"}
        if stop is not None and stop.reason == StopReason.EXCEPTION and session.raised is not None:
            raised = session.raised
            details = {"message": raised.text, "typeName": raised.kind, "stackTrace": "".join(raised.traceback)}
            return {
                "exceptionId": raised.kind, "description": raised.text, "breakMode": "unhandled", "details": details,
            }  # fmt: skip
        if stop is not None and stop.stops:
            return {"exceptionId": "NaN or infinity", "description": stop_line(stop), "breakMode": "always"}
        raise UsageError("the rank is not stopped at an exception")


def _named(scope: Scope, name: str) -> str:
    """As an expression has it: `local.` is the frame's, also where the event has the same name. Of the tensors those of
    the event have an index."""
    is_local = scope.kind == "locals" or (scope.kind == "tensors" and "[" not in name)
    return f"local.{name}" if is_local else name
