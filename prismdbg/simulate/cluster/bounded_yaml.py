"""YAML from strangers as nodes: no alias, and bounds on depth and size.

PyYAML's scanner keeps one possible key for each open bracket and looks through all of them at each token, so the time
grows with the square of the depth; the bounds hold while it scans.
"""

from __future__ import annotations

from typing import Any, NoReturn

import yaml

MAX_DEPTH = 32
MAX_TOKENS = 100_000


class BoundedLoader(yaml.SafeLoader):
    """`yaml.MarkedYAMLError` where the text passes a bound or uses an alias."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._left = MAX_TOKENS

    def root(self) -> yaml.Node | None:
        """Of the only document; None where there is none."""
        try:
            return self.get_single_node()
        finally:
            self.dispose()

    def fetch_more_tokens(self) -> Any:
        self._left -= 1
        if self._left < 0:
            self._refuse(f"it has more than {MAX_TOKENS:,} tokens")
        return super().fetch_more_tokens()

    def fetch_flow_collection_start(self, kind: Any) -> Any:
        if self.flow_level + len(self.indents) >= MAX_DEPTH:
            self._too_deep()
        return super().fetch_flow_collection_start(kind)

    def add_indent(self, column: int) -> Any:
        if len(self.indents) >= MAX_DEPTH:
            self._too_deep()
        return super().add_indent(column)

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            self._refuse("an alias (*) is not allowed: write it out", self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        return super().compose_node(parent, index)

    def _too_deep(self) -> NoReturn:
        self._refuse(f"it is nested too deeply, more than {MAX_DEPTH} levels")

    def _refuse(self, problem: str, mark: Any = None) -> NoReturn:
        raise yaml.MarkedYAMLError(None, None, problem, mark or self.get_mark())
