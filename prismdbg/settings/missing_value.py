"""What an emulated rank says while it stands because only another rank knows a value. Written and read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingValue:
    """`source`: the rank that sends the value, -1 for unknown; `key`: what the value is kept under.

    where: the program's line, `file:line in function`. is_optional: the rank goes on where nobody sends it.
    """

    rank: int
    source: int
    key: str
    collective: str
    axis: str
    identity: str
    caller: str = ""
    where: str = ""
    is_optional: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> MissingValue:
        return cls(**{name: data[name] for name in cls.__dataclass_fields__ if name in data})

    @property
    def place(self) -> str:
        where = f" at {self.where}" if self.where else ""
        return f"{self.caller or self.collective} on {self.axis} ({self.identity}){where}"
