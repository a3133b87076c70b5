"""Time and memory of a training step from a description: samples are of a fake machine, 100 TFLOP/s and 1 TB/s."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prismdbg.errors import UsageError
from prismdbg.predict.fit.operator_times import Doubts, OperatorTimes
from prismdbg.predict.job.modelled_job import ModelledJob, modelled_job, recomputed_share
from prismdbg.predict.model import model_file
from prismdbg.predict.model.layer import Layer
from prismdbg.predict.model.memory import layer_parameters, stage_memory
from prismdbg.predict.model.model import Attention, Model
from prismdbg.predict.model.training import Recompute, Training
from prismdbg.predict.operators.work import Work
from prismdbg.predict.samples.samples import Phase, Samples
from prismdbg.simulate.cluster.cluster import ClusterModel, Tier, ideal
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.entries import PROVENANCES, Kind, Provenance
from prismdbg.simulate.graph.mesh import Mesh

GPT = """
kind: gpt
layers: 48
hidden: 6144
heads: 64
vocabulary: 51200
sequence: 2048
attention: unfused
"""
GIB = 1 << 30


class Known(OperatorTimes):
    """A fake: every operator takes what its work says."""

    def __init__(self) -> None:
        pass_only = Samples(
            operator="res_add",
            columns={name: np.ones(1) for name in ("b", "l", "dim")},
            times_ns={Phase.FORWARD: np.ones(1)},
        )
        super().__init__({"res_add": pass_only})

    def _estimate(self, work: Work, phase: Phase) -> tuple[float, Doubts]:
        once = max(work.flops[0] / 1e5, work.moved_bytes[0] / 1e3)
        return once * (2 if phase is Phase.BACKWARD else 1), Doubts()

    def is_sampled(self, work: Work, phase: Phase) -> bool:
        return work.family != "dropout"


def training(mesh: str, batch: int, **more: object) -> Training:
    return Training(mesh=Mesh.parse(mesh), batch=batch, **more)  # type: ignore[arg-type]


def predicted(text: str, how: Training) -> ModelledJob:
    return modelled_job(model_file.parse(text), how, Known())


def computed_ns(job: ModelledJob, stage: int = 0) -> int:
    entries = job.graph.classes[stage].entries
    return int(entries.duration_ns[entries.kind == Kind.COMPUTE].sum())


@pytest.mark.parametrize(
    ("recompute", "is_sequence_parallel", "per_token"),
    [
        (Recompute.NONE, False, 10 + 24 / 8 + 5 * 64 * 2048 / (6144 * 8)),
        (Recompute.NONE, True, 34 / 8 + 5 * 64 * 2048 / (6144 * 8)),
        (Recompute.SELECTIVE, True, 34 / 8),
        (Recompute.FULL, False, 2),
        (Recompute.FULL, True, 2 / 8),
    ],
)
def test_activations_are_those_of_the_paper(recompute: Recompute, is_sequence_parallel: bool, per_token: float) -> None:
    """Korthikanti et al., arXiv 2205.05198, table 2."""
    how = training("tp=8", 4, microbatch=4, recompute=recompute, is_sequence_parallel=is_sequence_parallel)
    held = stage_memory(model_file.parse(GPT), how, 0)
    assert held.layer_activation_bytes == pytest.approx(2048 * 4 * 6144 * per_token, rel=1e-6)


def test_the_peak_is_what_the_first_stage_holds_of_its_microbatches() -> None:
    """1F1B: as many microbatches as stages, and the fixed part."""
    job = predicted(GPT, training("pp=4,tp=8", 16))
    held = job.memory[0]
    assert job.graph.peak_bytes[0] == held.fixed_bytes + 4 * 12 * held.layer_activation_bytes + held.workspace_bytes
    assert job.graph.peak_bytes[-1] < job.graph.peak_bytes[0]


def test_the_workspace_is_the_gradients_of_what_has_most() -> None:
    tokens, flash = 2048 * 4, GPT.replace("unfused", "flash")
    how = training("pp=2,tp=8", 8, microbatch=4)
    held = {
        text: [stage_memory(model_file.parse(text), how, stage).workspace_bytes for stage in (0, 1)]
        for text in (GPT, flash)
    }
    assert held[GPT][0] == 2 * 2 * 4 * (64 // 8) * 2048**2, "the softmax and what it is of"
    assert held[flash][0] == 2 * tokens * (4 * 6144 // 8 + 6144), "the linear that widens"
    assert held[flash][1] == (4 + 2) * tokens * 51200 // 8, "the scores of the vocabulary, in 32 bits and in 16"
    job = predicted(flash, how)
    assert [each.workspace_bytes for each in job.memory] == held[flash]


class KnownOfProgram(Known):
    value_bytes = 4


def test_values_of_a_program_have_32_bits() -> None:
    """Messages and activations are twice as large; weights need no copy, and the step passes over nothing else."""
    how = training("pp=2,tp=8", 8, recompute=Recompute.FULL)
    half, whole = (modelled_job(model_file.parse(GPT), how, times()) for times in (Known, KnownOfProgram))
    assert sum(communicated(whole, "all_reduce", "tp")) == 2 * sum(communicated(half, "all_reduce", "tp"))
    assert whole.memory[0].layer_activation_bytes == 2 * half.memory[0].layer_activation_bytes
    assert whole.memory[0].weight_bytes == 2 * half.memory[0].weight_bytes
    assert whole.memory[0].optimizer_bytes == 8 * whole.memory[0].parameters
    last = [int(job.graph.classes[0].entries.duration_ns[-1]) for job in (whole, half)]
    assert last[1] - last[0] == pytest.approx(half.memory[0].parameters * (4 + 4 + 2 + 4) / 1e3, rel=1e-3)


def test_ranks_with_a_part_of_the_vocabulary_exchange_what_they_looked_up_and_the_loss() -> None:
    def counts(stage: int, how: Training) -> dict[tuple[str, int], int]:
        entries = predicted(GPT, how).graph.classes[stage].entries
        of_tp = [
            row
            for row in np.flatnonzero(entries.kind == Kind.COLLECTIVE)
            if entries.channels[entries.channel[row]] == "tp"
        ]
        found: dict[tuple[str, int], int] = {}
        for row in of_tp:
            key = (entries.texts[entries.op[row]], int(entries.size_bytes[row]))
            found[key] = found.get(key, 0) + 1
        return found

    hidden, layers, microbatches = 2 * 2048 * 6144, 48 // 3, 4
    plain = training("pp=3,tp=8", microbatches)
    each = microbatches * layers * 4  # two halves, both ways
    assert counts(1, plain)["all_reduce", hidden] == each
    assert counts(0, plain)["all_reduce", hidden] == each + microbatches
    assert counts(2, plain)["all_reduce", hidden] == each + microbatches
    assert counts(2, plain)["all_reduce", 4 * 2048] == 3 * microbatches
    parts = replace(plain, is_sequence_parallel=True)
    first, middle = (counts(stage, parts) for stage in (0, 1))
    for op in ("reduce_scatter", "all_gather"):
        assert first[op, hidden] == middle[op, hidden] + microbatches


def test_weights_gradients_and_optimizer_are_divided_as_asked() -> None:
    model = model_file.parse(GPT)
    plain, first, second = (stage_memory(model, training("dp=4,tp=8", 4, zero=zero), 0) for zero in (0, 1, 2))
    assert plain.optimizer_bytes == 12 * plain.parameters and plain.gradient_bytes == 4 * plain.parameters
    assert first.optimizer_bytes == pytest.approx(plain.optimizer_bytes / 4, rel=1e-6)
    assert first.gradient_bytes == plain.gradient_bytes
    assert second.gradient_bytes == pytest.approx(plain.gradient_bytes / 4, rel=1e-6)
    assert plain.parameters == pytest.approx(model.parameters / 8, rel=1e-6)


@pytest.mark.parametrize(
    ("zero", "bytes_each"), [(0, 4 + 4 + 2 + 4), (1, (4 + 4 + 2) / 4 + 4), (2, 14 / 4), (3, 14 / 4)]
)
def test_a_rank_passes_over_the_gradients_that_it_keeps(zero: int, bytes_each: float) -> None:
    """Read for the norm, weights read and written, and gradients set to zero."""
    how = training("dp=4", 4, zero=zero)
    *_, passes = Layer(model=model_file.parse(GPT), training=how).step(0, 1e9, 1e9 / 4 if zero else 1e9)
    assert passes.work.family == "gradient_passes"
    assert passes.work.moved_bytes[0] == pytest.approx(bytes_each * 1e9)


def test_bias_dropout_and_residual_are_one_kernel() -> None:
    """Megatron's fused_bias_dropout_add: two tensors are read, one and a mask are written. The backward pass of dropout
    and the addition of the residual's gradient are two."""
    attention, mlp = Layer(model=model_file.parse(GPT), training=training("tp=8", 4)).halves()
    for half in (attention, mlp):
        (fused,) = (operator.work for operator in half.after)
        assert fused.moved_bytes[0] == 3.5 * 2 * 2048 * 6144
        assert fused.backward().moved_bytes[0] == 5.5 * 2 * 2048 * 6144


