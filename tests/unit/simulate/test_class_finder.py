"""Classes of ranks, found by running few of them: ranks are functions here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.class_finder import RankClasses, find_classes
from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.folding import first_difference, fold_kinds
from prismdbg.simulate.graph.kinds import Kinds
from prismdbg.simulate.graph.mesh import Mesh

LARGE = Mesh.parse("pp=16,dp=64,tp=8")
Place = dict[str, int]


class Job:
    """Ranks whose program is a function of their coordinates: the calls they make, each an operation on a channel."""

    def __init__(self, mesh: Mesh, calls: Callable[[Place], list[tuple[str, str]]]) -> None:
        self._mesh = mesh
        self._calls = calls
        self.ran: list[int] = []

    def run(self, rank: int) -> Entries:
        assert rank not in self.ran, "a rank runs once"
        self.ran.append(rank)
        writer = EntryWriter()
        for number, (op, channel) in enumerate(self._calls(self._mesh.coordinates(rank))):
            writer.compute(1000 + rank)
            if op == "send":
                writer.send(channel, 64, line=f"train.py:{number}")
            elif op == "recv":
                writer.recv(channel, 64, line=f"train.py:{number}")
            else:
                writer.collective(op, channel, 64, line=f"train.py:{number}")
        return writer.done()

    def find(self, differ: tuple[str, ...] | None = None, **bounds: int) -> RankClasses:
        return find_classes(self._mesh, self.run, differ=differ, **bounds)


def same(_: Place) -> list[tuple[str, str]]:
    return [("all_reduce", "tp"), ("all_gather", "dp")]


def pipeline(at: Place) -> list[tuple[str, str]]:
    """Each stage a class: GPipe with as many calls as the stage's number says."""
    calls = [("recv", "pp-1")] if at["pp"] else []
    calls += [("all_reduce", "tp")] * (at["pp"] + 1)
    return [*calls, ("send", "pp+1")] if at["pp"] < 15 else calls


def test_where_all_do_the_same_few_ranks_run() -> None:
    job = Job(LARGE, same)
    found = job.find()

    assert found.kinds.alike == ("pp", "dp", "tp")
    assert [(each.representative, each.ranks) for each in found.classes] == [(0, 8192)]
    probes = [LARGE.rank(**{axis: at}) for axis, size in (("pp", 16), ("dp", 64), ("tp", 8)) for at in (1, size - 1)]
    assert job.ran[:7] == [0, *probes]
    (checked,) = found.classes[0].checked_with[6:]
    assert all(LARGE.coordinates(checked).values())  # off the first rank along every axis at once
    assert list(found.ran) == job.ran


def test_every_stage_of_a_pipeline_runs_and_a_second_member_of_each() -> None:
    job = Job(LARGE, pipeline)
    found = job.find()

    assert found.kinds.alike == ("dp", "tp")
    assert [each.ranks for each in found.classes] == [512] * 16
    assert all(each.checked_with and not each.is_assumed for each in found.classes)
    assert len(job.ran) == 16 + 4 + 16
    seconds = [each.checked_with[-1] for each in found.classes]
    assert all(LARGE.coordinates(rank)["dp"] and LARGE.coordinates(rank)["tp"] for rank in seconds)


def test_checks_are_bounded_spread_and_what_is_unchecked_is_said() -> None:
    found = Job(LARGE, pipeline).find(checks=3)

    assert [n for n, each in enumerate(found.classes) if not each.is_assumed] == [0, 8, 15]
    assert len(found.ran) == 16 + 4 + 3


@pytest.mark.parametrize(("special", "begins"), [(0, (0, 1)), (63, (0, 63))])
def test_one_end_of_an_axis_may_be_another_kind(special: int, begins: tuple[int, ...]) -> None:
    job = Job(LARGE, lambda at: [("all_reduce", "tp"), *([("gather", "dp")] * (1 + (at["dp"] == special)))])
    found = job.find()

    assert found.kinds.begins == {"pp": (0,), "dp": begins, "tp": (0,)}
    assert sorted(each.ranks for each in found.classes) == [128, 8192 - 128]
    assert len(job.ran) < 12


def test_the_user_knows_the_axes() -> None:
    job = Job(LARGE, pipeline)
    found = job.find(("pp",))

    assert job.ran[:16] == [LARGE.rank(pp=stage) for stage in range(16)]
    assert len(job.ran) == 32 and found.probed == ()


def test_coordinates_that_turn_out_to_do_the_same_are_one_class() -> None:
    mesh = Mesh.parse("pp=6,dp=2")
    job = Job(mesh, lambda at: [("all_reduce", "dp")] * (3 if at["pp"] in (0, 5) else 1 + at["pp"] % 2))
    found = job.find()

    assert found.kinds.begins["pp"] == tuple(range(6))
    assert sorted(each.bases for each in found.classes) == [(0, 10), (2, 6), (4, 8)]
    assert sum(each.ranks for each in found.classes) == 12


