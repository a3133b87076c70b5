"""Flight Recorder's dumps as logs: what they say is taken over, what they do not say is not made up."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prismdbg.diagnosis.verdict import Certainty
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.errors import UsageError
from prismdbg.importers import dump_form, flight_recorder, torch_names
from prismdbg.importers.flight_recorder import find_dumps, read_dumps
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.evidence import gather
from prismdbg.model.collective import State
from prismdbg.model.ops import OPS
from prismdbg.simulate.graph.mesh import Mesh

BEGAN_NS = 1_790_000_000_000_000_000
TRAIN = {"name": "step", "filename": "/job/train.py", "line": 40}
TORCH = {"name": "all_reduce", "filename": "/v/lib/python3.11/site-packages/torch/distributed/c10d.py", "line": 7}


def entry(record_id: int, title: str = "nccl:all_reduce", **other: Any) -> dict[str, Any]:
    return {
        "record_id": record_id,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": record_id + 1,
        "p2p_seq_id": 0,
        "op_id": record_id + 1,
        "profiling_name": title,
        "time_created_ns": BEGAN_NS + record_id,
        "input_sizes": [[4, 2]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[4, 2]],
        "output_dtypes": ["BFloat16"],
        "state": "completed",
        "time_discovered_started_ns": BEGAN_NS + record_id,
        "time_discovered_completed_ns": BEGAN_NS + record_id + 5,
        "retired": True,
        "timeout_ms": 600_000,
        "is_p2p": False,
        "thread_id": "139973510892416",
        "frames": [TORCH, TRAIN],
    } | other


def waiting(record_id: int, title: str = "nccl:all_reduce", **other: Any) -> dict[str, Any]:
    return entry(record_id, title, state="started", retired=False, time_discovered_completed_ns=None, **other)


def dump(*entries: dict[str, Any], members: str = "[0, 1]") -> dict[str, Any]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": members}}
    return {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": list(entries)}


def write(folder: Path, *dumps: dict[str, Any], form: Callable[[Any], bytes] = pickle.dumps) -> Path:
    folder.mkdir(exist_ok=True)
    for rank, each in enumerate(dumps):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(form(each))
    return folder


def as_json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def diagnosed(folder: Path) -> Diagnosis:
    return diagnose(gather(folder))


@pytest.mark.parametrize("form", [pickle.dumps, as_json])
def test_a_call_is_what_the_dump_says(tmp_path: Path, form: Callable[[Any], bytes]) -> None:
    folder = write(tmp_path / "d", dump(entry(0), waiting(1, "nccl:_all_gather_base")), form=form)
    job = read_dumps(find_dumps(folder))
    first, second = job.logs[0].collectives
    assert (first.op, first.group, first.identity.seq, first.state) == ("allreduce_", "0", 1, State.COMPLETED)
    assert (str(first.inputs[0]), first.duration_ns, first.timeout_ms) == ("bfloat16[4, 2]", 5, 600_000)
    assert str(first.source) == "/job/train.py:40 in step"
    assert (second.op, second.state, second.time_completed_ns) == ("_allgather_base_", State.SCHEDULED, None)
    assert job.logs[0].groups["0"].ranks == (0, 1)


def test_a_rank_that_never_came_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", dump(entry(0), waiting(1)), dump(entry(0)))
    verdict = diagnosed(folder).verdicts[0]
    assert (verdict.kind, verdict.certainty, verdict.ranks[0]) == ("stopped", Certainty.LIKELY, 1)
    assert "rank 1 never joined it" in verdict.text and "for " not in verdict.text  # how long nobody knows


def test_the_text_of_a_rank_without_a_call_has_no_entries(tmp_path: Path) -> None:
    """It is what torch 2.13 gives."""
    folder = write(tmp_path / "d", dump(waiting(0)), form=as_json)
    text = '{"comm_lib_version":"","nccl_comm_state":{},"pg_config":{},"pg_status":{},"version":"2.10"}'
    (folder / "nccl_trace_rank_1").write_text(text)
    found = diagnosed(folder)
    assert (found.ranks, found.verdicts[0].ranks[0]) == ((0, 1), 1)


def test_another_call_is_a_mismatch(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", dump(entry(0), waiting(1)), dump(entry(0), waiting(1, "nccl:broadcast")))
    verdict = diagnosed(folder).verdicts[0]
    assert (verdict.kind, verdict.certainty) == ("mismatch", Certainty.CERTAIN)
    assert "COLLECTIVE_TYPE_MISMATCH" in verdict.text


def test_of_a_whole_job_nothing_is_said(tmp_path: Path) -> None:
    """Not of clocks either that differ by a minute."""
    late = [entry(n, time_created_ns=BEGAN_NS + 60 * 10**9 + n) for n in range(40)]
    folder = write(tmp_path / "d", dump(*(entry(n) for n in range(40))), dump(*late))
    assert diagnosed(folder).verdicts == ()


def test_messages_are_paired_only_where_the_first_is_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", dump(entry(0), waiting(1, "nccl:send 0->1", is_p2p=True)), dump(entry(0)))
    found = diagnosed(folder)
    assert "rank 1 never joined it" in found.verdicts[0].text
    later = write(tmp_path / "later", dump(entry(7), waiting(8, "nccl:send 0->1", is_p2p=True)), dump(entry(7)))
    found = diagnosed(later)
    assert found.verdicts == () and any("sends and receives of rank 0 are left out" in line for line in found.missing)
    assert any("begin after 7 collectives" in line for line in found.missing)


def test_an_end_without_a_time_is_told(tmp_path: Path) -> None:
    timeless = entry(0, time_discovered_completed_ns=0)
    assert "when 2 calls ended is unknown" in " ".join(
        read_dumps(find_dumps(write(tmp_path / "d", dump(timeless), dump(timeless)))).gaps
    )
    timed = read_dumps(find_dumps(write(tmp_path / "t", dump(entry(0)), dump(entry(0)))))
    assert "ended is unknown" not in " ".join(timed.gaps)


def test_members_that_nobody_lists_are_inferred_and_it_is_said(tmp_path: Path) -> None:
    """gloo's dumps list none."""
    pair = ("1", "mesh_tp")
    mine = dump(entry(0), waiting(1, process_group=pair, collective_seq_id=1), members="[]")
    folder = write(tmp_path / "d", mine, dump(entry(0), members="[]"), dump(entry(0), members="[]"))
    job = read_dumps(find_dumps(folder))
    assert (job.logs[0].groups["0"].ranks, job.logs[0].groups["1"].ranks) == ((0, 1, 2), (0,))
    assert any("no dump lists the members of group 'world', 'tp'" in line for line in job.gaps)


