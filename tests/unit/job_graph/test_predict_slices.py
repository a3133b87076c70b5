"""Recorded ranks as classes of a job graph: groups by mesh axes, times as recorded, ranks that did the same folded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prismdbg.capsule.log.notes import PARTS, SHAPING
from prismdbg.errors import MismatchError, UsageError
from prismdbg.job_graph import builder
from prismdbg.job_graph.builder import GraphRequest
from prismdbg.job_graph.slice_channels import channel_of
from prismdbg.job_graph.slice_entries import Source, entries_of
from prismdbg.jobs.storage.run_folder import write_json
from prismdbg.model import synthesis
from prismdbg.model.collective import Frame, Group, State
from prismdbg.model.moment import Moment
from prismdbg.rank_graph.slice import GraphSlice, build_slice
from prismdbg.simulate.cluster.cluster import ideal
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.channel import parse
from prismdbg.simulate.graph.entries import PROVENANCES, Entries, Kind, Provenance
from prismdbg.simulate.graph.folding import fold
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION
from tests.unit.logs import LINE, MILLISECOND_NS, Job, Tensors

MESH = Mesh.parse("dp=2,tp=2")


def recorded() -> list[GraphSlice]:
    job = Job(4)
    for name, ranks, desc in (("a", (0, 1), "tp"), ("b", (2, 3), "tp"), ("c", (0, 2), "dp"), ("d", (1, 3), "dp")):
        job.group(name, ranks, desc=f"mesh_{desc}")
    job.steps(1)
    for name in "ab":
        job.call("_allgather_base_", name, tensors=Tensors(shape=(8,)))
        job.now_ns += 3 * MILLISECOND_NS
    for name in "cd":
        job.call(group=name)
    job.call("broadcast_", root=0, late_ns={3: 7 * MILLISECOND_NS})
    return [build_slice(job.logs[rank], Moment(0), Moment(9)) for rank in range(4)]


def slices_by_rank(slices: list[GraphSlice], mesh: Mesh) -> dict[int, Entries]:
    return {graph.rank: entries_of(graph, mesh) for graph in slices}


class TestOneSlice:
    def test_groups_by_axis_and_lines(self) -> None:
        entries = entries_of(recorded()[2], MESH)
        talks = np.flatnonzero(entries.communicates)

        assert [entries.say(int(e)) for e in talks] == [
            "all_reduce of 16 bytes on dp,tp at /job/train.py:42 in main",
            "all_gather of 32 bytes on tp at /job/train.py:42 in main",
            "all_reduce of 16 bytes on dp at /job/train.py:42 in main",
            "broadcast of 16 bytes on dp,tp at /job/train.py:42 in main",
        ]

    def test_what_lay_between_is_recorded_computation(self) -> None:
        graph = recorded()[0]
        entries = entries_of(graph, MESH)
        between_ns = [b.issued_ns - (a.completed_ns or 0) for a, b in zip(graph.nodes, graph.nodes[1:], strict=False)]

        assert entries.duration_ns[entries.kind == Kind.COMPUTE].tolist() == between_ns

    @pytest.mark.parametrize("is_async", [False, True])
    def test_a_call_on_a_stream_holds_no_thread(self, is_async: bool) -> None:
        """Its end is the device's, which may come to it when the host has issued much more."""
        graph = recorded()[0]
        late_ns = graph.nodes[-1].issued_ns
        waited_ns = graph.nodes[0].issued_ns + MILLISECOND_NS if is_async else None
        first = replace(graph.nodes[0], is_async=is_async, completed_ns=late_ns, waited_ns=waited_ns, on_stream=True)
        entries = entries_of(replace(graph, nodes=(first, *graph.nodes[1:])), MESH)

        computed_ns = entries.duration_ns[entries.kind == Kind.COMPUTE]
        until_next_ns = graph.nodes[1].issued_ns - first.issued_ns
        before_last_ns = sum(computed_ns[: 2 if is_async else 1].tolist())
        assert before_last_ns == until_next_ns > 0

    def test_an_asynchronous_call_is_waited_for_where_it_completed(self) -> None:
        graph = recorded()[0]
        first = replace(graph.nodes[0], is_async=True, completed_ns=5 * MILLISECOND_NS)
        later = [
            replace(node, issued_ns=9 * MILLISECOND_NS, completed_ns=10 * MILLISECOND_NS) for node in graph.nodes[1:2]
        ]
        entries = entries_of(replace(graph, nodes=(first, *later)), MESH)

        assert [Kind(int(kind)).name for kind in entries.kind] == [
            "COLLECTIVE", "COMPUTE", "WAIT", "COMPUTE", "COLLECTIVE",
        ]  # fmt: skip
        assert entries.duration_ns[entries.kind == Kind.COMPUTE].tolist() == [5 * MILLISECOND_NS, 4 * MILLISECOND_NS]

    def test_messages_go_along_an_axis(self) -> None:
        job = Job(4)
        job.point_to_point(0, 2)
        job.point_to_point(3, 0)
        ahead = entries_of(build_slice(job.logs[2], Moment(0), Moment(9)), MESH)

        assert ahead.channels == ("dp-1",)
        with pytest.raises(
            UsageError,
            match=r"rank 3 .* issues send \(0.1\) at /job/train.py:42 in main, to rank 0 .*: no neighbour along one",
        ):
            entries_of(build_slice(job.logs[3], Moment(0), Moment(9)), MESH)

    def test_what_may_have_been_a_wait_is_assumed(self) -> None:
        graph = recorded()[0]
        first = replace(graph.nodes[0], is_async=True, completed_ns=5)
        entries = entries_of(replace(graph, nodes=(first,)), MESH, Source(computed=Provenance.REAL, until_ns=9))

        computed = entries.kind == Kind.COMPUTE
        assert entries.duration_ns[computed].tolist() == [5, 4]
        assert [PROVENANCES[number] for number in entries.provenance[computed]] == [Provenance.ASSUMED, Provenance.REAL]

    def test_a_wait_stands_where_it_began_if_that_is_known(self) -> None:
        graph = recorded()[0]
        first = replace(graph.nodes[0], is_async=True, completed_ns=5, waited_ns=3)
        late = replace(graph.nodes[1], is_async=True, issued_ns=7, completed_ns=30, waited_ns=8)
        entries = entries_of(replace(graph, nodes=(first, late)), MESH, Source(from_ns=-2, until_ns=20))

        kinds = [Kind(int(kind)).name for kind in entries.kind]
        assert kinds == ["COMPUTE", "COLLECTIVE", "COMPUTE", "WAIT", "COMPUTE", "COLLECTIVE", "COMPUTE", "WAIT"]
        computed = entries.kind == Kind.COMPUTE
        assert entries.duration_ns[computed].tolist() == [2, 3, 2, 1]  # it stood from 3 to 5, and from 8 to the end
        assert {PROVENANCES[number] for number in entries.provenance[computed]} == {Provenance.RECORDED}

    def test_a_wait_beyond_the_end_is_another_step_s(self) -> None:
        graph = recorded()[0]
        first = replace(graph.nodes[0], is_async=True, completed_ns=5, waited_ns=25)
        entries = entries_of(replace(graph, nodes=(first,)), MESH, Source(until_ns=20))
        assert Kind.WAIT not in entries.kind and entries.duration_ns.clip(0).sum() == 20


