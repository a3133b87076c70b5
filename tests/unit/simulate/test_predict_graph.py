"""Job graphs: classes that do not fit together are told by ranks and lines, and a graph is saved and read back."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.simulate.cluster.cluster import example, ideal
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Mesh

Write = Callable[[EntryWriter], object]


def job(mesh: str, *classes: tuple[Write | None, Iterable[int]]) -> JobGraph:
    named = []
    for number, (write, ranks) in enumerate(classes):
        writer = EntryWriter()
        if write is not None:
            write(writer)
        named.append((RankClass(name=f"c{number}", entries=writer.done()), ranks))
    return JobGraph.build(Mesh.parse(mesh), named)


def reduce(size_bytes: int = 8, op: str = "all_reduce", channel: str = "dp") -> Write:
    return lambda writer: writer.collective(op, channel, size_bytes, line=f"train.py:{size_bytes} in step")


class TestMismatches:
    def test_a_collective_that_a_member_never_issues(self) -> None:
        with pytest.raises(UsageError) as caught:
            job("dp=4", (reduce(), [0, 1, 3]), (None, [2]))
        assert str(caught.value) == (
            "rank 2 never issues all_reduce of 8 bytes on dp at train.py:8 in step, which ranks 0, 1, 3 wait for"
        )

    def test_another_size(self) -> None:
        with pytest.raises(UsageError) as caught:
            job("dp=4", (reduce(8), [0, 1]), (reduce(16), [2, 3]))
        assert str(caught.value) == (
            "#1 on dp does not match: ranks 0, 1 issue all_reduce of 8 bytes on dp at train.py:8 in step, "
            "ranks 2, 3 issue all_reduce of 16 bytes on dp at train.py:16 in step"
        )

    def test_another_operation(self) -> None:
        with pytest.raises(UsageError, match=r"#1 on dp .* rank 1 issues all_gather"):
            job("dp=2", (reduce(), [0]), (reduce(op="all_gather"), [1]))

    def test_other_tensors_of_the_same_size(self) -> None:
        def of(detail: str) -> Write:
            return lambda writer: writer.collective("all_reduce", "dp", 8, line="train.py:3", detail=detail)

        with pytest.raises(UsageError) as caught:
            job("dp=3", (of("float32, SUM"), [0, 2]), (of("int32, SUM"), [1]))
        assert str(caught.value) == (
            "#1 on dp does not match: ranks 0, 2 issue all_reduce of 8 bytes (float32, SUM) on dp at train.py:3, "
            "rank 1 issues all_reduce of 8 bytes (int32, SUM) on dp at train.py:3"
        )
        job("dp=2", (of("float32, SUM"), [0]), (of(""), [1]))  # of one of them nothing is known

    def test_sizes_may_differ_where_each_has_its_own(self) -> None:
        job("dp=2", (reduce(8, "all_to_all"), [0]), (reduce(16, "all_to_all"), [1]))

    def test_objects_of_other_sizes(self) -> None:
        def gathered(size_bytes: int) -> Write:
            return lambda w: w.collective("all_gather", "dp", size_bytes, detail="uint8, objects")

        job("dp=2", (gathered(37), [0]), (gathered(38), [1]))

    def test_what_one_sends_is_what_the_other_expects(self) -> None:
        def moves(sent: str, received: str) -> Write:
            line = "moe.py:9 in route"
            return lambda w: w.collective("all_to_all", "ep", 40, line=line, splits=f"{sent}>{received}")

        fits = [(moves("10,30", "10,8"), [0]), (moves("8,20", "30,20"), [1])]
        job("ep=2", *fits)
        with pytest.raises(UsageError) as caught:
            job("ep=2", (moves("10,30", "10,8"), [0]), (moves("8,20", "24,20"), [1]))
        assert str(caught.value) == (
            "#1 on ep does not match: rank 0 sends 30 bytes to rank 1 in all_to_all of 40 bytes on ep at moe.py:9 in "
            "route, which expects 24 bytes from it in all_to_all of 40 bytes on ep at moe.py:9 in route"
        )

    def test_ranks_of_one_class_send_each_other_what_they_expect(self) -> None:
        def echoed(splits: str) -> Write:
            return lambda w: w.collective("all_to_all", "ep", 40, splits=splits)

        job("dp=2,ep=4", (echoed("10,10,10,10>10,10,10,10"), range(8)))
        with pytest.raises(UsageError, match=r"rank 0 sends 30 bytes to rank 1 .*, which expects 10 bytes"):
            job("dp=2,ep=4", (echoed("10,30,0,0>10,30,0,0"), range(8)))  # each receives what it sends

    def test_groups_are_in_the_order_of_the_ranks(self) -> None:
        """Of ranks 0 to 3 over both axes, 1 and 2 change places with the order of the axes."""
        graph = Mesh.parse("a=2,b=2", order="b,a")
        sent = {0: "1,2,3,4>1,5,9,13", 1: "5,6,7,8>2,6,10,14", 2: "9,10,11,12>3,7,11,15", 3: "13,14,15,16>4,8,12,16"}
        classes = []
        for rank, splits in sent.items():
            writer = EntryWriter()
            writer.collective("all_to_all", "a,b", 40, splits=splits)
            classes.append((RankClass(name=f"c{rank}", entries=writer.done()), [rank]))
        JobGraph.build(graph, classes)

    def test_one_ended_early(self) -> None:
        def twice(writer: EntryWriter) -> None:
            reduce(8)(writer)
            reduce(8)(writer)

        with pytest.raises(
            UsageError,
            match=r"rank 1 issues all_red.* as #2, which rank 0 never answers \(the last there is #1, all_reduce .*\)",
        ):
            job("dp=2", (reduce(8), [0]), (twice, [1]))

    def test_an_unmatched_send(self) -> None:
        with pytest.raises(UsageError) as caught:
            job("pp=2,dp=2", (lambda w: w.send("pp+1", 4, line="pipe.py:7"), [0, 1]), (None, [2, 3]))
        assert "ranks 0, 1 issue send of 4 bytes to pp+1 at pipe.py:7 as #1, which ranks 2, 3 never answer" in str(
            caught.value
        )

    def test_an_unmatched_receive(self) -> None:
        with pytest.raises(UsageError, match=r"rank 0 issues recv of 4 bytes from pp\+1 as #1, which rank 1 never"):
            job("pp=2", (lambda w: w.recv("pp+1", 4), [0]), (None, [1]))

    def test_members_that_are_not_in_the_group(self) -> None:
        with pytest.raises(UsageError, match=r"rank 1 issues .* outside the group pp\[0,2\]") as caught:
            job("pp=3", (reduce(channel="pp[0,2]"), [0, 1, 2]))
        assert "leave pp out of --alike" in caught.value.hint

    def test_a_group_for_a_pair_and_a_pair_for_a_group(self) -> None:
        with pytest.raises(UsageError, match="is a single peer"):
            job("pp=2", (reduce(channel="pp+1"), [0, 1]))
        with pytest.raises(UsageError, match="names a group"):
            job("pp=2", (lambda w: w.send("pp", 1), [0]), (lambda w: w.recv("pp", 1), [1]))

    def test_ranks_that_wait_for_each_other(self) -> None:
        def crossed(first: str, second: str) -> Write:
            def write(writer: EntryWriter) -> None:
                for tag in (first, second):
                    writer.collective("barrier", f"dp#{tag}", 0, stream="compute", line=f"train.py:{tag}")

            return write

        graph = job("dp=2", (crossed("1", "2"), [0]), (crossed("2", "1"), [1]))
        with pytest.raises(UsageError, match="deadlock") as caught:
            simulate(graph, ideal())
        assert "rank 0 (dp=0) waits in entry 0, barrier of 0 bytes on dp#1 at train.py:1" in str(caught.value)
        assert "rank 1 (dp=1) waits in entry 0, barrier of 0 bytes on dp#2 at train.py:2" in str(caught.value)


class TestClasses:
    def test_every_rank_has_one(self) -> None:
        with pytest.raises(UsageError, match=r"1 rank has no class; the first is rank 3 \(dp=3\)"):
            job("dp=4", (None, [0, 1, 2]))
        with pytest.raises(UsageError, match="rank 1 is in class 'c0' and in 'c1'"):
            job("dp=2", (None, [0, 1]), (None, [1]))
        with pytest.raises(UsageError, match="rank 4 is not in the mesh"):
            job("dp=4", (None, range(5)))

    def test_a_captured_rank_among_many_others(self) -> None:
        """One rank with a class of its own: its groups meet over several cohorts."""

        def step(compute_ns: int) -> Write:
            def write(writer: EntryWriter) -> None:
                writer.compute(compute_ns)
                writer.collective("all_reduce", "tp", 0)
                writer.collective("all_reduce", "dp", 0)

            return write

        others = [rank for rank in range(64) if rank != 37]
        graph = job("dp=8,tp=8", (step(100), others), (step(900), [37]))
        timeline = simulate(graph, ideal())

        tp_mates = {rank for rank in range(64) if rank // 8 == 37 // 8} - {37}
        assert {r for r in range(64) if timeline.late_ns["tp"][r] == 800} == tp_mates
        assert {r for r in range(64) if timeline.late_ns["dp"][r] == 800} == set(range(64)) - tp_mates - {37}


class TestWriting:
    @pytest.mark.parametrize(
        "write",
        [
            lambda w: w.compute(-1),
            lambda w: w.collective("all_reduce", "dp", -1),
            lambda w: w.wait(0),
            lambda w: w.wait(w.memory(8)),
            lambda w: w.collective("all_reduce", "dp", 1, stream="compute", issuer="side"),
            lambda w: w.collective("all_reduce", "dp", 1, issuer="free"),
            lambda w: w.compute(1, stream="free"),
        ],
    )
    def test_what_cannot_be(self, write: Write) -> None:
        with pytest.raises(UsageError):
            write(EntryWriter())

    def test_the_peak_is_of_the_program_order(self) -> None:
        writer = EntryWriter()
        for size_bytes in (100, 50, -100, 30, -80):
            writer.memory(size_bytes)
        assert writer.done().peak_bytes() == 150


class TestTheFile:
    GRAPH = gpt_job(
        Mesh.parse("pp=4,dp=4,tp=2", order="tp,dp,pp"),
        GptShape(layers=8, hidden=512, microbatches=6),
        compute_ppm=np.arange(10**6, 10**6 + 32),
    )

    def saved(self, folder: Path) -> Path:
        path = folder / "graph.npz"
        graph_file.save(self.GRAPH, path)
        return path

    def test_numpy_gets_arrays_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Before 2.1 it saves every argument with a name as an array: no such file could be loaded."""
        given: dict[str, Any] = {}
        monkeypatch.setattr(np, "savez_compressed", lambda _file, **named: given.update(named))
        self.saved(tmp_path)
        assert "class_at" in given and {type(value) for value in given.values()} == {np.ndarray}

    def test_there_and_back(self, tmp_path: Path) -> None:
        read = graph_file.load(self.saved(tmp_path))

        assert str(read.mesh) == str(self.GRAPH.mesh)
        assert [c.name for c in read.classes] == [c.name for c in self.GRAPH.classes]
        ours, theirs = (simulate(graph, example()) for graph in (self.GRAPH, read))
        assert np.array_equal(ours.ended_ns, theirs.ended_ns)
        assert list(tmp_path.iterdir()) == [tmp_path / "graph.npz"]

    def changed(self, path: Path, **arrays: Any) -> Path:
        with np.load(path) as held:
            kept = {name: held[name] for name in held.files}
        np.savez(path, **{name: value for name, value in (kept | arrays).items() if value is not None})
        return path

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("class_at", None, "class_at is missing"),
            ("class_at", np.full(32, 9), "class_at contains a number outside 0 to 3"),
            ("class_at", np.zeros(31, dtype=np.int64), "class_at must be 32 numbers"),
            ("compute_ppm_at", np.zeros(32, dtype=np.int64), "compute_ppm_at contains"),
            ("0.kind", np.zeros(3, dtype=np.int32), "0.kind must be"),
            ("about", np.frombuffer(b'{"format": 9}', dtype=np.uint8), "has format 9"),
            ("about", np.frombuffer(b"{", dtype=np.uint8), "is not JSON"),
        ],
    )
    def test_damage_is_told(self, tmp_path: Path, name: str, value: Any, said: str) -> None:
        with pytest.raises(CapsuleError, match=said):
            graph_file.load(self.changed(self.saved(tmp_path), **{name: value}))

    @pytest.mark.parametrize("column", ["kind", "stream", "issuer", "channel", "op", "label", "line"])
    def test_a_number_that_points_outside(self, tmp_path: Path, column: str) -> None:
        values = getattr(self.GRAPH.classes[0].entries, column)
        wrong = np.full_like(values, 120)
        with pytest.raises(CapsuleError, match=f"0.{column}|0.kind"):
            graph_file.load(self.changed(self.saved(tmp_path), **{f"0.{column}": wrong}))

    @pytest.mark.parametrize("target", [-1, 10**6])
    def test_a_wait_for_nothing(self, tmp_path: Path, target: int) -> None:
        wrong = np.full_like(self.GRAPH.classes[0].entries.target, target)
        with pytest.raises(CapsuleError, match=r"0\.target"):
            graph_file.load(self.changed(self.saved(tmp_path), **{"0.target": wrong}))

    def test_nothing_is_unpickled(self, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "ran",))

        path = tmp_path / "graph.npz"
        np.savez(path, allow_pickle=True, about=np.array([Trap()], dtype=object))
        with pytest.raises(CapsuleError, match="is not a saved graph"):
            graph_file.load(path)
        path.write_bytes(pickle.dumps(Trap()))
        with pytest.raises(CapsuleError, match="is not a saved graph"):
            graph_file.load(path)
        assert not (tmp_path / "ran").exists()

    def test_a_file_that_would_fill_the_memory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(graph_file, "MAX_GRAPH_BYTES", 1 << 20)
        path = self.changed(self.saved(tmp_path), more=np.zeros(1 << 18))
        with pytest.raises(CapsuleError, match="unpacks to more than 1 MiB"):
            graph_file.load(path)

    @pytest.mark.parametrize("text", [b"", b"PK\x03\x04 nothing"])
    def test_what_is_no_graph(self, tmp_path: Path, text: bytes) -> None:
        (tmp_path / "g").write_bytes(text)
        with pytest.raises(CapsuleError, match="is not a saved graph"):
            graph_file.load(tmp_path / "g")
        with pytest.raises(CapsuleError, match="is not a saved graph"):
            graph_file.load(tmp_path / "none")
