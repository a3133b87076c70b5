"""The command palette of each screen: its table of actions, beside Textual's own commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from prismdbg_tui.session.actions import Action


class HasActions(Protocol):
    """An application: its actions, the key of each by its name, why one cannot be done here, and how one is done."""

    @property
    def shown_actions(self) -> Sequence[Action]: ...

    @property
    def keys_shown(self) -> Mapping[str, str]: ...

    def unavailable(self, action: Action) -> str: ...

    def act(self, name: str) -> None: ...


class Actions(Provider):
    async def discover(self) -> Hits:
        for action in self._app.shown_actions:
            yield DiscoveryHit(self._title(action), partial(self._app.act, action.name), help=self._help(action))

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for action in self._app.shown_actions:
            title = self._title(action)
            if (score := max(map(matcher.match, (title, *self._otherwise(action))))) > 0:
                yield Hit(score, matcher.highlight(title), partial(self._app.act, action.name), help=self._help(action))

    @property
    def _app(self) -> HasActions:
        return cast("HasActions", self.app)

    def _title(self, action: Action) -> str:
        """With the name that `keys.toml` takes."""
        return f"{action.name}: {action.title}  ({self._app.keys_shown[action.name]})"

    def _otherwise(self, action: Action) -> Iterator[str]:
        """What people type who look for it: the console's verb, or words."""
        for name in (action.name.replace("_", " "), action.verb):
            yield f"{name}: {action.title}"

    def _help(self, action: Action) -> str:
        return self._app.unavailable(action) or action.section.value
