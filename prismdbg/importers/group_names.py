"""Names of groups that are a group's own in all files of a job.

A name may be several groups': programs choose those of torchcomms' communicators, and in older versions of torch each
rank gives the next number to the group that `split_group` makes for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

_SHOWN = 64  # members in a name, for many names can share a long list


def own_names(listed: Mapping[int, Mapping[str, tuple[int, ...]]]) -> dict[int, dict[str, str]]:
    """By rank, for groups whose name other lists of members have, too: a name that only these members have. `listed`:
    the members of each rank's groups by name, empty where these are not told."""
    numbers = _numbers(ranks for groups in listed.values() for ranks in groups.values())
    names: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for groups in listed.values():
        for name, ranks in groups.items():
            if ranks and (number := numbers[id(ranks)]) not in names[name]:
                names[name][number] = _own_name(name, ranks, number)
    return {
        rank: {
            name: names[name][numbers[id(ranks)]] for name, ranks in groups.items() if ranks and len(names[name]) > 1
        }
        for rank, groups in listed.items()
    }


def _numbers(lists: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """By the id of a list, the same for lists of the same members. Many ranks can share a long list, which is gone
    through once."""
    numbers: dict[frozenset[int], int] = {}
    distinct = {id(ranks): ranks for ranks in lists}
    return {key: numbers.setdefault(frozenset(ranks), len(numbers)) for key, ranks in distinct.items()}


def _own_name(name: str, ranks: tuple[int, ...], number: int) -> str:
    shown = ",".join(map(str, ranks[:_SHOWN]))
    return f"{name} [{shown}]" if len(ranks) <= _SHOWN else f"{name} [{shown},...] (list {number})"
