"""The command palette: the table of actions, beside Textual's own commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from prismdbg_tui.session.actions import ACTIONS, Action, unavailable

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp


class Actions(Provider):
    async def discover(self) -> Hits:
        for action in ACTIONS:
            yield DiscoveryHit(self._title(action), partial(self._app.act, action.name), help=self._help(action))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in ACTIONS:
            title = self._title(action)
            if (score := max(map(matcher.match, (title, *self._otherwise(action))))) > 0:
                yield Hit(score, matcher.highlight(title), partial(self._app.act, action.name), help=self._help(action))

    @property
    def _app(self) -> PrismApp:
        return cast("PrismApp", self.app)

    def _title(self, action: Action) -> str:
        """With the name that `keys.toml` takes."""
        return f"{action.name}: {action.title}  ({self._app.keys_shown[action.name]})"

    def _otherwise(self, action: Action) -> Iterator[str]:
        """What people type who look for it: the console's verb, or words."""
        for name in (action.name.replace("_", " "), action.verb):
            yield f"{name}: {action.title}"

    def _help(self, action: Action) -> str:
        return unavailable(action, live=self._app.live is not None) or action.section.value