def test_groups_of_one_name_and_other_members_are_two(tmp_path: Path) -> None:
    """Where `split_group` numbers them, the halves of a job have one name."""
    half: dict[str, Any] = {"process_group": ("1", "mesh_tp")}

    def of(title: str, members: str, *more: dict[str, Any]) -> dict[str, Any]:
        config = {"1": {"name": "1", "desc": "mesh_tp", "ranks": members}}
        return dump(entry(0, title, **half), *more) | {"pg_config": config}

    first, second = of("nccl:all_reduce", "[0, 1]"), of("nccl:broadcast", "[2, 3]")
    job = read_dumps(find_dumps(folder := write(tmp_path / "d", first, first, second, second)))
    assert {name: group.ranks for name, group in job.logs[0].groups.items()} == {"1 [0,1]": (0, 1), "1 [2,3]": (2, 3)}
    assert diagnosed(folder).verdicts == ()
    hung = write(tmp_path / "h", of("nccl:all_reduce", "[0, 1]", waiting(1, **half)), first, second, second)
    verdict = diagnosed(hung).verdicts[0]
    assert (verdict.kind, verdict.ranks[0]) == ("stopped", 1) and "rank 1 never joined it" in verdict.text


@pytest.mark.parametrize(
    ("title", "device"), [("nccl:all_reduce", "cuda"), ("xccl:all_reduce", "xpu"), ("gloo:all_reduce", "cpu")]
)
def test_where_the_tensors_are_is_the_backends_device(tmp_path: Path, title: str, device: str) -> None:
    """NCCL's calls are issued and left: what the GPU computed before them is not in a dump."""
    folder = write(tmp_path / "d", dump(entry(0, title)), dump(entry(0, title)))
    (call,) = read_dumps(find_dumps(folder)).logs[0].collectives
    assert (call.inputs[0].device, call.outputs[0].device) == (device, device)
    request = GraphRequest(run=folder, mesh=Mesh.parse("dp=2"))
    if device == "cpu":
        assert build_graph(request).mesh.world == 2
    else:
        with pytest.raises(UsageError, match=f"ran step 0 on {device}: the log does not show how long it computed"):
            build_graph(request)


