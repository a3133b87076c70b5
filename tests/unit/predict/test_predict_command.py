"""`prismdbg predict`, with samples of a fake machine, through the real fits."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from itertools import count, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner, Result

from prismdbg.cli import main
from prismdbg.cli.commands.calibrate import command as calibrate_command
from prismdbg.cli.commands.predict import command
from prismdbg.cli.commands.sweep import command as sweep_command
from prismdbg.cli.terminal import long_work
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.job_graph.job_view import job_view
from prismdbg.predict.fit import regressor
from prismdbg.predict.operators.work import Floats
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import graph_file
from prismdbg.sweep.predictor import PREDICTION_ERROR, Described, Prediction, Predictor
from prismdbg.sweep.stored import read_sweep

MODEL = "kind: llama\nlayers: 4\nhidden: 512\nheads: 8\nvocabulary: 1024\nsequence: 256\n"
CLUSTER = "ranks_per_node: 8\ntiers:\n  link: {spans: job, latency: 1 us, bandwidth: 100 GB/s}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Linears at 10 TFLOP/s and norms at 100 GB/s."""
    (tmp_path / "ops").mkdir()
    rows = [(1, 1, length, dim) for length, dim in product((128, 256, 512), (256, 512, 1024))]
    with (tmp_path / "ops/linear3.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["mp", "b", "l", "dim", "forward_us", "backward_us"])
        writer.writerows([*row, 8 * row[2] * row[3] ** 2 / 1e7, 16 * row[2] * row[3] ** 2 / 1e7] for row in rows)
    with (tmp_path / "ops/RMSlayernorm.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["b", "l", "dim", "forward_us", "backward_us"])
        writer.writerows([*row[1:], row[2] * row[3] / 2.5e4, row[2] * row[3] / 1e4] for row in rows)
    (tmp_path / "model.yaml").write_text(MODEL)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


def run(folder: Path, *more: str) -> Result:
    given = ["--ops", folder / "ops", "--cluster", folder / "cluster.yaml", folder / "model.yaml"]
    return CliRunner().invoke(command, [*map(str, given), *more], catch_exceptions=False, standalone_mode=False)


def test_time_and_memory_are_said_with_what_they_rest_on(folder: Path) -> None:
    said = run(folder, "--mesh", "pp=2,dp=2", "--batch", "8").output
    assert "on 4 ranks, pp=2,dp=2" in said and "tokens/s" in said
    assert "stage 0: " in said and "stage 1: " in said and "optimizer" in said
    assert "RMSlayernorm tokens=256 width=512" not in said  # between the samples
    assert "linear k=512 m=256 n=512: n=512 (sampled: 1024 to 4096)" in said
    assert "not reliable: times of flash_atten, estimated by its bytes at the median rate" in said


COLLECTIVES = "shape,nodes,GPUsPerNode,dur(us)\n" + "".join(
    f"{shape},{nodes},{gpus},{20 * nodes * (50 + shape / 1e4)}\n"
    for nodes, gpus in ((1, 2), (2, 2))
    for shape in range(1_000, 4_000_000, 40_000)
)


def calibrate(*words: object) -> Result:
    return CliRunner().invoke(calibrate_command, list(map(str, words)), catch_exceptions=False, standalone_mode=False)


def test_times_of_collectives_are_named_as_not_used_with_what_uses_them(folder: Path) -> None:
    for ran in (run(folder, "--mesh", "dp=2", "--batch", "8"), sweep(folder)):
        assert "not used" not in ran.stderr
    (folder / "ops/allreduce_fp16_2_2.csv").write_text(COLLECTIVES)
    used = f"allreduce not used: times of collectives come from {folder / 'cluster.yaml'}; to use these, make a cluster"
    for ran in (run(folder, "--mesh", "dp=2", "--batch", "8"), sweep(folder)):
        assert f"{used} file: prismdbg calibrate --from {folder / 'ops'} -o FILE" in " ".join(ran.stderr.split())


def test_collectives_that_no_cluster_file_can_be_made_from_are_not_recommended(folder: Path) -> None:
    (folder / "ops/broadcast_fp16.csv").write_text(COLLECTIVES)
    said = " ".join(run(folder, "--mesh", "dp=2", "--batch", "8").stderr.split())
    assert "broadcast_fp16.csv is left out: unknown collective 'broadcast'" in said and "calibrate" not in said
    (folder / "ops/allreduce_fp16.csv").write_text(COLLECTIVES)
    said = " ".join(run(folder, "--mesh", "dp=2", "--batch", "8").stderr.split())
    assert "allreduce not used: times of collectives" in said
    made = calibrate("--from", folder / "ops", "-o", folder / "made.yaml")
    assert "not used, because they have no times of allreduce" in made.stderr
    assert "RMSlayernorm.csv, broadcast_fp16.csv, linear3.csv" in made.stderr


def test_a_cluster_file_is_made_from_times_of_collectives(folder: Path) -> None:
    (folder / "ops/allreduce_fp16.csv").write_text(COLLECTIVES)
    made = folder / "made.yaml"
    said = calibrate("--from", folder / "ops", "-o", made)
    assert "all_reduce  2x2" in said.stdout and ": RMSlayernorm.csv, linear3.csv" in said.stderr
    cluster = cluster_file.read(made)
    assert cluster.calibration is not None and cluster.calibration.fits["all_reduce"].largest_ppm < 20_000
    (folder / "cluster.yaml").write_text(made.read_text())
    ran = run(folder, "--mesh", "dp=2", "--batch", "8", "--json")
    assert "not used" not in ran.stderr
    doubts = " ".join(json.loads(ran.stdout)["fidelity"]["doubts"])
    assert "this is the largest error of the model of all_reduce on the machine of these files" in doubts


def test_tables_of_a_file_are_values_too(folder: Path) -> None:
    path = folder / "allreduce_fp16.csv"
    path.write_text(COLLECTIVES)
    values = json.loads(calibrate("--from", path, "-o", folder / "made.yaml", "--json").stdout)
    assert [(t["op"], t["nodes"], t["ranks"], t["sizes"]) for t in values["tables"]] == [
        ("all_reduce", 1, 2, 100),
        ("all_reduce", 2, 4, 100),
    ]
    assert values["tables"][0]["errors"]["largest"] < 0.02 and values["tiers"]["node"]["tables"] == ["all_reduce"]


@pytest.mark.parametrize("more", [("--ranks", "2,4"), ("--backend", "gloo"), ("--quick",), ("--nodes", "1")])
def test_files_and_a_measurement_are_not_asked_for_at_once(folder: Path, more: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match=f"{more[0]} cannot be combined with --from"):
        calibrate("--from", folder, "-o", folder / "made.yaml", *more)


def test_what_cannot_be_read_leaves_no_cluster_file(folder: Path) -> None:
    path = folder / "allreduce_fp16.csv"
    path.write_text("shape,nodes,GPUsPerNode,dur(us)\n1,1,2,-5\n")
    with pytest.raises(CapsuleError, match=f"{path}, line 2"):
        calibrate("--from", path, "-o", folder / "made.yaml")
    assert not (folder / "made.yaml").exists()


def test_an_unknown_operator_is_named_and_the_others_are_used(folder: Path) -> None:
    (folder / "ops/NVIDIAH200_moe_bf16.csv").write_text("mp,b,moe_num_experts,F_dur(us)\n1,1,8,5\n")
    for ran in (run(folder, "--mesh", "pp=2,dp=2", "--batch", "8"), sweep(folder)):
        assert "NVIDIAH200_moe_bf16.csv is left out: unknown operator 'NVIDIAH200_moe'" in ran.stderr


def test_how_far_it_is_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(long_work, "LongWork", lambda *_, **__: SimpleNamespace(show=told.append, over=lambda: None))
    run(folder, "--mesh", "pp=2,dp=2", "--batch", "8")
    assert told[:3] == [*(f"reading the times of operators: {n} of 2" for n in (1, 2)), "calculating stages: 1 of 2"]
    assert told[3].startswith("fitting the times of ") and told[3].endswith(": 0 fitted so far")


def test_the_graph_is_written_and_its_time_is_that_of_the_values(folder: Path) -> None:
    ran = run(folder, "--mesh", "pp=2,dp=2", "--batch", "8", "--json", "-o", str(folder / "graph.npz"))
    values = json.loads(ran.stdout)
    graph = graph_file.load(folder / "graph.npz")
    assert graph.mesh.world == values["world"] == 4
    assert values["stages"][0]["peak_bytes"] == graph.peak_bytes[0]
    linears = 4 / 2 * 4 * 6 * 256 * (512 * 1536 + 512 * 512 + 3 * 512 * 2048) / 1e13 * 1e9  # four microbatches
    assert values["iteration_ns"] > linears
    assert {row["channel"] for row in values["channels"]} >= {"dp", "pp+1#f"}
    assert values["fidelity"]["doubts"] and values["stages"][0]["activation_bytes"] > 0
    assert f"graph simulate {folder / 'graph.npz'} --cluster {folder / 'cluster.yaml'}" in ran.stderr


def test_an_operator_with_too_few_samples_is_as_one_without_any(folder: Path) -> None:
    """`sample` ends when its time is over: what it left must be readable."""
    name = folder / "ops/linear3.csv"
    name.write_text("".join(name.read_text().splitlines(keepends=True)[:4]))
    said = run(folder, "--mesh", "pp=2,dp=2", "--batch", "8").stdout
    assert "OPS has 3 samples of it, and a fit needs 4" in said


def test_what_cannot_be_is_one_error_and_nothing_is_written(folder: Path) -> None:
    with pytest.raises(UsageError, match="4 layers cannot be divided among 3"):
        run(folder, "--mesh", "pp=3", "--batch", "3", "-o", str(folder / "graph.npz"))
    assert not (folder / "graph.npz").exists()


def sweep(folder: Path, *more: str, ops: bool = True, words: tuple[str, ...] = ()) -> Result:
    given = ["--how", "predict", "--world", "8", "--mesh", "pp,dp,tp", "--try", "pp=1,2,4", "--try", "tp=1,4"]
    given += ["--try", "rc=none,full", "--memory-cap", "1GB"]
    given += ["--cluster", str(folder / "cluster.yaml"), *(["--ops", str(folder / "ops")] if ops else [])]
    job = ["--", str(folder / "model.yaml"), "--batch", "8", "--recompute", "{rc}", *words]
    return CliRunner().invoke(sweep_command, [*given, *more, *job], catch_exceptions=False, standalone_mode=False)


def test_a_sweep_predicts_each_configuration_as_the_command_does_and_runs_nothing(folder: Path) -> None:
    values = json.loads(sweep(folder, "--json", "--tokens", "8*256").stdout)
    by_name = {each["name"]: each for each in values["results"]}
    assert by_name["pp=4,tp=4,rc=none"]["state"] == "impossible", "16 ranks"
    one = by_name["pp=2,tp=1,rc=full"]
    alone = run(folder, "--mesh", "pp=2,dp=4,tp=1", "--batch", "8", "--recompute", "full", "--json")
    predicted = json.loads(alone.stdout)
    assert one["middle_ns"] == predicted["iteration_ns"]
    assert one["peak_bytes"] == max(stage["peak_bytes"] for stage in predicted["stages"])
    assert set(one["exposed"]) <= {"pp", "dp", "tp", "world"}
    assert by_name["pp=2,tp=1,rc=none"]["recomputed"] == 0
    assert 0.09 < one["recomputed"] < 0.25, "a forward pass of three, and of these what an iteration computes"
    assert by_name["pp=2,tp=1,rc=full"]["peak_bytes"] < by_name["pp=2,tp=1,rc=none"]["peak_bytes"]
    assert sorted(path.name for path in folder.iterdir()) == ["cluster.yaml", "model.yaml", "ops"]


def test_predictions_are_kept_in_a_folder_that_opens_as_those_of_a_sweep(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = {
        each["name"]: each for each in json.loads(sweep(folder, "--json", "-o", str(folder / "s")).stdout)["results"]
    }
    kept = read_sweep(folder / "s")
    assert {each.name: json.loads(json.dumps(each.to_json())) for each in kept.results} == {
        name: {key: value for key, value in each.items() if key not in ("interval_ns", "fits")}
        for name, each in printed.items()
    }
    assert kept.unfinished == () and kept.cap_bytes == 10**9
    assert main.run(["open", str(folder / "s")]) == 0
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("pp=2,tp=1,rc=full\t")]
    assert str(printed["pp=2,tp=1,rc=full"]["middle_ns"]) in row
    view = job_view(kept.run("pp=2,tp=1,rc=full"), kept.cluster, lambda _: None)
    assert view.graph.mesh.world == 8
    assert simulate(view.graph, view.cluster).iteration_ns == printed["pp=2,tp=1,rc=full"]["middle_ns"]


def test_predictions_of_other_operators_replace_those_of_an_earlier_start(folder: Path) -> None:
    sweep(folder, "-o", str(folder / "s"))
    before = {each.name: each.middle_ns for each in read_sweep(folder / "s").results}
    (folder / "s/trials/pp=2,tp=1,rc=full").rename(folder / "s/trials/pp=3")
    (folder / "cluster.yaml").write_text(CLUSTER.replace("100 GB/s", "1 GB/s"))
    sweep(folder, "-o", str(folder / "s"))
    after = read_sweep(folder / "s")
    assert {each.name for each in after.results} == before.keys() and not after.unfinished
    assert all(each.middle_ns > before[each.name] for each in after.results if each.middle_ns)


def test_while_others_are_predicted_none_of_an_earlier_start_is_shown(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(folder, "-o", str(folder / "s"))
    assert len(read_sweep(folder / "s").results) > 1
    predict, calls = Predictor.predict, count()

    def once(self: Predictor, described: Described) -> Prediction:
        if next(calls):
            raise RuntimeError("ended")
        return predict(self, described)

    monkeypatch.setattr(Predictor, "predict", once)
    with pytest.raises(RuntimeError, match="ended"):
        sweep(folder, "-o", str(folder / "s"))
    found = read_sweep(folder / "s")
    assert [each.name for each in found.results] == ["pp=1,tp=1,rc=none"] and not found.unfinished


def test_a_folder_of_something_else_is_refused_before_anything_is_predicted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Predictor, "predict", lambda *_: pytest.fail("it predicts"))
    with pytest.raises(UsageError, match="ops"):
        sweep(folder, "-o", str(folder / "ops"))
    assert sorted(path.name for path in (folder / "ops").iterdir()) == ["RMSlayernorm.csv", "linear3.csv"]


def test_a_sweep_doubts_what_the_command_doubts_of_each_configuration(folder: Path) -> None:
    ran = sweep(folder, "--json")
    by_name = {each["name"]: each for each in json.loads(ran.stdout)["results"]}
    for pp, dp, tp in ((1, 8, 1), (1, 2, 4)):  # of the second, the shapes of the first would be too many
        alone = run(folder, "--mesh", f"pp={pp},dp={dp},tp={tp}", "--batch", "8").stdout
        doubts = [line.removeprefix("not reliable: ") for line in alone.splitlines() if line.startswith("not reliable")]
        assert any("outside what was sampled" in doubt for doubt in doubts)
        assert by_name[f"pp={pp},tp={tp},rc=none"]["doubts"] == doubts
    said = sweep(folder).stdout.splitlines()
    assert any(
        line.startswith("not reliable: times of flash_atten, estimated by its bytes at the median rate")
        for line in said
    )
    assert len(said) == len(set(said))


def test_a_model_that_cannot_be_divided_is_impossible_and_the_table_says_so(folder: Path) -> None:
    (folder / "model.yaml").write_text(MODEL.replace("layers: 4", "layers: 6"))
    assert "impossible: 6 layers cannot be divided among 4 chunks of stages" in sweep(folder).output


MEASURED = "kind: gpt\nlayers: 8\nhidden: 6144\nheads: 64\nvocabulary: 51200\nsequence: 2048\nattention: unfused\n"
ALIKE = ("--world", "16", "--try", "pp=1,2", "--try", "tp=8")
A100 = "NVIDIAA100-SXM4-80GB"


class Level:
    """A fit that is always the sum alone."""

    def __init__(self, points: Floats, values: Floats) -> None:
        pass

    def at(self, points: Floats) -> Floats:
        return np.zeros(len(points))


def samples_of(folder: Path, gpu: str) -> None:
    """Linears, norms and what is between a linear and its attention, on `gpu`, from a grid that has the shapes of a
    model as wide as those that were measured."""
    for path in (folder / "ops").iterdir():
        path.unlink()
    grid = [(mp, b, length, dim) for mp in (1, 8) for b in (1, 4) for length in (256, 2048) for dim in (512, 8192)]
    rows = [(*row, 1 + row[1] * row[2] * row[3] / row[0] / 1e5) for row in grid]
    titles = "mp,b,l,dim,F_dur(us),B_dur(us)"
    for operator in ("linear1", "linear2", "linear3", "linear4", "linear_final", "embedding", "gelu"):
        write_rows(folder / named(gpu, operator), titles, [(*row, row[-1]) for row in rows])
    for operator in ("layernorm", "res_add"):
        write_rows(
            folder / named(gpu, operator),
            "b,l,dim,F_dur(us),B_dur(us)",
            [(*row[1:], row[-1]) for row in rows if row[0] == 1],
        )
    heads = [(mp, b, h, length, 128 * h) for mp in (1, 8) for b in (1, 4) for h in (8, 256) for length in (256, 2048)]
    for operator in ("baddbmm", "bmm"):
        square = [(*row, row[1] * row[2] * row[3] ** 2 / row[0] / 1e5) for row in heads]
        square += [(*row[:4], row[4] // 2, row[-1]) for row in square]
        write_rows(
            folder / named(gpu, operator),
            "mp,b,h,l,dim,F_dur(us),B_dur(us)",
            [(*row, row[-1]) for row in square],
        )
    square = [(*row[:4], row[1] * row[2] * row[3] ** 2 / row[0] / 1e5) for row in heads]
    write_rows(
        folder / named(gpu, "ScaledUpperTriangMaskedSoftmax"),
        "mp,b,h,l,F_dur(us),B_dur(us)",
        [(*row, row[-1]) for row in square],
    )
    losses = [(*row[:3], row[-1], row[-1]) for row in rows if row[3] == 512]
    write_rows(folder / named(gpu, "parallel_cross_entropy_128"), "mp,b,l,F_dur(us),B_dur(us)", losses)
    for stage in ("first", "middle", "last"):
        steps = [
            (mp, dim, layers, dim**2 * layers / mp / 1e3) for mp in (1, 8) for dim in (512, 8192) for layers in (2, 96)
        ]
        write_rows(folder / named(gpu, f"{stage}Stage_optimizer"), "mp,dim,encoders,dur(us)", steps)


def named(gpu: str, operator: str) -> str:
    return f"ops/{gpu}_{operator}_fp16_1_1.csv" if gpu else f"ops/{operator}_fp16.csv"


def write_rows(path: Path, titles: str, rows: Sequence[Sequence[float]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles.split(","))
        writer.writerows(rows)


def of_those_measured(
    folder: Path, text: str, *more: str, how: tuple[str, ...] = ("--recompute", "full"), gpu: str = A100
) -> Result:
    """A model on 16 ranks, in two stages, or with two replicas of one."""
    samples_of(folder, gpu)
    (folder / "model.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(regressor, "Forest", Level)
        return _sweep_of_those_measured(folder, more, how)


def _sweep_of_those_measured(folder: Path, more: tuple[str, ...], how: tuple[str, ...]) -> Result:
    given = ["--how", "predict", "--mesh", "pp,dp,tp", "--ops", folder / "ops", "--cluster", folder / "cluster.yaml"]
    job = ["--", str(folder / "model.yaml"), "--batch", "8", *how]
    words = [*map(str, given), *ALIKE, *more, *job]
    return CliRunner().invoke(sweep_command, words, catch_exceptions=False, standalone_mode=False)


def intervals(ran: Result) -> list[object]:
    return [each["interval_ns"] for each in json.loads(ran.stdout)["results"] if each["state"] == "done"]


def test_a_prediction_of_a_kind_that_was_measured_has_the_error_of_those(folder: Path) -> None:
    """A second replica is of no such kind."""
    said = of_those_measured(folder, MEASURED).output
    assert f"the interval of a predicted time is {PREDICTION_ERROR:.1%}" in said
    assert "a predicted time has an interval only where such iterations were measured" in said
    values = json.loads(of_those_measured(folder, MEASURED, "--json").stdout)
    by_name = {each["name"]: each for each in values["results"]}
    one = by_name["pp=2,tp=8"]
    assert one["interval_ns"] == pytest.approx([one["middle_ns"] * (1 + PREDICTION_ERROR * side) for side in (-1, 1)])
    assert by_name["pp=1,tp=8"]["interval_ns"] is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("hidden: 6144", "hidden: 4096"),
        ("hidden: 6144", "hidden: 25664\nffn: 64"),
        ("unfused", "flash"),
        ("kind: gpt", "kind: llama"),
        ("heads: 64", "heads: 64\nkv_heads: 8"),
        ("heads: 64", "heads: 64\nffn: 16384"),
        ("heads: 64", "heads: 64\nrope: true"),
        ("sequence: 2048", "sequence: 1024"),
        ("vocabulary: 51200", "vocabulary: 128256"),
        ("heads: 64", "heads: 1024"),
    ],
)
def test_a_model_of_another_form_has_no_interval(folder: Path, old: str, new: str) -> None:
    assert not any(intervals(of_those_measured(folder, MEASURED.replace(old, new), "--json")))


def test_a_wider_model_has_an_interval_only_with_the_sampled_vocabulary(folder: Path) -> None:
    wider = MEASURED.replace("hidden: 6144", "hidden: 12288").replace("heads: 64", "heads: 128")
    assert any(intervals(of_those_measured(folder, wider, "--json")))
    other = wider.replace("vocabulary: 51200", "vocabulary: 256000")
    assert not any(intervals(of_those_measured(folder, other, "--json")))


def test_samples_of_another_gpu_or_of_none_give_no_interval(folder: Path) -> None:
    assert any(intervals(of_those_measured(folder, MEASURED, "--json")))
    for gpu in ("NVIDIAH200", ""):
        assert not any(intervals(of_those_measured(folder, MEASURED, "--json", gpu=gpu)))


@pytest.mark.parametrize(
    "how",
    [("--recompute", "none"), ("--recompute", "selective"), ("--recompute", "full", "--sequence-parallel")],
)
def test_recomputation_that_was_not_measured_has_no_interval(folder: Path, how: tuple[str, ...]) -> None:
    """Full recomputation was measured without sequence parallelism, selective with it."""
    assert not any(intervals(of_those_measured(folder, MEASURED, "--json", how=how)))


@pytest.mark.parametrize(
    ("more", "columns"),
    [("", ""), ("experts: 4\n", ""), ("", "items,width,tensors,whole_us\n")],
    ids=["a small model", "experts", "a program's operators"],
)
def test_predictions_of_a_kind_that_was_not_measured_have_no_interval_and_no_winner(
    folder: Path, more: str, columns: str
) -> None:
    if more:
        (folder / "model.yaml").write_text(MODEL.replace("llama", "moe") + more)
    if columns:
        for path in (folder / "ops").iterdir():
            path.unlink()
        sizes = [f"{2**n},{2 ** (n // 2)},2,{2 ** (n - 10)}" for n in range(10, 20)]
        (folder / "ops" / "add.csv").write_text(columns + "\n".join(sizes) + "\n")
        (folder / "ops" / "addmm.csv").write_text(
            "m,n,k,batch,whole_us\n" + "".join(f"{2**n},64,64,1,{2**n}\n" for n in range(4, 10))
        )
    values = json.loads(sweep(folder, "--json").stdout)
    done = [each for each in values["results"] if each["state"] == "done" and each["fits"]]
    assert len(values["fastest"]) == len(done) > 1
    assert {each["interval_ns"] for each in done} == {None}
    said = sweep(folder).output
    assert "the error of the predicted times is unknown" in said and "has an interval only where" in said


def test_a_sweep_of_predictions_needs_samples(folder: Path) -> None:
    with pytest.raises(UsageError, match="need --ops and --cluster"):
        sweep(folder, ops=False)


@pytest.mark.parametrize("kind", ["none", "selective", "full"])
def test_every_kind_of_recomputation_can_be_written_as_its_help_says(folder: Path, kind: str) -> None:
    assert run(folder, "--mesh", "pp=2,dp=2", "--batch", "8", "--recompute", kind).exit_code == 0


@pytest.mark.parametrize(
    ("words", "tried", "named"),
    [
        (("--zero", "{z}"), "z=0,7", "7 is not in the range"),
        (("--microbtch", "1"), "", "--microbtch"),
        (("--zero", "1"), "", "model.yaml"),
    ],
)
def test_what_is_wrong_with_the_command_is_one_error_and_nothing_is_predicted(
    folder: Path, words: tuple[str, ...], tried: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named == "model.yaml":
        (folder / "model.yaml").unlink()
    monkeypatch.setattr(Predictor, "predict", lambda *_: pytest.fail("it predicts"))
    with pytest.raises(UsageError, match=named):
        sweep(folder, *(["--try", tried] if tried else []), words=words)


def test_the_error_of_a_prediction_is_the_one_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "prediction.md").read_text()
    (row,) = [line for line in text.splitlines() if line.startswith("| time, largest error |")]
    assert f"{PREDICTION_ERROR:.1%}" == f"{float(row.split('|')[3].strip().removesuffix('%')) / 100:.1%}"


@pytest.mark.parametrize(("layers", "code"), [(4, 0), (3, 1)])
def test_where_nothing_has_a_time_the_exit_code_says_so(folder: Path, layers: int, code: int) -> None:
    (folder / "model.yaml").write_text(MODEL.replace("layers: 4", f"layers: {layers}"))
    given = ["--how", "predict", "--world", "8", "--mesh", "pp,dp", "--try", "pp=2,4", "--ops", folder / "ops"]
    given += ["--cluster", folder / "cluster.yaml", "--", folder / "model.yaml", "--batch", "8"]
    done = CliRunner().invoke(sweep_command, [*map(str, given)], catch_exceptions=False, standalone_mode=False)
    assert done.return_value == code
    assert ("no configuration has a time" in done.output) is bool(code)