class TestGroups:
    @pytest.mark.parametrize(
        ("ranks", "channel"),
        [((0, 1), "tp"), ((1, 3), "dp"), ((0, 1, 2, 3), "dp,tp"), ((2,), "dp[1]")],
    )
    def test_by_axes(self, ranks: tuple[int, ...], channel: str) -> None:
        assert channel_of(Group(name="g", ranks=ranks), MESH) == channel

    def test_some_of_an_axis(self) -> None:
        assert channel_of(Group(name="g", ranks=(1, 7)), Mesh.parse("pp=4,tp=2")) == "pp[0,3]"

    def test_half_of_a_large_axis_is_a_short_text(self) -> None:
        mesh = Mesh.parse("dp=8192")
        every_other = channel_of(Group(name="g", ranks=tuple(range(1, 8192, 2))), mesh)
        assert every_other == "dp[1-8191:2]"
        assert str(parse(every_other, mesh)) == every_other
        assert str(parse("dp[1,3,4,5,6,9]", mesh)) == "dp[1,3-6,9]"

    @pytest.mark.parametrize("ranks", [(0, 3), (0, 1, 2)])
    def test_what_the_mesh_does_not_explain(self, ranks: tuple[int, ...]) -> None:
        with pytest.raises(UsageError, match="is not aligned with axes of the mesh dp=2,tp=2") as caught:
            channel_of(Group(name="g", ranks=ranks, desc="mesh_odd"), MESH)
        assert "group 'odd'" in str(caught.value)

    def test_a_call_on_a_group_that_the_mesh_does_not_explain(self) -> None:
        job = Job(4)
        job.group("odd", (0, 3))
        job.call(group="odd")
        with pytest.raises(UsageError) as caught:
            entries_of(build_slice(job.logs[3], Moment(0), Moment(9)), MESH)
        assert str(caught.value) == (
            "rank 3 (dp=1 tp=1) issues all_reduce (0.1) at /job/train.py:42 in main on a group that the mesh lacks: "
            "group 'odd' (ranks 0, 3) is not aligned with axes of the mesh dp=2,tp=2"
        )

    def test_groups_of_the_same_ranks_are_told_apart_whoever_uses_which_first(self) -> None:
        """By torch's own numbers: ranks that use them in another order would hang, and not be taken to match."""
        job = Job(4)
        job.group("7", range(4))
        for group, ranks in (("0", {0, 1, 2}), ("7", {0, 1, 2, 3}), ("0", {3})):
            job.call(group=group, only=ranks)
        channels = {r: entries_of(build_slice(job.logs[r], Moment(0), Moment(9)), MESH).channels for r in (0, 3)}
        assert channels == {0: ("dp,tp", "dp,tp#1"), 3: ("dp,tp#1", "dp,tp")}

    def test_a_group_for_messages_alone_is_none_of_them(self) -> None:
        job = Job(4)
        job.group("7", range(4))
        job.point_to_point(0, 2)
        job.call(group="7")
        assert entries_of(build_slice(job.logs[0], Moment(0), Moment(9)), MESH).channels == ("dp+1", "dp,tp")

    def test_all_ranks_of_a_ring_say_the_same(self) -> None:
        """The last one's next is the first."""
        job = Job(8)
        for rank in range(8):
            job.point_to_point(rank, (rank + 1) % 8)
        mesh = Mesh.parse("cp=8")
        said = {
            frozenset(entries_of(build_slice(log, Moment(0), Moment(9)), mesh).channels) for log in job.logs.values()
        }
        assert said == {frozenset({"cp+1", "cp-1"})}

    def test_a_second_group_of_the_same_ranks_is_another_channel(self) -> None:
        job = Job(4)
        job.group("again", range(4))
        job.call()
        job.call(group="again")
        assert entries_of(build_slice(job.logs[0], Moment(0), Moment(9)), MESH).channels == ("dp,tp", "dp,tp#1")