def test_gloo_is_late_to_say_that_a_call_is_over(tmp_path: Path) -> None:
    over = entry(0, "gloo:all_reduce", state="scheduled", time_discovered_completed_ns=None)
    late = over | {"retired": False}
    assert diagnosed(write(tmp_path / "d", dump(over), dump(late))).verdicts == ()
    sent = over | {"profiling_name": "gloo:broadcast"}  # the root may be through, and the others wait
    found = diagnosed(write(tmp_path / "b", dump(sent), dump(sent | {"retired": False})))
    assert [verdict.certainty for verdict in found.verdicts] == [Certainty.HINT]


def test_parts_of_a_coalesced_call_are_one(tmp_path: Path) -> None:
    parts = [entry(n, "nccl:reduce_scatter_tensor_coalesced", collective_seq_id=1) for n in range(3)]
    log = read_dumps(find_dumps(write(tmp_path / "d", dump(*parts, entry(3, collective_seq_id=2))))).logs[0]
    assert [call.identity.seq for call in log.collectives] == [1, 2]


def part(record_id: int, title: str, number: int, **other: Any) -> dict[str, Any]:
    """Of a coalesced region: torch records it without a work, so that it stays scheduled."""
    told = {"collective_seq_id": number, "retired": False, "time_discovered_completed_ns": None} | other
    return entry(record_id, title, state="scheduled", **told)


def end(record_id: int, number: int, title: str = "nccl:coalesced", **other: Any) -> dict[str, Any]:
    """Of a coalesced region: it has the state and the times of all parts, no tensors, and is never a message."""
    bare = {name: [] for name in ("input_sizes", "input_dtypes", "output_sizes", "output_dtypes")}
    return entry(record_id, title, collective_seq_id=number, **bare | other)


def uneven_all_gather(record_id: int, number: int) -> list[dict[str, Any]]:
    sizes = [{"input_sizes": [[size]], "output_sizes": [[size]]} for size in (3, 5)]
    parts = [part(record_id + n, "nccl:_broadcast_oop", number, **size) for n, size in enumerate(sizes)]
    return [*parts, end(record_id + len(parts), number, "nccl:ALLGATHER_coalesced")]


def test_a_coalesced_call_ends_where_its_region_ends(tmp_path: Path) -> None:
    calls = [entry(0), *uneven_all_gather(1, 2), entry(4, collective_seq_id=3)]
    assert diagnosed(write(tmp_path / "whole", dump(*calls), dump(*calls))).verdicts == ()
    log = read_dumps(find_dumps(tmp_path / "whole")).logs[0]
    assert [(call.op, call.identity.seq, call.state) for call in log.collectives] == [
        ("allreduce_", 1, State.COMPLETED),
        ("broadcast_", 2, State.COMPLETED),
        ("allreduce_", 3, State.COMPLETED),
    ]
    assert log.collectives[1].time_completed_ns == BEGAN_NS + 3 + 5
    hung = write(tmp_path / "hung", dump(*calls, waiting(5, collective_seq_id=4)), dump(*calls))
    verdict = diagnosed(hung).verdicts[0]
    assert (verdict.kind, verdict.certainty, verdict.ranks[0]) == ("stopped", Certainty.LIKELY, 1)
    assert "#4" in verdict.text


def test_a_hang_in_a_coalesced_call_is_one(tmp_path: Path) -> None:
    calls = [entry(0), *uneven_all_gather(1, 2)]
    calls[-1] |= {"state": "started", "retired": False, "time_discovered_completed_ns": None}
    verdict = diagnosed(write(tmp_path / "d", dump(*calls), dump(entry(0)))).verdicts[0]
    assert (verdict.kind, verdict.ranks[0]) == ("stopped", 1)


