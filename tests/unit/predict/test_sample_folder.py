"""OPS: times of operators as CSV files, ours and those that were published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.predict.samples.sample_folder import read_folder, write_file
from prismdbg.predict.samples.samples import Phase

PUBLISHED = "mp,b,l,dim,F_dur(us),B_dur(us)\n1.0,2.0,1024.0,512.0,10.5,21.0\n2.0,2.0,1024.0,512.0,6.0,11.0\n"


def test_a_published_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "linear1_fp16.csv").write_text(PUBLISHED)
    (tmp_path / "published_errors.csv").write_text("Function,Best_error%\nlinear1,0.05\n")
    found = read_folder(tmp_path)
    assert list(found) == ["linear1"]
    assert found["linear1"].times_ns[Phase.FORWARD].tolist() == [10_500, 6_000]
    assert found["linear1"].work.shape(1) == "linear k=512 m=2048 n=768"


A100, H200 = "NVIDIAA100-SXM4-80GB", "NVIDIAH200"


@pytest.mark.parametrize("name", ["linear1_bf16", f"{A100}_linear1_fp16", f"{A100}_linear1_bf16_8_1"])
def test_a_file_has_the_name_that_its_authors_give_it(tmp_path: Path, name: str) -> None:
    """{GPU}_{operator}_{precision}_{parts}_{part}.csv"""
    (tmp_path / f"{name}.csv").write_text(PUBLISHED)
    ((operator, samples),) = read_folder(tmp_path).items()
    assert (operator, samples.work.family, len(samples)) == ("linear1", "linear", 2)
    assert samples.gpu == (A100 if name.startswith(A100) else "")


def test_parts_of_one_operator_are_joined(tmp_path: Path) -> None:
    header, *rows = PUBLISHED.splitlines()
    for part, row in enumerate(rows):
        (tmp_path / f"{A100}_linear1_fp16_2_{part}.csv").write_text(f"{header}\n{row}\n")
    assert sorted(read_folder(tmp_path)["linear1"].times_ns[Phase.FORWARD]) == [6_000, 10_500]


def test_a_collective_has_a_gpus_name_too(tmp_path: Path) -> None:
    (tmp_path / f"{A100}_allreduce_large_fp16_1_2.csv").write_text("shape,nodes,GPUsPerNode,dur(us)\n64,1,2,5\n")
    assert read_folder(tmp_path)["allreduce_large"].gpu == A100


COLLECTIVE = "shape,nodes,GPUsPerNode,dur(us)\n64,1,2,5\n"


@pytest.mark.parametrize(
    ("name", "text", "operator"),
    [
        ("allreduce_fp32", COLLECTIVE, "allreduce"),
        ("allreduce_int8", COLLECTIVE, "allreduce"),
        ("allreduce_fp16", "GPU,shape,nodes,GPUsPerNode,dur(us)\nNVIDIA A100,64,1,2,5\n", "allreduce"),
        ("H100_all_reduce", COLLECTIVE, "all_reduce"),
    ],
)
def test_collectives_do_not_keep_operators_from_being_read(tmp_path: Path, name: str, text: str, operator: str) -> None:
    """Nobody asks for their times here: of which type they are is another reader's matter."""
    (tmp_path / "linear1_fp16.csv").write_text(PUBLISHED)
    (tmp_path / f"{name}.csv").write_text(text)
    found = read_folder(tmp_path)
    assert sorted(found) == [operator, "linear1"] and found[operator].is_collective
    assert list(found[operator].columns) == ["shape", "nodes", "GPUsPerNode"]


def test_an_unknown_collective_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "linear1_fp16.csv").write_text(PUBLISHED)
    (tmp_path / "broadcast_fp16.csv").write_text(COLLECTIVE)
    told: list[str] = []
    assert list(read_folder(tmp_path, told.append)) == ["linear1"]
    assert told == [f"{tmp_path / 'broadcast_fp16.csv'} is left out: unknown collective 'broadcast'"]


def test_what_precedes_the_name_of_a_collective_keeps_nothing_from_being_read(tmp_path: Path) -> None:
    """`calibrate --from` refuses two GPUs; here it may be the name of a cluster, and the times are not used."""
    (tmp_path / "A100_linear1_fp16.csv").write_text(PUBLISHED)
    for name in ("cluster1_allreduce.csv", "H100_all_gather_fp16.csv"):
        (tmp_path / name).write_text(COLLECTIVE)
    assert sorted(read_folder(tmp_path)) == ["all_gather", "allreduce", "linear1"]


def test_an_operator_of_a_program_keeps_its_name(tmp_path: Path) -> None:
    """It ends as one of the model's."""
    (tmp_path / "_log_softmax.csv").write_text("items,width,tensors,whole_us\n64,8,1,5\n")
    assert list(read_folder(tmp_path)) == ["_log_softmax"]