class TestFolding:
    def test_ranks_that_did_the_same_are_one_class(self) -> None:
        graph = fold(MESH, slices_by_rank(recorded(), MESH))

        assert [c.name for c in graph.classes] == ["as rank 0"]
        assert graph.compute_ppm_at[:3].tolist() == [10**6] * 3 and graph.compute_ppm_at[3] > 10**6
        timeline = simulate(graph, ideal())
        assert timeline.computed_ns.tolist() == pytest.approx(_computed(recorded()), abs=20)
        assert timeline.fidelity.time_share(Provenance.RECORDED, "computation") == 1.0

    def test_one_that_did_more_is_told(self) -> None:
        slices = recorded()
        short = replace(slices[3], nodes=slices[3].nodes[:-1])
        with pytest.raises(UsageError, match=r"ranks 0, 1, 2 issue broadcast .* as #2, which rank 3 never answers"):
            fold(MESH, slices_by_rank([*slices[:3], short], MESH))

    def test_ranks_whose_tensors_differ_are_not_one_class(self) -> None:
        job = Job(4)
        job.call(without={3}, tensors=Tensors(dtype="float32"))
        job.call(only={3}, tensors=Tensors(dtype="int32"))
        with pytest.raises(UsageError, match=r"\(float32, SUM\) .*:42 in main, rank 3 issues .* \(int32, SUM\) .*:42"):
            fold(MESH, slices_by_rank([build_slice(job.logs[r], Moment(0), Moment(9)) for r in range(4)], MESH))

    def test_the_same_job_on_more_ranks(self) -> None:
        graph = fold(MESH, slices_by_rank(recorded(), MESH)).stretched("dp", 512)

        assert graph.mesh.world == 1024
        assert simulate(graph, ideal()).iteration_ns > 0
        with pytest.raises(UsageError, match="axis 'pp'"):
            graph.stretched("pp", 2)

    def test_what_differs_along_an_axis_cannot_be_stretched_there(self) -> None:
        by_rank = slices_by_rank(recorded(), MESH)
        graph = fold(MESH, by_rank | {rank: entries_of(_renamed(recorded()[rank]), MESH) for rank in (2, 3)})
        assert len(graph.classes) == 2
        with pytest.raises(UsageError, match=r"rank 0 .* and rank 2 .* differ along dp"):
            graph.stretched("dp", 4)


