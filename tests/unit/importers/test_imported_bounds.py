"""What other tools' files may ask for: memory and time in proportion to their bytes, whatever numbers they have."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.limits import MAX_DIMENSIONS, MAX_IMPORTED_RANKS
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import chakra, execution_trace, flight_recorder, formats, kineto, traced_job
from prismdbg.importers.chakra_schema import COLLECTIVE, METADATA, messages, prefixed
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.importers.job_groups import JobGroups
from prismdbg.importers.nccl_log import read_nccl_logs
from prismdbg.importers.traced_job import TracedCall, TracedRank
from prismdbg.model.collective import Frame, Group, Identity


def call(issued_ns: int = 0, group: str = "0") -> TracedCall:
    return TracedCall(
        op="allreduce_", group=group, seq=0, root=-1, tag=0, is_async=False, inputs=(), outputs=(),
        issued_ns=issued_ns, left_ns=issued_ns, ended_ns=None, thread=7,
    )  # fmt: skip


def read(folder: Path) -> ImportedJob:
    job = formats.read_job(folder)
    assert job is not None
    return job


def written(path: Path, value: object) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))
    return path


def node(number: int, name: str, values: list[Any], **attributes: Any) -> dict[str, Any]:
    arguments = {"values": values, "shapes": [[]] * len(values), "types": ["String"] * len(values)}
    attrs = [{"name": key, "value": value} for key, value in attributes.items()]
    return {"id": number, "name": name, "ctrl_deps": number, "inputs": arguments, "attrs": attrs}


def execution(path: Path, *nodes: dict[str, Any]) -> Path:
    return written(path, {"schema": "1.1.1-chakra.0.0.4", "nodes": list(nodes)})


def profile(path: Path, *comms: dict[str, Any], **header: Any) -> Path:
    events = [
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "tid": 7, "ts": 9.0 * at, "dur": 5.0,
         "args": {"Collective name": "allreduce"} | each} for at, each in enumerate(comms)
    ]  # fmt: skip
    distributed = {"rank": 0, "world_size": 2} | header
    return written(path, {"schemaVersion": 1, "distributedInfo": distributed, "traceEvents": events})


def nodes(path: Path, *told: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(map(prefixed, (messages().metadata(version="0"), *told))))
    return path


def reduced(name: str) -> Any:
    found = messages().node(id=1, name="all_reduce", type=COLLECTIVE)
    found.attr.add(name="op", string_val="allreduce_")
    found.attr.add(name="pg_name", string_val=name)
    return found


@pytest.mark.parametrize("rank", [20_261_128, 99_999_999, MAX_IMPORTED_RANKS])
def test_a_number_that_is_no_rank_ends_a_name(tmp_path: Path, rank: int) -> None:
    """A date, say: the world would have twenty million ranks."""
    said = f"ends with {rank}, which is not a rank: ranks go up to 1,048,575"
    for path in (
        written(tmp_path / "dump" / f"nccl_trace_rank_{rank}", {"version": "2.10", "entries": []}),
        execution(tmp_path / "executions" / f"et_{rank}.json"),
        nodes(tmp_path / "nodes" / f"chakra.{rank}.et"),
    ):
        with pytest.raises(UsageError, match=said):
            formats.read_job(path)
        with pytest.raises(UsageError, match=said):
            formats.read_job(path.parent)


def of_dump(folder: Path, names: int) -> Path:
    entries = [
        {"record_id": n, "process_group": [str(n), "default_pg"], "collective_seq_id": 1, "is_p2p": False,
         "profiling_name": "nccl:all_reduce", "state": "started", "time_created_ns": 1} for n in range(names)
    ]  # fmt: skip
    written(folder / "nccl_trace_rank_0", {"version": "2.10", "entries": []})
    return written(folder / f"nccl_trace_rank_{MAX_IMPORTED_RANKS - 1}", {"version": "2.10", "entries": entries})


def of_execution(folder: Path, names: int) -> Path:
    told = {"global_rank_start": 0, "global_rank_stride": 1, "pg_size": MAX_IMPORTED_RANKS}
    comms = (
        node(n, "record_param_comms", [], collective_name="allreduce", pg_name=str(n), **told) for n in range(names)
    )
    return execution(folder / "et_0.json", *comms)


def of_listed_groups(folder: Path, names: int) -> Path:
    groups = [{"pg_name": str(n), "group_size": MAX_IMPORTED_RANKS} for n in range(names)]
    return execution(folder / "et_0.json", node(1, execution_trace.OF_GROUPS, [json.dumps(groups)]))


def of_profile(folder: Path, names: int) -> Path:
    told = {"Process Group Ranks": "[0, ..., 9]", "Global rank start": 0, "Global rank stride": 1}
    told |= {"Group size": MAX_IMPORTED_RANKS}
    return profile(folder / "trace_0.json", *(told | {"Process Group Name": str(n)} for n in range(names)))


def of_nodes(folder: Path, names: int) -> Path:
    groups = json.dumps([{"pg_name": str(n), "group_size": MAX_IMPORTED_RANKS} for n in range(names)])
    listed = messages().node(id=1, name=execution_trace.OF_GROUPS, type=METADATA)
    listed.inputs.values = f"['{groups}']"
    return nodes(folder / "chakra.0.et", listed, reduced("0"))


@pytest.mark.parametrize("write", [of_dump, of_execution, of_listed_groups, of_profile, of_nodes])
def test_the_sizes_of_groups_do_not_ask_for_more_than_the_files_are_about(
    tmp_path: Path, write: Callable[[Path, int], Path]
) -> None:
    one = read(write(tmp_path / "one", 1).parent)
    assert [len(group.ranks) for group in one.logs[0].groups.values()] == [MAX_IMPORTED_RANKS]
    with pytest.raises(CapsuleError, match="the sizes of groups ask for more members"):
        formats.read_job(write(tmp_path / "many", 60).parent)


def test_equal_lists_of_members_are_made_once() -> None:
    of_job = JobGroups([])
    first = of_job.members("a", 0, 2, 500)
    assert first == tuple(range(0, 1000, 2)) and of_job.members("b", 0, 2, 500) is first
    for _ in range(3000):
        of_job.members("b", 0, 2, 500)  # of each file of a large job
    for wrong in ((-1, 1, 2), (0, 0, 2), (0, 1, 0), (0, 1, MAX_IMPORTED_RANKS + 1), (0, 2**40, 2**40)):
        assert of_job.members("c", *wrong) == ()


def test_groups_in_a_file_of_their_own_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in range(20):
        nodes(tmp_path / f"chakra.{rank}.et", reduced("0"))
    written(tmp_path / chakra.GROUPS_FILE, {"0": list(range(20))})
    opened: list[Path] = []
    of_file = chakra._groups
    monkeypatch.setattr(chakra, "_groups", lambda path: opened.append(path) or of_file(path))
    assert read(tmp_path).logs[19].groups["0"].size == 20
    written(tmp_path / chakra.GROUPS_FILE, {"0": [MAX_IMPORTED_RANKS]})
    with pytest.raises(CapsuleError, match="has a rank above 1,048,575"):
        formats.read_job(tmp_path)
    assert len(opened) == 2


def test_a_rank_of_a_profile_that_is_none(tmp_path: Path) -> None:
    for wrong in (
        {"rank": MAX_IMPORTED_RANKS},
        {"world_size": 2**30},
        {"pg_config": [{"pg_name": "0", "ranks": [2**40]}]},
    ):
        path = profile(tmp_path / "trace_0.json", **wrong)
        with pytest.raises(CapsuleError, match="distributedInfo has a rank above 1,048,575"):
            formats.read_job(path)


def test_packed_files_that_are_damaged(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(b"NCCL INFO Using network IB\n" * 1000))
    data[12:40] = bytes([255] * 28)
    for name in ("chakra.0.et", "out.log"):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(CapsuleError, match="is not a Chakra execution trace"):
        formats.read_job(tmp_path)
    with pytest.raises(CapsuleError, match="cannot be read"):
        read_nccl_logs([tmp_path / "out.log"])


class Counted(tuple[int, ...]):
    """How often it is gone through."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        type(self).times += 1
        return super().__iter__()

    def index(self, *_: Any) -> int:
        raise AssertionError

    __contains__ = index  # type: ignore[assignment]


