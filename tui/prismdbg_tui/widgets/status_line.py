"""The line above the keys: what runs and how long, the last error, what a key or a search led to, or why the rank is
there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.text import Text
from textual.widgets import Static

from prismdbg.diagnosis.verdict import without_folders
from prismdbg.model.breakpoints import ON_THE_WAY, StopReason
from prismdbg.model.frame import source_of
from prismdbg.render.stop_text import reason_text
from prismdbg.session.line import Verb
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import BUSY, Phase, State

_BAR = 12  # cells
_ESC, _CANCELS = "   esc", " cancels it"
_LEAST_DOING = 20  # cells of what runs; with fewer, the key has no words
_UNKNOWN = 1000  # cells, until it is laid out
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class StatusLine(Static):
    def __init__(
        self, not_replayable: str, told: str, keys: Mapping[str, str], queued: Callable[[], Sequence[str]]
    ) -> None:
        """`not_replayable`: why nothing can run; told: what led to this screen, until something is asked for. queued:
        gives the lines that wait for what runs."""
        super().__init__("", id="status")
        self._state = State()
        self._error, self._told, self._confirmed = "", told, ""
        self._keys, self._queued = keys, queued
        self._looking = not_replayable or "`prismdbg debug` runs the rank"

    def on_mount(self) -> None:
        self.set_interval(0.12, self._spin)

    def show(self, state: State) -> None:
        """An error is over once something else runs, also what was typed before it."""
        if state.phase is Phase.RUNNING and state.since_s != self._state.since_s:
            self._error = ""
        self._state = state
        self.again()

    def fail(self, error: str) -> None:
        """It stays until something else could be done; `error` is empty where something is asked for."""
        self._error, self._told = error, ""
        self.again()

    def tell(self, text: str) -> None:
        """Beside why the rank is there, until something is asked for."""
        self._error, self._told = "", text
        self.again()

    def confirm(self, text: str) -> None:
        """What a key led to, in place of why the rank is there; empty once another key is pressed."""
        if text != self._confirmed:
            self._confirmed = text
            self.again()

    @property
    def is_free(self) -> bool:
        """It says neither what runs nor that the rank is lost."""
        return self._state.phase not in (*BUSY, Phase.LOST)

    def forget_error(self) -> None:
        """Something else was done."""
        if self._error:
            self._error = ""
            self.again()

    def again(self) -> None:
        self.update(self._text(), layout=False)

    def _spin(self) -> None:
        if self._state.phase in BUSY:
            self.again()

    def on_resize(self) -> None:
        self.again()

    def _text(self) -> Text:
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        room = self._room - 2
        if self._state.phase in BUSY:
            return text.append_text(self._doing())
        if self._state.is_cancelled:
            shown = figures.first_fitting((f"the start was cancelled · {self._keys['restart']} starts it",), room)
            return text.append(f"✕ {shown}", color(self.app, "error"))
        if self._state.phase is Phase.LOST:
            lost = _line(self._state.lost_because)
            shown = figures.first_fitting((f"the rank is lost: {lost}", f"lost: {lost}"), room)
            return text.append(f"✕ {shown}", color(self.app, "error"))
        if self._error:
            error, hint = _line(self._error), _hint(self._error)
            tried = (*((f"{error} · {hint}",) if hint else ()), *figures.clauses(error))
            return text.append(f"✕ {figures.first_fitting(tried, room)}", color(self.app, "error"))
        if self._confirmed:
            return text.append(figures.first_fitting(figures.clauses(_line(self._confirmed)), room + 2))
        if self._state.phase is Phase.RUNS_ON:
            return text.append(figures.first_fitting(self._runs_on(), room + 2), color(self.app, "warning"))
        standing, told = _line(self._standing()), _line(self._told)
        both = (f"{standing} · {told}",) if standing and told else ()
        tried = (*both, *self._shorter(standing or told))
        return text.append(figures.first_fitting(tried, room + 2), "dim")

    def _shorter(self, text: str) -> Iterator[str]:
        """All of it, then fewer words: of what a search found those that say where it is."""
        if self._state.phase is Phase.HUNG:  # what follows the `;` is much longer than the rest of a row
            return iter((text,))
        found = self._state.found_shorter if text == _line(self._state.found) else ()
        if not found:
            return figures.clauses(text)
        return iter((text, *map(_line, found)))

    def _runs_on(self) -> Iterator[str]:
        """Where it is, as far as that is known, and the keys that wait for it and end it."""
        state, keys = self._state, {name: key.split()[0] for name, key in self._keys.items()}
        place = source_of(state.frames)
        where = f"in a call at {without_folders(str(place))}" if place is not None else f"after {state.moment}"
        ends = f"{keys['restart']} restarts it, {keys['leave']} quits"
        yield f"the rank still runs, {where} · {keys['continue']} waits for it, {ends}"
        yield f"runs on {where} · {keys['continue']} waits, {ends}"
        yield f"runs on · {keys['continue']} waits, {ends}"

    @property
    def _room(self) -> int:
        """Cells behind the first one, which is empty."""
        return max(self.size.width - 1, 0) or _UNKNOWN

    def _doing(self) -> Text:
        """What runs, how far it is, what waits for it and how to end it. Where there is little room the bar goes first,
        then words of what waits, then words of what runs, and words of how to end it last."""
        state, since_s = self._state, time.monotonic() - self._state.since_s
        turn = _SPIN[int(time.monotonic() * 8) % len(_SPIN)]
        what, begin = _line(state.doing or str(state.phase)), f"{turn} {since_s:.0f} s  "
        share, (waiting, number), ends = self._share(), self._waiting(), _CANCELS
        for shown in (f"{self._bar()}{share}{waiting}", f"{share}{waiting}", f"{share}{number}"):
            left = self._room - cell_len(begin + shown + _ESC + ends)
            if left >= cell_len(what):
                break
        else:
            if left < _LEAST_DOING:
                left, ends = left + cell_len(ends), ""
            what = figures.first_fitting(figures.parts(what), max(left, 0))
        text = Text.assemble((begin, f"bold {color(self.app, 'warning')}"), what, shown)
        return text.append_text(Text.assemble((_ESC, f"bold {color(self.app, 'accent')}"), (ends, "dim")))

    def _waiting(self) -> tuple[str, str]:
        """The lines that wait; in fewer words how many."""
        lines = [_line(line) for line in self._queued()]
        return (f" · queued: {', '.join(lines)}", f" · {len(lines)} queued") if lines else ("", "")

    def _bar(self) -> str:
        state = self._state
        if not state.total:
            return ""
        full = round(min(state.done / state.total, 1.0) * _BAR * 8)
        bar = "█" * (full // 8) + ("▏▎▍▌▋▊▉"[full % 8 - 1] if full % 8 else "")
        return f"  ▕{bar:<{_BAR}}▏"

    def _share(self) -> str:
        """How far it came, where that is known."""
        state = self._state
        return f"  {min(state.done / state.total, 1.0):.0%}" if state.total else ""

    def _standing(self) -> str:
        """Why it stands there, where that is not simply what was asked for."""
        state = self._state
        if state.phase is Phase.LOOKING:
            return "" if self._told else f"read-only view of the recording; {self._looking}"
        if state.cancelled:
            return f"{state.cancelled}{self._way_back()}"
        if state.story or state.found:
            return state.story or state.found
        if state.phase is Phase.HUNG:
            return state.reason
        if state.hit_here:
            return f"stopped at {state.why}"
        if state.reason == StopReason.PAUSED:
            return f"paused at {state.moment}{self._way_back()}"
        if state.reason in (*Verb, *ON_THE_WAY):
            return f"stopped at {state.moment}"
        text = reason_text(state.reason)
        return f"stopped at {state.moment}: {text}" if text != state.reason else text

    def _way_back(self) -> str:
        before = self._state.before
        return f"; {self._keys['back'].split()[0]} goes back to {before}" if before is not None else ""


def _line(text: str) -> str:
    """The first line of it; of a traceback the exception. Places are named without folders."""
    first, *more = without_folders(figures.clean(text)).strip().split("\n")
    raised = [line for line in more if line.strip() and not line.startswith(" ")]
    return raised[0] if first.startswith("Traceback ") and raised else first


def _hint(text: str) -> str:
    """`try: ...`, where an error says what to do."""
    return next((line.strip() for line in figures.clean(text).split("\n") if line.strip().startswith("try: ")), "")
