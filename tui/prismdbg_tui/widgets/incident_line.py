"""The line below the header: what `why` finds about this capsule, and the keys that lead on from it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.widgets import Static

from prismdbg.capsule.manifest import Incident, IncidentKind
from prismdbg.diagnosis.verdict import Certainty, without_folders
from prismdbg.jobs.leading_finding import LeadingFinding
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.finding_signs import SIGNS
from prismdbg_tui.widgets.key_bar import KeyBar

_GAP = "   "


_NONE = (IncidentKind.REQUEST, IncidentKind.SIGNAL)


class IncidentLine(Static):
    """Until the diagnosis is there it has the capsule's own word, so that nothing moves then. Not there where nothing
    went wrong."""

    def __init__(self, incident: Incident) -> None:
        super().__init__("", id="incident")
        self._incident = incident
        self._finding: LeadingFinding | None = None
        self._ways: tuple[tuple[str, str, str], ...] = ()
        self.found = incident.kind not in _NONE

    def on_mount(self) -> None:
        if self.found:
            self.update(Text(f"   {without_folders(figures.clean(self._incident.text))}", "dim", overflow="ellipsis"))

    def show(self, finding: LeadingFinding | None, ways: Sequence[tuple[str, str, str]]) -> None:
        """`ways`: the action, its key and a word for it, of what leads on from here."""
        self._finding, self._ways = finding, tuple(ways)
        self.found = finding is not None
        self.again()

    def again(self) -> None:
        if self._finding is not None:
            self.update(self._text())

    def _text(self) -> Text:
        assert self._finding is not None
        keys = Text(no_wrap=True)
        for _, key, word in self._ways:
            keys.append_text(Text.assemble(_GAP, (key, f"bold {color(self.app, 'accent')}"), (f" {word}", "dim")))
        text, aside = self._sentence(), figures.clean(self._finding.verdict.aside)
        room = self.size.width - keys.cell_len
        if aside and text.cell_len + len(_GAP) + len(aside) <= room:
            text.append(f"{_GAP}{aside}", "dim")
        text.truncate(max(room, self.size.width // 2), overflow="ellipsis")
        return text.append_text(keys)

    def _sentence(self) -> Text:
        assert self._finding is not None
        verdict, moment = self._finding.verdict, self._finding.moment
        sign, ink = SIGNS[verdict.certainty]
        text = Text(no_wrap=True)
        text.append(f" {sign} ", f"bold {color(self.app, ink)}")
        if moment is not None:
            text.append(f"{moment}  ", "bold")
        if verdict.certainty is not Certainty.CERTAIN:
            text.append(f"{verdict.certainty}: ", color(self.app, ink))
        return text.append(figures.clean(verdict.brief).replace("\n", " "), "bold")

    def on_resize(self) -> None:
        self.again()

    def on_click(self, event: events.Click) -> None:
        """A key's word does what the key does; the sentence leads to its moment."""
        column = self._text().cell_len if self._finding is not None else 0
        for name, key, word in reversed(self._ways):
            column -= len(_GAP) + len(key) + 1 + len(word)
            if event.x >= column + len(_GAP):
                self.post_message(KeyBar.Pressed(name))
                return
        if self._finding is not None and self._finding.moment is not None:
            self.post_message(KeyBar.Pressed("incident"))
