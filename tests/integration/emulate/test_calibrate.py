"""Collectives really measured under torchrun, and everything that can go wrong before there is a cluster file."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from chain import CLI
from jobs import ROOT, plain_environment
from spawning import Spawn
from waiting import wait_for

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import FacilityError, WaitTimeout
from prismdbg.jobs.record import calibrate as workflow
from prismdbg.jobs.record.calibrate import MEASURES, CalibrateRequest, Measurement, calibrate
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.cluster.cluster import Factor
from prismdbg.simulate.quantities import MILLION

pytestmark = pytest.mark.job

FEW = CalibrateRequest(
    groups=(2,),
    sizes=(1 << 10, 1 << 16),
    ops=("all_reduce", "barrier", "send"),
    rounds=2,
    bound_s=5,
    pin=True,
    without=MEASURES,
)
LARGEST = 100.0  # of a factor, on a machine with much other work


def silent(_text: str) -> None:
    pass


def measuring() -> list[psutil.Process]:
    """What a calibration started, and what that started."""
    return psutil.Process().children(recursive=True)


def test_a_cluster_file_of_this_machine() -> None:
    found = calibrate(FEW, silent)
    assert isinstance(found, Measurement) and found.rounds >= 1 and not found.unsupported
    samples = [compared.sample for compared in found.calibrated.compared]

    assert {(s.op, s.size_bytes) for s in samples} == {
        ("all_reduce", 1 << 10), ("all_reduce", 1 << 16), ("barrier", 0), ("send", 1 << 10), ("send", 1 << 16),
    }  # fmt: skip
    assert all(min(sample.times_ns) > 0 for sample in samples)
    cluster = cluster_file.parse(found.text())
    assert cluster == found.calibrated.cluster
    assert cluster.is_measured and cluster.calibration is not None and "2 ranks, pinned" in cluster.calibration.machine
    assert cluster.eager_bytes == 0, "gloo's send waits for its receiver"
    assert not found.factors and found.not_measured == dict.fromkeys(MEASURES, "left out as requested")
    assert measuring() == []


def test_the_command_measures_overlap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And names what two ranks that have a CPU each cannot tell."""
    file = tmp_path / "c.yaml"
    assert main.run(["calibrate", "-o", str(file), "--ranks", "2", "--quick"]) == ExitCode.OK
    said = capsys.readouterr().out
    cluster = cluster_file.read(file)

    assert "computation beside a transfer" in said and "a transfer beside computation" in said
    assert "not measured: links: 2 ranks make one group of 2; give --ranks 2,4" in said
    assert MILLION <= cluster.compute_overlap_ppm < LARGEST * MILLION
    assert MILLION <= cluster.transfer_overlap_ppm < LARGEST * MILLION
    assert not cluster.shared_links.points
    assert cluster.calibration is not None
    told = {name: fit.cases for name, fit in cluster.calibration.factors.items() if name is not Factor.PROCESSORS}
    kinds_and_sizes = 4
    assert told.keys() == {Factor.COMPUTE_OVERLAP, Factor.COMMUNICATION_OVERLAP}
    assert all(1 <= cases <= kinds_and_sizes for cases in told.values())
    has_one_each = len(os.sched_getaffinity(0)) >= 2
    assert ("not measured: processors: each of 2 ranks has one of" in said) == has_one_each
    assert bool(cluster.processors.points) == (not has_one_each)


def test_groups_that_share_links_and_ranks_that_share_cpus() -> None:
    """Twice as many ranks as there are CPUs take about twice as long, less what other programs took of the CPUs."""
    cpus = len(os.sched_getaffinity(0))
    ranks = 2 * cpus + cpus % 2
    request = replace(
        FEW, groups=(2, ranks), sizes=(1 << 20,), ops=("all_reduce",), rounds=6, bound_s=20, without=("overlap",)
    )
    found = calibrate(request, silent)
    assert isinstance(found, Measurement)
    cluster = cluster_file.parse(found.text())

    assert cluster == found.calibrated.cluster and found.not_measured == {"overlap": "left out as requested"}
    assert found.factors.keys() == {Factor.LINKS, Factor.PROCESSORS}
    assert [count for count, _ in cluster.shared_links.points][-1] == ranks // 2
    assert all(MILLION <= ppm < LARGEST * MILLION for _, ppm in cluster.shared_links.points)
    assert 1_500_000 < cluster.processors.ppm(ranks) < 4 * MILLION
    assert (cluster.compute_overlap_ppm, cluster.transfer_overlap_ppm) == (MILLION, MILLION)


