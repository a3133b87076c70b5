"""How ranks' logs end: who failed, died or ended before the others, and which steps are whole for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import exit_codes
from prismdbg.errors import UsageError
from prismdbg.job_graph.recorded_step import steps_begun
from prismdbg.jobs.storage.ranks_alive import is_alive
from prismdbg.model.collective import State
from prismdbg.simulate.graph.mesh import Mesh

_LONGEST = 100
_SHOWN = 4
_WITHOUT_A_WORD = "has no end in its log, as after a signal"


def fault_of(log: RankLog) -> str:
    """`failed with ValueError: no`; empty where the rank came to its end by itself, or still runs."""
    incident = next((n.data for n in log.notes if n.kind == "incident" and not n.data.get("thread")), None)
    if incident is not None:
        raised = f"{incident.get('type', 'an exception')}: {incident.get('text', '')}".splitlines()[0].rstrip(": ")
        short = raised if len(raised) <= _LONGEST else f"{raised[:_LONGEST]}..."
        return f"{'ran out of memory' if incident.get('incident') == 'oom' else 'failed'} with {short}"
    if lost := next((str(n.data.get("text", "")) for n in log.notes if n.kind == "lost"), ""):
        return f"was no longer recorded ({lost})"
    if any(n.kind == "exit" for n in log.notes):
        code = next(reversed(exit_codes(log.notes)), 0)
        return f"ended with code {code}" if code else ""
    return "" if is_alive(log.pid) else _WITHOUT_A_WORD


def where_it_ended(log: RankLog) -> str:
    """`in step 7, after all_reduce at train.py:42 in main`."""
    last = log.collectives[-1] if log.collectives else None
    source = f" at {last.source}" if last is not None and last.source is not None else ""
    return f"in step {steps_begun(log)}" + (f", after {last.name}{source}" if last is not None else "")


def say_ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """`rank 2 waits`, `ranks 0, 1 wait`."""
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (f" and {len(ranks) - _SHOWN:,} more" if len(ranks) > _SHOWN else "")
    return f"rank {shown} {one}" if len(ranks) == 1 else f"ranks {shown} {several}"


def check_whole(mesh: Mesh, logs: Mapping[int, RankLog], step: int) -> None:
    """UsageError where the step was cut short by the end of a rank, which is named with how it ended."""
    for rank, log in sorted(logs.items(), key=lambda item: _how_far_a_consequence(item[1], fault_of(item[1]))):
        begun = steps_begun(log)
        if step >= begun and (fault := fault_of(log)):
            raise UsageError(
                f"step {step} is not complete: {mesh.say(rank)} {fault}, {where_it_ended(log)}",
                hint=f"choose an earlier one: its last complete step is {begun - 1}"
                if begun
                else "let the job run longer: the rank completed no step",
            )


def doubts_of(mesh: Mesh, logs: Mapping[int, RankLog], step: int) -> tuple[str, ...]:
    """What is not reliable after that step, since ranks did not come to their end as the others did."""
    ends = sorted(_ends(logs), key=lambda end: _how_far_a_consequence(logs[end[0]], end[1]))
    found = [f"{mesh.say(rank)} {text}" for rank, text in ends]
    more = [f"{len(found) - _SHOWN} more failed or ended early"] if len(found) > _SHOWN else []
    return tuple(f"the steps after step {step}: {text}" for text in [*found[:_SHOWN], *more])


def _how_far_a_consequence(log: RankLog, text: str) -> int:
    """Of one that failed by itself a launcher ends the others; of one that was killed the others' calls fail."""
    if any(call.state is State.FAILED for call in log.collectives):
        return 2
    return 1 if _WITHOUT_A_WORD in text else 0


def _ends(logs: Mapping[int, RankLog]) -> Iterator[tuple[int, str]]:
    most = max(map(steps_begun, logs.values()))
    for rank, log in sorted(logs.items()):
        if fault := fault_of(log):
            yield rank, f"{fault}, {where_it_ended(log)}"
        elif steps_begun(log) < most - 1:
            yield rank, f"ended {where_it_ended(log)}, while others continued to step {most}"
