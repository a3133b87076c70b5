"""Everything the logs say about what went wrong, the surest first; and what is missing to say more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from prismdbg.capsule.stacks import RankStacks
from prismdbg.diagnosis.consequences import by_cause
from prismdbg.diagnosis.desync import find_desyncs
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.failures import find_failures
from prismdbg.diagnosis.lateness.delays import Delay, find_delays
from prismdbg.diagnosis.lateness.earlier_waits import find_earlier_waits
from prismdbg.diagnosis.lateness.late_cause import why_late
from prismdbg.diagnosis.lateness.stragglers import Straggler, find_stragglers
from prismdbg.diagnosis.lost_nodes import find_lost_nodes, unseen_ends
from prismdbg.diagnosis.mismatches import find_mismatches
from prismdbg.diagnosis.nonfinite import find_nonfinite
from prismdbg.diagnosis.payloads import find_payloads
from prismdbg.diagnosis.recorded_incidents import find_recorded_incidents
from prismdbg.diagnosis.stack_positions import position_lines
from prismdbg.diagnosis.stops import find_stops
from prismdbg.diagnosis.verdict import Verdict, in_order
from prismdbg.diagnosis.wording import rank_list
from prismdbg.log.columns import LogColumns
from prismdbg.model.meanwhile import Tell, working
from prismdbg.model.plurals import counted
from prismdbg.protocol.values import frame_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """`missing`: sentences on evidence that is not there. `ranks`: those whose logs could be read. `nodes`:
    where they ran, in a job of several supervisors. `stacks`: from another tool's `stacks_file`, taken at an unknown
    time, so that no verdict rests on them. unsearched_telemetry: there is some, and of several ranks none was
    clearly later. exit_code: of the job; interrupted: it was told to end. exit_code, is_running: None where that is
    not known."""

    verdicts: tuple[Verdict, ...]
    missing: tuple[str, ...]
    ranks: tuple[int, ...]
    nodes: Mapping[int, str] = field(default_factory=dict)
    stacks: Mapping[int, RankStacks] = field(default_factory=dict)
    stacks_file: str = ""
    unsearched_telemetry: bool = False
    exit_code: int | None = None
    is_running: bool | None = False
    interrupted: bool = False

    def places(self, verdict: Verdict) -> list[str]:
        """`node n2: rank 3`, for each node with a rank of the verdict."""
        ranks: dict[str, list[int]] = {}
        for rank in verdict.ranks:
            if rank in self.nodes:
                ranks.setdefault(self.nodes[rank], []).append(rank)
        return [f"node {node}: {rank_list(numbers)}" for node, numbers in sorted(ranks.items())]

    @property
    def positions(self) -> list[str]:
        """Where the ranks were when `stacks` were taken, one a line."""
        return [f"{self.stacks_file}: {line}" for line in position_lines(self.stacks)]

    @property
    def summary(self) -> str:
        """Where there is no verdict."""
        if not self.ranks and self.stacks:
            return "no call of any rank is known, only where the ranks were"
        if not self.ranks:
            return "no rank left a readable log: no diagnosis is possible"
        whole = "these logs" if not self.missing else f"the available logs of {rank_list(self.ranks)}"
        more = "; no rank is clearly later than the others: `prismdbg telemetry` shows what slowed all ranks down"
        if self.exit_code and not self.interrupted:
            return f"the job ended with exit code {self.exit_code}, and no cause is found in {whole}"
        return f"no problem found in {whole}{more if self.unsearched_telemetry else ''}"

    def to_json(self) -> dict[str, Any]:
        return {
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "summary": None if self.verdicts else self.summary,
            "is_running": self.is_running,
            "exit_code": self.exit_code,
            "missing": list(self.missing),
            "ranks": list(self.ranks),
            **({"nodes": {str(rank): node for rank, node in sorted(self.nodes.items())}} if self.nodes else {}),
            **({"stacks": self._stacks_json()} if self.stacks else {}),
        }

    def _stacks_json(self) -> dict[str, Any]:
        frames = {str(rank): [frame_to_json(each) for each in found.frames] for rank, found in self.stacks.items()}
        return {"file": self.stacks_file, "ranks": frames}


def diagnose(evidence: Evidence) -> Diagnosis:
    with working() as tell:
        verdicts = _verdicts(evidence, tell)
    return Diagnosis(
        verdicts=in_order(by_cause(verdicts)),
        missing=tuple(_missing(evidence)),
        ranks=tuple(sorted(evidence.logs)),
        nodes=evidence.nodes,
        stacks=evidence.stacks if evidence.stacks_file else {},
        stacks_file=evidence.stacks_file,
        unsearched_telemetry=bool(evidence.telemetry) and len(evidence.logs) > 1 and _compares_times(evidence),
        exit_code=evidence.exit_code,
        is_running=evidence.is_running,
        interrupted=evidence.interrupted,
    )


def _verdicts(evidence: Evidence, tell: Tell) -> list[Verdict]:
    tell("comparing the ranks' calls")
    verdicts = [*find_lost_nodes(evidence), *find_failures(evidence), *find_mismatches(evidence)]
    if not evidence.emulated:  # nobody waited for anybody there, and no value is to be believed
        tell("searching for hangs and NaN")
        verdicts += [*find_stops(evidence), *find_nonfinite(evidence)]
        tell("comparing what ranks sent and received")
        verdicts += find_desyncs(evidence, verdicts)
        verdicts += find_payloads(evidence)
        if _compares_times(evidence):
            tell("searching for late ranks")
            late = [_with_cause(evidence, each) for each in _late(evidence)]
            known = {verdict.ranks for verdict in late}
            verdicts += [*late, *(one for one in find_earlier_waits(evidence) if one.ranks not in known)]
    tell("comparing with the recorded incidents")
    return [*verdicts, *find_recorded_incidents(evidence, verdicts)]


def _late(evidence: Evidence) -> list[Straggler | Delay]:
    """A rank that is always late to a group is not told again as one that became late to it."""
    stragglers = find_stragglers(evidence)
    known = {(one.group.name, one.ranks) for one in stragglers}
    return [*stragglers, *(one for one in find_delays(evidence) if (one.group.name, one.ranks) not in known)]


def _compares_times(evidence: Evidence) -> bool:
    return evidence.clocks_agree and not evidence.emulated


def _with_cause(evidence: Evidence, late: Straggler | Delay) -> Straggler | Delay:
    return replace(late, cause=why_late(evidence, late.group.name, late.ranks[0]))


def _missing(evidence: Evidence) -> list[str]:
    lines = [
        f"the log of rank {rank} {'breaks off' if rank in evidence.logs else 'cannot be read'}: {why}"
        for rank, why in sorted(evidence.damaged.items())
    ]
    without = [rank for rank in evidence.absent if rank not in evidence.damaged]
    if evidence.asked_only and (others := [rank for rank in without if rank not in evidence.asked_only]):
        lines.append(
            f"{rank_list(others)} {'was' if len(others) == 1 else 'were'} not selected for recording (--ranks)"
        )
        without = [rank for rank in without if rank in evidence.asked_only]
    if evidence.emulated:
        lines += [
            f"{len(evidence.logs)} of {counted(evidence.known_world_size, 'rank')} of {evidence.emulated} ran, each "
            "among virtual peers: the diagnosis does not cover the others",
            "the peers' data was synthesized: the diagnosis does not cover values or waits (see `prismdbg graph`)",
        ]
    elif without and not evidence.of_capsule:
        who = "it was" if len(without) == 1 else "they were"
        lines.append(f"no log of {rank_list(without)}: {who} not recorded, or issued no collective")
    for rank, log in sorted(evidence.logs.items()):
        lines += [
            f"recording of rank {rank} ended early: {n.data.get('text', '')}" for n in log.notes if n.kind == "lost"
        ]
        lines += [
            f"rank {rank} called c10d::{n.data['op']}, which is not recorded: {n.data['text']}"
            for n in log.notes
            if n.kind == "unknown"
        ]
        lines += [f"rank {rank}: {n.data.get('text', '')}" for n in log.notes if n.kind == "not_ended"]
    lines += _begin_late(evidence)
    silent = evidence.silent - {evidence.died_first}
    if silent:
        lines.append(f"{rank_list(silent)} ended without an error message: ended by the launcher, or killed")
    lines += [*unseen_ends(evidence), *evidence.gaps]
    if not evidence.world_size and evidence.logs:
        lines.append("the number of ranks is inferred from the job's groups")
    return lines


def _begin_late(evidence: Evidence) -> list[str]:
    """Logs that are not there collective by collective from the beginning on; one line for those of which it is the
    same."""
    alike: dict[str, list[int]] = {}
    for rank, log in evidence.logs.items():
        if log.dropped:
            alike.setdefault(_begins_late(evidence.columns[rank], log.dropped), []).append(rank)
    return [
        f"the log{'s' if len(ranks) > 1 else ''} of {rank_list(ranks)} {how.format(s='s' if len(ranks) == 1 else '')}"
        for how, ranks in alike.items()
    ]


def _begins_late(log: LogColumns, dropped: int) -> str:
    begin = f"begin{{s}} after {counted(dropped, 'collective')}"
    if log.read_from_later:
        begin = f"{begin} here (--whole reads all that is kept)"
    if not len(log.summary):
        return begin
    first, last = int(log.summary["first_step"].min()), int(log.summary["last_step"].max())
    return f"{begin}; a summary of steps {first} to {last} was read"
