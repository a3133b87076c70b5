"""The recorded collectives of the replay, read when they are asked for first."""

from __future__ import annotations

from functools import cached_property

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import RankLog
from prismdbg.debugger.debugger import Debugger
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Collective, group_title


class Recorded:
    """`PrismError` where the log cannot be read."""

    def __init__(self, capsule: Capsule, debugger: Debugger) -> None:
        self._capsule, self._debugger = capsule, debugger

    @cached_property
    def calls(self) -> tuple[Collective, ...]:
        """From the start moment to the end moment."""
        inside = frozenset(self._debugger.session.recorded)
        return tuple(record for record in self._log.collectives if record.moment in inside)

    def group_title(self, name: str) -> str:
        return group_title(self._log.groups, name)

    @property
    def wall_offset_ns(self) -> int:
        """What makes a record's times those since 1970."""
        return self._log.wall_offset_ns

    @cached_property
    def _log(self) -> RankLog:
        return read_log(self._capsule.log)
