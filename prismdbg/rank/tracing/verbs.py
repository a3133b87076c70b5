"""What an agent offers of the tracer: `trace` switches it and says how it stands, `block` finds an allocation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from prismdbg.protocol.wire import Message
from prismdbg.rank.tracing import tracer
from prismdbg.rank.tracing.tracer import Allocation

FOLDER = "trace"


def tracing_verbs(
    beside: Path, where: Callable[[], tuple[int, int]], at_start: Callable[[], bool]
) -> dict[str, Callable[[Message], Message]]:
    """`beside`: the folder that the client sees, too. `where`: step and collective now. at_start: nothing of the
    program has run."""
    written: list[Path | None] = [None]

    def trace(message: Message) -> Message:
        cache = Path(str(message["cache"])) if message.get("cache") else None
        if message.get("can"):
            tracer.require(cache)
            return _status(written[0])
        if message.get("on"):
            path = Path(str(message["path"])) if message.get("path") else _unused(beside)
            armed = tracer.arm(path, cache_dir=cache, from_start=at_start())
            tracer.tell_waits(bool(message.get("waits")))
            tracer.stands_at(*where(), tracer.main_thread())
            written[0] = path
            return {"before_bytes": armed.before_bytes, "before_blocks": armed.before_blocks, **_status(path)}
        if "on" in message:
            tracer.disarm()
        return _status(written[0])

    def block(message: Message) -> Message:
        found = tracer.find(int(message["address"]))
        return {"block": _described(found) if found is not None else None}

    return {"trace": trace, "block": block}


def _unused(beside: Path) -> Path:
    """`trace`, or `trace.<n>` for a later one."""
    path, number = beside / FOLDER, 0
    while path.exists():
        number += 1
        path = beside / f"{FOLDER}.{number}"
    return path


def _status(path: Path | None) -> dict[str, Any]:
    stats = tracer.stats()
    # a restored rank's goes over into a new one; one without a file holds a cap, and nothing else
    stats["on"] = stats["on"] and not stats.get("closed") and path is not None
    return {**stats, "moment": str(tracer.moment()), "path": str(path) if path is not None else ""}


def _described(found: Allocation) -> dict[str, Any]:
    return {
        "block": found.block,
        "address": found.address,
        "size_bytes": found.size_bytes,
        "moment": str(found.moment),
        "op": found.op,
        "outer_op": found.outer_op,
        "module": found.module,
        "frames": [{"filename": f.filename, "line": f.line, "name": f.name} for f in found.frames],
        "is_backend": found.is_backend,
        "is_before": found.is_before,
    }
