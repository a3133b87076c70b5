"""What ranks that wait together called, in words: where their calls do not match, nobody may be said to have joined."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

from prismdbg.diagnosis.collective_key import SEND
from prismdbg.diagnosis.match import WRONG, Match, match, match_message, signatures
from prismdbg.diagnosis.wording import and_list, place, rank_list
from prismdbg.model.collective import Collective

_SHOWN = 4


def kinds_of_calls(calls: Mapping[int, Collective]) -> list[dict[int, Collective]]:
    """The calls by rank, those together that match; fewest first, where as many are alike that of the lowest rank last.
    The two ends of a message match where their sizes do."""
    ordered = {rank: calls[rank] for rank in sorted(calls)}
    if any(call.is_p2p for call in ordered.values()):
        return [{rank: call} for rank, call in ordered.items()] if _differ_as_ends(ordered) else [ordered]
    kinds: dict[object, dict[int, Collective]] = {}
    for rank, its in signatures(ordered).items():
        kinds.setdefault(its, {})[rank] = ordered[rank]
    return sorted(kinds.values(), key=lambda kind: (len(kind), -min(kind)))


def in_different_calls(kinds: list[dict[int, Collective]]) -> str:
    """`rank 1 in broadcast at a.py:6 in f, ranks 0 and 2 in all_reduce at a.py:5 in f: broadcast instead of
    all_reduce`."""
    parts = [f"{rank_list(kind)} in {(call := next(iter(kind.values()))).name}{place(call)}" for kind in kinds]
    if len(parts) > _SHOWN:
        parts = [*islice(parts, _SHOWN - 1), f"{len(parts) - _SHOWN + 1} other calls"]
    return f"{and_list(parts)}: {_difference(kinds)}"


def _differ_as_ends(calls: Mapping[int, Collective]) -> bool:
    return sorted(call.op == SEND for call in calls.values()) == [False, True] and _ends(calls).state in WRONG


def _ends(calls: Mapping[int, Collective]) -> Match:
    first, second = calls.values()
    return match_message(first, second) if first.op == SEND else match_message(second, first)


def _difference(kinds: list[dict[int, Collective]]) -> str:
    odd, usual = (next(iter(kind.values())) for kind in (kinds[0], kinds[-1]))
    if odd.is_p2p:
        return _ends({rank: call for kind in kinds for rank, call in kind.items()}).difference
    return match(usual, odd).difference
