"""Up to which number one rank has issued collectives of each group, and messages of each tag."""

from __future__ import annotations

from dataclasses import dataclass, field

from prismdbg.capsule.log.batch import Key

MOST_TAGS = 1024  # of messages to or from one rank, as the rank itself counts them
_Peer = tuple[str, str, int]  # group, operator and peer
_NONE = 0, -1, -1


@dataclass(slots=True)
class Reached:
    """Bounded by groups and by who sends to whom: a program may have another tag for each message, and those that it
    used longest ago are forgotten, but for the lowest and the highest of them, and the highest number."""

    most_tags: int = MOST_TAGS
    _of_groups: dict[str, int] = field(default_factory=dict)
    _of_tags: dict[_Peer, dict[int, int]] = field(default_factory=dict)  # the tag used last at the end
    _forgotten: dict[_Peer, tuple[int, int, int]] = field(default_factory=dict)  # lowest, highest, number

    def __len__(self) -> int:
        return len(self._of_groups) + sum(map(len, self._of_tags.values()))

    def upto(self, key: Key) -> int:
        """-1 where there is none. Of a tag that may be forgotten the highest number of all these: the rank counts on
        from there when one comes again. A tag beyond them is new."""
        if len(key) == 1:
            return self._of_groups.get(key[0], -1)
        lowest, highest, number = self._forgotten.get(key[:3], _NONE)
        return self._of_tags.get(key[:3], {}).get(key[3], number if lowest <= key[3] <= highest else -1)

    def add(self, key: Key, number: int) -> None:
        if len(key) == 1:
            self._of_groups[key[0]] = max(self._of_groups.get(key[0], -1), number)
            return
        tags = self._of_tags.setdefault(key[:3], {})
        tags[key[3]] = max(tags.pop(key[3], -1), number)
        if len(tags) > self.most_tags:
            self._forget(key[:3], next(iter(tags)))

    def has_some_of(self, group: str) -> bool:
        return group in self._of_groups or any(known == group for known, _, _ in self._of_tags)

    def _forget(self, peer: _Peer, tag: int) -> None:
        number = self._of_tags[peer].pop(tag)
        lowest, highest, most = self._forgotten.get(peer, (tag, tag, number))
        self._forgotten[peer] = min(lowest, tag), max(highest, tag), max(most, number)
