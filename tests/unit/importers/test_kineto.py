"""Traces of torch.profiler as logs. The events have the fields that torch 2.13 writes; times are in microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prismdbg.diagnosis.mismatches import Mismatch
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import json_stream, kineto
from prismdbg.importers.formats import is_imported, read_job
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.evidence import gather
from prismdbg.model.collective import Identity, TensorMeta
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.mesh import Mesh

BASE_NS = 1_790_857_026_000_000_000
BEGAN_US = 4_753_662_400_000.0
WORLD = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo,cuda:gloo", "pg_size": 2, "ranks": [0, 1]}
PAIRS = WORLD | {"pg_name": "1", "pg_desc": "pairs"}


def event(
    name: str, at: float, lasts: float = 5.0, *, cat: str = "cpu_op", tid: int = 7, **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X", "cat": cat, "name": name, "pid": 70, "tid": tid, "ts": BEGAN_US + at, "dur": lasts, "args": args,
    }  # fmt: skip


def all_reduce(at: float, number: int, *, waits: float = 20.0, elements: int = 8) -> list[dict[str, Any]]:
    """As gloo's: the call, and its transfer in a thread of gloo."""
    call: dict[str, Any] = {
        "Record function id": number,
        "Concrete Inputs": ["", "", "", "", "True", "-1"],
        "Input type": ["TensorList", "", "", "", "Scalar", "Scalar"],
        "Input Dims": [[[elements]], [], [], [], [], []],
    }
    work: dict[str, Any] = {
        "Record function id": number + 1,
        "Input type": ["c10::BFloat16"],
        "Input Dims": [[elements]],
    }
    return [
        event("c10d::allreduce_", at, **call),
        event("gloo:all_reduce", at + 1, waits, cat="user_annotation", tid=9, **work),
    ]


def described(at: float, seq: int, group: str, **other: Any) -> dict[str, Any]:
    """As NCCL's: what a backend says of a call that is made at the same time."""
    said: Any = {
        "External id": 100 + seq, "Process Group Name": group, "In split size": "[]", "Out split size": "[]",
        "Out msg nelems": 4, "Process Group Ranks": "[0, 1]", "Group size": 2, "Global rank stride": 1, "Seq": seq,
        "Collective name": "all_gather", "Process Group Description": "pairs", "dtype": "Float", "Rank": 0,
        "In msg nelems": 2, "Global rank start": 0, "Is asynchronized op": 0,
    }  # fmt: skip
    return event("record_param_comms", at + 1, 2.0, **said | other)


def all_gather(at: float, seq: int, group: str = "1", **other: Any) -> list[dict[str, Any]]:
    call: dict[str, Any] = {
        "Concrete Inputs": ["", "", "", "False", "-1"],
        "Input type": ["", "TensorList", "", "Scalar", "Scalar"],
        "Input Dims": [[], [[2]], [], [], []],
    }
    return [event("c10d::allgather_", at, **call), described(at, seq, group, **other)]


def step(number: int, at: float, lasts: float) -> dict[str, Any]:
    return event(f"ProfilerStep#{number}", at, lasts, cat="user_annotation")


def trace(rank: int, *events: dict[str, Any], groups: tuple[Any, ...] = (WORLD,), host: str = "n1") -> dict[str, Any]:
    return {
        "schemaVersion": 1,
        "deviceProperties": [],
        "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 2, "pg_count": 1, "pg_config": list(groups)},
        "host_name": host,
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": [{"ph": "M", "name": "process_name", "pid": 70, "args": {"name": "python"}}, *events],
        "traceName": f"trace_{rank}.json",
    }


