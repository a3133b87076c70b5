"""A YAML text as nodes that know where they stand. No value is made of them here, no tag is followed.

One document; no alias, for a script is read by people, and nothing in it needs to be said by reference.
"""

from __future__ import annotations

import yaml

from prismdbg.errors import UsageError
from prismdbg.script.place import Place
from prismdbg.simulate.cluster.bounded_yaml import BoundedLoader

MAX_SCRIPT_BYTES = 256 << 10
_FIRST = 0xFEFF  # a byte order mark


class Source:
    """The text of one script and the places in it."""

    def __init__(self, file: str, data: bytes) -> None:
        self.file = file
        if len(data) > MAX_SCRIPT_BYTES:
            raise UsageError(
                f"{file} has {len(data)} bytes; the limit of a script is {MAX_SCRIPT_BYTES}",
                hint="give a shorter script",
            )
        try:
            self.text = data.decode("utf-8").removeprefix(chr(_FIRST))
        except UnicodeDecodeError as error:
            raise UsageError(f"{file} is not UTF-8: byte {error.start}", hint="give a text file") from None
        self._lines = self.text.splitlines()

    def place(self, line: int, column: int) -> Place:
        return Place(self.file, line, column, self._lines[line] if line < len(self._lines) else "")

    def of(self, node: yaml.Node) -> Place:
        return self.place(node.start_mark.line, node.start_mark.column)

    def compose(self) -> yaml.Node:
        """The document's root. `UsageError` names the line and column where it is not YAML."""
        try:
            node = BoundedLoader(self.text).root()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = " ".join(filter(None, (error.context, error.problem)))
            where = self.place(mark.line, mark.column) if mark is not None else self.place(0, 0)
            raise where.complaint(said or "this is not YAML") from None
        except yaml.reader.ReaderError as error:
            raise self._behind(error.position).complaint("this character is not allowed in YAML") from None
        if node is None:
            raise self.place(0, 0).complaint(
                "the script is empty", hint="run `prismdbg replay --script-schema` for the complete language"
            )
        return node

    def _behind(self, characters: int) -> Place:
        before = self.text[:characters].split("\n")
        return self.place(len(before) - 1, len(before[-1]))
