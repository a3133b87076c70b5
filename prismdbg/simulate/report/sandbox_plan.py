"""What an emulation will take before it is begun: how many ranks run, how long, how much storage and memory.

What follows from the mesh alone is certain; the rest is reckoned from one rank that ran for a few steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, prod

from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.class_finder import probes
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.typical_iteration import SLIGHTLY

VECTOR_BYTES = 16  # of a graph, for each rank of the world: its class, and how fast it computes


class Known(StrEnum):
    """Where a figure comes from."""

    CERTAIN = "certain"  # from the mesh and what was requested
    MEASURED = "measured"  # on the one rank that ran
    ESTIMATED = "estimated"  # reckoned from what was measured
    UNKNOWN = "unknown"  # nothing ran


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What one rank took. start_s: to the end of start-up; alive: ranks that stood at once, for its values, and it.

    peak_bytes: resident memory; shared_bytes: of these, what all ranks share. segment_bytes: a log grows by so much at
    once. log_bytes, entries, entry_bytes: of a step; sent_bytes, received_bytes: also of a step, of values that only
    their sender knows, which are kept where both ends run.
    messages_along: axes along which it sends or receives, so that its first and last rank do something else.
    displaced: in this share of a step it waited for a CPU, for others were at work here.
    """

    rank: int
    start_s: float
    step_s: float
    alive: int
    peak_bytes: int
    shared_bytes: int
    start_log_bytes: int
    log_bytes: int
    segment_bytes: int
    sent_bytes: int
    received_bytes: int
    entries: int
    entry_bytes: int
    messages_along: tuple[str, ...]
    displaced: float = 0.0

    @property
    def disturbance(self) -> str:
        """To be added where a figure stands on the time of a step."""
        return f", {self.displaced:.0%} of a step waiting for a CPU" if self.displaced > SLIGHTLY else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """`value` in `unit`, "" for a count; None where it is not known."""

    what: str
    value: float | None
    unit: str
    known: Known
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """`ranks`: that run in any case, in this order. count: how many there will be in all, checks included.

    classes: at most so many. stand_for: how many ranks of the job they represent, with themselves.
    """

    ranks: tuple[int, ...]
    count: int
    classes: int
    stand_for: int
    known: Known
    why: str


def chosen(ranks: Sequence[int]) -> Sandbox:
    number = len(ranks)
    return Sandbox(
        ranks=tuple(ranks), count=number, classes=number, stand_for=number, known=Known.CERTAIN, why="as requested"
    )


def by_classes(mesh: Mesh, differ: tuple[str, ...], checks: int, probe: Probe | None = None) -> Sandbox:
    """`differ`: as the user named them; empty: to be found out, and until then guessed from where the probe sends."""
    first = _probed(mesh) if not differ else []
    matter = differ or (probe.messages_along if probe is not None else ())
    bases = prod(mesh.size(axis) for axis in matter)
    alike = [name for name in mesh.names if name not in matter and mesh.size(name) > 1]
    seen = {rank for rank in first if any(mesh.coordinates(rank)[name] for name in alike)}
    checked = min(checks, bases) if alike else 0
    if differ:
        known, why = Known.CERTAIN, f"ranks differ along {', '.join(differ)}"
    elif probe is None:
        known, why = Known.UNKNOWN, "the minimum; each axis along which ranks differ adds more"
    elif matter:
        known, why = Known.ESTIMATED, f"rank {probe.rank} sends along {', '.join(matter)}, so ranks will differ there"
    else:
        known, why = Known.ESTIMATED, f"rank {probe.rank} sends no point-to-point messages: all ranks may be alike"
    ranks = first or [mesh.rank(**{axis: 0}) for axis in matter[:1]]
    count = bases + checked + len(seen)
    return Sandbox(ranks=tuple(ranks), count=count, classes=bases, stand_for=mesh.world, known=known, why=why)


def alternatives(mesh: Mesh, checks: int) -> list[Figure]:
    """How many ranks run if they turn out to differ along one axis."""
    found = []
    for axis, size in zip(mesh.names, mesh.sizes, strict=True):
        if size > 1:
            more = set(_probed(mesh)) - {mesh.rank(**{axis: at}) for at in probes(size)}
            count = by_classes(mesh, (axis,), checks).count + len(more)
            found.append(Figure(what=f"  if they differ along {axis}", value=count, unit="", known=Known.CERTAIN))
    return found


