"""The line below the header: what `why` finds about this capsule, and the keys that lead on from it. A finding that is
too long for one line has two."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual import events
from textual.widgets import Static

from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.manifest import Incident
from prismdbg.diagnosis.verdict import Certainty, without_folders
from prismdbg.jobs.leading_finding import LeadingFinding
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.finding_signs import SIGNS
from prismdbg_tui.drawing.wrapping import cut_words
from prismdbg_tui.widgets.key_bar import KeyBar

_GAP = _INDENT = "   "
_LEAST_FOR_TWO = 24  # lines of the terminal
_PARTS = " · "  # of a finding: what, in which collective, at which line
_SHORT = {"find its origin": "origin"}

_Way = tuple[str, str, str]  # the action, its key, a word for it


class IncidentLine(Static):
    """Until the diagnosis is there it has the capsule's own word, so that nothing moves then. Not there where nothing
    went wrong."""

    def __init__(self, incident: Incident) -> None:
        super().__init__("", id="incident")
        self._incident = incident
        self._finding: LeadingFinding | None = None
        self._ways: tuple[_Way, ...] = ()
        self.found = not TRAITS[incident.kind].is_asked_for

    def on_mount(self) -> None:
        if self.found:
            self._draw()

    def show(self, finding: LeadingFinding | None, ways: Sequence[_Way]) -> None:
        """`ways` lead on from here."""
        self._finding, self._ways = finding, tuple(ways)
        self.found = finding is not None
        self.again()

    def again(self) -> None:
        if self.found:
            self._draw()

    def _draw(self) -> None:
        lines, _ = self._lines()
        self.styles.height = len(lines)
        self.update(Text("\n", no_wrap=True).join(lines), layout=False)  # that of its height is enough

    def _lines(self) -> tuple[list[Text], tuple[_Way, ...]]:
        """With the keys at the end of the last one. There is a second one where one is too short for the sentence and
        the terminal is high enough; not for the keys alone, which go then: each pane would lose a line."""
        width = self.size.width
        text, ways = self._fitting()
        ways = self._whole(ways, width - width // 2)
        keys = self._keys(ways)
        room = width - keys.cell_len
        if text.cell_len <= room or not width or self.app.size.height < _LEAST_FOR_TWO:
            return [cut_words(text, room).append_text(keys)], ways
        if (sentence := self._sentence(whole=True)).cell_len <= width:
            ways = self._whole(self._ways, width - sentence.cell_len)
            return [sentence.append_text(self._keys(ways))], ways
        ways = self._whole(self._ways, width - len(_INDENT))
        keys = self._keys(ways)
        first, *more = self._sentence(whole=True).wrap(self.app.console, width - len(_INDENT), no_wrap=False)
        second = cut_words(Text(" ").join(more), max(width - len(_INDENT) - keys.cell_len, 1))
        return [first, Text(_INDENT).append_text(second).append_text(keys)], ways

    def _fitting(self) -> tuple[Text, tuple[_Way, ...]]:
        """The sentence and the keys behind it. Where there is little room the aside is short, then the keys are, then
        the aside gives way, then the collective, to the line of the program, which the table does not show so well."""
        if self._finding is None:
            return self._sentence(whole=True), ()
        verdict = self._finding.verdict
        short = tuple((name, key, _SHORT.get(word, word)) for name, key, word in self._ways)
        asides = [f"{_GAP}{figures.clean(aside)}" for aside in (verdict.aside, verdict.short_aside) if aside]
        tried = [(True, ways, aside) for ways in (self._ways, short) for aside in asides]
        tried += [(True, self._ways, ""), (True, short, "")]
        tried += [(False, self._ways, aside) for aside in (*asides, "")]
        for whole, ways, aside in tried:
            text = self._sentence(whole=whole).append(aside, "dim")
            if text.cell_len + self._keys(ways).cell_len <= self.size.width:
                return text, ways
        return self._sentence(whole=False), short

    def _whole(self, ways: tuple[_Way, ...], room: int) -> tuple[_Way, ...]:
        """The first of them that have room with their words: a key alone reads as a letter of the sentence."""
        while ways and self._keys(ways).cell_len > room:
            ways = ways[:-1]
        return ways

    def _keys(self, ways: Sequence[_Way]) -> Text:
        keys = Text(no_wrap=True)
        for _, key, word in ways:
            keys.append_text(Text.assemble(_GAP, (key, f"bold {color(self.app, 'accent')}"), (f" {word}", "dim")))
        return keys

    def _sentence(self, *, whole: bool) -> Text:
        if self._finding is None:
            return Text(f"   {without_folders(figures.clean(self._incident.text))}", "dim", no_wrap=True)
        verdict, moment = self._finding.verdict, self._finding.moment
        sign, ink = SIGNS[verdict.certainty]
        text = Text(no_wrap=True)
        text.append(f" {sign} ", f"bold {color(self.app, ink)}")
        if moment is not None:
            text.append(f"{moment}  ", "bold")
        if verdict.certainty is not Certainty.CERTAIN:
            text.append(f"{verdict.certainty}: ", color(self.app, ink))
        what, *parts = figures.clean(verdict.brief).replace("\n", " ").split(_PARTS)
        what = what.removesuffix(f" at {moment}")  # it stands before the sentence
        return text.append(_PARTS.join([what, *(parts if whole else parts[-1:])]), "bold")

    def on_resize(self) -> None:
        self.again()

    def on_click(self, event: events.Click) -> None:
        """A key's word does what the key does; the sentence leads to its moment."""
        lines, ways = self._lines()
        column, ways = lines[-1].cell_len, ways if event.y == len(lines) - 1 else ()
        for name, key, word in reversed(ways):
            column -= len(_GAP) + len(f"{key} {word}")
            if event.x >= column + len(_GAP):
                self.post_message(KeyBar.Pressed(name))
                return
        if self._finding is not None and self._finding.moment is not None:
            self.post_message(KeyBar.Pressed("incident"))
