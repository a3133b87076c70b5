"""A captured rank run again from Python: the debugger's verbs as methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from prismdbg.api.rich_shown import lines
from prismdbg.debugger.debugger import Debugger, Settings, debug
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.errors import Divergence, RankLost, UsageError
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.render.answer_text import answer_text
from prismdbg.render.stop_text import source_lines
from prismdbg.session.answers import Answer, Arrived, BreakpointSet, Phase
from prismdbg.session.notices import Notice, Stopped

if TYPE_CHECKING:
    from rich.console import RenderableType


class Replay:
    """A replayed rank, stopped in a debugger. `replay` returns one.

    Each method that moves the rank waits until it stops again and returns its moment. If it cannot, it raises a
    `PrismError` with the text that the debugger would print, `RankLost` if the rank has died.

        >>> print(rank.goto("11.1"))
        11.1
        >>> rank.print("nan(scores)")
        'True'
        >>> print(rank.reverse_next(), rank.next())
        10.2 11.1
    """

    def __init__(self, debugger: Debugger, travel: Travel, notices: list[Notice]) -> None:
        self._debugger = debugger
        self._travel = travel
        self.notices = notices

    @property
    def moment(self) -> Moment:
        return self._debugger.session.moment

    @property
    def phase(self) -> Phase:
        """Whether the rank is stopped, has finished, or is lost."""
        return self._debugger.session.phase

    @property
    def stop(self) -> Stopped | None:
        """Why and in which collective the rank is stopped; None if it is not."""
        return self._debugger.session.stop

    @property
    def output(self) -> str:
        """What the program has printed."""
        return self._travel.output.text()

    def do(self, line: str) -> Answer:
        """Runs one line of the debugger; `do("help")` lists the commands."""
        return self._debugger.do(line)

    def next(self, count: int = 1) -> Moment:
        return self._moved(f"next {count}")

    def step(self, count: int = 1) -> Moment:
        """Runs to the next operator, allocation or free."""
        return self._moved(f"step {count}")

    def finish(self) -> Moment:
        return self._moved("finish")

    def continue_(self) -> Moment:
        """Runs to a breakpoint, to the end, or to the first divergence."""
        return self._moved("continue")

    def run_to(self, moment: str | Moment) -> Moment:
        """Runs forwards to `moment`, unless a breakpoint is hit first. Raises `Divergence` if the replay diverges."""
        return self._arrived(f"until {moment}")

    def goto(self, moment: str | Moment) -> Moment:
        """Moves forwards or backwards to `moment`; breakpoints are ignored. Raises `Divergence` if the replay
        diverges."""
        return self._arrived(f"goto {moment}")

    def reverse_next(self, count: int = 1) -> Moment:
        return self._moved(f"reverse-next {count}")

    def reverse_step(self, count: int = 1) -> Moment:
        return self._moved(f"reverse-step {count}")

    def reverse_continue(self) -> Moment:
        return self._moved("reverse-continue")

    def breakpoint(self, what: str) -> int:
        """Sets a breakpoint and returns its number. `what` is what follows `break` in the debugger: `"nan"`,
        `"train.py:61"`, `"all_reduce if step > 3"`.

            >>> rank.breakpoint("all_reduce if step > 40")
            1
        """
        answer = self.do(f"break {what}")
        if not isinstance(answer, BreakpointSet):
            raise UsageError(
                f"{what!r} sets no breakpoint",
                hint="give what you would type after `break` in the debugger, such as nan or all_reduce",
            )
        return answer.stop.number

    def print(self, expression: str) -> str:
        """The value as the debugger prints it."""
        return answer_text(self.do(f"print {expression}"))

    def value(self, expression: str) -> Any:
        """The value in Python: a number, a text, a list or a dictionary of these. A tensor becomes a dictionary with
        its shape, dtype, statistics and first values, another object a text. Long values are cut.

            >>> rank.value("step"), rank.value("numel(scores)")
            (11, 8)
        """
        return _plain(self._debugger.evaluate(expression))

    def tensor(self, expression: str) -> np.ndarray[Any, np.dtype[Any]]:
        """All elements of a tensor, with its shape. bfloat16 becomes float32, without loss. Raises `UsageError` if
        NumPy has no such element type, `FacilityError` if this machine has too little free memory for it.

            >>> rank.tensor("scores").shape
            (8,)
        """
        return self._debugger.exports.array(expression)

    def stack(self) -> tuple[Frame, ...]:
        """The frames, innermost first.

        >>> any(frame.name == "main" for frame in rank.stack())
        True
        """
        return self._debugger.stack().frames

    def _moved(self, line: str) -> Moment:
        answer = self.do(line)
        if self.phase is Phase.LOST:
            raise RankLost(
                f"the rank was lost at {self.moment}: {self._debugger.session.lost_because}",
                hint="use `goto`, which starts it again",
            )
        return answer.moment if isinstance(answer, Arrived) else self.moment

    def _arrived(self, line: str) -> Moment:
        """What diverges is another run, wherever it came to."""
        moment = self._moved(line)
        if self.stop is not None and self.stop.reason == StopReason.DIVERGED:
            raise Divergence(
                f"the replay diverged from the recording at {self.stop.moment}",
                hint="read the differences in `notices`, or use `goto` to go back",
            )
        return moment

    def __repr__(self) -> str:
        return f"<replay at {self.moment}: {self.phase}>"

    def _repr_html_(self) -> str:
        """For notebooks: where the rank is stopped, and its source lines there."""
        where = f"<p>{escape(str(self.phase))} at <b>{self.moment}</b></p>"
        if self.stop is None:
            return where
        source = "\n".join(source_lines(self._debugger.source()))
        return f"{where}<pre>{escape(source)}</pre>"

    def __rich__(self) -> RenderableType:
        """For terminals: the same."""
        where = f"{self.phase} at {self.moment}"
        return lines([where, *(source_lines(self._debugger.source()) if self.stop is not None else ())])


@contextmanager
def replay(
    capsule: str | Path,
    *,
    runtime: str = "",
    allow_writes: bool = False,
    timeout_s: float = 600.0,
    say: Callable[[str], None] | None = None,
) -> Iterator[Replay]:
    """Starts the rank in `capsule`, a folder or a packed file, among virtual peers, and stops it at its first stop.

    The end of the `with` block ends the rank and removes everything that was made for it. runtime: docker, local or
    plain; by default the first that works on this machine. timeout_s: limit for a run without a collective. say: is
    called with texts on the progress.
    """
    if not (found := Path(capsule)).exists():
        raise UsageError(f"no such file or directory: {capsule}", hint="give a capsule")
    notices: list[Notice] = []
    with opened(found) as whole:
        request = ReplayRequest(capsule=whole, runtime=runtime, allow_writes=allow_writes)
        with open_travel(request, say or _silent) as travel:
            debugger = debug(travel, notices.append, settings=Settings(bound_s=timeout_s))
            try:
                debugger.begin()
                yield Replay(debugger, travel, notices)
            finally:
                debugger.end()


def _silent(_text: str) -> None:
    return None


_NO_NUMBERS = ("nan", "inf", "-inf")  # which JSON has as texts
_FLOATS = ("float", "numpy.float64")  # an older rank does not say of which class they are


def _plain(value: dict[str, Any]) -> Any:
    match value["kind"]:
        case "scalar":
            is_float = value.get("is_float") or value.get("type") in _FLOATS
            return float(value["value"]) if is_float and value["value"] in _NO_NUMBERS else value["value"]
        case "sequence":
            return [_plain(item) for item in value["items"]]
        case "mapping":
            return {key: _plain(item) for key, item in value["items"]}
        case "tensor":
            return {name: _numbers(part) if name in ("values", "stats") else part for name, part in value.items()}
        case "module":
            return value
    return value.get("text", "...")


def _numbers(part: Any) -> Any:
    """Of a tensor: lists and dictionaries of its elements, among which no text is a text."""
    if isinstance(part, list):
        return [_numbers(item) for item in part]
    if isinstance(part, dict):
        return {name: _numbers(item) for name, item in part.items()}
    return float(part) if part in _NO_NUMBERS else part
