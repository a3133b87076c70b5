"""What an emulation says of sizes that follow from counts which are not the job's."""

from __future__ import annotations

from prismdbg.capsule.log.events import Note
from prismdbg.capsule.log.notes import SHAPING
from prismdbg.emulate.assessment import EmulationWorth
from prismdbg.job_graph.synthesized import doubts_of, shaping_of
from prismdbg.model import synthesis
from tests.unit.logs import Job


def noted(*ways: str) -> Job:
    job = Job(len(ways))
    for rank, how in enumerate(ways):
        row = {"collective": "all_to_all_single", "axis": "ep", "how": how, "where": "moe.py:9 in route", "count": 4}
        job.logs[rank].notes.append(Note(SHAPING, 0, {"rows": [row]}))
    return job


def test_each_line_is_named_once_with_the_way() -> None:
    shaping = shaping_of(noted(synthesis.DONOR, synthesis.ECHO, synthesis.ECHO).logs.values())
    assert doubts_of(shaping) == [
        "sizes and memory: the counts that ranks received in all_to_all_single on ep at "
        "moe.py:9 in route are synthesized (echo)",
        "sizes and memory: peers computed the counts of all_to_all_single on ep at moe.py:9 in "
        "route from synthesized values",
    ]


def test_an_emulation_is_not_called_real_where_its_sizes_are_not() -> None:
    def first_line(job: Job) -> str:
        shaping = tuple(shaping_of(job.logs.values()))
        return EmulationWorth(ran=1, world=64, received_bytes={"echo": 8}, shaping=shaping).lines()[0]

    assert first_line(Job(1)) == "fidelity: 1 of 64 ranks ran; their computations and allocations are real"
    assert first_line(noted(synthesis.BALANCED)).endswith("are real, except sizes that depend on synthesized counts")
    assert first_line(noted(synthesis.DONOR)).endswith("are real, except sizes that depend on synthesized values")