def _probed(mesh: Mesh) -> list[int]:
    found = {mesh.rank(**{name: at}) for name in mesh.names for at in probes(mesh.size(name))}
    return sorted(found)


def figures(mesh: Mesh, sandbox: Sandbox, steps: int, probe: Probe | None) -> list[Figure]:
    """steps: 0 where the program runs to its own end."""
    found = [
        Figure(what="ranks of the job", value=mesh.world, unit="", known=Known.CERTAIN),
        Figure(what="ranks that run here", value=sandbox.count, unit="", known=sandbox.known, why=sandbox.why),
    ]
    if probe is None:
        return found + [_unknown(what) for what in ("time", "log", "values", "graph", "memory")]
    of_all = [*_reckoned(mesh, sandbox, steps, probe), *_saved(sandbox, steps, probe)]
    return found + _measured(probe) + of_all


def _unknown(what: str) -> Figure:
    return Figure(what=what, value=None, unit="", known=Known.UNKNOWN, why="no trial run")


def _measured(probe: Probe) -> list[Figure]:
    on = f"rank {probe.rank}"
    return [
        Figure(what="start of one rank", value=probe.start_s, unit="s", known=Known.MEASURED, why=on),
        Figure(
            what="one step of one rank",
            value=probe.step_s,
            unit="s",
            known=Known.MEASURED,
            why=f"{on}{probe.disturbance}",
        ),
        Figure(what="memory of one rank", value=probe.peak_bytes, unit="B", known=Known.MEASURED, why=on),
    ]


def _reckoned(mesh: Mesh, sandbox: Sandbox, steps: int, probe: Probe) -> list[Figure]:
    alive = (
        f"{probe.alive} ranks at the same time: they need each other's values"
        if probe.alive > 1
        else "one rank at a time"
    )
    memory = probe.peak_bytes + (probe.alive - 1) * max(probe.peak_bytes - probe.shared_bytes, 0)
    graph = sandbox.classes * probe.entry_bytes + VECTOR_BYTES * mesh.world
    found = [_figure("maximum memory in use", memory, "B", alive)]
    entries = f"{counted(sandbox.classes, 'class', 'classes')} of {counted(probe.entries, 'entry', 'entries')}"
    found.append(_figure("graph", graph, "B", f"{entries}, not compressed"))
    if not steps:
        return [*map(_unbounded, ("time", "log", "values")), *found]
    log_bytes = probe.start_log_bytes + steps * probe.log_bytes
    values = sandbox.count * steps
    whole = ceil(log_bytes / probe.segment_bytes) * probe.segment_bytes
    return [
        _figure(
            "time",
            sandbox.count * (probe.start_s + steps * probe.step_s),
            "s",
            f"one rank after another{probe.disturbance}",
        ),
        _figure("log", sandbox.count * whole, "B", f"in segments of {probe.segment_bytes >> 20} MiB per rank"),
        _figure("maximum of values sent", values * probe.sent_bytes, "B", "at most --donor-bytes per rank"),
        _figure("maximum of values received", values * probe.received_bytes, "B", "at most --window-bytes per rank"),
        *found,
    ]


def _saved(sandbox: Sandbox, steps: int, probe: Probe) -> list[Figure]:
    """Against a run of every rank that the classes represent; nothing where all of them run."""
    others = sandbox.stand_for - sandbox.count
    if others <= 0:
        return []
    every = f"against all {counted(sandbox.stand_for, 'rank')}"
    memory = (sandbox.stand_for - probe.alive) * max(probe.peak_bytes - probe.shared_bytes, 0)
    graph = (sandbox.stand_for - sandbox.classes) * probe.entry_bytes
    time = _figure("time saved", others * (probe.start_s + steps * probe.step_s), "s", f"{every} one after another")
    return [
        time if steps else _unbounded("time saved"),
        _figure("memory saved", memory, "B", f"{every} at the same time"),
        _figure("graph saved", graph, "B", f"{every} with entries of their own"),
    ]


def _figure(what: str, value: float, unit: str, why: str) -> Figure:
    return Figure(what=what, value=value, unit=unit, known=Known.ESTIMATED, why=why)


def _unbounded(what: str) -> Figure:
    return Figure(what=what, value=None, unit="", known=Known.UNKNOWN, why="use --steps: the program runs to its end")
