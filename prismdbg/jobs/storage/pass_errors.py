"""What RUN/passes.json says of a paced emulation: on which clock, whether simulation and ranks came to agree, and how
far they were apart in the last pass, component by component."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.capsule import checked_json
from prismdbg.errors import CapsuleError
from prismdbg.model.plurals import counted
from prismdbg.simulate.assessment.fidelity import Fidelity, SignedError
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.report.rank_parts import ITERATION

FILE_NAME = "passes.json"
WHY_NOT = "the log does not have the device's work"


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """`until`: to what they were to agree, as a share of the iteration. errors: simulated less emulated, of the last
    pass. drift: of the rank that computed longest or shortest, as a share of what was scheduled. is_contended: ranks
    computed more slowly, as the cluster file says of overlap or shared processors. on_stream: ranks whose transfers
    were waits on a device. Then nothing was compared, and there are no errors."""

    clock: str
    until: float
    has_converged: bool
    passes: int
    errors: tuple[SignedError, ...]
    drift: float = 1.0
    drift_rank: int = -1
    is_contended: bool = False
    on_stream: tuple[int, ...] = ()

    @property
    def is_apart(self) -> bool:
        """They were compared, and have not come to agree."""
        return not self.has_converged and not self.on_stream

    @property
    def worst(self) -> SignedError | None:
        return max(self.errors, key=lambda error: abs(error.worst), default=None)

    @property
    def left(self) -> str:
        """How far they are still apart at most."""
        worst = self.worst
        if worst is None:
            return "no rank was compared"
        name = f"rank {worst.worst_rank}'s {worst.component}"
        said = f"{name}, simulated less emulated, is {worst.worst:+.2%} of an iteration"
        if abs(self.drift - 1) <= self.until:
            return said
        return f"{said}, and rank {self.drift_rank} computed {self.drift:.2f} times as long as scheduled"

    def line(self) -> str:
        """How peers came, and what that is worth."""
        way = f"as the simulation says, on a {self.clock} clock"
        if self.on_stream:
            return f"{way}; the two were not compared: {not_compared(self.on_stream)}"
        if self.has_converged and self.worst is not None and not self.worst.worst:
            return f"{way}; it and the ranks agree to the nanosecond"
        if self.has_converged:
            return f"{way}; it and the ranks agree to {self.until:.2%}, at worst {self.left}"
        passes = counted(self.passes, "pass", "passes")
        return f"{way}, but the two have not converged: after {passes} {self.left}; {self.until:.2%} was requested"

    def doubts(self) -> tuple[str, ...]:
        if self.on_stream:
            return (f"the duration of a step: simulation and emulated ranks were not compared, because {WHY_NOT}",)
        if self.has_converged or self.worst is None:
            return ()
        apart = max(abs(self.worst.worst), abs(self.drift - 1))
        return (
            f"the duration of a step closer than {apart:.2%}: simulation and emulated ranks have not "
            f"converged, {self.left}",
        )

    def told(self, fidelity: Fidelity, *, is_as_it_ran: bool = True) -> Fidelity:
        """With what is not reliable where they are too far apart; of the job as it ran with these errors, too."""
        errors = self.errors if is_as_it_ran else ()
        return replace(fidelity, errors=(*fidelity.errors, *errors), doubts=(*fidelity.doubts, *self.doubts()))


def not_compared(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - 1} more" if len(ranks) > 1 else ""
    return f"transfers of rank {ranks[0]}{more} were waits on a device, and {WHY_NOT}"


def read_passes(run: Path) -> Passed | None:
    """None where the run was not paced, or no pass was made."""
    path = run / FILE_NAME
    if not path.is_file():
        return None
    held = checked_json.read(path)
    passes = held.objects("passes")
    if not passes:
        return None
    clock = held.text("clock")
    ranks = passes[-1].objects("ranks")
    by_rank = {each.integer("rank"): _errors(each) for each in ranks}
    on_stream = tuple(each.integer("rank") for each in ranks if each.has("on_stream") and each.boolean("on_stream"))
    drifts = {each.integer("rank"): each.number("drift") for each in ranks if each.has("drift")}
    drift_rank = max(drifts, key=lambda rank: abs(drifts[rank] - 1), default=-1)
    against = f"the emulation it paced ({clock} clock, pass {passes[-1].integer('number')})"
    return Passed(
        clock=clock,
        until=held.number("until"),
        has_converged=held.boolean("has_converged"),
        passes=len(passes),
        errors=() if on_stream else _signed(by_rank, against),
        drift=drifts.get(drift_rank, 1.0),
        drift_rank=drift_rank,
        is_contended=held.has("is_contended") and held.boolean("is_contended"),
        on_stream=on_stream,
    )


def with_passes(timeline: Timeline, run: Path, *, is_as_it_ran: bool = True) -> Timeline:
    """Of a run's own graph, how far paced ranks were off; of a saved graph alone nothing is known."""
    passed = read_passes(run) if run.is_dir() else None
    if passed is None:
        return timeline
    return replace(timeline, fidelity=passed.told(timeline.fidelity, is_as_it_ran=is_as_it_ran))


def _errors(each: checked_json.Fields) -> dict[str, float]:
    """By component, as shares of the emulated iteration."""
    emulated_ns = each.integer("emulated_ns")
    if not emulated_ns:
        raise CapsuleError(f"{each.where}: emulated_ns is 0", hint="emulate it again")
    found = {ITERATION: each.integer("simulated_ns") / emulated_ns - 1}
    for name, parts in each.object_map("components").items():
        found[name] = (parts.integer("simulated_ns") - parts.integer("emulated_ns")) / emulated_ns
    return found


def _signed(by_rank: Mapping[int, Mapping[str, float]], against: str) -> tuple[SignedError, ...]:
    found = []
    for component in dict.fromkeys(name for errors in by_rank.values() for name in errors):
        errors = {rank: each[component] for rank, each in by_rank.items() if component in each}
        worst = max(errors, key=lambda rank: abs(errors[rank]))
        found.append(
            SignedError(
                component=component,
                against=against,
                ranks=len(errors),
                mean=sum(errors.values()) / len(errors),
                worst=errors[worst],
                worst_rank=worst,
            )
        )
    return tuple(found)
