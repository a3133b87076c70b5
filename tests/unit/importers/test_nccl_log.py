"""What NCCL prints with NCCL_DEBUG=INFO, by lines as NCCL 2.22 to 2.30 write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_kineto import all_reduce, trace
from test_kineto import write as write_traces

from prismdbg.cli.main import cli
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers import nccl_log
from prismdbg.importers.nccl_log import NcclLog, read_nccl_logs
from prismdbg.render.nccl_text import nccl_lines


def lines_of(rank: int, *, is_ready: bool = True) -> list[str]:
    here = f"node-{rank // 2}:7{rank}:9{rank} [{rank % 2}] NCCL INFO"
    comm = f"0x55{rank}0"
    ends = [f"{here} ncclCommInitRankConfig comm {comm} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev 0 busId 1000 "
            "commId 0xabc - Init COMPLETE"] if is_ready else []  # fmt: skip
    rings = (
        [f"{here} Channel 00/02 :    0   1   3   2", f"{here} Channel 01/02 :    0   1   3   2"] if rank == 0 else []
    )
    return [
        f"{here} NCCL_SOCKET_IFNAME set by environment to eth0",
        f"{here} Using network IB",
        f"{here} ncclCommInitRankConfig comm {comm} rank {rank} nranks 4 cudaDev {rank % 2} nvmlDev 0 busId 1000 "
        "commId 0xabc - Init START",
        f"{here} comm {comm} rank {rank} nRanks 4 nNodes 2 localRanks 2 localRank {rank % 2} MNNVL 0",
        *rings,
        f"{here} Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1",
        f"{here} 2 coll channels, 2 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer",
        *ends,
        f"[2026-01-01 00:00:00] {here} Channel 00/0 : {rank}[0] -> {(rank + 1) % 4}[1] via P2P/CUMEM",
        f"{here} Channel 01/0 : {rank}[1] -> {(rank + 1) % 4}[0] [send] via NET/IB/0/GDRDMA",
        f"{here} Channel 01/0 : {(rank - 1) % 4}[1] -> {rank}[0] [receive] via NET/IB/0/GDRDMA",
        f"{here} Connected all rings, use ring PXN 0 GDR 1",
    ]


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["step 1: loss 0.5", "NCCL version 2.27.5+cuda12.9", *lines]) + "\n")
    return path


def read(path: Path, *lines: str) -> NcclLog:
    return read_nccl_logs([write(path, *lines)])


def test_one_file_of_all_ranks(tmp_path: Path) -> None:
    log = read(tmp_path / "out.log", *(line for rank in range(4) for line in lines_of(rank, is_ready=rank != 3)))
    (communicator,) = log.communicators
    assert (communicator.size, communicator.nodes) == (4, 2)
    assert (communicator.coll_channels, communicator.p2p_channels) == (2, 4)
    assert communicator.rings == {0: (0, 1, 3, 2), 1: (0, 1, 3, 2)}
    assert (communicator.begun, communicator.ready) == ({0, 1, 2, 3}, {0, 1, 2})
    assert log.transports == {"P2P/CUMEM": 4, "NET/IB": 4}
    assert log.settings == {"NCCL_SOCKET_IFNAME": "eth0"}
    assert list(nccl_lines(log)) == [
        "NCCL 2.27.5+cuda12.9: 4 processes on 2 hosts, network IB",
        "communicator of 4 ranks on 2 nodes, 2 collective and 4 p2p channels",
        "  ring of channel 0: 0 -> 1 -> 3 -> 2",
        "  ring of channel 1: 0 -> 1 -> 3 -> 2",
        "  initialization not complete on rank 3",
        "connections between ranks, by transport: P2P/CUMEM 4, NET/IB 4; 4 with GPUDirect RDMA",
        "set: NCCL_SOCKET_IFNAME=eth0",
    ]


def test_a_file_for_each_rank(tmp_path: Path) -> None:
    log = read_nccl_logs([write(tmp_path / f"{rank}.log", *lines_of(rank)) for rank in range(4)])
    assert len(log.communicators) == 1
    assert log.communicators[0].ready == {0, 1, 2, 3}


def test_a_second_communicator_of_a_process_is_another(tmp_path: Path) -> None:
    here = "node-0:70:91 [0] NCCL INFO ncclCommSplit comm 0x77 rank 0 nranks 2 cudaDev 0 busId 1000 parent 0x5500"
    log = read(tmp_path / "out.log", *lines_of(0), f"{here} splitCount 1 color 5 key 0 - Init COMPLETE")
    assert [each.size for each in log.communicators] == [4, 2]


def test_an_address_that_is_used_again_is_of_another_communicator(tmp_path: Path) -> None:
    """A program begins its group again, and malloc gives the new communicator the place of the old one."""
    first = [line for rank in range(4) for line in lines_of(rank)]
    again = [line.replace("0xabc", "0xdef") for rank in range(4) for line in lines_of(rank, is_ready=False)]
    log = read(tmp_path / "out.log", *first, *again)
    before, after = log.communicators
    assert before.ready == {0, 1, 2, 3} and after.begun - after.ready == {0, 1, 2, 3}
    assert "  initialization not complete on rank 0, 1, 2, 3" in list(nccl_lines(log))


def test_a_split_that_has_the_address_of_an_earlier_one_is_another(tmp_path: Path) -> None:
    """NCCL tells no commId of it: that its initialization starts tells it."""
    here = "node-0:70:91 [0] NCCL INFO"
    shape = f"{here} comm 0x77 rank 0 nRanks {{size}} nNodes 1 localRanks {{size}} localRank 0 MNNVL 0"
    split = f"{here} ncclCommSplit comm 0x77 rank 0 nranks {{size}} cudaDev 0 busId 1000 parent 0x5500 splitCount 1"
    lines = [f"{split} color 5 key 0- Init START", shape, f"{split} color 5 key 0 - Init COMPLETE"]
    texts = [line.format(size=size) for size in (4, 2) for line in lines]
    init = f"{here} ncclCommInitRank comm 0x77 rank 0 nranks 8 cudaDev 0 busId 1000 commId 0xabc - Init START"
    log = read(tmp_path / "out.log", *texts[:-1], init)
    found = [(each.size, each.nodes, each.begun - each.ready) for each in log.communicators]
    assert found == [(4, 1, set()), (2, 1, {0}), (8, 0, {0})]


def test_warnings_are_counted(tmp_path: Path) -> None:
    warned = "node-0:70:91 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer"
    log = read(tmp_path / "out.log", *lines_of(0), warned, warned)
    assert log.processes == {("node-0", "70")}
    assert "warning: socketProgress: Connection closed by remote peer (2 times)" in list(nccl_lines(log))


def test_why_adds_it_to_a_diagnosis(tmp_path: Path) -> None:
    traces = write_traces(tmp_path / "t", *(trace(rank, *all_reduce(10, 1)) for rank in (0, 1)))
    log = write(tmp_path / "out.log", *lines_of(0))
    said = CliRunner().invoke(cli, ["why", str(traces), "--nccl-log", str(log)])
    assert "nccl: communicator of 4 ranks on 2 nodes" in said.output, said.output
    found = json.loads(CliRunner().invoke(cli, ["why", str(traces), "--json", "--nccl-log", str(log)]).output)
    assert found["nccl"]["communicators"][0]["rings"]["0"] == [0, 1, 3, 2]


def test_a_text_without_nccl_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(UsageError, match="contains no line of NCCL's"):
        read_nccl_logs([tmp_path / "x"])


def test_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = f"node-0:70:91 [0] NCCL WARN {'x' * (nccl_log.MAX_LINE_BYTES * 3)}"
    many = [f"node-0:70:91 [0] NCCL WARN {number}" for number in range(nccl_log.MOST_KEPT * 2)]
    log = read(tmp_path / "out.log", long, *many)
    assert len(log.warnings) == nccl_log.MOST_KEPT
    assert max(map(len, log.warnings)) <= 400
    monkeypatch.setattr(nccl_log, "MAX_FILE_BYTES", 100)
    with pytest.raises(CapsuleError, match="is larger than"):
        read_nccl_logs([tmp_path / "out.log"])
    monkeypatch.undo()
    monkeypatch.setattr(nccl_log, "MOST_COMMUNICATORS", 1)
    with pytest.raises(CapsuleError, match="more than 1 communicators"):
        read(tmp_path / "out.log", *lines_of(0), *(line.replace("0x", "0x9") for line in lines_of(1)))
