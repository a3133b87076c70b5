"""The outbox of a pass whose ranks' values were kept by an earlier one: nothing is looked at or written."""

from __future__ import annotations

from prismdbg.model.collective import Identity
from prismdbg.rank.c10d.call import Call


class KeptAlready:
    def keep(self, call: Call, identity: Identity, axis: str, members: list[int], *, meets: bool = False) -> None:
        pass

    def keep_key(self, name: str, value: bytes) -> None:
        pass

    def tally(self) -> dict[str, int]:
        return {}
