"""`prismdbg graph` over a saved graph: what it prints, and what it says of bad requests."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh

CLUSTER = "ranks_per_node: 4\ntiers:\n  all: {spans: job, latency: 1 us, bandwidth: 10 GB/s}\n"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    shape = GptShape(layers=4, hidden=1024, microbatches=4, vocabulary=100)
    graph_file.save(gpt_job(Mesh.parse("pp=2,dp=2,tp=2"), shape), folder / graph_file.FILE_NAME)
    (folder / "cluster.yaml").write_text(CLUSTER)
    return folder


def ask(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main.run(["graph", *map(str, arguments)])
    said = capsys.readouterr()
    return code, said.out, said.err


def values(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    code, out, _ = ask(capsys, *arguments, "--json")
    assert code == ExitCode.OK
    return json.loads(out)


def test_simulate_draws_the_stages_and_says_what_it_is_worth(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = ask(capsys, "simulate", run_folder)

    assert code == ExitCode.OK
    assert out.startswith("8 ranks, pp=2,dp=2,tp=2: ")
    assert "stage 0 FF" in out and "stage 1 ·" in out and "pp+1" in out
    assert "not reliable: absolute times of communication" in out
    assert "are assumed" in err


def test_of_a_capsule_the_graph_that_lies_beside_it_is_read(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsule = tmp_path / "nan-rank1"
    capsule.mkdir()
    code, _, err = ask(capsys, "simulate", capsule)
    assert code == ExitCode.USAGE and "contains no graph.npz" in err
    (tmp_path / "nan-rank1.graph.npz").write_bytes((run_folder / "graph.npz").read_bytes())
    assert ask(capsys, "simulate", capsule)[1].startswith("8 ranks, pp=2,dp=2,tp=2: ")


def test_a_cluster_of_ones_own(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assumed = values(capsys, "simulate", run_folder)
    own = values(capsys, "simulate", run_folder / "graph.npz", "--cluster", run_folder / "cluster.yaml")

    assert own["iteration_ns"] > assumed["iteration_ns"]
    assert own["world"] == 8 and any(row["late_ns"] for row in own["channels"])


def test_the_critical_path_adds_up(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = values(capsys, "critical-path", run_folder)
    assert sum(row["taken_ns"] for row in found["critical_path"]) == found["iteration_ns"]

    _, out, _ = ask(capsys, "critical-path", run_folder, "--most", 1)
    assert f"{len(found['critical_path']) - 1} more, together" in out


def test_what_if(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    delayed = values(capsys, "what-if", run_folder, "--delay", "0=5 ms")
    assert delayed["after"]["iteration_ns"] == delayed["before"]["iteration_ns"] + 5_000_000

    slow = values(capsys, "what-if", run_folder, "--slow-rank", "3=1.5")
    assert [row["rank"] for row in slow["after"]["stragglers"]] == [3]

    faster = values(
        capsys, "what-if", run_folder, "--kernel", "* mlp=0.5", "--tier", "nvlink=0.5", "--order", "tp,pp,dp"
    )
    assert faster["after"]["mesh"] == "pp=2,dp=2,tp=2 in the order tp,pp,dp"

    _, out, _ = ask(capsys, "what-if", run_folder, "--slow-link", "0=4")
    assert " becomes " in out and "+" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no change given"),
        (("--slow-rank", "3"), "write NAME=VALUE"),
        (("--slow-rank", "3=fast"), "is not a factor"),
        (("--slow-rank", "x=2"), "'x' is not a rank"),
        (("--delay", "3=5"), "'5' has no unit"),
        (("--slow-rank", "8=2"), "rank 8 is not in the mesh"),
        (("--order", "tp,pp"), "does not contain each axis"),
        (("--kernel", "gemm=2"), "no computation has the name 'gemm'"),
    ],
)
def test_a_change_that_makes_no_sense(
    run_folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, _, err = ask(capsys, "what-if", run_folder, *arguments)
    assert (code, said in err) == (ExitCode.USAGE, True), err
    assert "--cluster" not in err, "what is assumed is said of a result"


def test_export(run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = ask(capsys, "export", run_folder, "-o", tmp_path / "trace.json", "--rank", 5)

    assert code == ExitCode.OK and "2 classes of 8 ranks" in err
    processes = [
        e for e in json.loads((tmp_path / "trace.json").read_text())["traceEvents"] if e["name"] == "process_name"
    ]
    assert len(processes) == 4, "the critical path, two classes, one rank"


def test_a_page(run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, err = ask(capsys, "simulate", run_folder, "--html", tmp_path / "page.html")

    assert code == ExitCode.OK and "for any browser" in err
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert out.startswith("8 ranks"), "what is printed else, too"


def test_a_gpt_that_nobody_ran(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shape = ("--layers", 4, "--hidden", 64, "--microbatches", 3, "--spread", 10)
    code, _, err = ask(capsys, "gpt", "-o", tmp_path / "graph.npz", "--mesh", "pp=2,dp=4,tp=2", *shape)
    assert code == ExitCode.OK and "16 ranks in 2 classes" in err

    found = values(capsys, "simulate", tmp_path)
    assert len(found["stragglers"]) > 1, "ranks differ in speed"
    assert any("nothing ran" in doubt for doubt in found["fidelity"]["doubts"])

    code, _, err = ask(capsys, "gpt", "-o", tmp_path / "no.npz", "--mesh", "pp=3,ep=2", *shape)
    assert (code, "this model has no axis 'ep'" in err) == (ExitCode.USAGE, True)
    assert not (tmp_path / "no.npz").exists()


@pytest.mark.parametrize(
    "arguments", [("simulate",), ("critical-path",), ("what-if", "--delay", "0=1ms"), ("export", "-o", "{tmp}/t.json")]
)
def test_no_result_without_what_it_is_worth(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    name, *rest = (argument.format(tmp=tmp_path) for argument in arguments)
    _, out, err = ask(capsys, name, run_folder, *rest)
    assert "100.0% assumed" in out + err and "not reliable" in out + err


@pytest.mark.parametrize(
    ("arguments", "sides"),
    [
        (("simulate",), ((),)),
        (("critical-path",), ((),)),
        (("what-if", "--delay", "0=1ms"), (("before",), ("after",))),
        (("what-if", "--order", "dp,tp,pp"), (("before",), ("after",))),
    ],
)
def test_no_values_without_what_they_are_worth(
    run_folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], sides: tuple[tuple[str, ...], ...]
) -> None:
    """Also of what is compared: the fidelity lies beside each iteration, and nowhere else is one."""
    name, *rest = arguments
    found = values(capsys, name, run_folder, *rest)
    of_sides = [found[side[0]] if side else found for side in sides]
    for side in of_sides:
        assert side["iteration_ns"] > 0
        assert side["fidelity"]["summary"] == "of the time 100.0% assumed"
        assert side["fidelity"]["shares"] and side["fidelity"]["doubts"]
    assert json.dumps(found).count('"iteration_ns"') == len(of_sides)
    if name == "what-if":
        assert any("nothing ran" in doubt for doubt in of_sides[1]["fidelity"]["doubts"])


def test_what_has_not_converged_is_said_with_every_result(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    shutil.copy(run_folder / graph_file.FILE_NAME, tmp_path)
    ranks = [{"rank": 3, "simulated_ns": 90, "emulated_ns": 100, "components": {}}]
    passes = {"clock": "wall", "until": 0.01, "has_converged": False, "passes": [{"number": 4, "ranks": ranks}]}
    (tmp_path / "passes.json").write_text(json.dumps(passes))
    told = "have not converged, rank 3's iteration, simulated less emulated, is -10.00% of an iteration"

    for arguments in (("simulate",), ("critical-path",), ("what-if", "--delay", "0=1ms"), ("export", "-o", "t.json")):
        name, *rest = (str(tmp_path / "t.json") if argument == "t.json" else argument for argument in arguments)
        _, out, err = ask(capsys, name, tmp_path, *rest)
        assert told in out + err, name
        if name != "export":
            assert told in json.dumps(values(capsys, name, tmp_path, *rest)), name
    assert told in (tmp_path / "t.json").read_text()
    _, out, _ = ask(capsys, "simulate", tmp_path, "--html", tmp_path / "page.html")
    assert told.replace("'", "&#x27;") in (tmp_path / "page.html").read_text().replace("&#39;", "&#x27;")
    after = values(capsys, "what-if", tmp_path, "--delay", "0=1ms")["after"]["fidelity"]
    assert after["errors"] == [] and any(told in doubt for doubt in after["doubts"])


def test_a_graph_is_not_built_from_a_graph(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "graph.npz").write_bytes(b"PK")
    code, _, err = ask(capsys, "build", tmp_path / "graph.npz", "--stretch", "dp=512")
    assert (code, "is a graph, not a run or a capsule" in err) == (ExitCode.USAGE, True), err


def test_a_stretched_graph_does_not_take_the_place_of_the_runs_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "run.json").write_text("{}")
    code, _, err = ask(capsys, "build", tmp_path, "--stretch", "dp=512")
    assert (code, f"-o {tmp_path}" in err) == (ExitCode.USAGE, True), err


def test_a_run_without_logs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = ask(capsys, "build", tmp_path, "--mesh", "dp=2")
    assert (code, "is neither a run folder nor a capsule" in err) == (ExitCode.USAGE, True), err


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        (
            CLUSTER.replace("1 us", "1"),
            "cluster.yaml, line 3: tiers.all.latency: '1' has no unit",
            "write it as in 5 us",
        ),
        (CLUSTER.replace("spans: job", "spans: node"), "no tier spans the job", "give the last one spans: job"),
        (
            CLUSTER.replace("latency", "speed"),
            "line 3: tiers.all.speed: is not a key of this mapping",
            "give one of: spans, latency",
        ),
        (CLUSTER.replace("1 us", "2000000000 s"), "'2000000000 s' is longer than a month", ""),
        (CLUSTER.replace("10 GB/s", "1 B/s"), "bytes over all would take", "its bandwidth of 1 B/s"),
        (CLUSTER.replace("spans: job", "spans: rack"), "'rack' is not a span of links", "write node, job, or"),
        (
            CLUSTER.replace("  all", "\tall"),
            "cluster.yaml is not YAML",
            "give a file like examples/emulation/cluster.yaml",
        ),
        (CLUSTER + "slower: {compute: {5-2: 2}}\n", "'5-2' is in descending order", "write 64-127"),
        (CLUSTER + "slower: {links: {0-99999999: 2}}\n", "contains too many ranks", "write 64-127"),
        (CLUSTER + "slower: {compute: {99: 2}}\n", "rank 99 is not in the mesh", "give a rank from 0 to 7"),
        (None, "cannot be read", "give a file like examples/emulation/cluster.yaml"),
    ],
)
def test_a_cluster_file_that_makes_no_sense(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str | None, said: str, fix: str
) -> None:
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    code, out, err = ask(capsys, "simulate", run_folder, "--cluster", path, "--html", tmp_path / "page.html")
    assert (code, out) == (ExitCode.USAGE, "")
    assert said in err and fix in err
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("simulate", "{run}", "--html", "{tmp}/no/page.html"),
        ("export", "{run}", "-o", "{tmp}/no/trace.json"),
        ("gpt", "-o", "{tmp}/no/graph.npz", "--mesh", "pp=2", "--layers", 2, "--hidden", 8),
    ],
)
def test_a_file_that_cannot_be_written(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, arguments: tuple[object, ...]
) -> None:
    code, _, err = ask(capsys, *(str(argument).format(run=run_folder, tmp=tmp_path) for argument in arguments))
    assert (code, "cannot be written: No such file or directory" in err) == (ExitCode.USAGE, True), err


def test_a_file_on_what_is_read_only(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There removing what is not there fails in the same way."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("write_text", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    code, _, err = ask(capsys, "simulate", run_folder, "--html", tmp_path / "page.html")
    assert (code, "page.html cannot be written: Read-only file system" in err) == (ExitCode.USAGE, True), err


def test_what_is_no_graph(run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = ask(capsys, "simulate", tmp_path)
    assert (code, f"run prismdbg graph build {tmp_path}" in err) == (ExitCode.USAGE, True)
    assert ask(capsys, "simulate", run_folder / "cluster.yaml")[0] == ExitCode.BAD_CAPSULE
