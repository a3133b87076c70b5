"""A job's logs as Chakra traces: by the schema's numbers, as a graph, and read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tiny_log import FLOATS, TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.cli.main import cli
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.exporters.chakra import write_traces
from prismdbg.importers import chakra
from prismdbg.importers.formats import read_job
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import TensorMeta
from tests.unit.logs import Job

EIGHT = TensorMeta((4, 2), "bfloat16")
_COMP, _SEND, _RECV, _COLLECTIVE = 4, 5, 6, 7


def job(folder: Path, device: str = "cpu") -> dict[int, Any]:
    """Of two ranks: an asynchronous all_reduce that is waited for, an all_gather, a message; one call is not over."""
    logs = {}
    for rank in (0, 1):
        log = TinyLog(folder / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        log.group("far", (1, 0), "mesh_dp")
        reduced = log.issue(0, 1, inputs=(EIGHT,), outputs=(EIGHT,), flags=fmt.IssueFlag.ASYNC)
        gathered = log.issue(
            0, 2, op="allgather_", group="far", inputs=(FLOATS,), outputs=(FLOATS, FLOATS), device=device
        )
        log.complete(gathered)
        log.complete(reduced)
        op, tensors = ("send", {"outputs": ()}) if rank == 0 else ("recv_", {"inputs": ()})
        log.complete(log.issue(1, 1, op=op, root=1 - rank, flags=fmt.IssueFlag.P2P, **tensors))
        log.issue(1, 2)
        logs[rank] = read_log(folder / str(rank))
    return logs


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Of one message, by the wire format alone: number and value."""
    at = 0
    value: Any
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        yield key >> 3, value


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 0x80:
            return value, at


def records(path: Path) -> list[bytes]:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size, at = varint(data, at)
        found.append(data[at : at + size])
        at += size
    return found


def attributes(node: bytes) -> dict[str, tuple[int, Any]]:
    """By name: the number of the value's field, and the value."""
    pairs = [list(fields(value)) for number, value in fields(node) if number == 10]
    return {name[1].decode(): value for name, value in pairs}


def packed(value: bytes) -> list[int]:
    at, found = 0, []
    while at < len(value):
        number, at = varint(value, at)
        found.append(number)
    return found