def test_a_lookup_reads_its_tokens_and_its_gradient_is_as_large_as_the_table() -> None:
    looked_up = Layer(model=model_file.parse(GPT), training=training("tp=8", 4)).first()[0].work
    assert looked_up.moved_bytes[0] == 2 * 2 * 2048 * 6144
    assert looked_up.backward().moved_bytes[0] == 2 * 6144 * (2 * 2048 + 51200 / 8)


LLAMA = GPT.replace("gpt", "llama").replace("layers: 48", "layers: 8")


def communicated(job: ModelledJob, op: str, channel: str) -> list[int]:
    """Bytes of each."""
    entries = job.graph.classes[0].entries
    return [
        int(entries.size_bytes[row])
        for row in np.flatnonzero(entries.kind == Kind.COLLECTIVE)
        if (entries.texts[entries.op[row]], entries.channels[entries.channel[row]]) == (op, channel)
    ]


def test_sharded_weights_are_gathered_twice_and_gradients_reduced_once_a_microbatch() -> None:
    """ZeRO 3: Rajbhandari et al., arXiv 1910.02054, section 7.2.2: one and a half times what ZeRO 1 sends."""
    shared, sharded = (predicted(LLAMA, training("dp=4", 8, zero=zero)) for zero in (1, 3))
    count, units = shared.memory[0].parameters, 8 + 2  # layers, embedding, output
    gathered, reduced = (communicated(sharded, op, "dp") for op in ("all_gather", "reduce_scatter"))
    assert (len(gathered), sum(gathered)) == (2 * 2 * units, 2 * 2 * 2 * count)  # microbatches, passes, bytes
    assert (len(reduced), sum(reduced)) == (2 * units, 2 * 4 * count)
    assert [communicated(shared, op, "dp") for op in ("all_gather", "reduce_scatter")] == [[2 * count], [4 * count]]


