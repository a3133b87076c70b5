"""The command palette of each screen: its table of actions, beside Textual's own commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

from textual.command import DiscoveryHit, Hit, Hits, Provider

from prismdbg_tui.session.actions import Action


@runtime_checkable
class HasActions(Protocol):
    """An application, or one of its screens: its actions, the key of each by its name, why one cannot be done here, and
    how one is done."""

    @property
    def shown_actions(self) -> Sequence[Action]: ...

    @property
    def keys_shown(self) -> Mapping[str, str]: ...

    def unavailable(self, action: Action) -> str: ...

    def act(self, name: str) -> None: ...


class Actions(Provider):
    """Of the screen that is seen. A sheet above it, such as the help, has none."""

    async def discover(self) -> Hits:
        if (of := self._of) is not None:
            for action in of.shown_actions:
                yield DiscoveryHit(_title(of, action), partial(of.act, action.name), help=_help(of, action))

    async def search(self, query: str) -> Hits:
        if (of := self._of) is None:
            return
        matcher = self.matcher(query)
        for action in of.shown_actions:
            title = _title(of, action)
            if (score := max(map(matcher.match, (title, *_otherwise(action))))) > 0:
                yield Hit(score, matcher.highlight(title), partial(of.act, action.name), help=_help(of, action))

    @property
    def _of(self) -> HasActions | None:
        if isinstance(self.screen, HasActions):
            return self.screen
        is_lowest = self.screen is self.app.screen_stack[0]
        return self.app if is_lowest and isinstance(self.app, HasActions) else None


def _title(of: HasActions, action: Action) -> str:
    """With the name that `keys.toml` takes."""
    return f"{action.name}: {action.title}  ({of.keys_shown[action.name]})"


def _otherwise(action: Action) -> Iterator[str]:
    """What people type who look for it: the console's verb, or words."""
    for name in (action.name.replace("_", " "), action.verb):
        yield f"{name}: {action.title}"


def _help(of: HasActions, action: Action) -> str:
    return of.unavailable(action) or action.section.value