class TestStepsThatAreNotWhole:
    """Ranks 0 to 3 take step 1 whole, whatever they issue in it."""

    @pytest.fixture
    def built(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., JobGraph]:
        def build(job: Job, step: int | None = None) -> JobGraph:
            write_json(tmp_path / "run.json", {"emulated": {"world": 4, "mesh": {"dp": 2, "tp": 2}}})
            monkeypatch.setattr(builder.RunFolder, "rank_folders", lambda _run: [Path(str(r)) for r in job.ranks])
            monkeypatch.setattr(builder, "read_log", lambda folder, _newest=None: job.logs[int(folder.name)])
            return builder.build_graph(GraphRequest(run=tmp_path, step=step))

        return build

    def job(self, *left_out: int) -> Job:
        """Those left out do without the only call of step 1."""
        job = Job(4)
        job.steps(1)
        job.call(without=left_out)
        job.now_ns += 5 * MILLISECOND_NS
        for rank in job.ranks:
            job.next_step(rank)
        return job

    def test_a_rank_that_skips_its_only_call_is_waited_for(self, built: Callable[..., JobGraph]) -> None:
        job = self.job(2)
        job.exits()
        with pytest.raises(UsageError) as caught:
            built(job)
        assert str(caught.value) == (
            "rank 2 never issues all_reduce of 16 bytes on dp,tp at /job/train.py:42 in main, which ranks 0, 1, 3 "
            "wait for"
        )

    def test_also_in_a_step_before_the_one_that_the_graph_is_of(self, built: Callable[..., JobGraph]) -> None:
        job = self.job(2)
        job.call()
        for rank in job.ranks:
            job.next_step(rank)
        job.exits()
        with pytest.raises(
            UsageError, match=r"^in step 1, before the step of the graph: rank 2 never issues all_reduce .* at /job/"
        ):
            built(job)
        assert len(built(job, 2).classes) == 1

    def test_a_step_in_which_nobody_calls_is_computation(self, built: Callable[..., JobGraph]) -> None:
        job = self.job(0, 1, 2, 3)
        job.exits()
        graph = built(job)
        assert simulate(graph, ideal()).iteration_ns == 6.5 * MILLISECOND_NS
        assert graph.origin.doubts == ()

    def test_ranks_of_one_class_share_one_computing_time(self, built: Callable[..., JobGraph]) -> None:
        job = Job(4)
        job.steps(1)
        for _ in range(3):
            job.call(late_ns={1: 40 * MILLISECOND_NS, 3: 10 * MILLISECOND_NS})
            for rank in job.ranks:
                job.next_step(rank)
        job.exits()
        graph = built(job)
        assert (graph.compute_ppm_at == MILLION).all() and len(graph.classes) == 1
        (doubt,) = graph.origin.doubts
        assert doubt.startswith("the computing time of the class of rank 0: its ") and "took 1.0 to 41.0 ms" in doubt

    def test_parts_that_contradict_each_other(self, built: Callable[..., JobGraph]) -> None:
        """Unless a rule had the counts synthesized: then they must, and the graph says so."""
        job = Job(4)
        job.steps(1)
        job.call("alltoall_base_", tensors=Tensors(shape=(8,)))
        for rank, log in job.logs.items():
            sizes = {"parts_sent": [8, 8, 8, 8], "parts_received": [8, 8, 8, 8]}
            if rank == 2:
                sizes["parts_received"] = [8, 12, 4, 8]
            job.note(rank, PARTS, identity=str(log.collectives[-1].identity), **sizes)
            job.next_step(rank)
        job.exits()
        with pytest.raises(
            MismatchError, match=r"rank 1 sends 8 bytes to rank 2 in .*, which expects 12 bytes from it"
        ):
            built(job)
        for rank in job.ranks:
            row = {"collective": "all_to_all_single", "axis": "ep", "how": synthesis.BALANCED, "where": "", "count": 1}
            job.note(rank, SHAPING, rows=[row])
        assert any("sizes and memory" in doubt for doubt in built(job).origin.doubts)

    def test_a_rank_that_ended_early(self, built: Callable[..., JobGraph]) -> None:
        job = self.job()
        job.call(without={2})
        for rank in (0, 1, 3):
            job.next_step(rank)
        job.exits()
        with pytest.raises(
            UsageError, match=r"^rank 2 \(dp=1 tp=0\) issued nothing in step 2: its log ends in step 2, "
        ):
            built(job, 2)

    @pytest.mark.parametrize(
        ("how", "said"),
        [
            ("raises", "failed with ValueError: no, in step 2, after all_reduce at /job/train.py:42 in main"),
            ("code", "ended with code 7, in step 2"),
            ("killed", "has no end in its log, as after a signal, in step 2"),
            ("memory", "ran out of memory with OutOfMemoryError: too much, in step 2"),
        ],
    )
    def test_a_rank_that_died_is_told(self, built: Callable[..., JobGraph], how: str, said: str) -> None:
        """The graph is of the last step that it ended, and no result of it goes without that."""
        job = self.job()
        if how == "raises":
            job.raises(2)
        elif how == "memory":
            job.note(2, "incident", incident="oom", type="OutOfMemoryError", text="too much\nand more")
        for rank in job.ranks:
            if rank != 2 or how not in ("killed", "raises", "memory"):
                job.note(rank, "exit", code=7 if rank == 2 else 0)
        graph = built(job)
        (doubt,) = graph.origin.doubts
        assert doubt.startswith(f"the steps after step 1: rank 2 (dp=1 tp=0) {said}")
        assert f"not reliable: {doubt}" in simulate(graph, ideal()).fidelity.lines()
        with pytest.raises(UsageError, match=r"^step 2 is not complete: rank 2 \(dp=1 tp=0\) ") as caught:
            built(job, 2)
        assert said in str(caught.value) and caught.value.hint == "choose an earlier one: its last complete step is 1"

    @pytest.mark.parametrize(("first", "how"), [(1, "raises"), (3, "killed")])
    def test_who_died_first_is_told_first(self, built: Callable[..., JobGraph], first: int, how: str) -> None:
        """Rank 0's call fails because of it; without it the launcher ended rank 2."""
        job = self.job()
        job.call(only={0}, done=False)
        job.logs[0].collectives[-1] = replace(job.logs[0].collectives[-1], state=State.FAILED)
        job.raises(0, "RuntimeError", "Connection closed by peer " * 9)
        if how == "raises":
            job.raises(first)
        for rank in {1, 2, 3} - {first, 2}:
            job.note(rank, "exit", code=0)
        if how == "killed":
            job.note(2, "exit", code=0)
        doubts = built(job).origin.doubts
        assert f": rank {first} " in doubts[0]
        assert (
            ": rank 0 " in doubts[-1] and "Connection closed by peer" in doubts[-1] and "..., in step 2" in doubts[-1]
        )
        with pytest.raises(UsageError, match=rf"^step 2 is not complete: rank {first} "):
            built(job, 2)

    def test_ranks_that_go_on_without_another(self, built: Callable[..., JobGraph]) -> None:
        job = self.job()
        for _ in range(3):
            job.call(without={2})
            for rank in (0, 1, 3):
                job.next_step(rank)
        job.exits()
        (doubt,) = built(job).origin.doubts
        assert "rank 2 (dp=1 tp=0) ended in step 2" in doubt and doubt.endswith("while others continued to step 5")

    def test_ranks_that_would_wait_for_each_other(self, built: Callable[..., JobGraph]) -> None:
        """Two groups of the same ranks, by one of them in the other order."""
        job = self.job()
        job.group("7", range(4))
        for group, ranks in (("0", {0, 1, 2}), ("7", {0, 1, 2, 3}), ("0", {3})):
            job.call(group=group, only=ranks)
        for rank in job.ranks:
            job.next_step(rank)
        job.exits()
        with pytest.raises(UsageError, match="deadlock") as caught:
            built(job)
        assert "rank 0 (dp=0 tp=0)" in str(caught.value) and "rank 3 (dp=1 tp=1)" in str(caught.value)
        assert str(caught.value).count("at /job/train.py:42 in main") >= 2

    def test_what_is_never_waited_for(self, built: Callable[..., JobGraph]) -> None:
        job = Job(4)
        job.steps(1)
        inside = Frame("/x/site-packages/torch/distributed/distributed_c10d.py", 9, "all_reduce")
        job.call(frames=(inside, LINE))
        for rank in job.ranks:
            job.next_step(rank)
        calls = job.logs[1].collectives
        calls[-1] = replace(calls[-1], is_async=True)
        for rank in (0, 2, 3):
            last = job.logs[rank].collectives[-1]
            job.logs[rank].collectives[-1] = replace(last, is_async=True, time_waited_ns=last.time_completed_ns)
        job.exits()
        (doubt,) = built(job).origin.doubts
        assert doubt == (
            "the result of all_reduce at /job/train.py:42 in main when it is used: rank 1 never waits "
            "for it in the logs"
        )


