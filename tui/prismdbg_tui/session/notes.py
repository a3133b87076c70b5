"""Notes and bookmarks on moments, and what else is kept beside the capsule until it is opened again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismdbg.errors import PrismError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.session.line import MAX_LINE, Verb
from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.sidecar import MAX_NOTES, Kept, Sidecar, lines_of
from prismdbg_tui.session.views import State

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp


class Notes:
    """`all`: by moment, in order; the text of a bookmark is empty."""

    def __init__(self, app: PrismApp, panes: Panes, sidecar: Sidecar, kept: Kept) -> None:
        self._app = app
        self._panes = panes
        self._sidecar = sidecar
        self._kept = kept
        self.all: dict[Moment, str] = dict(sorted(kept.notes.items()))
        self._is_restored = False
        panes.console.line.completion.history[:] = kept.history

    def observe(self, state: State) -> None:
        """What is kept counts as restored only once all of it was set again: a screen that is left before that keeps
        what was kept."""
        first = self._app.first_lines if self._kept.lines is None else self._kept.lines
        verbs = [line.split(" ")[0] for line in first]
        stops = verbs.count(Verb.BREAK) + verbs.count(Verb.TBREAK)
        self._is_restored |= len(state.stops) >= stops and len(state.watches) >= verbs.count(Verb.WATCH)

    def restore_panes(self) -> None:
        self._app.layout.restore(self._kept.panes or ("collectives",))

    def set(self, moment: Moment, text: str | None) -> None:
        """None takes it away."""
        if text is None:
            self.all.pop(moment, None)
        elif moment not in self.all and len(self.all) >= MAX_NOTES:
            raise UsageError(f"there are already {MAX_NOTES} notes and bookmarks")
        elif len(text) > MAX_LINE:
            raise UsageError(
                f"a note has at most {MAX_LINE} characters, and this one has {len(text)}", hint="write a shorter note"
            )
        else:
            self.all = dict(sorted({**self.all, moment: text}.items()))
        self._app.navigation.show_state(self._app.state, follow=False)
        self.keep()

    def following(self, moment: Moment) -> Moment:
        """The next one, or the first one again."""
        if not self.all:
            raise UsageError(f"no notes yet: press {self._app.keys_shown['note']} to write one")
        return next((at for at in self.all if at > moment), next(iter(self.all)))

    def keep(self) -> None:
        """Nothing is written where nothing changed, nor for the panes alone."""
        now = self._now()
        if now == self._kept or not any(
            each.notes or each.history or each.lines is not None for each in (now, self._kept)
        ):
            return
        try:
            self._sidecar.write(now, self._kept)
            self._kept = now
        except PrismError as error:
            self._app.refuse(str(error))

    def _now(self) -> Kept:
        state = self._app.state
        lines = self._kept.lines
        if state.runtime and self._is_restored:
            lines = lines_of(state.stops, tuple(watch.text for watch in state.watches))
            if self._kept.lines is None and lines == self._app.first_lines:
                lines = None
        return Kept(
            notes=dict(self.all),
            lines=lines,
            panes=self._app.layout.chosen,
            history=tuple(self._panes.console.line.completion.history),
        )
