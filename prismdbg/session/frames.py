"""Stack frames as the agent lists them, innermost first, which of them is the program's own, and the names in one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prismdbg.model import frame as frame_rule
from prismdbg.model.frame import Frame
from prismdbg.protocol.values import frame_from_json

Json = dict[str, Any]

_EVENT = "stop"  # where a name is from


def frames_of(data: list[dict[str, Any]]) -> tuple[Frame, ...]:
    return tuple(frame_from_json(item) for item in data)


def is_library(frame: Frame) -> bool:
    """Installed code or the standard library; also `<frozen ...>` and `<string>`."""
    return frame_rule.is_library(frame.filename)


def own_frame(frames: tuple[Frame, ...]) -> int:
    """The program's own line among the frames."""
    return frame_rule.source_index(frames)


def own_names(names: Sequence[Json]) -> tuple[Json, ...]:
    """Of the names at a stop those of the frame, without the event's."""
    return tuple(name for name in names if name["from"] != _EVENT)


def event_names(names: Sequence[Json]) -> frozenset[str]:
    """Those of the event, by which every expression knows it."""
    return frozenset(str(name["name"]) for name in names if name["from"] == _EVENT)