class TestOfARun:
    @pytest.fixture
    def run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """Two of four ranks have logs: of two whole steps and the start of a third."""
        job = Job(4)
        job.steps(2)
        job.call()
        job.exits()
        write_json(tmp_path / "run.json", {"emulated": {"world": 4, "mesh": {"dp": 2, "tp": 2}}})
        monkeypatch.setattr(builder.RunFolder, "rank_folders", lambda _run: [Path("0"), Path("2")])
        monkeypatch.setattr(builder, "read_log", lambda folder, _newest=None: job.logs[int(folder.name)])
        return tmp_path

    def test_an_iteration_goes_from_step_to_step(self, run: Path) -> None:
        graph = builder.build_graph(GraphRequest(run=run, alike=("tp",)))

        assert str(graph.mesh) == "dp=2,tp=2"
        (only,) = graph.classes
        assert int(only.entries.communicates.sum()) == 1
        assert int(only.entries.duration_ns.clip(0).sum()) == 11 * MILLISECOND_NS, "10 between steps, 1 before a call"
        found = simulate(graph, ideal()).fidelity
        assert found.time_share(Provenance.REAL, "computation") == 0.5, "two of the four ranks only by --alike"

    def test_without_the_others_it_says_who_is_missing(self, run: Path) -> None:
        with pytest.raises(UsageError, match=r"2 ranks have no class; the first is rank 1 \(dp=0 tp=1\)"):
            builder.build_graph(GraphRequest(run=run))
        with pytest.raises(
            UsageError, match=r"rank 0 .* issued nothing in step 7: its log ends in step 2, after all_red"
        ):
            builder.build_graph(GraphRequest(run=run, step=7))
        (run / "run.json").write_text("{}")
        with pytest.raises(UsageError, match=r"the mesh of .* is unknown"):
            builder.build_graph(GraphRequest(run=run))

    def test_ranks_that_are_not_alike_do_not_stand_for_others(self) -> None:
        by_rank = slices_by_rank(recorded(), MESH)
        odd: dict[int, Entries] = {0: by_rank[0], 1: entries_of(_renamed(recorded()[1]), MESH)}
        with pytest.raises(UsageError, match=r"rank 0 .* and rank 1 .* issued different collectives"):
            builder.replicate(MESH, odd, ["tp"])
        with pytest.raises(UsageError, match="axis 'ep'"):
            builder.replicate(MESH, odd, ["ep"])


def _computed(slices: list[GraphSlice]) -> list[int]:
    return [
        sum(b.issued_ns - (a.completed_ns or 0) for a, b in zip(s.nodes, s.nodes[1:], strict=False)) for s in slices
    ]


def _renamed(graph: GraphSlice) -> GraphSlice:
    """Another program: one call from a second thread."""
    return replace(graph, nodes=(*graph.nodes[:-1], replace(graph.nodes[-1], thread=1)))
