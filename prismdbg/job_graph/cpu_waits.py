"""Which share of each step an emulated rank waited for a CPU, from its log."""

from __future__ import annotations

from prismdbg.capsule.log.events import RankLog


def displaced(log: RankLog) -> dict[int, float]:
    """By step, of those that lie between two marks. Empty where the machine did not count it."""
    marks = {mark.step: mark.time_ns for mark in log.steps}
    waited_ns = {int(n.data["step"]): int(n.data["waited_ns"]) for n in log.notes if n.kind == "processor"}
    return {
        step: min(waited / max(marks[step + 1] - marks[step], 1), 1.0)
        for step, waited in waited_ns.items()
        if step in marks and step + 1 in marks
    }
