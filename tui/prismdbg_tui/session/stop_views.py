"""What the panes show of a stop, asked of a debugger whose rank stands: stack, source, names, values, peers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from prismdbg.errors import PrismError, RankLost
from prismdbg.session import answers as told
from prismdbg_tui.session.answers import opened
from prismdbg_tui.session.views import SourceView, ValueView

AROUND_LINES = 200
SHOWN_AT_STOPS = ("input", "out")
MAX_COMPARED = 4  # outputs that are compared with the record at each stop


class Debugger(Protocol):
    """What is needed of `debugger.debugger`."""

    session: Any

    def begin(self) -> told.Answer: ...

    def do(self, text: str) -> told.Answer: ...

    def stack(self) -> told.Stack: ...

    def source(self, line: int | None = None, around: int = 5) -> dict[str, Any]: ...

    def evaluate(self, text: str) -> dict[str, Any]: ...

    def local_names(self) -> tuple[dict[str, Any], ...]: ...

    def peers(self) -> dict[str, Any]: ...

    def tally(self) -> dict[str, Any]: ...

    def choose_frame(self, outwards: int) -> told.Stack: ...


class StopViews:
    """Gives changes of the screen's state."""

    def __init__(self, debugger: Debugger) -> None:
        self._debugger = debugger

    def of_stop(self, kept: tuple[str, ...], *, in_collective: bool) -> dict[str, Any]:
        """`kept`: expressions that were printed, shown again at each stop."""
        values = self._values(kept, SHOWN_AT_STOPS if in_collective else ())
        peers = (attempt(self._debugger.peers) or {}) if in_collective else {}
        return {**(attempt(self.of_frame) or {}), "values": values, "peers": peers}

    def of_frame(self) -> dict[str, Any]:
        stack = self._debugger.stack()
        source = self._source() if stack.frames else SourceView()
        names = tuple(attempt(self._debugger.local_names) or ())
        return {"frames": stack.frames, "frame": stack.chosen, "source": source, "names": names}

    def _source(self) -> SourceView:
        answer = self._debugger.source(None, AROUND_LINES)
        return SourceView(
            filename=str(answer["filename"]),
            function=str(answer.get("function", "")),
            line=int(answer["line"]),
            first=int(answer["first"]),
            lines=tuple(map(str, answer["lines"])),
            note="as the rank sees it",
        )

    def _values(self, kept: tuple[str, ...], of_call: tuple[str, ...]) -> tuple[ValueView, ...]:
        found: list[ValueView] = []
        for place, text in enumerate((*kept, *of_call)):
            if (value := attempt(lambda text=text: self._debugger.evaluate(text))) is not None:  # type: ignore[misc]
                is_kept = place < len(kept)
                found += [replace(view, of_call=not is_kept, again=is_kept) for view in opened(text, value)]
        outputs = [number for number, view in enumerate(found) if view.title.startswith("out[")]
        for number in outputs[:MAX_COMPARED]:
            found[number] = replace(found[number], differs=self._difference(found[number].title))
        return tuple(found)

    def _difference(self, title: str) -> told.Differs | None:
        """To the recorded value; None where none was recorded."""
        answer = attempt(lambda: self._debugger.do(f"diff {title}"))
        return answer if isinstance(answer, told.Differs) else None


def attempt(look: Callable[[], Any]) -> Any:
    """None where this stop does not have it: a barrier has no input."""
    try:
        return look()
    except RankLost:
        raise
    except PrismError:
        return None