def test_an_unknown_operator_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "linear1_bf16.csv").write_text(PUBLISHED)
    (tmp_path / "moe_bf16.csv").write_text(
        "mp,b,l,dim,moe_num_experts,intermediate_size,top_k,F_dur(us),B_dur(us)\n1,2,1024,512,8,2048,2,1,2\n"
    )
    told: list[str] = []
    assert list(read_folder(tmp_path, told.append)) == ["linear1"]
    assert told == [f"{tmp_path / 'moe_bf16.csv'} is left out: unknown operator 'moe'"]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (
            "linear1_fp16",
            "linear1_bf16",
            "linear1_fp16.csv has times of fp16, but .*linear1_bf16.csv has times of bf16",
        ),
        (
            "linear1_bf16",
            "linear3_fp16",
            "linear3_fp16.csv has times of fp16, but .*linear1_bf16.csv has times of bf16",
        ),
        (f"{A100}_linear1_fp16", f"{H200}_linear3_fp16", f"of {H200}, .*of {A100}"),
    ],
)
def test_samples_of_two_precisions_or_gpus_are_refused(tmp_path: Path, one: str, other: str, said: str) -> None:
    for name in (one, other):
        (tmp_path / f"{name}.csv").write_text(PUBLISHED)
    with pytest.raises(UsageError, match=said):
        read_folder(tmp_path)


@pytest.mark.parametrize("precision", ["fp32", "fp8"])
def test_a_precision_whose_values_are_not_of_16_bits_is_refused(tmp_path: Path, precision: str) -> None:
    (tmp_path / f"{A100}_linear1_{precision}_1_1.csv").write_text(PUBLISHED)
    with pytest.raises(UsageError, match=f"linear1_{precision}_1_1.csv has times in {precision}"):
        read_folder(tmp_path)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "linear1_fp16.csv").write_text(PUBLISHED)
    samples = read_folder(tmp_path)["linear1"]
    again = tmp_path / "again"
    again.mkdir()
    write_file(again / "linear1.csv", samples)
    found = read_folder(again)["linear1"]
    assert list(found.columns) == list(samples.columns) and list(found.times_ns) == list(samples.times_ns)
    assert all(np.array_equal(found.columns[name], samples.columns[name]) for name in samples.columns)
    assert all(np.array_equal(found.times_ns[phase], samples.times_ns[phase]) for phase in samples.times_ns)


def test_files_of_one_operator_are_taken_together_and_equal_rows_once(tmp_path: Path) -> None:
    (tmp_path / "p2p_fp16_1_2.csv").write_text("shape,nodes,GPUsPerNode,dur(us)\n64,1,2,5\n")
    (tmp_path / "p2p_fp16_2_1.csv").write_text("nodes,shape,GPUsPerNode,dur(us)\n2,64,1,50\n1,64,2,5\n")
    found = read_folder(tmp_path)["p2p"]
    assert sorted(zip(found.columns["nodes"], found.times_ns[Phase.WHOLE], strict=True)) == [(1, 5_000), (2, 50_000)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("m,n,k,forward_us\n1,2,3\n", "line 2: 3 values for 4 columns"),
        ("m,n,k,forward_us\n1,2,3,4\n1,2,-3,4\n", "line 3: k is '-3'"),
        ("m,n,k,forward_us\n1,2,3,nan\n", "forward_us is 'nan'"),
        ("m,n,k,forward_us\n1,2,3,inf\n", "forward_us is 'inf'"),
        ("m,n,k,forward_us\n1,2,x,4\n", "k is 'x'"),
        ("m,m,k,forward_us\n1,2,3,4\n", "a column occurs twice"),
        ("m,n,k,forward_us\n", "contains no samples"),
        ("m,n,k,forward_us\n1,2,\xff\x00,4\n", "k is"),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "mm.csv").write_text(text, encoding="utf-8")
    with pytest.raises(CapsuleError, match=said):
        read_folder(tmp_path)


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "mm.csv").write_bytes(b"m,n,k,forward_us\n\xff\xfe,1,1,1\n")
    with pytest.raises(CapsuleError, match="cannot be read"):
        read_folder(tmp_path)


def test_a_column_that_an_operator_needs_is_named(tmp_path: Path) -> None:
    (tmp_path / "linear1.csv").write_text("mp,b,l,forward_us\n1,2,3,4\n")
    with pytest.raises(CapsuleError, match="operator linear1: column 'dim' is missing"):
        _ = read_folder(tmp_path)["linear1"].work


def test_a_folder_without_samples_is_a_usage_error(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "gone"):
        with pytest.raises(UsageError):
            read_folder(folder)