def test_a_coalesced_call_whose_first_parts_the_ring_has_lost_is_left_out(tmp_path: Path) -> None:
    """Its next part is no other's first."""
    calls = [each for n in range(3) for each in uneven_all_gather(10 + 3 * n, 4 + n)]
    job = read_dumps(find_dumps(write(tmp_path / "d", dump(*calls[4:]), dump(*calls[2:]))))
    assert [[call.identity.seq for call in log.collectives] for log in job.logs.values()] == [[6], [5, 6]]
    assert diagnosed(tmp_path / "d").verdicts == ()


def batch(record_id: int, title: str, number: int, p2p_number: int, **ended: Any) -> list[dict[str, Any]]:
    """What `batch_isend_irecv` records of one message: `number` is that of the group's previous collective."""
    sent = part(record_id, title, number, is_p2p=True, p2p_seq_id=p2p_number)
    return [sent, end(record_id + 1, number, p2p_seq_id=p2p_number, **ended)]


def test_the_end_of_a_batch_of_messages_is_no_collective(tmp_path: Path) -> None:
    """Not where the ring has lost the collective of its number either."""
    after = entry(12, collective_seq_id=8)
    sender = dump(entry(9, collective_seq_id=7), *batch(10, "nccl:send 0->1", 7, 1), after)
    receiver = dump(*batch(10, "nccl:recv 1<-0", 7, 1), after)
    assert diagnosed(write(tmp_path / "d", sender, receiver)).verdicts == ()
    without_message = dump(*batch(10, "nccl:recv 1<-0", 7, 1)[1:], after)
    assert diagnosed(write(tmp_path / "e", sender, without_message)).verdicts == ()


def test_messages_of_a_batch_end_with_it(tmp_path: Path) -> None:
    sender = dump(entry(0), *batch(1, "nccl:send 0->1", 1, 1))
    receiver = dump(entry(0), *batch(1, "nccl:recv 1<-0", 1, 1))
    folder = write(tmp_path / "d", sender, receiver)
    log = read_dumps(find_dumps(folder)).logs[0]
    assert [(call.op, call.state) for call in log.collectives] == [
        ("allreduce_", State.COMPLETED),
        ("send", State.COMPLETED),
    ]
    assert diagnosed(folder).verdicts == ()
    open_end = {"state": "started", "retired": False, "time_discovered_completed_ns": None}
    waits = dump(entry(0), *batch(1, "nccl:recv 1<-0", 1, 1, **open_end))
    log = read_dumps(find_dumps(write(tmp_path / "e", dump(entry(0)), waits))).logs[1]
    assert [call.state for call in log.collectives] == [State.COMPLETED, State.SCHEDULED]


def test_a_region_of_collectives_of_an_older_torch_is_a_call(tmp_path: Path) -> None:
    """Before dump version 2.7 only its end was recorded."""
    log = read_dumps(find_dumps(write(tmp_path / "d", dump(entry(0), end(1, 2), entry(2, collective_seq_id=3))))).logs[
        0
    ]
    assert [call.identity.seq for call in log.collectives] == [1, 2, 3]


def test_a_damaged_dump_is_named_and_the_others_speak(tmp_path: Path) -> None:
    folder = write(tmp_path / "d", dump(entry(0)), dump(entry(0)))
    (folder / "nccl_trace_rank_1").write_bytes(pickle.dumps(dump(entry(0)))[:-40])
    found = diagnosed(folder)
    assert found.ranks == (0,)
    assert any(line.startswith("the log of rank 1 cannot be read: ") for line in found.missing)


@pytest.mark.parametrize(
    "wrong",
    [
        {"record_id": -1},
        {"process_group": ("0",)},
        {"process_group": 4},
        {"input_sizes": [[-3]]},
        {"frames": [{"name": "f"}]},
        {"collective_seq_id": 2**70},
        {"time_created_ns": None},
        {"profiling_name": 7},
    ],
)
def test_a_field_that_is_wrong_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    job = read_dumps(find_dumps(write(tmp_path / "d", dump(entry(0) | wrong))))
    assert job.logs == {} and next(iter(wrong)) in job.damaged[0]


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "d", dump(*(entry(n) for n in range(4))))
    monkeypatch.setattr(flight_recorder, "MOST_PARTS", 7)
    assert "more than 7" in read_dumps(find_dumps(folder)).damaged[0]
    monkeypatch.setattr(dump_form, "MOST_ENTRIES", 3)
    assert "4 entries, more than 3" in read_dumps(find_dumps(folder)).damaged[0]
    monkeypatch.setattr(flight_recorder, "MAX_DUMP_BYTES", 1 << 20)
    (folder / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump()) + bytes(1 << 20))
    assert "larger than 1 MiB" in read_dumps(find_dumps(folder)).damaged[0]


