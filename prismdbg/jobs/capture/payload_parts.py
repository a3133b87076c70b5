"""Payload segments in a capsule: what the collectives of its log received, and zeros elsewhere.

A recorder writes over segments that it no longer needs, and a live one goes on: the rest of a segment is older data, or
newer, of which no record speaks.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from prismdbg.capsule.capsule_dir import CapsuleWriter
from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.events import RankLog

Parts = dict[int, list[tuple[int, int]]]


def parts_of(log: RankLog) -> Parts:
    """By segment, the first byte of each payload and the one after its last."""
    found: Parts = defaultdict(list)
    for ref in (record.payload for record in log.collectives if record.payload is not None):
        found[ref.segment].append((ref.offset, ref.offset + ref.size_bytes))
    return dict(found)


def add_payloads(
    writer: CapsuleWriter, home: str, folder: Path, log: RankLog, needed: Collection[int] | None = None
) -> dict[int, int]:
    """Puts the payloads of `log`, from the rank's `folder`, into the capsule's folder `home`. `needed`: segments; None
    for all. Gives the size of those in the capsule: of a live rank one may leave the window meanwhile."""
    sizes = {}
    for segment, parts in sorted(parts_of(log).items()):
        name = fmt.payload_segment(segment)
        if needed is None or segment in needed:
            with contextlib.suppress(FileNotFoundError):
                sizes[segment] = writer.add_parts(f"{home}/{name}", folder / name, parts).size_bytes
    return sizes