def test_two_nodes_on_this_machine() -> None:
    """Each is told the same but its number; the first has the result. Links between nodes are a tier of their own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        head = f"127.0.0.1:{free.getsockname()[1]}"
    found: list[Measurement | None] = []

    def node(number: int) -> None:
        request = replace(FEW, sizes=(1 << 12,), rounds=1, pin=False, nodes=2, node_rank=number, head=head, without=())
        found.append(calibrate(request, silent))

    nodes = [threading.Thread(target=node, args=[number]) for number in range(2)]
    for thread in nodes:
        thread.start()
    for thread in nodes:
        thread.join(120)
    (measured,) = [each for each in found if each is not None]

    assert len(found) == 2
    assert [(t.name, t.spans) for t in measured.calibrated.cluster.tiers] == [("node", 2), ("network", 0)]
    across = [c.sample.where for c in measured.calibrated.compared if c.sample.where.nodes == 2]
    assert {(where.members, where.local, where.tier) for where in across} == {(2, 1, 1), (4, 2, 1)}


class TestWhatGoesWrong:
    @pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be GPUs here")
    def test_no_gpu(self) -> None:
        with pytest.raises(FacilityError, match=r"has 0 GPUs, but 2 ranks|this torch has no backend nccl"):
            calibrate(CalibrateRequest(backend="nccl", groups=(2,), bound_s=1), silent)

    def test_a_job_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workflow, "_PROGRAM", "prismdbg.no_such_program")
        with pytest.raises(FacilityError, match=r"ended with code 1: .*No module named prismdbg.no_such_program"):
            calibrate(FEW, silent)

    def test_a_job_that_does_not_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workflow, "START_BOUND_S", -2.9 * FEW.bound_s)
        with pytest.raises(WaitTimeout, match="for the job that measures collectives; it was killed"):
            calibrate(FEW, silent)
        wait_for(lambda: measuring() == [], 20, "its ranks to be gone, too")

    def test_no_torch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(workflow, "find_spec", lambda _name: None)
        with pytest.raises(FacilityError, match="has no torch"):
            calibrate(FEW, silent)


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_one_leaves_nothing(number: signal.Signals, code: int, tmp_path: Path, spawn: Spawn) -> None:
    (tmp_path / "tmp").mkdir()
    words = [*CLI, "calibrate", "-o", str(tmp_path / "c.yaml"), "--ranks", "2"]
    environment = plain_environment(TMPDIR=str(tmp_path / "tmp"))
    started = spawn(*words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = psutil.Process(started.pid)
    ranks = wait_for(lambda: len(found := seen.children(recursive=True)) > 2 and found, 60, "the ranks")
    started.send_signal(number)
    assert started.wait(60) == code
    wait_for(lambda: not any(map(is_alive, ranks)), 20, "the kernel to end its ranks, which are killed by then")
    assert [path.name for path in tmp_path.iterdir()] == ["tmp"]
    assert list((tmp_path / "tmp").glob("prismdbg*")) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--ranks", "1"), "a group needs at least two ranks"),
        (("--sizes", "12 parsecs"), "is not a size"),
        (("--ranks", ""), "contains no rank"),
        (("--ranks", "100000"), "100,000 ranks are too many for this machine"),
        (("--sizes", ""), "is not a list of sizes"),
        (("--sizes", "0"), "no message sizes given"),
        (("--sizes", "100TiB"), "messages of 100 TiB among 4 ranks do not fit"),
        (("--nodes", "2", "--head", "there"), "--head 'there' is not an address"),
        (("--nodes", "2", "--head", "there:0"), "--head 'there:0' is not an address"),
        (("--nodes", "2", "--head", ":29500"), "--head ':29500' is not an address"),
        (("-o", "/proc/c.yaml"), "/proc/c.yaml cannot be written"),
        (("--nodes", "2"), "--nodes N and --head HOST:PORT belong together"),
        (("--node-rank", "1"), "node 1 does not exist: the nodes are 0 to 0"),
        (("--backend", "mpi"), "'mpi' is not one of"),
        (("--without", "sleep"), "'sleep' is not one of"),
        (("-o", "{tmp}/there"), "there already exists"),
        (("-o", "{tmp}/no/folder/c.yaml"), "no such folder"),
    ],
)
def test_what_makes_no_sense(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "there").touch()
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    code = main.run(["calibrate", "-o", str(tmp_path / "c.yaml"), *given])
    assert (code, said in capsys.readouterr().err) == (ExitCode.USAGE, True)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
