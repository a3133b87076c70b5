"""The line debugger: reads a line, has the debugger carry it out, shows answers and notices. No logic of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TextIO

from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.terminal.progress_line import ProgressLine
from prismdbg.debugger.debugger import Debugger
from prismdbg.debugger.program import Program, Unseen
from prismdbg.errors import Defect, PrismError, WaitTimeout
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.plain_text import one_line
from prismdbg.render import answer_text, stop_text
from prismdbg.render.console import plain
from prismdbg.session import answers, notices
from prismdbg.session.divergence_text import render_divergence
from prismdbg.session.line import Verb, parse_line
from prismdbg.session.session import RUNS_ON_HINT, Phase
from prismdbg.session.watches import Watched

PROMPT = "(prismdbg) "
REPEATED = (Verb.NEXT, Verb.REVERSE_NEXT, Verb.STEP, Verb.REVERSE_STEP)

Tell = Callable[[notices.Notice], None]


def run_repl(
    make: Callable[[Tell], Debugger],
    lines: Iterable[str],
    output: TextIO,
    *,
    program: Program | None = None,
    echo: bool = False,
    patient: bool = False,
    strict: bool = False,
    passing: ProgressLine | None = None,
) -> int:
    """Debugs until `quit` or the end of `lines`; then the replay is ended. Gives an exit code.

    make: the debugger that tells its notices to what it is given. echo: show each line before its answer. patient: on
    running out of time go back to the prompt (a person decides), else raise `WaitTimeout`. strict: a line that cannot
    be carried out makes the whole a failure, and Ctrl-C ends it: later lines are meant for another place. passing:
    where what takes long says how far it is.
    """
    repl = Repl(make, output, program or Unseen(), patient=patient, strict=strict, passing=passing)
    with repl.interruptible():
        try:
            repl.begin()
            for line in lines:
                if echo:
                    repl.show(f"{PROMPT}{line}")
                if not repl.do(line):
                    break
        finally:
            repl.debugger.end()
    return ExitCode.FAILED if strict and repl.refused and repl.exit_code == ExitCode.OK else repl.exit_code


class Repl:
    def __init__(
        self,
        make: Callable[[Tell], Debugger],
        output: TextIO,
        program: Program,
        *,
        patient: bool,
        strict: bool,
        passing: ProgressLine | None = None,
    ) -> None:
        self._passing = passing or ProgressLine(output, wanted=False)
        self._program = program
        self._output = output
        self._patient = patient
        self._strict = strict
        self._busy = False
        self._interrupts = 0
        self._differs = False
        self._last = ""
        self._asked = ""  # the verb that is carried out
        self.refused = 0  # lines that could not be carried out
        self.debugger = make(self.tell)

    @property
    def exit_code(self) -> int:
        if self._differs or self.debugger.session.ever_diverged:
            return ExitCode.DIVERGED
        return ExitCode.RANK_LOST if self.debugger.session.phase is Phase.LOST else ExitCode.OK

    def show(self, text: str) -> None:
        """What came from the rank may not steer the terminal."""
        self._passing.clear()
        encoding = self._output.encoding or "utf-8"
        self._output.write(plain(text).encode(encoding, "replace").decode(encoding) + "\n")
        self._output.flush()

    def begin(self) -> None:
        self._carry_out(self.debugger.begin)

    def do(self, text: str) -> bool:
        """Carries out one line; False for `quit`. An empty line repeats the last step."""
        text = text.strip() or self._last
        if not text:
            return True
        self._asked = _verb(text)
        self._last = text if self._asked in REPEATED else ""
        return self._carry_out(lambda: self.debugger.do(text))

    def tell(self, notice: notices.Notice) -> None:
        """Stops are shown with the answer: what stands there is asked for then."""
        self._show_output()
        if isinstance(notice, notices.Stopped):
            return
        if isinstance(notice, notices.Progress):
            self._passing.show(*stop_text.progress_texts(notice), end=" ...")
        if text := stop_text.notice_text(notice):
            self.show(_as_programs(text) if isinstance(notice, notices.ProgramRaised) else text)
        self._differs |= isinstance(notice, notices.StateCompared) and not notice.equal

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Ctrl-C while the rank runs asks it to stop; while a line is typed it is the line's."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._interrupted)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        if not self._busy or self._strict:
            raise KeyboardInterrupt
        self._interrupts += 1
        if self.debugger.interrupt() and self._interrupts == 1:
            self.show("the rank stops at its next collective; press Ctrl-C again to return to the prompt")

    def _carry_out(self, action: Callable[[], answers.Answer]) -> bool:
        self._busy, self._interrupts = True, 0
        stops, stood = self.debugger.session.stopped_times, self.debugger.session.moment
        try:
            answer = action()
            if isinstance(answer, answers.Ended):
                return False
            self._show_answer(answer)
        except WaitTimeout as error:
            if not self._patient:
                raise
            self._show_error(error)
        except PrismError as error:
            self._show_error(error)
            if self.debugger.session.stopped_times != stops:  # it was moved before that went wrong
                self._asked = "as before" if self.debugger.session.moment == stood else ""
                with suppress(PrismError):
                    self._show_place()
        except Exception as error:  # of showing an answer; the debugger's own are told as such already
            self._show_error(Defect.of(error))
        finally:
            self._busy = False
            self._passing.clear()
        return True

    def _show_answer(self, answer: answers.Answer) -> None:
        self._show_output()
        if isinstance(answer, answers.Arrived):
            self._show_arrival(answer)
            return
        if isinstance(answer, answers.Wrote | answers.Originated | answers.Allocated):
            self.show(answer_text.answer_text(answer))
            self._show_place(answer.watched)
            return
        if text := answer_text.answer_text(answer):
            self.show(text)

    def _show_place(self, watched: tuple[Watched, ...] = ()) -> None:
        """Where the rank stands, after a verb that moved it for another purpose."""
        session = self.debugger.session
        self._show_arrival(
            answers.Arrived(phase=session.phase, moment=session.moment, stop=session.stop, watched=watched)
        )

    def _show_arrival(self, answer: answers.Arrived) -> None:
        stop, session = answer.stop, self.debugger.session
        if (standing := session.astray) is not None:
            self.show(stop_text.standing_text(standing))
            return
        if stop is None:
            if answer.phase is Phase.RUNNING:
                self.show(f"the rank is still running; {RUNS_ON_HINT}")
            return
        source: list[str] = []
        if stop.collective or stop.reason == StopReason.EXCEPTION:
            session_source: dict[str, Any] = self.debugger.source(around=2)
            source = list(stop_text.source_lines(session_source)) if session.frames else []
        if stop.reason == StopReason.DIVERGED and session.divergence is not None:
            self.show(render_divergence(session.divergence.story, source))
        else:
            self.show("\n".join([stop_text.stop_line(stop, beginning=answer.beginning, asked=self._asked), *source]))
        for watched in answer.watched:
            self.show(answer_text.watched_text(watched))

    def _show_output(self) -> None:
        if output := self._program.new_output():
            self.show(_as_programs(output))

    def _show_error(self, error: PrismError) -> None:
        self.refused += 1
        self._show_output()
        first, *rest = str(error).splitlines() or [""]
        lines = [f"error: {first}", *(line if line.startswith(" ") else f"  {line}" for line in rest)]
        self.show("\n".join([*lines, *([f"  try: {one_line(error.hint)}"] if error.hint else [])]))


def _verb(text: str) -> str:
    """Empty where the line has none."""
    try:
        return parse_line(text).verb
    except PrismError:
        return ""


def _as_programs(text: str) -> str:
    """Marked line by line: the program's words are not ours."""
    return "\n".join(f"| {line}" for line in text.splitlines())
