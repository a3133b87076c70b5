"""What an emulation is worth: what of it was real, how what the peers sent was made up, what is not reliable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from prismdbg.capsule.log.events import RankLog
from prismdbg.job_graph.recorded_step import doubts_of_devices
from prismdbg.job_graph.synthesized import Shaping, decisions_of, doubts_of, shaping_of
from prismdbg.jobs.storage.pass_errors import Passed, read_passes
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.log.rank_log import read_log
from prismdbg.model import synthesis
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.rank_graph.slice import build_slice
from prismdbg.simulate.assessment.assessment import SYNTHESIZED_VALUES
from prismdbg.simulate.assessment.fidelity import say_size

_LAST = Moment(10**9, 10**17)
RECEIVED = "really sent"  # by ranks that run at once
_REAL = (synthesis.DONOR, synthesis.OWN, RECEIVED)
UNPACED = "the duration of a step; use `--pace` or `prismdbg graph simulate` for that"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulationWorth:
    """`received_bytes`: of all ranks that ran, by how it was made up. passed: how peers came; None for at once.

    shaping: counts that ranks received and that are not the job's. decisions: what is not reliable, because the
    program decides by what may be synthesized. devices: because tensors were on one.
    """

    ran: int
    world: int
    received_bytes: Mapping[str, int]
    passed: Passed | None = None
    shaping: tuple[Shaping, ...] = ()
    decisions: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def made_up_share(self) -> float:
        """Of the bytes received: no rank ever sent them."""
        total = sum(self.received_bytes.values())
        return 1 - sum(self.received_bytes.get(way, 0) for way in _REAL) / total if total else 0.0

    def lines(self) -> list[str]:
        total = sum(self.received_bytes.values())
        by_size = sorted(self.received_bytes.items(), key=lambda pair: -pair[1])
        ways = ", ".join(f"{size_bytes / total:.1%} {way or 'unknown'}" for way, size_bytes in by_size) if total else ""
        waits = self.passed.line() if self.passed is not None else self._unpaced_waits()
        ran = "ran" if self.passed is None else "ran paced"  # those that were only checked with ran before that
        return [
            f"fidelity: {self.ran:,} of {counted(self.world, 'rank')} {ran}; " + self._what_was_real(),
            *([f"received {say_size(total)}: {ways}"] if total else []),
            f"transfers and waits: {waits}",
            *(f"not reliable: {doubt}" for doubt in self._doubts()),
        ]

    def _unpaced_waits(self) -> str:
        none = "none: peers answered immediately"
        return f"real between ranks that ran at once, else {none}" if RECEIVED in self.received_bytes else none

    def _what_was_real(self) -> str:
        if any(each.is_synthesized for each in self.shaping):
            return "their computations and allocations are real, except sizes that depend on synthesized counts"
        if self.shaping:
            return "their computations and allocations are real, except sizes that depend on synthesized values"
        return "their computations and allocations are real"

    def _doubts(self) -> list[str]:
        return [
            *doubts_of(self.shaping),
            *self.decisions,
            *self.devices,
            *([SYNTHESIZED_VALUES] if self.made_up_share else []),
            *(self.passed.doubts() if self.passed is not None else (UNPACED,)),
        ]


def worth_of(run: RunFolder, world: int) -> EmulationWorth:
    """From the logs that the ranks left, and what the last pass said."""
    folders = {rank_of(folder): folder for folder in run.rank_folders()}
    received: Counter[str] = Counter()
    by_rank = {rank: read_log(folder) for rank, folder in folders.items()}
    logs = list(by_rank.values())
    for log in logs:
        received.update(_received(log))
    return EmulationWorth(
        ran=len(folders),
        world=world,
        received_bytes=dict(received),
        passed=read_passes(run.path),
        shaping=tuple(shaping_of(logs)),
        decisions=tuple(decisions_of(logs)),
        devices=doubts_of_devices(by_rank, None),
    )


def _received(log: RankLog) -> Counter[str]:
    made = {call.record_id: call.made if call.synthesized else RECEIVED for call in log.collectives}
    found: Counter[str] = Counter()
    for node in build_slice(log, Moment(0), _LAST).nodes:
        if node.received_bytes:
            found[made.get(node.record_id, synthesis.NOT_KNOWN)] += node.received_bytes
    return found
