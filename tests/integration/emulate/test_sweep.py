"""`prismdbg sweep` on a real program: what is impossible or fails is said, what ran is not run again."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import psutil
import pytest
from chain import CLI, prismdbg
from jobs import ROOT, plain_environment, started
from waiting import wait_for

PROGRAM = Path(__file__).parents[1] / "programs" / "swept.py"
pytestmark = pytest.mark.job


def line(output: Path, *options: object, tried: str = "tp=1,2,3,4") -> list[object]:
    sizes = ["--world", 4, "--mesh", "dp,tp", "--try", tried, "--try", "layers=2"]
    program = [sys.executable, PROGRAM, "{tp}", "{layers}"]
    return ["sweep", "-o", output, *sizes, "--memory", "--steps", 4, *options, "--", *program]


def test_configurations_are_compared_and_continued(tmp_path: Path) -> None:
    said = prismdbg(*line(tmp_path / "s", "--jobs", 2, "--json"), bound_s=600)
    assert said.code == 1, "one of them failed"
    one, two, three, four = said.json["results"]
    assert [each["state"] for each in (one, two, three, four)] == ["done", "done", "impossible", "failed"]
    assert three["why"] == "4 ranks are not divisible by tp=3"
    assert "no layer can be shared by 4 ranks" in four["why"]
    # The weights of each rank are all or half of 2 x 64 x 4096 float32.
    assert one["peak_bytes"] - two["peak_bytes"] == pytest.approx(1 << 20, rel=0.2)  # and what is computed of them
    assert one["mesh"] == "dp=4,tp=1" and two["mesh"] == "dp=2,tp=2"
    assert 0 < one["interval_ns"][0] <= one["middle_ns"] <= one["interval_ns"][1]
    assert said.json["pareto"][-1] == "tp=2,layers=2"
    ran = {path: path.stat().st_mtime_ns for path in (tmp_path / "s").glob("trials/*/ran.json")}
    assert len(ran) == 2

    cluster = tmp_path / "slow.yaml"
    text = (ROOT / "examples" / "emulation" / "cluster.yaml").read_text()
    cluster.write_text(text.replace("8 GB/s", "8 MB/s"))
    page = tmp_path / "page.html"
    cap = ["--memory-cap", 3 << 19, "--tokens", "512*{dp}", "--html", page]
    again = prismdbg(*line(tmp_path / "s", "--cluster", cluster, *cap, tried="tp=1,2"))
    assert again.code == 0 and "2 configurations ran before; 0 to go" in again.err
    assert {path: path.stat().st_mtime_ns for path in ran} == ran, "simulated again, not run"
    first, second = [row.split() for row in again.out.splitlines()[1:3]]
    assert first[0] == "tp=2,layers=2", "with slow links, half of the weights are sooner reduced"
    assert "fastest: tp=2,layers=2" in again.out or "no winner: tp=2,layers=2" in again.out
    assert "no" in second and "yes" in first, again.out
    assert page.read_text().count("<circle") == 2


def test_what_is_interrupted_leaves_no_process_and_can_be_continued(tmp_path: Path) -> None:
    command = [*CLI, *map(str, line(tmp_path / "s", tried="tp=2"))]
    with started(command, tmp_path / "out.txt", env=plain_environment()) as job:
        sweeping = psutil.Process(job.process.pid)
        wait_for(lambda: list((tmp_path / "s").glob("trials/*/run/ranks/*/rank.json")), 120, "a rank to run")
        family = sweeping.children(recursive=True)
        assert family
        sweeping.send_signal(signal.SIGINT)
        assert job.wait(60).code == 130
    _, alive = psutil.wait_procs(family, 30)
    assert not alive
    said = prismdbg(*line(tmp_path / "s", "--json", tried="tp=2"), bound_s=600)
    assert said.code == 0 and [each["state"] for each in said.json["results"]] == ["done"]


def test_ranks_of_a_pipeline_can_be_replayed(tmp_path: Path) -> None:
    """What a stage receives from one that ran, nobody can make up again."""
    mesh = ["--world", 2, "--mesh", "pp", "--try", "pp=2", "--steps", 3, "--classes", "pp"]
    program = Path(__file__).parents[1] / "programs" / "piped.py"
    said = prismdbg("sweep", "-o", tmp_path / "s", *mesh, "--json", "--", sys.executable, program, "{pp}", bound_s=600)
    assert said.code == 0, said.err
    run = tmp_path / "s" / "trials" / "pp=2" / "run"
    replayed = prismdbg("replay", run, "--rank", 0, "--runtime", "plain", "--allow-writes", bound_s=300)
    assert replayed.code == 0, replayed.out + replayed.err


def test_real_jobs_are_compared(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "{world}"]
    sizes = ["--world", 2, "--mesh", "dp,tp", "--try", "tp=1,2", "--how", "record"]
    said = prismdbg("sweep", "-o", tmp_path / "s", *sizes, "--json", "--", *torchrun, PROGRAM, "{tp}", 2, bound_s=600)
    assert said.code == 0, said.err
    for each in said.json["results"]:
        assert each["state"] == "done" and len(each["iteration_ns"]) >= 3 and each["peak_bytes"] is None
        described = json.loads((tmp_path / "s" / "trials" / each["name"] / "run" / "run.json").read_text())
        assert described["command"][-2] == each["values"]["tp"]
