"""What the pace must know of a call, to find it in the schedule."""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.rank.c10d.call import Call, bytes_of
from prismdbg.rank.emulation.pace import Issued
from prismdbg.rank.emulation.scheduler_client import program_line


class Facts:
    """`members_of`: the global ranks of a call's group, in group order."""

    def __init__(self, members_of: Callable[[Call], list[int]]) -> None:
        self._members_of = members_of

    def of(self, call: Call) -> Issued:
        members = self._members_of(call)
        is_p2p = call.spec.is_p2p
        return Issued(
            label=call.spec.label,
            group=call.group_name,
            ranks=members,
            size_bytes=max(bytes_of(call.sent), bytes_of(call.received)),
            is_p2p=is_p2p,
            peer=members[call.root] if is_p2p and call.root >= 0 else -1,
            tag=call.tag if is_p2p else 0,
            where=program_line,
        )
