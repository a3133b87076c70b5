"""What a task elsewhere is given: the sweep's request and the names of its configurations, as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from prismdbg.capsule import checked_json
from prismdbg.errors import CapsuleError
from prismdbg.sweep.request import How, SweepRequest
from prismdbg.sweep.space import Space


class _Stored(TypedDict):
    output: str
    world: int
    mesh: str
    tried: list[str]
    command: list[str]
    how: str
    steps: int
    classes: list[str]
    memory: bool
    bound_s: float
    telemetry_ns: int
    names: list[str]


@dataclass(frozen=True, slots=True)
class Order:
    """`names`: those that run, by the number of the task."""

    request: SweepRequest
    names: tuple[str, ...]

    def to_json(self) -> str:
        """One line."""
        request = self.request
        stored: _Stored = {
            "output": str(request.output.absolute()),
            "world": request.space.world,
            "mesh": request.space.mesh_text,
            "tried": [str(dimension) for dimension in request.space.dimensions],
            "command": list(request.command),
            "how": str(request.how),
            "steps": request.steps,
            "classes": list(request.classes),
            "memory": request.memory,
            "bound_s": float(request.bound_s),
            "telemetry_ns": request.telemetry_ns,
            "names": list(self.names),
        }
        return json.dumps(stored)

    @classmethod
    def from_json(cls, text: str) -> Order:
        """`CapsuleError` where that is none."""
        stored = checked_json.checked(_Stored, json.loads(text), "the order of a sweep")
        if stored["how"] not in list(How):
            raise CapsuleError(f"the order of a sweep: unknown way {stored['how'][:40]!r}")
        request = SweepRequest(
            output=Path(stored["output"]),
            space=Space.parse(stored["world"], stored["mesh"], stored["tried"]),
            command=tuple(stored["command"]),
            how=How(stored["how"]),
            steps=stored["steps"],
            classes=tuple(stored["classes"]),
            memory=stored["memory"],
            bound_s=stored["bound_s"],
            telemetry_ns=stored["telemetry_ns"],
        )
        return cls(request, tuple(stored["names"]))