def test_places_of_peers_are_looked_up() -> None:
    members, places = Counted(range(5, 1005)), chakra._Places()
    assert [places.of(rank, members) for rank in (5, 6, 1004, 4)] == [0, 1, 999, None]
    assert Counted.times == 1


def test_a_call_looks_at_one_description(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at all waits that are inside it."""
    looked: list[int] = []
    contains = kineto._Span.contains
    monkeypatch.setattr(kineto._Span, "contains", lambda self, other: looked.append(1) or contains(self, other))
    found = kineto._Found(
        calls=[kineto._Span("c10d::allreduce_", 0, 10_000, 7, {}) for _ in range(300)],
        comms=[kineto._Span("record_param_comms", n, n + 1, 7, {"Collective name": "wait"}) for n in range(300)],
    )
    assert kineto._by_outer(found) == {} and len(looked) <= 300
    told = kineto._Span("record_param_comms", 400, 401, 7, {"Collective name": "allreduce"})
    found.comms.append(told)
    assert set(map(id, kineto._by_outer(found).values())) == {id(told)} and len(looked) <= 600


def test_functions_skip_calls_with_full_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    skip = kineto._Stacks._open
    monkeypatch.setattr(kineto._Stacks, "_open", lambda self, at: steps.append(1) or skip(self, at))
    calls = [call(n) for n in range(500)]
    stacks = kineto._Stacks(calls)
    added = sum(stacks.add(kineto._Span("f", n, 1000, 7, {}), Frame("f.py", n, "f"), 1 << 20) for n in range(-5000, 0))
    assert added == 500 * 64 and len(steps) <= added + 2 * 5000
    stacks.tell()
    assert [frame.line for frame in calls[0].frames] == list(range(-4937, -5001, -1))


@pytest.mark.parametrize("room", [0, 3, 40])
def test_frames_are_those_of_the_functions_around_a_call(room: int) -> None:
    calls = [call(at) for at in (1, 5, 5, 9)]
    stacks, left = kineto._Stacks(calls), room
    for number, (begin, end) in enumerate([(0, 10), (5, 9), (2, 4), (9, 9), (0, 1)]):
        left -= stacks.add(kineto._Span("f", begin, end, 7, {}), Frame("f.py", number, "f"), left)
    stacks.tell()
    lines = [[frame.line for frame in each.frames] for each in calls]
    assert lines == {0: [[], [], [], []], 3: [[0], [0], [0], []], 40: [[0, 4], [1, 0], [1, 0], [3, 1, 0]]}[room]


class CountedCall(TracedCall):
    """How often its group is asked for."""

    asked = 0

    def __getattribute__(self, name: str) -> Any:
        if name == "group":
            CountedCall.asked += 1
        return super().__getattribute__(name)


def test_the_windows_of_groups_are_found_in_one_pass() -> None:
    plain = call()
    counted = CountedCall(**{name: getattr(plain, name) for name in TracedCall.__dataclass_fields__})
    numbered: dict[int, list[tuple[TracedCall, Identity]]] = {0: [(counted, Identity("0", n)) for n in range(200)]}
    groups = {str(n): Group(name=str(n), ranks=(0,)) for n in range(200)}
    CountedCall.asked = 0
    assert len(traced_job._in_all_windows(numbered, groups)[0]) == 200
    assert CountedCall.asked <= 200 * 8


def test_groups_of_ranks_without_names_are_found_in_one_pass() -> None:
    members = Counted(range(300))
    groups = {name: Group(name=name, ranks=members) for name in ("a", "b")}
    traced = [TracedRank(rank=rank, calls=[call(group="")], groups=dict(groups)) for rank in range(300)]
    Counted.times = 0
    job = traced_job.join(traced, {})
    assert job.logs[299].groups["not told"].ranks == members and Counted.times < 20


def test_the_members_of_a_job_are_gone_through_once(tmp_path: Path) -> None:
    """Not once for each rank."""
    members = Counted(range(40))
    groups = {str(n): Group(name=str(n), ranks=members) for n in range(30)}
    job = traced_job.join([TracedRank(rank=rank, calls=[call()], groups=groups) for rank in range(20)], {})
    Counted.times = 0
    assert Evidence(logs=job.logs, damaged={}).known_world_size == 40 and Counted.times <= 1


def test_the_number_of_dimensions_has_a_bound(tmp_path: Path) -> None:
    """The number of elements is a product, whose time grows with the square of the list."""
    for many in (MAX_DIMENSIONS, MAX_DIMENSIONS + 1):
        shape, is_read = [2**30] * many, many == MAX_DIMENSIONS
        found = execution_trace.tensors_of(
            {"values": [[1, 2, 0, 4, 4, "cpu"]], "shapes": [shape], "types": ["Tensor(float)"]}, 0
        )
        assert bool(found) is is_read and prod(found[0].shape if found else (1,)) > 0
        info = messages().node().inputs
        info.shapes, info.types = json.dumps([shape]), "['Tensor(float)']"
        assert len(list(chakra._argument(shape, "Tensor(float)"))) == is_read
        span = kineto._Span("c10d::send", 0, 1, 7, {"Input Dims": [shape], "Input type": ["float"]})
        assert bool(kineto._tensors(span, 0, "float32")) is is_read
        entry = {"record_id": 0, "process_group": ["0", ""], "collective_seq_id": 1, "is_p2p": False,
                 "profiling_name": "nccl:all_reduce", "state": "started", "time_created_ns": 1,
                 "input_sizes": [shape]}  # fmt: skip
        path = written(tmp_path / "nccl_trace_rank_0", {"version": "2.10", "entries": [entry]})
        damaged = flight_recorder.read_dumps({0: path}).damaged
        assert damaged == {} if is_read else "input_sizes[0] contains 257 entries" in damaged[0]
