"""A captured rank run again from Python: the debugger's verbs as methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from prismdbg.debugger.debugger import Debugger, Settings, debug
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.render.answer_text import answer_text
from prismdbg.session.answers import Answer, Arrived, BreakpointSet, Phase
from prismdbg.session.notices import Notice, Stopped


class Replay:
    """A rank that stands in a debugger. `replay` makes one.

    Every method that moves the rank waits until it stands again and returns its moment. Each raises a `PrismError` that
    says what is wrong, as the debugger's prompt does; the rank then stands where it stood.
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
        """Whether the rank stands, has finished, or is lost."""
        return self._debugger.session.phase

    @property
    def stop(self) -> Stopped | None:
        """Why and in which collective it stands; None where it does not."""
        return self._debugger.session.stop

    @property
    def output(self) -> str:
        """What the program has printed."""
        return self._travel.output.text()

    def do(self, line: str) -> Answer:
        """Carries out any line of the debugger: `help` lists them."""
        return self._debugger.do(line)

    def next(self, count: int = 1) -> Moment:
        return self._moved(f"next {count}")

    def step(self, count: int = 1) -> Moment:
        """To the next operator, allocation or free."""
        return self._moved(f"step {count}")

    def finish(self) -> Moment:
        return self._moved("finish")

    def continue_(self) -> Moment:
        """To a breakpoint, to the end, or to the first divergence."""
        return self._moved("continue")

    def run_to(self, moment: str | Moment) -> Moment:
        """Forwards to `moment`, unless a breakpoint is hit first."""
        return self._moved(f"until {moment}")

    def goto(self, moment: str | Moment) -> Moment:
        """Forwards or backwards; breakpoints are ignored."""
        return self._moved(f"goto {moment}")

    def reverse_next(self, count: int = 1) -> Moment:
        return self._moved(f"reverse-next {count}")

    def reverse_step(self, count: int = 1) -> Moment:
        return self._moved(f"reverse-step {count}")

    def reverse_continue(self) -> Moment:
        return self._moved("reverse-continue")

    def breakpoint(self, what: str) -> int:
        """Sets a breakpoint as `break` does (`"nan"`, `"train.py:61"`, `"all_reduce if step > 3"`); its number."""
        answer = self.do(f"break {what}")
        if not isinstance(answer, BreakpointSet):
            raise UsageError(f"{what!r} sets no breakpoint", hint="write it as after `break` in the debugger")
        return answer.stop.number

    def print(self, expression: str) -> str:
        """The value as the debugger prints it."""
        return answer_text(self.do(f"print {expression}"))

    def value(self, expression: str) -> Any:
        """A number, a text, a list or a dictionary of such, as Python has it; of a tensor a dictionary with its shape,
        dtype, statistics and first values; of other objects a text. Long ones are cut."""
        return _plain(self._debugger.evaluate(expression))

    def stack(self) -> tuple[Frame, ...]:
        """Innermost first."""
        return self._debugger.stack().frames

    def _moved(self, line: str) -> Moment:
        answer = self.do(line)
        return answer.moment if isinstance(answer, Arrived) else self.moment

    def __repr__(self) -> str:
        return f"<replay at {self.moment}: {self.phase}>"


@contextmanager
def replay(
    capsule: str | Path,
    *,
    runtime: str = "",
    allow_writes: bool = False,
    timeout_s: float = 600.0,
    say: Callable[[str], None] | None = None,
) -> Iterator[Replay]:
    """Runs the rank in `capsule`, a folder or a packed file, among virtual peers; it stands at its first stop.

    The rank and all that was made for it are gone at the end of the `with` block. runtime: docker, local or plain, by
    default the first that this machine has. timeout_s: how long one run may take without a collective. say: is given
    progress as texts.
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


def _plain(value: dict[str, Any]) -> Any:
    match value["kind"]:
        case "scalar":
            return value["value"]
        case "sequence":
            return [_plain(item) for item in value["items"]]
        case "mapping":
            return {key: _plain(item) for key, item in value["items"]}
        case "tensor" | "module":
            return value
    return value.get("text", "...")
