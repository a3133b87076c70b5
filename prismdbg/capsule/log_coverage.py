"""Does a log hold what a replay from A to B needs: every collective, and what each of them received?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from prismdbg.capsule import log_format as fmt
from prismdbg.capsule.log_reader import RankLog
from prismdbg.capsule.manifest import Manifest
from prismdbg.model.collective import Collective, Group, State
from prismdbg.model.counted import counted
from prismdbg.model.moment import Moment

_SHOWN = 3


def gaps(log: RankLog, folder: Path, manifest: Manifest) -> Iterator[str]:
    """One sentence for each thing that is missing between A and B."""
    yield from _missing_records(log.collectives, manifest.moment_a, manifest.moment_b)
    start = max(manifest.moment_a, manifest.replayable_from)
    wanted = [c for c in log.collectives if start <= c.moment <= manifest.moment_b and needs_payload(c, log)]
    yield from _missing_payloads(wanted, folder)


def receives(collective: Collective, rank: int, group: Group | None) -> bool:
    """Whether the collective fills tensors on this rank; False where that cannot be known."""
    if group is None or not any(all(meta.shape) for meta in collective.outputs):
        return False
    root_is_me = 0 <= collective.root < group.size and group.ranks[collective.root] == rank
    if collective.op == "broadcast_":
        return not root_is_me
    if collective.op in ("reduce_", "gather_"):
        return root_is_me
    return True


def _missing_records(collectives: Sequence[Collective], first: Moment, last: Moment) -> Iterator[str]:
    """A itself may be issued before the origin or be its first call: the record after A is enough."""
    in_order = sorted(collectives, key=lambda c: c.record_id)  # threads may write in another order than they issue
    window = [c for c in in_order if first <= c.moment <= last]
    if window and window[0].moment != first and window[0].moment.collective != _next(first, window[0].moment):
        yield f"begins at {window[0].moment}, not at {first}"
    for before, after in pairwise(window):
        if lost := after.record_id - before.record_id - 1:
            yield f"lacks {counted(lost, 'collective')} between {before.moment} and {after.moment}"
    end = in_order[-1].moment if in_order else Moment(0)
    if last.collective and end < Moment(last.step, last.collective):
        yield f"ends at {end}, before {last}"


def _next(moment: Moment, found: Moment) -> int:
    return moment.collective + 1 if found.step == moment.step else 1


def needs_payload(collective: Collective, log: RankLog) -> bool:
    """Whether a replay can answer it only with the bytes that were received."""
    if collective.state is not State.COMPLETED or collective.can_be_made_again:
        return False
    return receives(collective, log.rank, log.groups.get(collective.group))


def _missing_payloads(collectives: Sequence[Collective], folder: Path) -> Iterator[str]:
    sizes: dict[int, int] = {}
    missing: list[Moment] = []
    for collective in collectives:
        ref = collective.payload
        if ref is not None and ref.segment not in sizes:
            path = folder / fmt.payload_segment(ref.segment)
            sizes[ref.segment] = path.stat().st_size if path.is_file() else 0
        if ref is None or sizes[ref.segment] < ref.offset + ref.size_bytes:
            missing.append(collective.moment)
    if missing:
        shown = ", ".join(map(str, missing[:_SHOWN])) + (", ..." if len(missing) > _SHOWN else "")
        yield f"lacks what {counted(len(missing), 'collective')} received: {shown}"
