"""Exceptions that nothing caught, of the recorded and of the replayed rank, made comparable."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from prismdbg.capsule.secrets.masking import (
    LEAST_WORD,
    REDACTED,
    is_redacted_of,
)
from prismdbg.jobs.replay.verdict import Recorded, Seen
from prismdbg.model.frame import Frame, source_of
from prismdbg.settings.rank_config import CAP_DETAILS

_FRAME = re.compile(r'  File "(.+?)", line (\d{1,9}), in (.+)')
_OURS = "/prismdbg/rank/"  # other frames of a recorded than of a replayed rank
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]{6,16}\b")  # in the text that Python gives an object without one of its own
_ASTERISKS = re.compile(rf"\*{{{LEAST_WORD},}}")


def text_of(told: Mapping[str, Any] | None) -> str:
    """As `Type: text`, without what our own cap on memory adds where a rank is recorded: the way to its trace. Half a
    character is a question mark: a log and an agent's message write it differently."""
    if told is None:
        return ""
    text = str(told.get("text")).partition(CAP_DETAILS)[0].rstrip()
    return f"{told.get('type')}: {text}".replace("\ufffd", "?").encode("utf-8", "replace").decode()


def recorded_text(told: Mapping[str, Any]) -> str:
    """As `text_of`. A capsule has asterisks for a secret where its log has no room for REDACTED."""
    return _ASTERISKS.sub(REDACTED, text_of(told))


def raised_at(told: Mapping[str, Any] | None) -> str:
    """The program's own line, `train.py:12 in main`; empty where it is not known."""
    entries = [str(entry) for entry in (told or {}).get("traceback") or ()]
    found = [match for entry in reversed(entries) if (match := _FRAME.match(entry)) and _OURS not in match[1]]
    line = source_of(tuple(Frame(match[1], int(match[2]), match[3]) for match in found))
    text = str(line) if line is not None else ""
    return "" if REDACTED in text or _ASTERISKS.search(text) else text


def as_recorded(there: Recorded, seen: Seen) -> Seen:
    """What was raised, as it is recorded where the recorded text is the same but for what was redacted in it, which the
    replayed rank may not know to be a secret, or for addresses of objects, which no two processes have in common."""
    known = _texts(there)

    def recorded(text: str) -> str:
        return next((one for one in known if _is_same(one, text)), text)

    return replace(seen, raised=recorded(seen.raised), also_raised=tuple(map(recorded, seen.also_raised)))


def _is_same(recorded: str, text: str) -> bool:
    there, here = (_ADDRESS.sub("0x", one) for one in (recorded, text))
    return there == here or (REDACTED in there and is_redacted_of(there, here))


def _texts(there: Recorded) -> tuple[str, ...]:
    return (there.raised, *there.also_raised, *there.raised_later, *there.raised_at_start)


def redaction_note(there: Recorded, seen: Seen) -> str:
    """What of a redacted exception that was raised again was compared; empty where there is none."""
    raised_again = {*_texts(there)} & {seen.raised, *seen.also_raised}
    if not any(REDACTED in text for text in raised_again):
        return ""
    place = ", the line that raised it" * bool(seen.is_redacted(there) and there.raised_at and seen.raised_at)
    return (
        f"the text of a recorded exception is redacted: only its type{place} and what is left of its text were compared"
    )
