"""What an emulation will take: the arithmetic, and what each figure stands on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.simulate.graph.class_finder import find_classes
from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.report.sandbox_plan import Figure, Known, Probe, alternatives, by_classes, chosen, figures

MESH = Mesh.parse("pp=16,dp=64,tp=8")
MIB = 1 << 20
PROBE = Probe(
    rank=0,
    start_s=4.0,
    step_s=0.5,
    alive=16,
    peak_bytes=300 * MIB,
    shared_bytes=100 * MIB,
    start_log_bytes=MIB,
    log_bytes=MIB,
    segment_bytes=4 * MIB,
    sent_bytes=MIB,
    received_bytes=2 * MIB,
    entries=1000,
    entry_bytes=50_000,
    messages_along=("pp",),
)


def values(found: list[Figure]) -> dict[str, float | None]:
    return {figure.what: figure.value for figure in found}


def known(found: list[Figure]) -> dict[str, Known]:
    return {figure.what: figure.known for figure in found}


def test_what_one_rank_took_is_reckoned_up_for_all_that_run() -> None:
    sandbox = by_classes(MESH, (), 32, PROBE)
    found = figures(MESH, sandbox, 3, PROBE)

    assert sandbox.count == 16 + 4 + 16  # stages, probes along dp and tp, second members
    assert values(found) == {
        "ranks of the job": 8192,
        "ranks that run here": 36,
        "start of one rank": 4.0,
        "one step of one rank": 0.5,
        "memory of one rank": 300 * MIB,
        "time": 36 * 5.5,
        "log": 36 * 4 * MIB,
        "maximum of values sent": 36 * 3 * MIB,
        "maximum of values received": 36 * 3 * 2 * MIB,
        "maximum memory in use": (300 + 15 * 200) * MIB,
        "graph": 16 * 50_000 + 16 * 8192,
        "time saved": (8192 - 36) * 5.5,
        "memory saved": (8192 - 16) * 200 * MIB,
        "graph saved": (8192 - 16) * 50_000,
    }
    assert known(found)["time"] is Known.ESTIMATED
    assert known(found)["one step of one rank"] is Known.MEASURED


def test_a_machine_that_had_something_else_to_do_is_said() -> None:
    calm, busy = (figures(MESH, chosen((0,)), 4, replace(PROBE, displaced=share)) for share in (0.0, 0.79))
    said = {figure.what: figure.why for figure in busy}
    assert values(calm) == values(busy)
    assert said["one step of one rank"] == "rank 0, 79% of a step waiting for a CPU"
    assert said["time"].endswith("79% of a step waiting for a CPU")
    assert not any("in line" in figure.why for figure in calm)


def test_nothing_is_saved_where_all_of_them_run() -> None:
    assert not any("saved" in what for what in values(figures(MESH, chosen(range(4)), 3, PROBE)))
    small = Mesh.parse("dp=2")
    assert not any("saved" in what for what in values(figures(small, by_classes(small, ("dp",), 32), 3, PROBE)))


def test_a_log_grows_by_whole_segments() -> None:
    found = values(figures(MESH, chosen((0,)), 4, replace(PROBE, alive=1)))
    assert found["log"] == 8 * MIB
    assert found["maximum memory in use"] == 300 * MIB


def test_without_a_probe_only_what_the_mesh_says_is_given() -> None:
    found = figures(MESH, chosen((0, 37)), 3, None)
    assert values(found)["ranks that run here"] == 2
    assert {figure.value for figure in found[2:]} == {None}
    assert {figure.known for figure in found[2:]} == {Known.UNKNOWN}


def test_without_an_end_there_is_no_time() -> None:
    saved = values(figures(MESH, by_classes(MESH, ("pp",), 0), 0, PROBE))
    assert saved["time saved"] is None and saved["memory saved"]
    found = figures(MESH, chosen((0,)), 0, PROBE)
    assert values(found)["time"] is None and "--steps" in next(f.why for f in found if f.what == "time")
    assert values(found)["maximum memory in use"]


@pytest.mark.parametrize("differ", [("pp",), ("dp",), ("tp",), ("pp", "tp")])
@pytest.mark.parametrize("checks", [0, 5, 32])
def test_the_number_of_ranks_is_the_one_that_the_finder_runs(differ: tuple[str, ...], checks: int) -> None:
    ran: list[int] = []

    def run(rank: int) -> Entries:
        ran.append(rank)
        place = MESH.coordinates(rank)
        writer = EntryWriter()
        writer.collective("all_reduce", "dp", 4 + sum(place[axis] * 100**n for n, axis in enumerate(differ)))
        return writer.done()

    find_classes(MESH, run, differ=differ, checks=checks)
    assert by_classes(MESH, differ, checks).count == len(ran)
    assert by_classes(MESH, differ, checks).known is Known.CERTAIN
    if len(differ) == 1:
        ran.clear()
        find_classes(MESH, run, checks=checks)
        (expected,) = [f.value for f in alternatives(MESH, checks) if f.what.endswith(differ[0])]
        assert expected == len(ran)


def test_before_anything_ran_it_is_at_least_the_probes() -> None:
    sandbox = by_classes(MESH, (), 32)
    assert sandbox.known is Known.UNKNOWN
    assert sandbox.count == 7 + 1
    assert sandbox.ranks == (0, 1, 7, 8, 504, 512, 7680)
