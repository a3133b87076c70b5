"""`evaluate`: expressions everywhere; in the console the debugger's own commands, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.looking import Looking
from prismdbg.dap.motion import Motion
from prismdbg.debugger.debugger import Debugger
from prismdbg.render.answer_text import answer_text
from prismdbg.render.value_text import value_text
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.line import OTHER_NAMES, Verb

CONSOLE = "repl"
COMMANDS = frozenset([*Verb, *OTHER_NAMES])

Json = dict[str, Any]


class Evaluating:
    """`quit` is `on_quit`."""

    def __init__(self, debugger: Debugger, looking: Looking, motion: Motion, on_quit: Callable[[], None]) -> None:
        self._debugger, self._looking, self._motion, self._on_quit = debugger, looking, motion, on_quit

    def evaluate(self, arguments: Arguments) -> Json:
        """The answer to `evaluate`. A line in the console that begins with the whole name of a command is one."""
        text, context = arguments.text("expression").strip(), arguments.text("context", "")
        if context == CONSOLE and text.split(" ", 1)[0].removesuffix("!") in COMMANDS:
            return self._command(text, arguments)
        frame = self._looking.frame_of(arguments)
        value = self._looking.value_in(frame, text)
        result = value_text(value, brief=context == "watch")
        return {"result": result, **self._looking.variables.reference(value, text, frame)}

    def _command(self, text: str, arguments: Arguments) -> Json:
        if arguments.has("frameId"):
            self._looking.in_frame(self._looking.frame_of(arguments))
        answer = self._motion.do(text)
        if isinstance(answer, answers.Ended):
            self._on_quit()
        if isinstance(answer, answers.Value):
            frame = self._debugger.session.frame
            return {
                "result": answer_text(answer),
                **self._looking.variables.reference(answer.value, answer.text, frame),
            }
        return {"result": _result(answer), "variablesReference": 0}


def _result(answer: Answer) -> str:
    if isinstance(answer, answers.Arrived):
        return str(answer.moment)
    return answer_text(answer)