def test_divided_gradients_are_reduced_once_a_microbatch_and_each_unit_has_its_own_until_then() -> None:
    """ZeRO 2: what a rank does not keep cannot wait for the last backward pass."""
    shared, divided = (predicted(LLAMA, training("dp=4", 8, zero=zero)) for zero in (1, 2))
    held, units = divided.memory[0], 8 + 2  # layers, embedding, output
    reduced = communicated(divided, "reduce_scatter", "dp")
    assert (len(reduced), sum(reduced)) == (2 * units, 2 * 4 * held.parameters)
    assert communicated(divided, "all_gather", "dp") == communicated(shared, "all_gather", "dp")
    kept = 8 * held.layer_activation_bytes + held.workspace_bytes
    layer = layer_parameters(model_file.parse(LLAMA), training("dp=4", 8)).dense
    assert divided.graph.peak_bytes[0] - held.fixed_bytes - kept == 2 * 4 * layer, "one is reduced, one is computed"


def test_stages_that_divide_gradients_exchange_their_part_of_a_shared_tables() -> None:
    """Of the table that the first stage and the last have in common."""
    for zero, parts in ((1, 1), (2, 4), (3, 4)):
        job = predicted(LLAMA + "tied: true\n", training("pp=2,dp=4", 8, zero=zero))
        assert communicated(job, "all_reduce", "pp[0,1]") == [4 * 51200 * 6144 // parts]


def test_sharded_weights_take_the_memory_of_their_shards_and_of_two_layers() -> None:
    how = training("dp=8", 8, zero=3)
    job, layer = predicted(LLAMA, how), layer_parameters(model_file.parse(LLAMA), how).dense
    held = job.memory[0]
    assert held.fixed_bytes == (2 + 4 + 12) * held.parameters / 8
    tables = 2 * 2 * 51200 * 6144  # in the last pass, of the embedding as of the output
    kept = 8 * held.layer_activation_bytes + held.head_bytes + held.workspace_bytes
    over = job.graph.peak_bytes[0] - held.fixed_bytes - kept
    assert 2 * 2 * layer < over <= 2 * (2 + 4) * max(layer, tables // 4)


@pytest.mark.parametrize("mesh", ["dp=4", "pp=2,dp=2,tp=2", "dp=2,ep=4"])
def test_sharded_weights_that_come_in_time_take_no_time(mesh: str) -> None:
    """Links that take none; and what is gathered is freed again."""
    text = LLAMA.replace("kind: llama", "kind: moe\nexperts: 8") if "ep" in mesh else LLAMA
    plain, sharded = (predicted(text, training(mesh, 16, zero=zero)) for zero in (2, 3))
    times = [simulate(job.graph, ideal()).iteration_ns for job in (plain, sharded)]
    assert times[0] == times[1]
    entries = sharded.graph.classes[0].entries
    assert int(entries.size_bytes[entries.kind == Kind.MEMORY].sum()) == sharded.memory[0].fixed_bytes


def test_sharded_weights_take_the_time_of_what_is_not_hidden() -> None:
    """A ring of four passes on three quarters of all bytes. A fast link shows what nothing is computed beside: the
    first gathers of both passes and the last gradient, and what is longer than the embedding beside it."""
    job = predicted(LLAMA, training("dp=4", 4, zero=3))
    passed = 0.75 * sum(sum(communicated(job, op, "dp")) for op in ("all_gather", "reduce_scatter"))
    table, layer = 51200 * 6144, layer_parameters(model_file.parse(LLAMA), training("dp=4", 4)).dense

    def shown(rate: int) -> float:
        """In bytes."""
        link = ClusterModel(tiers=(Tier(name="link", spans=0, latency_ns=0, rate=rate),))
        return (simulate(job.graph, link).iteration_ns - computed_ns(job)) / 1e9 * rate

    assert shown(10**8) == pytest.approx(passed, rel=0.1)
    assert 0.75 * (2 + 2 + 4) * table < shown(10**12) < 0.75 * ((2 + 2 + 4) * table + (2 + 4) * layer) < passed / 4


def test_a_shared_table_is_gathered_for_both_ends_and_its_gradient_reduced_once() -> None:
    tied = predicted(LLAMA + "tied: true\n", training("dp=4", 4, zero=3))
    table = 51200 * 6144
    assert [size for size in communicated(tied, "all_gather", "dp") if size == 2 * table] == [2 * table] * 4
    assert communicated(tied, "reduce_scatter", "dp").count(4 * table) == 1


def test_full_recomputation_is_one_more_forward_pass() -> None:
    times = {how: computed_ns(predicted(GPT, training("tp=8", 4, recompute=how))) for how in Recompute}
    assert times[Recompute.FULL] / times[Recompute.NONE] == pytest.approx(4 / 3, rel=0.02)
    assert times[Recompute.NONE] < times[Recompute.SELECTIVE] < times[Recompute.FULL]


def test_what_is_recomputed_is_the_forward_pass_of_the_layers_again() -> None:
    none, selective, full = (
        recomputed_share(predicted(GPT, training("pp=2,tp=4", 8, recompute=how)).graph) for how in Recompute
    )
    assert none == 0
    assert full == pytest.approx(1 / 4, rel=0.04), "less the step of the optimizer"
    assert 0 < selective < full


@pytest.mark.parametrize("mesh", ["dp=1", "tp=8"])
@pytest.mark.parametrize("how", [Recompute.SELECTIVE, Recompute.FULL])
def test_what_is_recomputed_is_what_it_takes_more(mesh: str, how: Recompute) -> None:
    none, more = (predicted(GPT, training(mesh, 4, recompute=each)) for each in (Recompute.NONE, how))
    assert recomputed_share(more.graph) == pytest.approx(1 - computed_ns(none) / computed_ns(more), rel=1e-6)


def test_tensor_parallelism_divides_the_linears() -> None:
    whole, eighth = (computed_ns(predicted(GPT, training(mesh, 4))) for mesh in ("dp=1", "tp=8"))
    assert 6 < whole / eighth < 8


def test_interleaving_makes_the_iteration_shorter_and_the_memory_larger() -> None:
    plain = predicted(GPT, training("pp=4", 8))
    interleaved = predicted(GPT, training("pp=4", 8, interleave=2))
    times = [simulate(job.graph, ideal()).iteration_ns for job in (plain, interleaved)]
    assert times[1] < times[0]
    assert interleaved.graph.peak_bytes[0] > plain.graph.peak_bytes[0]


@pytest.mark.parametrize("kind", ["gpt", "llama"])
@pytest.mark.parametrize("attention", ["flash", "unfused"])
def test_every_mesh_makes_a_graph_that_simulates(kind: str, attention: str, tmp_path: Path) -> None:
    text = GPT.replace("gpt", kind).replace("unfused", attention).replace("layers: 48", "layers: 8")
    how = training("pp=2,dp=2,tp=2", 16, is_sequence_parallel=True, interleave=2, zero=1)
    job = predicted(text, how)
    graph_file.save(job.graph, tmp_path / "graph.npz")
    assert simulate(graph_file.load(tmp_path / "graph.npz"), ideal()).iteration_ns > 0


def test_experts_exchange_tokens_and_are_divided() -> None:
    text = GPT.replace("kind: gpt", "kind: moe\nexperts: 8").replace("layers: 48", "layers: 4")
    job = predicted(text, training("dp=2,ep=4", 8))
    entries = job.graph.classes[0].entries
    exchanges = [entries.texts[op] for op in entries.op[entries.kind == Kind.COLLECTIVE]].count("all_to_all")
    assert exchanges == 4 * 4  # two each way in each layer
    reduced = {entries.channels[entries.channel[row]] for row in np.flatnonzero(entries.kind == Kind.COLLECTIVE)}
    assert reduced == {"ep", "dp,ep", "dp", "world"}
    assert simulate(job.graph, ideal()).iteration_ns > 0
    dense, divided = (stage_memory(model_file.parse(text), training(mesh, 8), 0) for mesh in ("dp=8", "dp=2,ep=4"))
    assert divided.parameters < dense.parameters / 3


EXPERTS = LLAMA.replace("kind: llama", "kind: moe\nexperts: 8")


def test_each_rank_of_tp_exchanges_its_part_of_the_sequence() -> None:
    """Megatron-Core's MoEAlltoAllTokenDispatcher: all-to-all over ep, then all-gather over tp."""
    model = model_file.parse(EXPERTS)
    whole, part = (
        Layer(model=model, training=training(mesh, 8, is_sequence_parallel=True)).halves()[1]
        for mesh in ("ep=4", "ep=4,tp=4")
    )
    assert whole.exchanged_bytes == 2 * 2 * 2048 * 6144 == 4 * part.exchanged_bytes


def test_tokens_go_to_their_experts_before_they_are_gathered() -> None:
    entries = predicted(EXPERTS, training("ep=4,tp=4", 8, is_sequence_parallel=True)).graph.classes[0].entries
    done = [
        (entries.texts[entries.op[row]], int(entries.size_bytes[row]))
        for row in np.flatnonzero(entries.kind == Kind.COLLECTIVE)
    ]
    at = done.index(("all_to_all", 2 * 2 * 2048 * 6144 // 4))
    hidden = 2 * 2048 * 6144
    assert done[at + 1] == ("all_gather", 2 * hidden), "of each token two copies"
    assert done[at + 2 : at + 4] == [("reduce_scatter", 2 * hidden), done[at]]


def test_experts_keep_a_copy_of_a_token_for_each_of_them_and_what_they_make_of_it() -> None:
    one_expert, two = (
        stage_memory(model_file.parse(f"{EXPERTS}experts_per_token: {count}\n"), training("ep=4", 8), 0)
        for count in (1, 2)
    )
    size = 2048 * 6144
    inner = 4 * 3 * 2  # a gated MLP four times as wide, in 16 bits
    assert two.layer_activation_bytes - one_expert.layer_activation_bytes == size * (inner + 2 * 2)


MOE = LLAMA.replace("kind: llama", "kind: moe\nexperts: 16").replace("51200", "1024")


def step_ns(job: ModelledJob) -> int:
    """The optimizer's share of an iteration: what is computed after the last backward pass."""
    entries = job.graph.classes[0].entries
    labels = np.array(entries.texts)[entries.label]
    return int(entries.duration_ns[(entries.kind == Kind.COMPUTE) & (labels == "step")].sum())


@pytest.mark.parametrize(("mesh", "replicas"), [("ep=4", 1), ("dp=2,ep=4", 2)])
def test_the_optimizer_updates_experts_that_only_the_ranks_of_dp_divide(mesh: str, replicas: int) -> None:
    plain, divided = (predicted(MOE, training(mesh, 8, zero=zero)) for zero in (0, 2))
    held = plain.memory[0]
    own = (held.parameters - held.expert_parameters) / (4 * replicas) + held.expert_parameters / replicas
    assert step_ns(divided) / step_ns(plain) == pytest.approx(own / held.parameters, rel=1e-3)


@pytest.mark.parametrize("zero", [2, 3])
def test_experts_that_nobody_else_has_are_there_once(zero: int) -> None:
    """Along dp=1 they are neither gathered nor reduced: of two layers at a time, only the rest is there again."""
    how = training("ep=4", 4, zero=zero)
    job, layer = predicted(MOE, how), layer_parameters(model_file.parse(MOE), how)
    held = job.memory[0]
    kept = 8 * held.layer_activation_bytes + held.head_bytes + held.workspace_bytes
    over = job.graph.peak_bytes[0] - held.fixed_bytes - kept
    assert 0 < over <= 2 * (2 + 4) * layer.dense < 2 * layer.experts


SMALL = GPT.replace("hidden: 6144", "hidden: 1024").replace("heads: 64", "heads: 16")


def test_launches_are_doubted_where_operators_are_short() -> None:
    """No sample contains them: those that are published are times of kernels."""
    short, long = (predicted(text, training("tp=8", 4)) for text in (SMALL, GPT.replace("6144", "12288")))
    (said,) = [doubt for doubt in short.graph.origin.doubts if "launch" in doubt]
    share = f"{short.doubts.short_share:.0%} of the computation is in operators below 50 µs"
    assert said == f"launch times, which are not included: {share}"
    assert short.doubts.short_share > 0.5 > 0.1 > long.doubts.short_share
    assert not [doubt for doubt in long.graph.origin.doubts if "launch" in doubt]


def test_a_programs_operators_were_timed_with_their_calls() -> None:
    times = KnownOfProgram()
    times.is_of_program = True
    assert not [
        doubt
        for doubt in modelled_job(model_file.parse(SMALL), training("tp=8", 4), times).graph.origin.doubts
        if "launch" in doubt
    ]


def test_what_was_not_sampled_is_assumed() -> None:
    entries = predicted(GPT, training("tp=8", 4)).graph.classes[0].entries
    found = {PROVENANCES[p] for p in entries.provenance[entries.kind == Kind.COMPUTE].tolist()}
    assert found == {Provenance.MODELLED, Provenance.ASSUMED}


@pytest.mark.parametrize(
    ("mesh", "batch", "more", "said"),
    [
        ("pp=5", 10, {}, "48 layers cannot be divided among 5"),
        ("dp=3", 10, {}, "a batch of 10 cannot be divided among 3"),
        ("tp=3", 4, {}, "64 heads cannot be divided among 3"),
        ("cp=2", 4, {}, "no axis 'cp'"),
        ("ep=2", 4, {}, "no experts"),
        ("pp=4", 6, {"interleave": 2}, r"a multiple of 4 microbatches \(the size of pp\), not 6"),
        ("dp=2", 6, {"interleave": 2}, "more than one pipeline stage"),
        ("tp=8", 4, {"zero": 1}, "more than one data-parallel rank"),
    ],
)
def test_an_impossible_job_is_refused_by_name(mesh: str, batch: int, more: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        predicted(GPT, training(mesh, batch, **more))


def test_heads_of_keys_and_values_that_cannot_be_divided_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="8 heads of keys and values cannot be divided among 16 ranks of tp"):
        predicted(LLAMA + "kv_heads: 8\n", training("tp=16", 4))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("kind: bert", "line 2: kind: 'bert' is not one of its values"),
        ("heads: 7", "7 heads do not divide"),
        ("kv_heads: 5", "5 do not divide 64 heads"),
        ("experts: 4", "a gpt has no experts"),
        ("tied: perhaps", "neither true nor false"),
        ("layers: 0", "not a whole number from 1"),
        ("layers: 99999999999", "more than"),
        ("depth: 3", "is not a key"),
    ],
)
def test_a_wrong_description_is_an_error_with_its_line(line: str, said: str) -> None:
    name = line.partition(":")[0]
    kept = [each for each in GPT.strip().splitlines() if not each.startswith(f"{name}:")]
    with pytest.raises(UsageError, match=said):
        model_file.parse("\n".join(["", line, *kept]))


def test_the_kinds_differ_as_said() -> None:
    gpt = model_file.parse(GPT)
    llama = model_file.parse(GPT.replace("gpt", "llama").replace("attention: unfused", "kv_heads: 8"))
    assert isinstance(gpt, Model) and gpt.has_dropout and gpt.is_tied and not gpt.is_gated
    assert llama.is_gated and llama.has_rope and llama.attention is Attention.FLASH and not llama.is_tied
    assert llama.qkv == 6144 + 2 * 8 * 96
    assert replace(gpt, is_tied=False).parameters - gpt.parameters == 51200 * 6144