def test_a_second_member_that_does_something_else_is_an_error_with_both_lines() -> None:
    def odd(at: Place) -> list[tuple[str, str]]:
        calls = [("all_reduce", "tp"), ("all_gather", "dp")]
        return [*calls, ("barrier", "world")] if at["dp"] and at["tp"] and at["pp"] else calls

    with pytest.raises(UsageError) as caught:
        Job(LARGE, odd).find()
    text = str(caught.value)
    assert "rank 0 (pp=0 dp=0 tp=0) and rank " in text
    assert "call #3 is nothing on rank 0, barrier of 64 bytes on world at train.py:2 on rank" in text
    assert "--classes pp,dp,tp" in caught.value.hint


@pytest.mark.parametrize("every", [2, 8])
@pytest.mark.parametrize("size", [16, 64, 1024])
def test_what_every_second_or_eighth_rank_does_is_not_taken_to_be_what_all_do(every: int, size: int) -> None:
    """The first and the last but one of an axis of even size say nothing of pairs."""

    def beginning(at: Place) -> list[tuple[str, str]]:
        return [("all_reduce", "dp"), *([("gather", "dp")] * (2 if not at["dp"] else at["dp"] % every == 0))]

    with pytest.raises(UsageError, match="were assumed to be alike but differ") as caught:
        Job(Mesh.parse(f"dp={size}"), beginning).find()
    assert "split the axis in the mesh" in caught.value.hint


def test_too_many_ranks_to_run_is_an_error_that_says_why() -> None:
    job = Job(LARGE, lambda at: [("all_reduce", "tp")] * (1 + at["dp"] + at["pp"]))
    with pytest.raises(UsageError, match=r"1,024 ranks would have to run.*pp \(16 kinds\), dp \(64 kinds\)") as caught:
        job.find()
    assert "along dp: call #2 is nothing on rank 0" in str(caught.value)
    assert "--classes pp" in caught.value.hint
    assert len(job.ran) == 7


def test_a_world_of_one_rank_is_one_class() -> None:
    found = Job(Mesh.parse("tp=1"), same).find()
    assert found.ran == (0,) and not found.classes[0].is_assumed


def test_an_axis_that_is_not_there_is_an_error_before_anything_runs() -> None:
    job = Job(LARGE, same)
    with pytest.raises(UsageError, match="axis 'cp'"):
        job.find(("cp",))
    assert not job.ran


def test_the_same_call_made_in_another_way_is_told_apart() -> None:
    def job(blocking: bool) -> Entries:
        writer = EntryWriter()
        writer.collective("all_reduce", "tp", 4, blocking=blocking, line="a.py:1")
        return writer.done()

    difference = first_difference(job(True), job(False))
    assert difference.number == 1
    assert "waited for" in difference.one and "asynchronous" in difference.other


class TestKinds:
    def test_every_position_has_the_kind_of_its_rank(self) -> None:
        mesh = Mesh.parse("pp=4,dp=3,tp=2", order="dp,pp,tp")
        kinds = Kinds(mesh=mesh, begins={"pp": (0, 1, 3), "dp": (0,), "tp": (0, 1)})
        bases = kinds.bases()
        by_position = kinds.by_position().reshape(mesh.sizes)

        for rank in range(mesh.world):
            place = tuple(mesh.coordinates(rank).values())
            assert bases[by_position[place]] == kinds.base_of(rank)
        assert [kinds.size_of(base) for base in bases] == np.bincount(by_position.ravel()).tolist()

    @pytest.mark.parametrize("begins", [(), (1,), (0, 0), (0, 4), (2, 1)])
    def test_what_does_not_fit_is_an_error(self, begins: tuple[int, ...]) -> None:
        with pytest.raises(UsageError, match="along pp"):
            Kinds(mesh=Mesh.parse("pp=4"), begins={"pp": begins})

    def test_the_graph_of_the_whole_job(self) -> None:
        job = Job(LARGE, pipeline)
        found = job.find()
        again = Job(LARGE, pipeline)
        graph = fold_kinds(found.kinds, {base: again.run(base) for base in found.kinds.bases()})

        assert len(graph.classes) == 16
        assert graph.class_of(LARGE.rank(pp=7, dp=33, tp=5)).name == f"as rank {LARGE.rank(pp=7)}"
        larger = graph.stretched("dp", 512)
        assert larger.mesh.world == 65536
        assert larger.class_of(larger.mesh.rank(pp=7, dp=300, tp=5)).name == f"as rank {larger.mesh.rank(pp=7)}"