def test_what_is_no_dump_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes_1.json").write_text('{"a": 1}')
    (tmp_path / "model_2.pt").write_bytes(b"PK\x03\x04")
    (tmp_path / "link_3").symlink_to(write(tmp_path / "d", dump(entry(0))) / "nccl_trace_rank_0")
    assert find_dumps(tmp_path) == {}
    assert find_dumps(tmp_path / "nowhere") == {}
    assert list(find_dumps(tmp_path / "d" / "nccl_trace_rank_0")) == [0]


def test_names_that_do_not_say_which_rank(tmp_path: Path) -> None:
    data = pickle.dumps(dump(entry(0)))
    (tmp_path / "trace").write_bytes(data)
    with pytest.raises(UsageError, match="does not end with a rank"):
        find_dumps(tmp_path)
    (tmp_path / "trace").unlink()
    for name in ("a_1", "b_1"):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match="rank 1 has several"):
        find_dumps(tmp_path)
    (tmp_path / "b_1").write_bytes(as_json(dump(entry(0))))
    assert find_dumps(tmp_path) == {1: tmp_path / "a_1"}


def test_every_title_is_an_operator() -> None:
    assert set(torch_names.OPS_BY_TITLE.values()) == set(OPS)


def refused(folder: Path, dumped: dict[str, Any]) -> str:
    """Why a dump, which has to be small, is refused."""
    write(folder, dumped)
    assert (folder / "nccl_trace_rank_0").stat().st_size < 100_000
    return read_dumps(find_dumps(folder)).damaged.get(0, "")


@pytest.mark.parametrize("name", ["input_sizes", "output_sizes", "frames", "input_dtypes"])
def test_what_a_dump_repeats_is_not_looked_at_each_time(tmp_path: Path, name: str) -> None:
    """A wrong value at the end shows that nothing was looked at. All of it would be ten thousand times ten thousand."""
    shared = [7] * 10_000
    entries = [entry(n) | {name: shared} for n in range(200)] if name in ("frames", "input_dtypes") else []
    found = refused(tmp_path / "d", dump(*entries, entry(0) | {name: [shared] * 10_000 + [None]}))
    assert "repeated too often" in found


def test_a_list_of_groups_that_is_repeated_is_refused(tmp_path: Path) -> None:
    config = {"name": "0", "desc": "default_pg", "ranks": "1, " * 10_000}
    told = dump(entry(0)) | {"pg_config": {str(n): config for n in range(2000)}}
    assert "repeated too often" in refused(tmp_path / "d", told)


def test_what_is_not_repeated_is_counted_before_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_recorder, "MOST_PARTS", 50)
    for name in ("input_sizes", "output_sizes"):
        text = dump(entry(0), entry(1) | {name: [[1] * 30, [None] * 30]})
        assert "the frames and tensors are more than 50" in refused(tmp_path / name, text)


def test_the_members_of_groups_with_one_text_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(flight_recorder, "_ranks", lambda text: read.append(text) or (0, 1))
    told = dump(entry(0)) | {"pg_config": {str(n): {"name": str(n), "ranks": "[0, 1]"} for n in range(50)}}
    groups = read_dumps(find_dumps(write(tmp_path / "d", told, told))).logs[0].groups
    assert read == ["[0, 1]"] and len(groups) == 50 and len({id(group.ranks) for group in groups.values()}) == 1


def test_numbers_in_texts_that_python_does_not_read(tmp_path: Path) -> None:
    long = "1" * 5000
    told = entry(0, f"nccl:send {long}->{long}", thread_id=long, is_p2p=True)
    call = read_dumps(find_dumps(write(tmp_path / "d", dump(told)))).logs[0].collectives[0]
    assert (call.thread_id, call.root, call.op) == (0, -1, "send")