def write(folder: Path, *traces: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    for place, each in enumerate(traces):
        (folder / f"host_7{place}.179.pt.trace.json").write_text(json.dumps(each))
    return folder


def read(folder: Path) -> ImportedJob:
    job = read_job(folder)
    assert job is not None
    return job


def diagnosed(folder: Path) -> Diagnosis:
    return diagnose(gather(folder))


def test_a_call_of_gloos_is_what_the_trace_says(tmp_path: Path) -> None:
    python = [
        event("train.py(12): <module>", 0, 500, cat="python_function"),
        event("torch/distributed/distributed_c10d.py(3000): all_reduce", 90, 50, cat="python_function"),
        event("<built-in method allreduce>", 95, 40, cat="python_function"),
        event("train.py(70): other", 300, 10, cat="python_function"),
    ]
    events = [step(4, 50, 100), *python, *all_reduce(100, 31)]
    job = read(write(tmp_path / "t", trace(0, *events), trace(1, *events)))
    (call,) = job.logs[0].collectives
    assert (str(call.moment), call.identity, call.op, call.is_async) == ("4.1", Identity("0", 0), "allreduce_", True)
    assert call.inputs == call.outputs == (TensorMeta((8,), "bfloat16"),)
    assert call.duration_ns == 21_000
    assert job.logs[0].wall_offset_ns + call.time_created_ns == BASE_NS + round(BEGAN_US * 1000) + 100_000
    assert [str(frame) for frame in call.frames] == [
        ".../site-packages/torch/distributed/distributed_c10d.py:3000 in all_reduce",
        "train.py:12 in <module>",
    ]
    assert str(call.source) == "train.py:12 in <module>"
    assert [mark.step for mark in job.logs[0].steps] == [4, 5]
    assert job.hosts == {0: "n1", 1: "n1"}


def unnumbered(*events: dict[str, Any]) -> list[dict[str, Any]]:
    """As torch writes them while no observer of execution traces is registered."""
    return [each | {"args": each["args"] | {"Record function id": 0}} for each in events]


def test_calls_without_ids_end_with_the_transfers_that_follow_them_in_order(tmp_path: Path) -> None:
    queued = [call for at in (100, 107, 300) for call in all_reduce(at, 1)]
    queued[1]["ts"], queued[3]["ts"] = BEGAN_US + 110, BEGAN_US + 131  # the first was begun when both were made
    whole = trace(0, *unnumbered(*queued))
    alone = read(write(tmp_path / "one", whole))
    assert [call.duration_ns for call in alone.logs[0].collectives] == [30_000, 44_000, 21_000]
    assert not any("ended is unknown" in gap for gap in alone.gaps)
    several = read(write(tmp_path / "several", trace(0, *unnumbered(*queued), groups=(WORLD, PAIRS))))
    assert [call.duration_ns for call in several.logs[0].collectives] == [5_000, 5_000, 21_000]
    assert any("when 2 calls ended is unknown" in gap for gap in several.gaps)


def test_calls_without_ids_have_no_known_end_where_a_transfer_is_missing(tmp_path: Path) -> None:
    events = unnumbered(*all_reduce(100, 1), *all_reduce(200, 1))
    for lacking, found in ((events[:-1], [5_000, 5_000]), (events[1:], [5_000])):
        job = read(write(tmp_path / str(len(found)), trace(0, *lacking)))
        assert [call.duration_ns for call in job.logs[0].collectives] == found
    early = [*unnumbered(*all_reduce(100, 1))[1:], *unnumbered(*all_reduce(200, 1))[:1]]
    job = read(write(tmp_path / "early", trace(0, *early)))
    assert [call.duration_ns for call in job.logs[0].collectives] == [5_000], "no transfer begins before its call"


def test_why_names_the_late_rank_of_traces_without_ids(tmp_path: Path) -> None:
    times = [500_000.0 * number for number in range(12)]
    early = unnumbered(*(call for at in times for call in all_reduce(at, 1, waits=200_010)))
    late = unnumbered(*(call for at in times for call in all_reduce(at + 200_000, 1, waits=10)))
    marks = [step(number, at - 1000, 490_000) for number, at in enumerate(times, 1)]
    (verdict,) = diagnosed(write(tmp_path / "s", trace(0, *marks, *early), trace(1, *marks, *late))).verdicts
    assert verdict.ranks[0] == 1


def test_element_types_that_a_trace_does_not_say_are_no_mismatch(tmp_path: Path) -> None:
    pairs = [dict(each) for at in (10, 100, 200) for each in all_reduce(at, at)]
    calls_alone = [each for each in pairs if each["name"].startswith("c10d::")]
    assert diagnosed(write(tmp_path / "t", trace(0, *pairs), trace(1, *calls_alone))).verdicts == ()
    larger = all_reduce(10, 10, elements=9)[:1]
    (verdict,) = diagnosed(write(tmp_path / "m", trace(0, *pairs), trace(1, *larger))).verdicts
    assert isinstance(verdict, Mismatch)
    assert verdict.difference == "input elements 9 instead of 8"


def test_a_call_that_its_backend_describes_has_group_and_number(tmp_path: Path) -> None:
    events = [*all_gather(10, 41), event("ncclDevKernel_AllGather", 30, 50, cat="kernel", tid=20, **{
        "External id": 141, "Collective name": "all_gather"})]  # fmt: skip
    job = read(write(tmp_path / "t", *(trace(rank, *events, groups=(WORLD, PAIRS)) for rank in (0, 1))))
    (call,) = job.logs[1].collectives
    assert (call.identity, call.op, call.duration_ns) == (Identity("1", 41), "allgather_", 70_000)
    sent, received = TensorMeta((2,), "float32", "cuda"), TensorMeta((4,), "float32", "cuda")
    assert (call.inputs, call.outputs) == ((sent,), (received,))
    assert not any("not numbered" in gap for gap in job.gaps)


def test_a_description_alone_is_a_call_and_a_wait_is_none(tmp_path: Path) -> None:
    alone = [described(10, 3, "0"), described(20, 3, "0", **{"Collective name": "wait"})]
    job = read(write(tmp_path / "t", trace(0, *alone), trace(1, *alone)))
    (call,) = job.logs[0].collectives
    assert (call.op, call.identity) == ("allgather_", Identity("0", 3))
    assert any("when 2 calls ended is unknown" in gap for gap in job.gaps)
    assert not job.hosts, "waits are not compared where nothing says when they ended"


def test_members_that_torch_cut_are_those_of_the_stride(tmp_path: Path) -> None:
    cut = {"Process Group Ranks": "[0, 2, ..., 6]", "Global rank stride": 2, "Group size": 4}
    job = read(write(tmp_path / "t", trace(0, *all_gather(10, 1, "9", **cut))))
    assert job.logs[0].groups["9"].ranks == (0, 2, 4, 6)


def test_groups_of_one_name_and_other_members_are_two(tmp_path: Path) -> None:
    halves = [PAIRS | {"ranks": ranks} for ranks in ([0, 1], [2, 3])]
    other = [event("c10d::broadcast_", 10), described(10, 4, "1", **{"Collective name": "broadcast"})]
    calls = [all_gather(10, 4), all_gather(10, 4), other, other]
    traces = [trace(rank, *events, groups=(halves[rank // 2],)) for rank, events in enumerate(calls)]
    job = read(folder := write(tmp_path / "t", *traces))
    assert {name: group.ranks for name, group in job.logs[0].groups.items()} == {"1 [0,1]": (0, 1), "1 [2,3]": (2, 3)}
    assert [log.collectives[0].group for log in job.logs.values()] == ["1 [0,1]"] * 2 + ["1 [2,3]"] * 2
    assert diagnosed(folder).verdicts == ()


def test_calls_that_only_one_window_has_are_left_out(tmp_path: Path) -> None:
    first = [call for seq in (3, 4, 5) for call in all_gather(10.0 * seq, seq)]
    second = [call for seq in (4, 5, 6, 7) for call in all_gather(10.0 * seq, seq)]
    folder = write(tmp_path / "t", trace(0, *first, groups=(PAIRS,)), trace(1, *second, groups=(PAIRS,)))
    job = read(folder)
    assert [[call.identity.seq for call in log.collectives] for log in job.logs.values()] == [[4, 5], [4, 5]]
    assert any(gap.startswith("3 calls at the ends of the windows") for gap in job.gaps)
    assert diagnosed(folder).verdicts == ()


def test_where_the_group_is_not_told_nothing_is_compared_that_may_differ(tmp_path: Path) -> None:
    groups = (WORLD, WORLD | {"pg_name": "2", "ranks": [0]})
    both = trace(0, *all_reduce(10, 1), *all_reduce(20, 3), groups=groups), trace(1, *all_reduce(10, 1), groups=groups)
    job = read(write(tmp_path / "t", *both))
    assert [log.collectives[0].group for log in job.logs.values()] == ["not told (rank 0)", "0"]
    assert any("does not say in which of several groups" in gap for gap in job.gaps)
    alike = read(write(tmp_path / "a", *(trace(rank, *all_reduce(10, 1), groups=(WORLD, PAIRS)) for rank in (0, 1))))
    assert alike.logs[0].collectives[0].identity == alike.logs[1].collectives[0].identity


def test_why_finds_a_call_that_does_not_match_and_a_rank_that_is_late(tmp_path: Path) -> None:
    mismatch = write(tmp_path / "m", trace(0, *all_reduce(10, 1)), trace(1, *all_reduce(10, 1, elements=9)))
    assert [verdict.kind for verdict in diagnosed(mismatch).verdicts] == ["mismatch"]
    times = [500_000.0 * number for number in range(12)]
    early = [call for n, at in enumerate(times) for call in all_reduce(at, 2 * n, waits=200_010)]
    late = [call for n, at in enumerate(times) for call in all_reduce(at + 200_000, 2 * n, waits=10)]
    marks = [step(number, at - 1000, 490_000) for number, at in enumerate(times, 1)]
    slow = write(tmp_path / "s", trace(0, *marks, *early), trace(1, *marks, *late))
    (verdict,) = diagnosed(slow).verdicts
    assert verdict.ranks[0] == 1
    ahead = [each | {"ts": each["ts"] + 7e6} for each in (*marks, *late)]
    other = write(tmp_path / "o", trace(0, *marks, *early), trace(1, *ahead, host="n2"))
    assert diagnosed(other).verdicts[0].ranks[0] == 1, "clocks of two machines are compared by what ended together"


@pytest.mark.parametrize(
    ("op", "title", "told"),
    [("allgather_", "all_gather", 1), ("reduce_scatter_", "reduce_scatter", 0)],  # the other list is not in a trace
)
def test_a_graph_has_all_bytes_of_a_call_of_which_one_part_is_told(
    tmp_path: Path, op: str, title: str, told: int
) -> None:
    dims: list[Any] = [[], [], [], [], []]
    dims[told] = [[1000]]
    types = ["TensorList" if each else "" for each in dims]
    call: dict[str, Any] = {"Record function id": 3, "Input type": types, "Input Dims": dims}
    work: dict[str, Any] = {"Record function id": 4, "Input type": ["float"], "Input Dims": [[1000]]}
    events = [
        step(0, 0, 500),
        event(f"c10d::{op}", 100, **call),
        event(f"gloo:{title}", 101, 20, cat="user_annotation", tid=9, **work),
    ]
    world = WORLD | {"pg_size": 8, "ranks": list(range(8))}
    folder = write(tmp_path / "t", *(trace(rank, *events, groups=(world,)) for rank in range(8)))
    entries = build_graph(GraphRequest(run=folder, mesh=Mesh.parse("dp=8"))).class_of(0).entries
    assert entries.size_bytes[entries.kind == Kind.COLLECTIVE].tolist() == [32_000]


NCCL = WORLD | {"backend_config": "cpu:gloo,cuda:nccl"}


def on_gpu(rank: int, *, kernels: bool = True) -> dict[str, Any]:
    """Of 30 steps of a second: rank 1's host issues its call later, and the GPUs come to it together."""
    events = []
    for number in range(1, 31):
        at = 1e6 * number
        events += [step(number, at, 990_000), *all_gather(at + (100_000, 400_000)[rank], number, "0")]
        if kernels:
            kernel = {"External id": 100 + number, "Collective name": "all_gather"}
            events.append(event("ncclDevKernel_AllGather", at + 900_000, 50_000, cat="kernel", tid=20, **kernel))
    return trace(rank, *events, groups=(NCCL,))


def test_a_host_that_issues_work_for_a_gpu_later_is_not_late(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", on_gpu(0), on_gpu(1))
    call = read(folder).logs[1].collectives[0]
    assert (call.is_on_device, call.inputs[0].device, call.outputs[0].device) == (True, "cuda", "cuda")
    assert diagnosed(folder).verdicts == ()


def test_a_backend_of_gpus_tells_where_the_tensors_are(tmp_path: Path) -> None:
    of_nccl = read(write(tmp_path / "nccl", on_gpu(0, kernels=False))).logs[0].collectives
    assert [call.is_on_device for call in of_nccl] == [True] * 30
    of_gloo = read(write(tmp_path / "gloo", trace(0, *all_reduce(10, 1), groups=(NCCL,)))).logs[0].collectives
    assert [call.is_on_device for call in of_gloo] == [False]


def test_no_graph_is_built_without_what_the_gpu_computed(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", on_gpu(0), on_gpu(1))
    with pytest.raises(UsageError, match="rank 0 ran step 30 on cuda: the log does not show how long it computed"):
        build_graph(GraphRequest(run=folder, mesh=Mesh.parse("dp=2")))


def test_without_a_schedule_steps_are_the_optimizers(tmp_path: Path) -> None:
    optimizer = [event("Optimizer.step#SGD.step", at, 10, cat="user_annotation") for at in (50, 150)]
    job = read(
        write(tmp_path / "t", trace(0, *optimizer, *all_reduce(10, 1), *all_reduce(100, 3), *all_reduce(200, 5)))
    )
    assert [str(call.moment) for call in job.logs[0].collectives] == ["0.1", "1.1", "2.1"]


def test_steps_are_those_of_the_host(tmp_path: Path) -> None:
    """A trace with GPU activities has each annotation again, for the time that its kernels took."""
    for name, host in (("ProfilerStep#", ("4", "5")), ("Optimizer.step#", ("SGD.step", "SGD.step"))):
        marks = [
            event(f"{name}{each}", at, 80, cat="user_annotation") for each, at in zip(host, (50, 150), strict=True)
        ]
        copies = [mark | {"cat": "gpu_user_annotation", "ts": mark["ts"] + 70, "tid": 20} for mark in marks]
        calls = [*all_reduce(60, 1), *all_reduce(125, 3), *all_reduce(160, 5), *all_reduce(240, 7)]
        folders = [
            write(tmp_path / f"{len(name)}{len(more)}", trace(0, *marks, *more, *calls)) for more in ([], copies)
        ]
        of_host, of_both = (read(folder).logs[0] for folder in folders)
        assert [call.moment for call in of_both.collectives] == [call.moment for call in of_host.collectives]
        assert of_both.steps == of_host.steps


def test_a_packed_trace_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "_CHUNK_BYTES", 5)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(trace(0, *all_reduce(10, 1))).encode()))
    assert is_imported(path)
    assert len(read(path).logs[0].collectives) == 1


def test_two_traces_of_a_rank_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="rank 0 has several traces"):
        read_job(write(tmp_path / "t", trace(0), trace(0)))


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"schemaVersion": 1, "traceEvents": [', "is not JSON"),
        ('{"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": [{"ph": "X"},,]', "is not JSON"),
        ('{"schemaVersion": 1', "is not JSON: its end before"),
        ('{"schemaVersion": 1, "a": ' + "[" * 200_000, "is not JSON"),
        ('{"schemaVersion": 1, "traceEvents": []}', "does not say its rank"),
        ('{"schemaVersion": 1, "distributedInfo": {"rank": -1}, "traceEvents": []}', "must not be below zero"),
        ('{"schemaVersion": 1, "distributedInfo": {"rank": 99999999}, "traceEvents": []}', "a rank above"),
        (json.dumps(trace(0, event("c10d::allreduce_", 1e300))), "a time out of bounds"),
        (json.dumps(trace(0, event("c10d::allreduce_", 1) | {"ts": "x"})), "must be a number"),
        (json.dumps(trace(0, event("c10d::allreduce_", 1) | {"tid": 2**70})), "a whole number of 64 bits"),
        (json.dumps(trace(0) | {"baseTimeNanoseconds": "x"}), "must be a whole number"),
    ],
)
def test_what_is_damaged_is_one_error(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(CapsuleError, match=wrong):
        read_job(path)


def test_arguments_of_any_shape_are_let_be(tmp_path: Path) -> None:
    """What is no number, list or text where one belongs is not told."""
    odd: list[Any] = [None, "x", {}, [], [[None]], [["x"]], 2**70, float("nan"), [[-1]], True]
    names = ("Input Dims", "Input type", "Concrete Inputs", "Record function id", "Seq", "Process Group Name",
             "Process Group Ranks", "dtype", "In msg nelems", "Rank", "Collective name")  # fmt: skip
    for value in odd:
        args = dict.fromkeys(names, value)
        both = event("c10d::send", 10, **args), event("record_param_comms", 11, 2, **args)
        assert len(read(write(tmp_path / "t", trace(0, *both))).logs[0].collectives) == 1


@pytest.mark.parametrize("odd", [7, "Collective name", ["Collective name"], None])
def test_arguments_of_a_kernel_that_are_no_object_are_one_error_or_none(tmp_path: Path, odd: Any) -> None:
    kernel = event("ncclDevKernel_AllGather", 30, 50, cat="kernel", tid=20) | {"args": odd}
    path = write(tmp_path / "t", trace(0, *all_reduce(10, 1), kernel))
    assert len(read(path).logs[0].collectives) == 1


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "t", trace(0, *all_reduce(10, 1), *all_reduce(20, 3)))
    monkeypatch.setattr(kineto, "MOST_CALLS", 1)
    with pytest.raises(CapsuleError, match="more than 1 calls"):
        read_job(path)
    monkeypatch.setattr(json_stream, "MOST_VALUES", 3)
    with pytest.raises(CapsuleError, match="more than 3 values"):
        read_job(path)
    monkeypatch.setattr(json_stream, "MAX_FILE_BYTES", 100)
    with pytest.raises(CapsuleError, match="is larger than"):
        read_job(path)


def test_a_damaged_trace_beside_a_good_one_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "t", trace(0, *all_reduce(10, 1)), trace(1))
    broken = folder / "host_71.179.pt.trace.json"
    broken.write_text(broken.read_text()[:-40])
    found = diagnosed(folder)
    assert found.ranks == (0,)
    assert any("log of rank 1 cannot be read" in line for line in found.missing)
