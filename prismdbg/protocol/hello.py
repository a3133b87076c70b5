"""What each end says of itself first: the half of prismdbg in a capsule may be older, or newer, than the host's."""

from __future__ import annotations

from dataclasses import dataclass

import prismdbg
from prismdbg.protocol.wire import Message

PROTOCOL = 5  # counted up when a verb, an argument or an event comes that the other end has to know
FIRST = 1  # of those that say nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """`version` is empty where it is not said."""

    protocol: int = PROTOCOL
    version: str = prismdbg.__version__

    def to_json(self) -> Message:
        return {"protocol": self.protocol, "version": self.version}

    @classmethod
    def parse(cls, reply: Message) -> Hello:
        """Of an end that may be of any version."""
        protocol, version = reply.get("protocol"), reply.get("version")
        return cls(
            protocol=protocol if isinstance(protocol, int) and protocol > 0 else FIRST,
            version=version[:40] if isinstance(version, str) else "",
        )

    @property
    def age(self) -> str:
        """Against this end: `older (0.0.9)`; empty where both are of one time."""
        if self.protocol == PROTOCOL:
            return ""
        word = "older" if self.protocol < PROTOCOL else "newer"
        return f"{word} ({self.version})" if self.version else word


RANK_RUNS = "the rank is running"  # an agent's answer to a request for which the rank has to stand


def unknown_verb(verb: str) -> str:
    """As an agent of any version answers."""
    return f"unknown request to the agent: {verb!r}"