def test_fields_have_the_numbers_of_the_schema(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_traces(job(tmp_path), tmp_path / "out", last=100)
    metadata, *nodes = records(tmp_path / "out" / "chakra.0.et")
    assert dict(fields(metadata))[1] == b"1.0.0"
    kinds = [dict(fields(node)).get(3) for node in nodes]
    assert kinds == [_COMP, _COLLECTIVE, _COMP, _COLLECTIVE, _COMP, _SEND]
    reduced = attributes(nodes[1])
    assert reduced["comm_type"] == (9, 0)  # ALL_REDUCE as int64_val
    assert reduced["comm_size"] == (9, 16)
    assert reduced["is_cpu_op"] == (27, 0)
    assert reduced["pg_name"] == (29, b"1")
    assert attributes(nodes[3])["comm_type"] == (9, 2)  # ALL_GATHER
    message = attributes(nodes[5])
    assert [message[name] for name in ("comm_src", "comm_dst", "comm_tag")] == [(7, 0), (7, 1), (7, 0)]
    assert attributes(nodes[0])["is_cpu_op"] == (27, 1)
    other = records(tmp_path / "out" / "chakra.1.et")
    assert dict(fields(other[6]))[3] == _RECV


def test_a_computation_is_after_what_it_needs(tmp_path: Path) -> None:
    """Nobody waited for the all_reduce, which ended inside the all_gather: it is before the computation after both."""
    (tmp_path / "out").mkdir()
    write_traces(job(tmp_path), tmp_path / "out", last=100)
    nodes = [dict(fields(node)) for node in records(tmp_path / "out" / "chakra.0.et")[1:]]
    needs = {node.get(1, 0): packed(node.get(5, b"")) for node in nodes}
    assert needs == {0: [], 1: [0], 2: [0], 3: [2], 4: [2, 1, 3], 5: [4]}
    assert all(need < number for number, each in needs.items() for need in each)


def test_what_is_read_back_is_what_was_written(tmp_path: Path) -> None:
    logs = job(tmp_path)
    (tmp_path / "out").mkdir()
    write_traces(logs, tmp_path / "out", last=100)
    again = read_job(tmp_path / "out")
    assert again is not None
    for rank, log in logs.items():
        written = [call for call in log.collectives if call.time_completed_ns is not None]
        found = again.logs[rank].collectives
        assert [(c.op, c.inputs, c.outputs, c.tag, c.is_async) for c in found] == [
            (c.op, c.inputs, c.outputs, c.tag, c.is_async) for c in written
        ]
        assert [again.logs[rank].groups[c.group].ranks for c in found] == [log.groups[c.group].ranks for c in written]


def test_groups_of_one_name_and_other_members_are_two(tmp_path: Path) -> None:
    found = Job(4)
    for pair in ((0, 1), (2, 3)):
        found.group("tp", pair)
        found.call(group="tp", only=pair)
    write_traces(found.logs, tmp_path, last=100)
    again = read_job(tmp_path)
    assert again is not None
    members = [log.groups[log.collectives[0].group].ranks for log in again.logs.values()]
    assert members == [(0, 1), (0, 1), (2, 3), (2, 3)]


def test_the_command_counts_what_it_leaves_out(tmp_path: Path) -> None:
    run = tmp_path / "ranks"
    job(run)
    said = CliRunner().invoke(
        cli, ["export", str(tmp_path), "--format", "chakra", "-o", str(tmp_path / "o"), "--last", "3"]
    )
    assert said.exit_code == 0, said.output
    assert "2 traces with 4 calls, and comm_groups.json" in said.output
    assert "left out: 2 calls: it did not complete" in said.output
    assert "left out: 2 earlier calls" in said.output
    assert json.loads((tmp_path / "o" / "comm_groups.json").read_text()) == {"1": [0, 1], "2": [1, 0]}


def test_a_call_on_a_device_holds_nobody_and_that_is_told(tmp_path: Path) -> None:
    """The computation after the all_gather begins when that is issued: it is not before it."""
    logs = job(tmp_path / "ranks", "cuda:0")
    (tmp_path / "out").mkdir()
    assert write_traces(logs, tmp_path / "out", last=100).on_device == 2
    nodes = [dict(fields(node)) for node in records(tmp_path / "out" / "chakra.0.et")[1:]]
    needs = {node.get(1, 0): packed(node.get(5, b"")) for node in nodes}
    assert needs[4] == [2]
    said = CliRunner().invoke(cli, ["export", str(tmp_path), "--format", "chakra", "-o", str(tmp_path / "o")])
    assert "2 calls on a device: the log does not show what was computed between them" in said.output


def damaged(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "chakra.0.et"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data",
    [b"\xff" * 20, b"\x7f", b"\x05ab", b"\x80", b"\xff\xff\xff\x7f", b"\x02\x0a\x05", b"\x00\x03\x08\x80\x80",
     b"\x00\x04\x12\x02\xff\xfe"],
)  # fmt: skip
def test_bytes_that_are_no_trace_are_one_error(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CapsuleError, match="is not a Chakra execution trace"):
        read_job(damaged(tmp_path, data))
    assert isinstance(CliRunner().invoke(cli, ["why", str(tmp_path)]).exception, CapsuleError)


def test_bounds_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_traces(job(tmp_path / "logs"), tmp_path, last=100)
    monkeypatch.setattr(chakra, "MOST_NODES", 2)
    with pytest.raises(CapsuleError, match="more than 2 nodes"):
        read_job(tmp_path / "chakra.0.et")
    (tmp_path / "chakra.0.et").rename(tmp_path / "first.et")
    with pytest.raises(UsageError, match="does not end with a rank"):
        read_job(tmp_path / "first.et")
