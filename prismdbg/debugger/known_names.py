"""What a capsule knows of names, read from its log, its manifest and the program's source inside it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.files import Place, RankFile, read_files, read_text
from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import PrismError
from prismdbg.jobs.storage.verify import require_named_files
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Collective
from prismdbg.model.frame import is_program
from prismdbg.session.known import NOTHING, Known

DEEP = 48  # frames that are recorded at most: of a deeper stack the outer ones are not known
MOST_SOURCE_BYTES = 64 << 20
_WORD = re.compile(r"[^\W\d]\w*")
_EVERYTHING = re.compile(r"^[ \t\f]*+from[ \t]++\S++[ \t]++import[ \t]*+\*", re.MULTILINE)


def known_names(capsule: Capsule) -> Known:
    """Nothing where the capsule cannot be read: names are no reason to stop anybody then."""
    try:
        log = read_log(capsule.log)
        sources = [file for file in read_files(capsule) if _is_source(file.path)]
        groups = {group.name: group for group in (*capsule.manifest.groups, *log.groups.values())}
        return Known(
            groups=tuple(groups.values()),
            world_size=capsule.manifest.world_size,
            lines=(lines := _lines(log.collectives)),
            earlier=lines - _lines(log.collectives, capsule.rank().get("past_records", 0)),
            files=frozenset(file.path for file in sources),
            words=_words(capsule, log, sources),
            peers=frozenset(record.root for record in log.collectives if record.is_p2p),
        )
    except (PrismError, OSError):
        return NOTHING


def known_before_start(capsule: Capsule) -> Known:
    """As `known_names`, of a capsule that was not verified. `CapsuleError` where its files are not those it lists."""
    require_named_files(capsule)
    return known_names(capsule)


def _lines(calls: Sequence[Collective], first: int = 0) -> frozenset[tuple[str, int]]:
    """Of the calls from record `first` on."""
    if any(len(record.frames) >= DEEP for record in calls):
        return frozenset()
    frames = {
        frame for record in calls if record.record_id >= first for frame in record.frames if is_program(frame.filename)
    }
    return frozenset((frame.filename, frame.line) for frame in frames)


def _words(capsule: Capsule, log: RankLog, sources: list[RankFile]) -> frozenset[str] | None:
    """None where some of the program's source is not here, takes names from elsewhere, or is too much to look at."""
    inside = {file.path for file in sources if file.place is Place.INSIDE}
    ran = {path for path, _ in _lines(log.collectives)}
    if not ran or not ran <= inside or any(file.place is not Place.INSIDE for file in sources):
        return None
    if sum(file.size_bytes for file in sources) > MOST_SOURCE_BYTES:
        return None
    words: set[str] = set()
    for file in sources:
        text = read_text(capsule, file)
        if _EVERYTHING.search(text):
            return None
        words.update(_WORD.findall(text))
    return frozenset(words)


def _is_source(path: str) -> bool:
    return path.endswith(".py") and is_program(path)
